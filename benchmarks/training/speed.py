"""How many env steps a second does a whole training make, learning included, in each library?

    python -m benchmarks.training.speed --out docs/results/bench_train.json

All learn on the CPU, from batches of 32 with the network of Mnih et al. 2015, make 1 update to 4 env steps, explore
with epsilon 0.1 and keep 100,000 transitions; nothing is evaluated or saved. ``dqn`` and ``lean_dqn`` are double DQN
with 3-step returns, which takes a forward pass more than the DQN of Stable-Baselines3. Each turn is a training from its
beginning, in a separate process: random play, a warm-up that is not counted, then env steps and updates between two
readings of the clock. The measured updates a step are in the table: where they differ, so does the work.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import torch
from ding.config import read_config
from ding.entry import serial_pipeline
from ding.worker.learner import LearnerHook, register_learner_hook
from easydict import EasyDict

from ..common.cli import CORES, chosen, command, rounds
from ..common.rounds import ROOT, Result, as_dict, interleaved

REFERENCE = "DI-engine's serial pipeline"
PACKAGES = ['DI-engine', 'torch', 'numpy', 'ale-py', 'gymnasium', 'stable-baselines3']
BUFFER_SIZE = 100_000
BATCH_SIZE = 32
STEPS_PER_UPDATE = 4
LEARNING_RATE = 1e-4
EPSILON = 0.1  # all the time: how often a network is asked must not depend on how far a training has come
ENVS = 8
STOCK_MANAGER = dict(shared_memory=True, reset_inplace=True)
# more than any turn takes
ENDLESS_STEPS = 10**8
# Whether a training continues, asked between two collections with the env steps and updates so far.
Running = Callable[[int, int], bool]


class Window:
    """Reads the clock and what has been done when the warm-up ends and when the measured time ends."""

    def __init__(self, warm_up_s: float, seconds: float) -> None:
        self._warm_up_s, self._seconds = warm_up_s, seconds
        self._learning_since_s: float | None = None
        self._start: tuple | None = None
        self._end: tuple | None = None

    def running(self, steps: int, updates: int) -> bool:
        """To be called again and again, at the same place of the loop, with what has been done so far."""
        now = time.perf_counter()
        if self._learning_since_s is None:
            self._learning_since_s = now if updates else None
        elif self._start is None:
            if now - self._learning_since_s >= self._warm_up_s:
                self._start = (now, steps, updates, time.process_time())
        elif now - self._start[0] >= self._seconds:
            self._end = (now, steps, updates, time.process_time())
        return self._end is None

    def figures(self) -> dict[str, float]:
        """What was done a second, and for each step; without the computing time of other processes."""
        elapsed_s, steps, updates, own_s = (end - start for end, start in zip(self._end, self._start))
        return dict(
            steps_per_s=steps / elapsed_s, updates_per_step=updates / steps, learner_us_per_step=1e6 * own_s / steps
        )


class Training(ABC):
    """A contestant: one training."""

    def __init__(self, threads: int, random_steps: int) -> None:
        torch.set_num_threads(threads)
        self.random_steps = random_steps

    def measure(self, warm_up_s: float, seconds: float) -> dict[str, float]:
        """Train until the window ends."""
        window = Window(warm_up_s, seconds)
        self.run(window.running)
        return window.figures()

    @abstractmethod
    def run(self, running: Running) -> None:
        """Train while ``running`` returns True."""

    def close(self) -> None:
        """End workers."""
        self.envs.close()


class Ended(Exception):
    """Leaves DI-engine's pipeline, which knows no limit of time."""


def poll_hook(running: Running, every: int) -> dict[str, str]:
    """The config of a learner hook that asks ``running`` after so many updates, and raises ``Ended``."""

    class Poll(LearnerHook):
        def __call__(self, engine: Any) -> None:
            updates = engine.last_iter.val
            if updates % every == 0 and not running(engine.collector_envstep, updates):
                raise Ended

    register_learner_hook('poll', Poll)
    return dict(type='poll', name='poll', position='after_iter')


