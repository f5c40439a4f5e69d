"""
Eight or so environments at once, in DI-engine's managers, in ours and in those of other libraries.

All play the same training game: frame skip 4, maximum of the last two screens, 84x84 gray, four screens in an
observation, no sticky actions, up to 30 no-ops at the start of a game, the loss of a life as the end of an episode,
clipped rewards, and FIRE pressed at a reset where that is offered. (gymnasium's ``AtariPreprocessing`` begins a new
game after a life, and presses no FIRE; the others play the game on.)
"""

from functools import partial
from typing import Any, Dict

import ale_py
import gym  # DI-engine's spaces
import gymnasium
import numpy as np
from ding.envs import BaseEnv, BaseEnvTimestep, create_env_manager
from ding.utils import ENV_MANAGER_REGISTRY
from easydict import EasyDict

from breakout_env import BreakoutEnv

ACTIONS = 4
GAME = 'BreakoutNoFrameskip-v4'  # without sticky actions


class _Vector(object):
    """
    Overview:
        Environments behind one call; what the others derive from.
    Interfaces:
        ``advance``, ``close``.
    """

    def __init__(self, env: Any, env_num: int) -> None:
        self.env = env
        # int32 is what the vectors written in C++ take without a conversion
        actions = np.random.default_rng(0).integers(ACTIONS, size=(4096, env_num), dtype=np.int32)
        self._actions = actions.astype(self.action_dtype)
        self._row = 0
        self.start()

    action_dtype = np.int32

    def start(self) -> None:
        """Reset all environments."""
        self.env.reset()

    def random_actions(self) -> np.ndarray:
        """One for each environment, drawn beforehand."""
        self._row = (self._row + 1) % len(self._actions)
        return self._actions[self._row]

    def advance(self) -> int:
        """One call; how many steps were played in it. What only resets is no step."""
        self.env.step(self.random_actions())
        return len(self._actions[0])

    def close(self) -> None:
        """End workers and threads."""
        self.env.close()


class Manager(_Vector):
    """A manager with DI-engine's interface, driven as its collectors do."""

    action_dtype = np.int64

    def __init__(self, type_name: str, options: Dict[str, Any], env_num: int, env_class: type = BreakoutEnv) -> None:
        if type_name == 'breakout':
            import breakout_env.env_manager  # noqa: F401
        config = ENV_MANAGER_REGISTRY.get(type_name).default_config()
        config.update(type=type_name, **options)
        super().__init__(create_env_manager(config, [partial(env_class, {})] * env_num), env_num)

    def start(self) -> None:
        self.env.launch()

    def advance(self) -> int:
        row = self.random_actions()
        # arrays with one element, as DI-engine's policies return them; some may sit out while they reset
        return len(self.env.step({i: row[i : i + 1] for i in self.env.ready_obs}))


class PlainEnv(BaseEnv):
    """What a DI-engine user would write without this project: Stable-Baselines3's wrappers and a stack of frames."""

    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(ACTIONS)
    reward_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, cfg: Dict[str, Any]) -> None:
        self._env = None

    def reset(self) -> np.ndarray:
        if self._env is None:
            self._env = gymnasium.wrappers.FrameStackObservation(sb3_env(), stack_size=4)
        return self._env.reset()[0][..., 0]

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        obs, reward, terminated, truncated, _ = self._env.step(action.item())
        return BaseEnvTimestep(obs[..., 0], np.array([reward], np.float32), terminated or truncated, {})

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        pass

    def close(self) -> None:
        if self._env is not None:
            self._env.close()

    def __repr__(self) -> str:
        return 'PlainEnv'


class DingEnvPool(Manager):
    """DI-engine's own manager over EnvPool; it takes no number of threads, and makes observations float32."""

    def __init__(self, env_num: int) -> None:
        from ding.envs.env_manager.envpool_env_manager import PoolEnvManager

        config = dict(env_num=env_num, batch_size=env_num, env_id='Breakout-v5', episodic_life=True, reward_clip=True)
        _Vector.__init__(self, PoolEnvManager(EasyDict(config, stack_num=4, gray_scale=True, frame_skip=4)), env_num)

    def advance(self) -> int:
        row = self.random_actions()
        return len(self.env.step({i: row[i] for i in self.env.ready_obs}))


