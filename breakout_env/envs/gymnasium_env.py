"""Breakout as gymnasium's environments: ``breakout_env/Breakout-v0``, one or many, for libraries other than DI-engine.

Importing ``breakout_env`` registers the id; ``gymnasium.make('breakout_env:breakout_env/Breakout-v0')`` does both.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import ale_py
import gymnasium
import numpy as np
from ding.envs import BaseEnvTimestep
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..env_manager.manager import GroupEnvManager
from ..env_manager.shared_buffers import is_abnormal
from ..utils.game_constants import FRAMES_PER_SECOND, SCREEN_SHAPE
from ..utils.options import Between, checked_seed, describe, validate
from .env import ENV_COUNT, BreakoutEnv, whole_numbers
from .options import BreakoutOptions

ENV_ID = 'breakout_env/Breakout-v0'


def register() -> None:
    """Register ``ENV_ID`` with gymnasium."""
    gymnasium.register(
        ENV_ID,
        entry_point=f'{__name__}:GymnasiumBreakout',
        vector_entry_point=f'{__name__}:GymnasiumBreakoutVector',
    )


class UnknownArgument(ValueError, TypeError):
    """An option that does not exist: a ValueError like any wrong option, and a TypeError like any wrong argument."""


def _check_reset_options(options: Mapping | None) -> None:
    if options:
        raise ValueError(f'the options of reset are {describe(options)}; expected none: give them to gymnasium.make')


class GymnasiumBreakout(gymnasium.Env):
    """``BreakoutEnv`` with gymnasium's interface and spaces. The defaults suit training: an episode is a life, rewards
    are clipped to their sign, ``info['game_return']`` has the points of a full game. ``is_train=False`` plays full
    games with raw rewards. ``render_mode='human'`` is gymnasium's own ``HumanRendering``.

    Examples:
        >>> env = gymnasium.make('breakout_env:breakout_env/Breakout-v0', frame_skip=4)
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        >>> obs.shape, reward, terminated, truncated, info['lives']
        ((4, 84, 84), 0.0, False, False, 5)
        >>> env.close()
    """

    # Without 'human': `check_env` opens each of them, and many machines have no display.
    metadata: dict[str, Any] = {'render_modes': ['rgb_array'], 'render_fps': 15}

    def __init__(self, render_mode: str | None = None, **options: object) -> None:
        """``render_mode``: None or ``rgb_array``; ``options``: ``BreakoutOptions``. A ValueError names a wrong one."""
        for name in options:
            if name not in BreakoutOptions.known_names():
                # TorchRL's GymEnv passes `frameskip`, and drops an argument that an error of this wording names
                raise UnknownArgument(f'got an unexpected keyword argument {name!r}: {BreakoutOptions.unknown(name)}')
        self._env = BreakoutEnv(dict(options, render_mode=render_mode))
        self.render_mode = render_mode
        box: Any = self._env.observation_space
        self.observation_space = gymnasium.spaces.Box(box.low, box.high, box.shape, box.dtype)
        self.action_space = gymnasium.spaces.Discrete(int(self._env.action_space.n))
        # a step shows `frame_skip` of the console's frames
        self.metadata = dict(self.metadata, render_fps=FRAMES_PER_SECOND / self._env._options.frame_skip)

    def get_action_meanings(self) -> list[str]:
        """ALE's names of the actions, as wrappers of other libraries ask for them."""
        if self._env._options.full_action_space:
            return list(ale_py.Action.__members__)
        return ['NOOP', 'FIRE', 'RIGHT', 'LEFT']

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """As ``gymnasium.Env.reset``; all later games follow from a seed. A ValueError for options or a wrong seed."""
        _check_reset_options(options)
        if seed is not None:
            seed = checked_seed(seed)  # gymnasium takes Python's alone
            self._env.seed(seed)
        super().reset(seed=seed)
        return self._env.reset(), {}

    def step(self, action: object) -> tuple[np.ndarray, float, bool, bool, dict]:
        """As ``gymnasium.Env.step``; ``info`` as ``BreakoutEnv.step`` returns it."""
        obs, reward, done, info = self._env.step(action)
        truncated = bool(info.get('TimeLimit.truncated', False))
        return obs, float(reward[0]), bool(done) and not truncated, truncated, info

    def render(self) -> np.ndarray | None:
        """The console's picture in colour with ``render_mode='rgb_array'``, else None."""
        return self._env.render() if self.render_mode == 'rgb_array' else None

    def close(self) -> None:
        """Release the emulator; ``reset`` opens another."""
        self._env.close()


class _LimitedEnv(BreakoutEnv):
    """``BreakoutEnv`` whose episodes are truncated after a number of steps, as by gymnasium's ``TimeLimit``."""

    def __init__(self, cfg: Mapping, max_episode_steps: int) -> None:
        super().__init__(cfg)
        self._max_episode_steps = max_episode_steps

    def reset(self) -> np.ndarray:
        self._steps = 0
        return super().reset()

    def step(self, action: object) -> BaseEnvTimestep:
        timestep = super().step(action)
        self._steps += 1
        if timestep.done or self._steps < self._max_episode_steps:
            return timestep
        end = {'eval_episode_return': np.float32(self._game.episode_points), 'TimeLimit.truncated': True}
        return timestep._replace(done=True, info={**timestep.info, **end})