class InDIEngine(Training):
    """DI-engine's serial pipeline with its parts, or with others by their registered types: configs/
    breakout_lean_dqn_config.py without evaluations, with the network of Mnih et al. 2015.
    """

    def __init__(self, policy: str, manager: str, buffer: str, threads: int, random_steps: int, **learn: Any) -> None:
        super().__init__(threads, random_steps)
        main, create = read_config(str(ROOT / 'configs' / 'breakout_lean_dqn_config.py'))
        main.env.update(n_evaluator_episode=1, evaluator_env_num=1)
        main.env.evaluator.max_episode_frames = 400  # the pipeline begins with an evaluation
        main.policy.update(cuda=False, random_collect_size=random_steps)
        main.policy.model.dueling = False
        main.policy.learn.update(batch_size=BATCH_SIZE, **learn)
        main.policy.eval.evaluator.eval_freq = ENDLESS_STEPS
        main.policy.other.eps.update(start=EPSILON, end=EPSILON)
        main.policy.other.replay_buffer.replay_buffer_size = BUFFER_SIZE
        ours = dict(import_names=['breakout_env'])
        create.policy = dict(type=policy, **({} if policy == 'dqn' else ours))
        create.env_manager = dict(type=manager, **(ours if manager == 'breakout' else STOCK_MANAGER))
        create.replay_buffer = dict(type=buffer, **(ours if buffer == 'frame' else {}))
        self._main, self._create = main, EasyDict(create)

    def run(self, running: Running) -> None:
        poll = poll_hook(running, self._main.policy.learn.update_per_collect)
        self._main.policy.learn.learner = dict(hook=dict(poll=poll))  # no saving of the run
        with contextlib.suppress(Ended):
            serial_pipeline((self._main, self._create))

    def close(self) -> None:
        """The pipeline's parts end with the process."""


class StableBaselines3(Training):
    """Its DQN, or another of its algorithms."""

    def __init__(
        self,
        env_num: int,
        threads: int,
        random_steps: int,
        algorithm: str = 'DQN',
        all_steps: int = ENDLESS_STEPS,
        **options: Any,
    ) -> None:
        import stable_baselines3

        from ..common.env_peers import sb3_vector

        super().__init__(threads, random_steps)
        self.envs = sb3_vector(env_num > 1, env_num)
        self._all_steps = all_steps
        if algorithm == 'DQN':
            options.update(learning_starts=random_steps, optimize_memory_usage=True)
            options['replay_buffer_kwargs'] = dict(handle_timeout_termination=False)  # the two exclude each other
        self.model = getattr(stable_baselines3, algorithm)('CnnPolicy', self.envs, device='cpu', **options)

    @property
    def network(self) -> torch.nn.Module:
        """Of the agent."""
        return self.model.policy

    def scores(self) -> list[float]:
        """Of the last 100 full games."""
        return [episode['r'] for episode in self.model.ep_info_buffer]

    def run(self, running: Running) -> None:
        from stable_baselines3.common.callbacks import BaseCallback

        updates_each = 1
        if hasattr(self.model, 'n_epochs'):  # PPO counts epochs
            updates_each = self.model.n_steps * self.model.n_envs // self.model.batch_size

        class Look(BaseCallback):
            """A callback can stop a training only after a step; it asks before the first one of a collection."""

            continues = True

            def _on_rollout_start(self) -> None:
                self.continues = running(self.num_timesteps, self.model._n_updates * updates_each)

            def _on_step(self) -> bool:
                return self.continues

        self.model.learn(self._all_steps, callback=Look())


OURS = partial(InDIEngine, 'lean_dqn', 'breakout', 'frame')
# train_freq is of all environments at once
SB3_DQN: dict[str, Any] = dict(
    learning_rate=LEARNING_RATE, buffer_size=BUFFER_SIZE, batch_size=BATCH_SIZE, train_freq=4
)
SB3_DQN.update(target_update_interval=4000, exploration_fraction=1 / ENDLESS_STEPS, exploration_final_eps=EPSILON)
CONTESTANTS: dict[str, Callable] = {
    REFERENCE: partial(InDIEngine, 'dqn', 'subprocess', 'advanced'),
    'ours, serial': OURS,
    'ours, serial, bfloat16': partial(OURS, autocast='bfloat16'),
    'Stable-Baselines3, 1 environment': partial(StableBaselines3, 1, gradient_steps=1, **SB3_DQN),
    'Stable-Baselines3, 8 environments': partial(
        StableBaselines3, ENVS, gradient_steps=4 * ENVS // STEPS_PER_UPDATE, **SB3_DQN
    ),
}


@command(
    *rounds(repeats=5, seconds=30.0),
    click.option('--warm-up-seconds', default=5.0, type=click.FloatRange(min=0), help='Of training, not counted.'),
    click.option('--random-steps', default=2000, type=click.IntRange(min=64), help='Env steps before learning.'),
)
def main(repeats: int, seconds: float, only: tuple, warm_up_seconds: float, random_steps: int, out: str | None) -> None:
    """Measure how many env steps a second trainings make."""
    result = Result(out, PACKAGES, repeats=repeats, seconds=seconds, random_steps=random_steps)
    given = dict(threads=CORES, random_steps=random_steps)
    factories = {name: partial(make, **given) for name, make in chosen(CONTESTANTS, only).items()}
    runs, failures = interleaved(factories, repeats, warm_up_s=warm_up_seconds, seconds=seconds)
    result.add(as_dict(f'training, {CORES} threads', runs, failures, 'steps_per_s', REFERENCE, ['updates_per_step']))


if __name__ == '__main__':
    main()
