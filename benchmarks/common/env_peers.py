"""Environments as the managers of DI-engine, of this package and of other libraries step them, behind ``step``.

All play the same game: frame skip 4, maximum of the last two screens, 84x84 gray, four screens in an observation, no
sticky actions. ``TRAINING`` has up to 30 no-ops at the start of a game, the loss of a life as the end of an episode,
clipped rewards, and FIRE pressed at a reset where that is offered; ``FULL_GAMES`` has none of these. After a life
gymnasium's ``AtariPreprocessing`` begins a new game, ale_py's vector continues it, both without FIRE.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import ale_py
import gymnasium
import numpy as np
from ding.envs import create_env_manager
from ding.utils import ENV_MANAGER_REGISTRY

from breakout_env import BreakoutEnv

from .rounds import Throughput

ACTIONS = 4
GAME = 'BreakoutNoFrameskip-v4'  # without sticky actions


@dataclass(frozen=True)
class Rules:
    """What differs between the two games that are played."""

    noop_max: int
    # whether the loss of a life ends an episode, rewards are clipped, and FIRE is pressed at a reset
    training: bool
    # the same as options of BreakoutEnv
    ours: dict[str, Any]


TRAINING = Rules(30, True, {})
FULL_GAMES = Rules(0, False, dict(is_train=False, noop_max=0, fire_on_life_loss=False, fire_on_reset=False))


class Vector(Throughput):
    """Environments that are stepped by one call, with actions drawn beforehand; what the others derive from."""

    action_dtype: Any = np.int32  # what the vectors written in C++ take without a conversion

    def __init__(self, env: Any, env_num: int) -> None:
        self.env = env
        self._actions = np.random.default_rng(0).integers(ACTIONS, size=(4096, env_num)).astype(self.action_dtype)
        self._row = 0
        self.start()

    def start(self) -> None:
        """Reset all environments."""
        self.env.reset()

    def random_actions(self) -> np.ndarray:
        """One for each environment."""
        self._row = (self._row + 1) % len(self._actions)
        return self._actions[self._row]

    def step(self) -> int:
        """How many steps were played; resets do not count."""
        self.env.step(self.random_actions())
        return len(self._actions[0])

    def close(self) -> None:
        self.env.close()


class OurEnv(Vector):
    """One ``BreakoutEnv``, full games."""

    action_dtype = np.int64

    def __init__(self) -> None:
        super().__init__(BreakoutEnv(FULL_GAMES.ours), 1)

    def step(self) -> int:
        if self.env.step(self.random_actions()).done:
            self.env.reset()
        return 1


class GymnasiumEnv(Vector):
    """One environment with gymnasium's own preprocessing, full games."""

    def __init__(self) -> None:
        super().__init__(gymnasium_env(FULL_GAMES), 1)

    def step(self) -> int:
        _, _, terminated, truncated, _ = self.env.step(int(self.random_actions()[0]))
        if terminated or truncated:
            self.env.reset()
        return 1


class Manager(Vector):
    """A manager with DI-engine's interface, driven as its collectors do."""

    action_dtype = np.int64

    def __init__(self, type_name: str, options: dict[str, Any], env_num: int, rules: Rules = TRAINING) -> None:
        if type_name == 'breakout':
            import breakout_env.env_manager  # noqa: F401
        config = ENV_MANAGER_REGISTRY.get(type_name).default_config()
        config.update(type=type_name, **options)
        super().__init__(create_env_manager(config, [partial(BreakoutEnv, rules.ours)] * env_num), env_num)

    def start(self) -> None:
        self.env.launch()

    def step(self) -> int:
        row = self.random_actions()
        # arrays with one element, as DI-engine's policies return them; some may be missing while they reset
        return len(self.env.step({i: row[i : i + 1] for i in self.env.ready_obs}))


class Halves(Manager):
    """Our manager by its array interface: a half of the environments gets its actions while the other half plays."""

    def start(self) -> None:
        super().start()
        self._halves = self.env.halves
        for half in self._halves:
            self.env.send(self.random_actions()[half], half)

    def step(self) -> int:
        half = self._halves[0]
        self._halves = [*self._halves[1:], half]
        self.env.recv()
        self.env.send(self.random_actions()[half], half)
        return len(half)


