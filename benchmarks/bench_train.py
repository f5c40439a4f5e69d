"""
How many env steps a second whole trainings make, learning included: DI-engine's, ours, and other libraries'.

    python benchmarks/bench_train.py --out docs/results/bench_train.json

All learn from batches of 32 with the same network, Nature's, on the CPU, make 1 update to 4 env steps, explore with
epsilon 0.1 and keep 100,000 transitions; nothing is evaluated or saved. Each turn is a training from its beginning, in
a process of its own: random play, a stretch of training that is not counted, then env steps and updates between two
looks at the clock. The updates a step that were really made are in the table: where they differ, so does the work.
DI-engine's collector, whoever's manager it drives, plays a few steps more than asked for where an episode ends within a
collection, which makes 0.242 of them in the long run.
benchmarks/bench_learner.py says in what the algorithms differ, benchmarks/env_peers.py what is played.
"""

import os
import time
from functools import partial
from typing import Any, Callable, Dict, Optional

import click
import torch
from turns import chosen, numbers, show, show_surroundings, surroundings, take_turns, write

REFERENCE = "DI-engine's serial pipeline"
PACKAGES = ['DI-engine', 'torch', 'numpy', 'ale-py', 'gymnasium', 'stable-baselines3', 'tianshou']
ACTIONS = 4
BUFFER_SIZE = 100_000
BATCH_SIZE = 32
STEPS_PER_UPDATE = 4
ENVS = 8
# more than any turn takes
ENDLESS_STEPS = 10**8


class Window(object):
    """
    Overview:
        Looks at the clock and at what has been done, between the first update, some seconds after it, and the end.
    Interfaces:
        ``go_on``, ``figures``.
    """

    def __init__(self, warm_up_s: float, seconds: float) -> None:
        self._warm_up_s, self._seconds = warm_up_s, seconds
        self._learning_since_s: Optional[float] = None
        self._start: Optional[tuple] = None
        self._end: Optional[tuple] = None

    def go_on(self, steps: int, updates: int) -> bool:
        """To be called again and again, at the same place of the loop, with what has been done so far."""
        now = time.perf_counter()
        if self._learning_since_s is None:
            self._learning_since_s = now if updates else None
        elif self._start is None:
            if now - self._learning_since_s >= self._warm_up_s:
                self._start = (now, steps, updates)
        elif now - self._start[0] >= self._seconds:
            self._end = (now, steps, updates)
        return self._end is None

    def figures(self) -> Dict[str, float]:
        """What was done a second, and for each step."""
        elapsed_s, steps, updates = (end - start for end, start in zip(self._end, self._start))
        return dict(steps_per_s=steps / elapsed_s, updates_per_step=updates / steps)


class Training(object):
    """
    Overview:
        A contestant of benchmarks/turns.py: one training.
    Interfaces:
        ``turn``, ``run``, ``close``.
    """

    def __init__(self, threads: int, random_steps: int) -> None:
        torch.set_num_threads(threads)
        self.random_steps = random_steps

    def turn(self, warm_up_s: float, seconds: float) -> Dict[str, float]:
        """Train until the window is over."""
        window = Window(warm_up_s, seconds)
        self.run(window.go_on)
        return window.figures()

    def run(self, go_on: Callable[[int, int], bool]) -> None:
        """Train until told to stop."""

    def close(self) -> None:
        """End workers."""


class InDIEngine(Training):
    """A serial pipeline of DI-engine's parts and ours."""

    def __init__(self, parts: Dict[str, Any], overlap: bool, threads: int, random_steps: int) -> None:
        import ding_parts

        super().__init__(threads, random_steps)
        self._training = ding_parts.Training(
            random_steps, overlap, buffer_size=BUFFER_SIZE, batch_size=BATCH_SIZE, **parts
        )

    def run(self, go_on: Callable[[int, int], bool]) -> None:
        self._training.run(go_on)

    def close(self) -> None:
        self._training.close()


class StableBaselines3(Training):
    """Its DQN."""

    def __init__(self, env_num: int, threads: int, random_steps: int) -> None:
        from ding_parts import EPSILON
        from env_peers import sb3_vector
        from stable_baselines3 import DQN

        super().__init__(threads, random_steps)
        self._env = sb3_vector(env_num > 1, env_num)
        self._dqn = DQN(
            'CnnPolicy',
            self._env,
            learning_rate=1e-4,
            buffer_size=BUFFER_SIZE,
            learning_starts=random_steps,
            batch_size=BATCH_SIZE,
            train_freq=4,  # of all environments at once
            gradient_steps=4 * env_num // STEPS_PER_UPDATE,
            optimize_memory_usage=True,
            replay_buffer_kwargs=dict(handle_timeout_termination=False),  # does not go with that
            target_update_interval=4000,
            exploration_fraction=1 / ENDLESS_STEPS,
            exploration_final_eps=EPSILON,
            device='cpu',
        )

    def run(self, go_on: Callable[[int, int], bool]) -> None:
        from stable_baselines3.common.callbacks import BaseCallback

        class Look(BaseCallback):
            """Only after a step it can stop the training; where to look is before the first of a collection."""

            goes_on = True

            def _on_rollout_start(self) -> None:
                self.goes_on = go_on(self.num_timesteps, self.model._n_updates)

            def _on_step(self) -> bool:
                return self.goes_on

        self._dqn.learn(ENDLESS_STEPS, callback=Look())

    def close(self) -> None:
        self._env.close()