class EnvPool(_Vector):
    """EnvPool, all environments in a batch, or half of them while the other half plays on."""

    def __init__(self, threads: int, asynchronous: bool, env_num: int) -> None:
        import envpool

        game = dict(frame_skip=4, repeat_action_probability=0.0, episodic_life=True, reward_clip=True)
        screen = dict(img_height=84, img_width=84, stack_num=4, use_inter_area_resize=True)
        start = dict(noop_max=30, use_fire_reset=True)
        self._asynchronous = asynchronous
        batch = dict(num_envs=env_num, batch_size=max(1, env_num // 2) if asynchronous else env_num)
        # the step after the end of an episode only resets, and its action is lost
        self._ended = np.zeros(env_num, bool)
        super().__init__(
            envpool.make_gymnasium('Breakout-v5', num_threads=threads, **batch, **game, **screen, **start), env_num
        )

    def start(self) -> None:
        if self._asynchronous:
            self.env.async_reset()
            self._ended[:] = True  # what is received first is the resets
        else:
            self.env.reset()

    def advance(self) -> int:
        row = self.random_actions()
        if not self._asynchronous:
            _, _, terminated, truncated, _ = self.env.step(row)
            played = len(row) - int(self._ended.sum())
            self._ended = terminated | truncated
            return played
        _, _, terminated, truncated, info = self.env.recv()
        who = info['env_id']
        played = len(who) - int(self._ended[who].sum())
        self._ended[who] = terminated | truncated
        self.env.send(row[who], who)
        return played


class AtariVector(_Vector):
    """ale_py's own vector, in C++."""

    def __init__(self, threads: int, env_num: int) -> None:
        from ale_py.vector_env import AtariVectorEnv

        game = dict(frameskip=4, repeat_action_probability=0.0, episodic_life=True, reward_clipping=True)
        screen = dict(img_height=84, img_width=84, stack_num=4, maxpool=True, grayscale=True)
        start = dict(noop_max=30, use_fire_reset=True, autoreset_mode='SameStep')
        super().__init__(AtariVectorEnv('breakout', env_num, num_threads=threads, **game, **screen, **start), env_num)


class StableBaselines3(_Vector):
    """Its vectors of its ``AtariWrapper``, with its frame stack."""

    def __init__(self, processes: bool, env_num: int) -> None:
        super().__init__(sb3_vector(processes, env_num), env_num)


class Gymnasium(_Vector):
    """gymnasium's vector of processes, observations in shared memory and handed out without a copy."""

    def __init__(self, env_num: int) -> None:
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode

        options = dict(shared_memory=True, copy=False, context='fork', autoreset_mode=AutoresetMode.SAME_STEP)
        super().__init__(AsyncVectorEnv([gymnasium_env] * env_num, **options), env_num)


class Tianshou(_Vector):
    """Tianshou's vector of processes with shared memory, on its own wrappers."""

    def __init__(self, env_num: int) -> None:
        from tianshou.env import ShmemVectorEnv

        super().__init__(ShmemVectorEnv([tianshou_env] * env_num), env_num)

    def advance(self) -> int:
        row = self.random_actions()
        _, _, terminated, truncated, _ = self.env.step(row)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            self.env.reset(ended)
        return len(row)


def ale_env(obs_type: str) -> gymnasium.Env:
    """The bare game of gymnasium, for the wrappers of others."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    # without gymnasium's checker of how it is used: the others have none
    return gymnasium.make(GAME, obs_type=obs_type, disable_env_checker=True)


def gymnasium_env() -> gymnasium.Env:
    """gymnasium's own preprocessing."""
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformReward

    # it fetches gray screens itself and looks at none of those it is given: gray ones are cheapest
    env = AtariPreprocessing(ale_env('grayscale'), noop_max=30, terminal_on_life_loss=True)
    return FrameStackObservation(TransformReward(env, np.sign), stack_size=4)


def sb3_env() -> gymnasium.Env:
    """Stable-Baselines3's preprocessing but for the stack."""
    from stable_baselines3.common.atari_wrappers import AtariWrapper

    return AtariWrapper(ale_env('rgb'))  # it turns the screens gray itself; all else is as asked by default


def sb3_vector(processes: bool, env_num: int) -> Any:
    """Stable-Baselines3's vector of it with the stack."""
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    # forked as DI-engine's workers are; by default each worker would import the program and all it imports anew
    env = SubprocVecEnv([sb3_env] * env_num, 'fork') if processes else DummyVecEnv([sb3_env] * env_num)
    return VecFrameStack(env, 4)


def tianshou_env() -> gymnasium.Env:
    """Tianshou's preprocessing; all is as asked by default."""
    from tianshou.env.atari.atari_wrapper import wrap_deepmind

    return wrap_deepmind(ale_env('rgb'))