class GymnasiumBreakoutVector(VectorEnv):
    """Many games in a process for each core, by ``GroupEnvManager``, with ``AutoresetMode.SAME_STEP``: the step that
    ends an episode returns the first observation of the next one, and has the last one and its infos as
    ``infos['final_obs']`` and ``infos['final_info']``. Games lost with a worker process count as truncated, with
    ``abnormal`` in their infos.

    Examples:
        >>> envs = gymnasium.make_vec('breakout_env:breakout_env/Breakout-v0', num_envs=2, manager=dict(worker_num=1))
        >>> obs, infos = envs.reset(seed=0)
        >>> obs, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
        >>> obs.shape, rewards, infos['lives']
        ((2, 4, 84, 84), array([0., 0.]), array([5, 5]))
        >>> envs.close()
    """

    def __init__(
        self,
        num_envs: int = 1,
        render_mode: str | None = None,
        manager: Mapping | None = None,
        max_episode_steps: int | None = None,
        **options: object,
    ) -> None:
        """Check all options; a ValueError names a wrong one.

        Arguments:
            manager: ``EnvManagerOptions``, such as ``worker_num``.
            max_episode_steps: Steps after which an episode is truncated; None for no limit.
            render_mode, options: As of ``GymnasiumBreakout``.
        """
        num_envs = validate('option', 'num_envs', num_envs, ENV_COUNT)
        validate('option', 'render_mode', render_mode, Literal[None, 'rgb_array'])
        validate('option', 'max_episode_steps', max_episode_steps, Annotated[int, Between(1, 2**31)] | None)
        self.num_envs, self.render_mode = num_envs, render_mode
        single = GymnasiumBreakout(render_mode, **options)
        self.autoreset_mode = AutoresetMode.SAME_STEP  # as gymnasium's vectors have it, for TorchRL
        self.metadata = dict(single.metadata, autoreset_mode=self.autoreset_mode)
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(single.observation_space, num_envs)
        self.action_space = batch_space(single.action_space, num_envs)
        cfg = dict(options, render_mode=render_mode)
        make = partial(BreakoutEnv, cfg) if max_episode_steps is None else partial(_LimitedEnv, cfg, max_episode_steps)
        self._manager = GroupEnvManager([make] * num_envs, manager)
        if not self._manager.takes_batches:
            raise ValueError('gymnasium needs an env manager with auto_reset=True and without episode_num')

    def reset(self, *, seed: int | Sequence[int] | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """As ``VectorEnv.reset``: an int seeds game i with seed + i; a list has one seed per game. After ``close`` or
        an error in a step it starts the processes again. A ValueError for a wrong seed; no game is reset then.
        """
        _check_reset_options(options)
        if seed is not None:
            seeds = self._seeds_of(seed)
            super().reset(seed=seeds[0])
            self._manager.seed(seeds)
        if self._manager.closed:
            self.closed = False  # gymnasium's: else the next ``close`` would do nothing
            self._manager.launch()
        else:
            self._manager.reset()
        self._obs = self._manager.waiting_obs(range(self.num_envs))
        return self._obs.copy(), {}

    def _seeds_of(self, seed: Any) -> list[Any]:
        """A seed for each game; None leaves it as it is."""
        if not np.iterable(seed) or isinstance(seed, (str, Mapping, set)):
            first = checked_seed(seed)
            return [first + i for i in range(self.num_envs)]
        seeds = list(seed)
        if len(seeds) != self.num_envs:
            expected = f'a whole number, or a list of {self.num_envs} (num_envs) whole numbers or None'
            raise ValueError(f'the seeds are {describe(seed)}; expected {expected}')
        return [None if one is None else checked_seed(one) for one in seeds]

    def step(self, actions: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """As ``VectorEnv.step``; a ValueError for wrong actions, before any game is stepped."""
        array = whole_numbers(actions)
        if not self.action_space.contains(array):
            raise ValueError(f'the actions are {describe(actions)}; expected one of {self.action_space}')
        self._check_open()
        last_obs = self._obs
        self._manager.send(array, range(self.num_envs), with_infos=True)
        batch = self._manager.recv()
        self._obs, truncated = batch.obs, np.zeros(self.num_envs, bool)
        infos: dict[str, Any] = {}
        for i, info in batch.infos.items():
            lost = is_abnormal(info)
            truncated[i] = lost or info.get('TimeLimit.truncated', False)
            if lost or batch.done[i]:
                info = dict(final_obs=last_obs[i] if lost else batch.final_obs[i], final_info=info)
            infos = self._add_info(infos, info, i)
        return batch.obs.copy(), batch.reward.astype(np.float64), batch.done & ~truncated, truncated, infos

    def render(self) -> tuple[np.ndarray, ...] | None:
        """The console's picture of each game with ``render_mode='rgb_array'``, else None."""
        if self.render_mode != 'rgb_array':
            return None
        self._check_open()
        images, none = self._manager.ready_imgs, np.zeros((*SCREEN_SHAPE, 3), np.uint8)
        return tuple(images.get(i, none) for i in range(self.num_envs))  # black where a process has just died

    def _check_open(self) -> None:
        if self._manager.closed:
            raise gymnasium.error.ResetNeeded('the vector environment plays no games; call reset first')

    def close_extras(self, **kwargs: object) -> None:
        """End the processes."""
        self._manager.close()
