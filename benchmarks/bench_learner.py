"""
How many updates a second a DQN makes, drawing the batch included: DI-engine's policy, ours, and other libraries'.

    python benchmarks/bench_learner.py --out docs/results/bench_learner.json
    python benchmarks/bench_learner.py --batch-sizes 32,64,128,256,512 --only DI-engine --only ours --out ...

All learn from the same random play (benchmarks/play.py), each from a full buffer, with the same network, Nature's, and
on the CPU. DI-engine's policy, ours and Tianshou's are double DQN with 3-step returns; DI-engine's and ours are
dueling, too. Stable-Baselines3 and plain torch (benchmarks/dqn_plain.py) have the single, 1-step DQN that these know.
Each keeps its process and its buffer from turn to turn, and sleeps while others have theirs; DI-engine's own buffer
takes 6 GB for 100,000 transitions, the others 7 GB together.
"""

import itertools
import os
import tempfile
import time
from functools import partial
from typing import Any, Callable, Dict, Optional

import click
import play
import replay_peers
import torch
from turns import chosen, numbers, show, show_surroundings, surroundings, take_turns, write

REFERENCE = "DI-engine's dqn, its own buffer"
PACKAGES = ['DI-engine', 'torch', 'numpy', 'stable-baselines3', 'tianshou']
ACTIONS = 4


class Learning(object):
    """
    Overview:
        A contestant of benchmarks/turns.py: a full buffer, and updates from it.
    Interfaces:
        ``turn``, ``close``.
    """

    buffer = replay_peers.StableBaselines3

    def __init__(self, recording: str, size: int, batch_size: int, threads: int) -> None:
        torch.set_num_threads(threads)
        self.batch_size = batch_size
        self.peer = self.buffer(size, 'buffer')
        feed = play.steps(recording) if self.peer.feed == 'steps' else play.transitions(recording)
        added = 0
        while added < size:
            items = next(feed)
            self.peer.add(self.peer.prepare(items))
            added += len(items)
        feed.close()

    def update(self) -> None:
        """Draw a batch and learn from it."""

    def turn(self, seconds: float) -> Dict[str, float]:
        """Learn for so long, after a fifth of it that is not counted."""
        self._learn(seconds / 5)
        updates, elapsed_s = self._learn(seconds)
        return dict(updates_per_s=updates / elapsed_s)

    def _learn(self, seconds: float) -> tuple:
        start, updates, elapsed_s = time.perf_counter(), 0, 0.0
        while elapsed_s < seconds:
            self.update()
            updates += 1
            elapsed_s = time.perf_counter() - start
        return updates, elapsed_s

    def close(self) -> None:
        self.peer.close()


class InDIEngine(Learning):
    """A policy of DI-engine's registry."""

    def __init__(self, policy: str, buffer: type, learn: Dict[str, Any], *args: Any) -> None:
        from ding_parts import Updates

        self.buffer = buffer
        super().__init__(*args)
        self._updates = Updates(policy, self.batch_size, learn)

    def update(self) -> None:
        self._updates.update(self.peer.buffer)


class StableBaselines3(Learning):
    """Its ``DQN.train``, on its own buffer with ``optimize_memory_usage``."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        import gymnasium
        import numpy as np
        from stable_baselines3 import DQN
        from stable_baselines3.common.logger import Logger

        env = gymnasium.Env()  # nothing is played; it only tells the shapes
        env.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        env.action_space = gymnasium.spaces.Discrete(ACTIONS)
        self._dqn = DQN('CnnPolicy', env, learning_rate=1e-4, buffer_size=8, device='cpu')
        self._dqn.set_logger(Logger(None, []))
        self._dqn.replay_buffer = self.peer._buffer

    def update(self) -> None:
        # as many as it makes in one go with 8 environments would flatter nobody: the rest of `train` is small
        self._dqn.train(gradient_steps=1, batch_size=self.batch_size)


class PlainTorch(Learning):
    """DQN as CleanRL has it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        from dqn_plain import PlainDQN

        self._dqn = PlainDQN(ACTIONS)

    def update(self) -> None:
        self._dqn.update(self.peer._buffer.sample(self.batch_size))


class Tianshou(Learning):
    """Its DQN, on its buffer of one screen a transition."""

    buffer = replay_peers.Tianshou

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        from tianshou_dqn import dqn

        self._dqn = dqn(ACTIONS)

    def update(self) -> None:
        from tianshou.utils.torch_utils import policy_within_training_step

        with policy_within_training_step(self._dqn.policy):
            self._dqn.update(self.peer._buffer, sample_size=self.batch_size)


CONTESTANTS: Dict[str, Callable] = {
    REFERENCE: partial(InDIEngine, 'dqn', replay_peers.InDIEngine, {}),
    "DI-engine's dqn, frame buffer": partial(InDIEngine, 'dqn', replay_peers.Frame, {}),
    'ours, lean_dqn': partial(InDIEngine, 'lean_dqn', replay_peers.Frame, {}),
    'ours, lean_dqn, bfloat16': partial(InDIEngine, 'lean_dqn', replay_peers.Frame, dict(autocast='bfloat16')),
    'Stable-Baselines3 DQN': StableBaselines3,
    'plain torch, as CleanRL': PlainTorch,
    'Tianshou DQN': Tianshou,
}


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--repeats', default=5, type=click.IntRange(min=1), help='Turns of each.')
@click.option('--seconds', default=10.0, type=click.FloatRange(min=0.1), help='Length of a turn.')
@click.option('--batch-sizes', default='32', help='Transitions of an update, with commas.')
@click.option('--threads', default=str(len(os.sched_getaffinity(0))), help="torch's, with commas.")
@click.option('--transitions', default=100_000, type=click.IntRange(min=32), help='Of a full buffer.')
@click.option('--play', 'recording', type=click.Path(exists=True), help='Of benchmarks/play.py.  [default: a new one]')
@click.option('--only', multiple=True, help='Only those whose names contain this; may be repeated.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
def main(
    repeats: int,
    seconds: float,
    batch_sizes: str,
    threads: str,
    transitions: int,
    recording: Optional[str],
    only: tuple,
    out: Optional[str],
) -> None:
    """Measure how many updates a second learners make."""
    contestants = chosen(CONTESTANTS, only)
    options = dict(repeats=repeats, seconds=seconds, transitions=transitions)
    result = dict(surroundings(PACKAGES), **options, sections=[])
    show_surroundings(result)
    with tempfile.TemporaryDirectory() as folder:
        if recording is None:
            recording = os.path.join(folder, 'random.play')
            # a little more: the collector drops some, and what is left of a game at the end is no transition
            play.record('random', transitions * 21 // 20 + 1000, recording, seed=0)
        for batch_size, thread_num in itertools.product(numbers(batch_sizes), numbers(threads)):
            given = (os.path.abspath(recording), transitions, batch_size, thread_num)
            builds = {name: partial(build, *given) for name, build in contestants.items()}
            runs, failures = take_turns(builds, repeats, stay=True, seconds=seconds)
            title = f'batch of {batch_size}, {thread_num} thread{"s" * (thread_num > 1)}'
            section = show(title, runs, failures, 'updates_per_s', REFERENCE)
            result['sections'].append(dict(section, batch_size=batch_size, threads=thread_num))
            write(out, result)


if __name__ == '__main__':
    main()
