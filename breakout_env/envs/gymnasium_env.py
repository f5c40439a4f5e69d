"""
Breakout as gymnasium's environments: ``breakout_env/Breakout-v0``, one or many, for libraries other than DI-engine.

Importing ``breakout_env`` registers the id; ``gymnasium.make('breakout_env:breakout_env/Breakout-v0')`` does both.
"""

from functools import partial
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..env_manager.manager import GroupEnvManager
from ..env_manager.worker_main import is_abnormal
from ..utils.options import section, shown
from .env import BreakoutEnv

ENV_ID = 'breakout_env/Breakout-v0'
# What a vector environment promises, so what its env manager is not asked to do otherwise.
_MANAGER_SETTINGS = dict(auto_reset=True, reset_inplace=False)


def register() -> None:
    """Register ``ENV_ID`` with gymnasium."""
    gymnasium.register(
        ENV_ID,
        entry_point=f'{__name__}:GymnasiumBreakout',
        vector_entry_point=f'{__name__}:GymnasiumBreakoutVector',
    )


def _spaces(env: BreakoutEnv) -> Tuple[gymnasium.spaces.Box, gymnasium.spaces.Discrete]:
    """The observation and action space as gymnasium's."""
    box: Any = env.observation_space
    return gymnasium.spaces.Box(box.low, box.high, box.shape, box.dtype), gymnasium.spaces.Discrete(env.action_space.n)


def _check_reset_options(options: Optional[Mapping]) -> None:
    if options:
        raise ValueError(f'the options of reset are {shown(options)}; expected none: give them to gymnasium.make')


class GymnasiumBreakout(gymnasium.Env):
    """
    Overview:
        ``BreakoutEnv`` with gymnasium's interface and spaces. The defaults are those of training: an episode is a \
        life, rewards are clipped to their sign; ``info['game_return']`` has the points of a full game when it is \
        over. ``is_train=False`` plays full games with raw rewards. ``render_mode='human'`` is gymnasium's own \
        ``HumanRendering``.
    Examples:
        >>> env = gymnasium.make('breakout_env:breakout_env/Breakout-v0', frame_skip=4)
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        >>> obs.shape, reward, terminated, truncated, info['lives']
        ((4, 84, 84), 0.0, False, False, 5)
        >>> env.close()
    """

    # Without 'human': `check_env` opens each of them, and many machines have no display.
    metadata = {'render_modes': ['rgb_array'], 'render_fps': 15}

    def __init__(self, render_mode: Optional[str] = None, **options: Any) -> None:
        """Options as in ``BreakoutOptions``; ``render_mode`` is None or ``rgb_array``, for ``render``."""
        self._env = BreakoutEnv(dict(options, render_mode=render_mode))
        self.render_mode = render_mode
        self.observation_space, self.action_space = _spaces(self._env)

    def reset(self, *, seed: Optional[int] = None, options: Optional[Dict] = None) -> Tuple[np.ndarray, Dict]:
        """As ``gymnasium.Env.reset``; with a seed, all later games follow from it. A ValueError for any options."""
        _check_reset_options(options)
        super().reset(seed=seed)
        if seed is not None:
            self._env.seed(seed)
        return self._env.reset(), {}

    def step(self, action: Any) -> Tuple[np.ndarray, float, bool, bool, Dict]:
        """As ``gymnasium.Env.step``; ``info`` as ``BreakoutEnv.step`` returns it."""
        obs, reward, done, info = self._env.step(action)
        truncated = bool(info.get('TimeLimit.truncated', False))
        return obs, float(reward[0]), bool(done) and not truncated, truncated, info

    def render(self) -> Optional[np.ndarray]:
        """The console's picture in colour with ``render_mode='rgb_array'``, else None."""
        return self._env.render() if self.render_mode == 'rgb_array' else None

    def close(self) -> None:
        """Release the emulator; ``reset`` opens another."""
        self._env.close()