class PlainTorch(Training):
    """The loop as CleanRL has it: one environment, Stable-Baselines3's wrappers and buffer, plain torch."""

    def __init__(self, threads: int, random_steps: int) -> None:
        from dqn_plain import PlainDQN
        from env_peers import sb3_env
        from gymnasium import spaces
        from gymnasium.wrappers import FrameStackObservation
        from stable_baselines3.common.buffers import ReplayBuffer

        super().__init__(threads, random_steps)
        self._env = FrameStackObservation(sb3_env(), stack_size=4)
        self._dqn = PlainDQN(ACTIONS)
        self._buffer = ReplayBuffer(
            BUFFER_SIZE,
            spaces.Box(0, 255, (4, 84, 84)),
            spaces.Discrete(ACTIONS),
            device='cpu',
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )

    def run(self, go_on: Callable[[int, int], bool]) -> None:
        import numpy as np
        from ding_parts import EPSILON

        random = np.random.default_rng(0)
        steps, obs = 0, self._observation(self._env.reset(seed=0)[0])
        while steps % STEPS_PER_UPDATE or go_on(steps, self._dqn.updates):
            if steps < self.random_steps or random.random() < EPSILON:
                action = int(random.integers(ACTIONS))
            else:
                action = int(self._dqn.act(torch.from_numpy(obs[None])))
            next_obs, reward, terminated, truncated, info = self._env.step(action)
            next_obs = self._observation(next_obs)
            self._buffer.add(obs, next_obs, np.array([action]), np.array([reward]), np.array([terminated]), [info])
            obs = self._observation(self._env.reset()[0]) if terminated or truncated else next_obs
            steps += 1
            if steps > self.random_steps and steps % STEPS_PER_UPDATE == 0:
                self._dqn.update(self._buffer.sample(BATCH_SIZE))

    @staticmethod
    def _observation(obs: Any) -> Any:
        """Stable-Baselines3's screens end in an axis of one channel."""
        return obs[..., 0]

    def close(self) -> None:
        self._env.close()


class Tianshou(Training):
    """Its collector, buffer and DQN, without the trainer around them."""

    def __init__(self, threads: int, random_steps: int) -> None:
        from env_peers import tianshou_env
        from tianshou.data import Collector, VectorReplayBuffer
        from tianshou.env import ShmemVectorEnv
        from tianshou_dqn import dqn

        super().__init__(threads, random_steps)
        self._envs = ShmemVectorEnv([tianshou_env] * ENVS)
        self._dqn = dqn(ACTIONS)
        self._buffer = VectorReplayBuffer(BUFFER_SIZE, ENVS, stack_num=4, ignore_obs_next=True, save_only_last_obs=True)
        self._collector = Collector(self._dqn, self._envs, self._buffer, exploration_noise=True)

    def run(self, go_on: Callable[[int, int], bool]) -> None:
        from tianshou.utils.torch_utils import policy_within_training_step

        steps_per_collection = 4 * ENVS
        self._collector.reset()
        steps = self._collector.collect(n_step=self.random_steps, random=True).n_collected_steps
        updates = 0
        with policy_within_training_step(self._dqn.policy):
            while go_on(steps, updates):
                steps += self._collector.collect(n_step=steps_per_collection).n_collected_steps
                for _ in range(steps_per_collection // STEPS_PER_UPDATE):
                    self._dqn.update(self._buffer, sample_size=BATCH_SIZE)
                    updates += 1

    def close(self) -> None:
        self._envs.close()


OURS = dict(policy='lean_dqn', manager='breakout', buffer='frame')
BFLOAT16 = dict(OURS, learn=dict(autocast='bfloat16'))
CONTESTANTS: Dict[str, Callable] = {
    REFERENCE: partial(InDIEngine, dict(policy='dqn', manager='subprocess', buffer='advanced'), False),
    'ours, serial': partial(InDIEngine, OURS, False),
    'ours, serial, bfloat16': partial(InDIEngine, BFLOAT16, False),
    'ours, overlapped': partial(InDIEngine, OURS, True),
    'ours, overlapped, bfloat16': partial(InDIEngine, BFLOAT16, True),
    'Stable-Baselines3, 1 environment': partial(StableBaselines3, 1),
    'Stable-Baselines3, 8 environments': partial(StableBaselines3, ENVS),
    'plain torch, as CleanRL': PlainTorch,
    'Tianshou': Tianshou,
}


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--repeats', default=5, type=click.IntRange(min=1), help='Turns of each.')
@click.option('--seconds', default=30.0, type=click.FloatRange(min=0.1), help='Of training, counted in each turn.')
@click.option('--warm-up-seconds', default=5.0, type=click.FloatRange(min=0), help='Of training before that.')
@click.option('--random-steps', default=2000, type=click.IntRange(min=64), help='Env steps before the first update.')
@click.option('--threads', default=str(len(os.sched_getaffinity(0))), help="torch's, with commas.")
@click.option('--only', multiple=True, help='Only those whose names contain this; may be repeated.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
def main(
    repeats: int,
    seconds: float,
    warm_up_seconds: float,
    random_steps: int,
    threads: str,
    only: tuple,
    out: Optional[str],
) -> None:
    """Measure how many env steps a second trainings make."""
    contestants = chosen(CONTESTANTS, only)
    result = dict(surroundings(PACKAGES), repeats=repeats, seconds=seconds, random_steps=random_steps, sections=[])
    show_surroundings(result)
    for thread_num in numbers(threads):
        given = dict(threads=thread_num, random_steps=random_steps)
        builds = {name: partial(build, **given) for name, build in contestants.items()}
        runs, failures = take_turns(builds, repeats, warm_up_s=warm_up_seconds, seconds=seconds)
        title = f'training, {thread_num} thread{"s" * (thread_num > 1)}'
        section = show(title, runs, failures, 'steps_per_s', REFERENCE, more=['updates_per_step'])
        result['sections'].append(dict(section, threads=thread_num))
        write(out, result)


if __name__ == '__main__':
    main()