class EnvPool(Vector):
    """EnvPool, all environments in a batch, or half of them while the other half plays on."""

    def __init__(self, threads: int, asynchronous: bool, env_num: int, rules: Rules = TRAINING) -> None:
        import envpool

        game = dict(repeat_action_probability=0.0, episodic_life=rules.training, reward_clip=rules.training)
        screen = dict(frame_skip=4, img_height=84, img_width=84, stack_num=4, use_inter_area_resize=True)
        start = dict(noop_max=max(1, rules.noop_max), use_fire_reset=rules.training)  # noop_max=0 crashes it
        batch = dict(num_envs=env_num, batch_size=max(1, env_num // 2) if asynchronous else env_num)
        # the step after the end of an episode only resets, and its action is lost
        self._ended = np.zeros(env_num, bool)
        super().__init__(
            envpool.make_gymnasium('Breakout-v5', num_threads=threads, **batch, **game, **screen, **start), env_num
        )

    def start(self) -> None:
        self.env.async_reset()
        self._ended[:] = True  # the resets are received first

    def step(self) -> int:
        _, _, terminated, truncated, info = self.env.recv()
        who = info['env_id']
        played = len(who) - int(self._ended[who].sum())
        self._ended[who] = terminated | truncated
        self.env.send(self.random_actions()[who], who)
        return played


class AtariVector(Vector):
    """ale_py's own vector, in C++, all environments in a batch, or half of them while the other half plays on."""

    def __init__(self, threads: int, asynchronous: bool, env_num: int, rules: Rules = TRAINING) -> None:
        from ale_py.vector_env import AtariVectorEnv

        # its `episodic_life` would begin a new game after a life
        game = dict(repeat_action_probability=0.0, life_loss_info=rules.training, reward_clipping=rules.training)
        screen = dict(frameskip=4, img_height=84, img_width=84, stack_num=4, maxpool=True, grayscale=True)
        # by default the step after a game only resets, and its action is lost
        start = dict(noop_max=rules.noop_max, use_fire_reset=rules.training, autoreset_mode='SameStep')
        batch = env_num // 2 if asynchronous else env_num
        options = dict(num_threads=threads, batch_size=batch, **game, **screen, **start)
        super().__init__(AtariVectorEnv('breakout', env_num, **options), batch)


class StableBaselines3(Vector):
    """Its vectors of its ``AtariWrapper``, with its frame stack."""

    def __init__(self, processes: bool, env_num: int, rules: Rules = TRAINING) -> None:
        super().__init__(sb3_vector(processes, env_num, rules), env_num)


class Gymnasium(Vector):
    """gymnasium's vector of processes, observations in shared memory and returned without a copy."""

    def __init__(self, env_num: int, rules: Rules = TRAINING) -> None:
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode

        options = dict(shared_memory=True, copy=False, context='fork', autoreset_mode=AutoresetMode.SAME_STEP)
        super().__init__(AsyncVectorEnv([partial(gymnasium_env, rules)] * env_num, **options), env_num)


def ale_env(obs_type: str) -> gymnasium.Env:
    """The bare game of gymnasium, for the wrappers of others."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    # without gymnasium's checker of how it is used: the others have none
    return gymnasium.make(GAME, obs_type=obs_type, disable_env_checker=True)


def gymnasium_env(rules: Rules = TRAINING) -> gymnasium.Env:
    """gymnasium's own preprocessing."""
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformReward

    # it fetches gray screens itself and reads none of those it is given: gray ones are cheapest
    env = AtariPreprocessing(ale_env('grayscale'), noop_max=rules.noop_max, terminal_on_life_loss=rules.training)
    return FrameStackObservation(TransformReward(env, np.sign) if rules.training else env, stack_size=4)


def sb3_env(rules: Rules) -> gymnasium.Env:
    """Stable-Baselines3's preprocessing except for the stack, with its count of full games; it presses FIRE in each."""
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.monitor import Monitor

    # it turns the screens gray itself, and so needs colours
    training = rules.training
    return AtariWrapper(Monitor(ale_env('rgb')), rules.noop_max, terminal_on_life_loss=training, clip_reward=training)


def sb3_vector(processes: bool, env_num: int, rules: Rules = TRAINING) -> Any:
    """Stable-Baselines3's vector of it with the stack."""
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    envs = [partial(sb3_env, rules)] * env_num
    # forked as DI-engine's workers are; by default each worker would import the program and all it imports anew
    return VecFrameStack(SubprocVecEnv(envs, 'fork') if processes else DummyVecEnv(envs), 4)