class GymnasiumBreakoutVector(VectorEnv):
    """
    Overview:
        Many games in a process for each core, by ``GroupEnvManager``. The step that ends an episode returns the first \
        observation of the next one (``AutoresetMode.SAME_STEP``) and the last one as ``infos['final_obs']``, its \
        infos as ``infos['final_info']``. Games lost with a worker process count as truncated, with ``abnormal`` in \
        their infos.
    Examples:
        >>> envs = gymnasium.make_vec('breakout_env:breakout_env/Breakout-v0', num_envs=2, manager=dict(worker_num=1))
        >>> obs, infos = envs.reset(seed=0)
        >>> obs, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
        >>> obs.shape, rewards, infos['lives']
        ((2, 4, 84, 84), array([0., 0.]), array([5, 5]))
        >>> envs.close()
    """

    metadata = dict(GymnasiumBreakout.metadata, autoreset_mode=AutoresetMode.SAME_STEP)

    def __init__(
        self, num_envs: int = 1, render_mode: Optional[str] = None, manager: Optional[Mapping] = None, **options: Any
    ) -> None:
        """
        Arguments:
            - manager (:obj:`Optional[Mapping]`): ``EnvManagerOptions``, such as ``worker_num``.
            - render_mode, options: As of ``GymnasiumBreakout``.
        Raises:
            - ValueError: If an option is unknown or its value is not allowed.
        """
        if render_mode not in (None, 'rgb_array'):
            raise ValueError(f"render_mode is {shown(render_mode)}; expected None or 'rgb_array' for many games")
        given = section('the section `manager`', manager)
        for name, value in _MANAGER_SETTINGS.items():
            if given.get(name, value) != value:
                raise ValueError(f'env_manager option `{name}` is {shown(given[name])}; expected {value} in gymnasium')
        self.num_envs, self.render_mode = num_envs, render_mode
        cfg = dict(options, render_mode=render_mode)
        self.single_observation_space, self.single_action_space = _spaces(BreakoutEnv(cfg))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._manager = GroupEnvManager([partial(BreakoutEnv, cfg)] * num_envs, {**given, **_MANAGER_SETTINGS})
        self._launched = False
        self._obs = np.zeros(())

    def reset(
        self, *, seed: Union[int, Sequence[int], None] = None, options: Optional[Dict] = None
    ) -> Tuple[np.ndarray, Dict]:
        """As ``VectorEnv.reset``: of a number, each game gets the next one; a list has one for each game."""
        _check_reset_options(options)
        if seed is not None:
            seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, (int, np.integer)) else list(seed)
            super().reset(seed=seeds[0])
            self._manager.seed(seeds)
        if self._launched:
            self._manager.reset()
        else:
            self._manager.launch()
            self._launched = True
        return self._ready_obs(), {}

    def step(self, actions: Any) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Dict]:
        """As ``VectorEnv.step``."""
        timesteps = self._manager.step(dict(enumerate(np.asarray(actions))))
        rewards = np.zeros(self.num_envs)
        ended, truncated = np.zeros((2, self.num_envs), bool)
        infos: Dict[str, Any] = {}
        for i, timestep in timesteps.items():
            lost = is_abnormal(timestep)
            truncated[i] = lost or timestep.info.get('TimeLimit.truncated', False)
            ended[i] = lost or timestep.done
            rewards[i] = 0.0 if lost else timestep.reward[0]
            info: Dict[str, Any] = timestep.info
            if ended[i]:
                info = dict(final_obs=self._obs[i] if lost else timestep.obs, final_info=timestep.info)
            infos = self._add_info(infos, info, i)
        return self._ready_obs(), rewards, ended & ~truncated, truncated, infos

    def _ready_obs(self) -> np.ndarray:
        ready = self._manager.ready_obs
        self._obs = np.stack([ready[i] for i in range(self.num_envs)])
        return self._obs.copy()

    def render(self) -> Optional[Tuple[np.ndarray, ...]]:
        """The console's picture of each game with ``render_mode='rgb_array'``, else None."""
        if self.render_mode != 'rgb_array':
            return None
        images = self._manager.ready_imgs
        return tuple(images[i] for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes."""
        self._manager.close()
