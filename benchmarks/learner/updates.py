"""
How many updates a second does a DQN make, the sampling of the batch included: DI-engine's, ours, other libraries'?

    python -m benchmarks.learner.updates --out docs/results/bench_learner.json
    python -m benchmarks.learner.updates --batch-sizes 32,128,512 --only DI-engine --only ours --out ...

All learn from the same random play, each from a full buffer, with the same network, that of Mnih et al. 2015, on the
CPU. DI-engine's policy, ours and Tianshou's are double DQN with 3-step returns; DI-engine's and ours are dueling, too.
Stable-Baselines3 and plain PyTorch have the single, 1-step DQN that these know. Each keeps its process and its buffer
from turn to turn, and is idle while others have theirs; DI-engine's own buffer takes 6 GB for 100,000 transitions, the
others 7 GB together.
"""

import itertools
import os
import tempfile
from functools import partial
from typing import Any, Callable, Dict, List, Optional

import click
import numpy as np
import torch

from ..common import recording as play
from ..common.cli import THREADS, Numbers, chosen, command, rounds
from ..common.dqn_peers import ACTIONS, LEARNING_RATE, PlainDQN, tianshou_dqn
from ..common.rounds import Result, Throughput, interleaved, section
from ..replay import peers

REFERENCE = "DI-engine's dqn, its own buffer"
PACKAGES = ['DI-engine', 'torch', 'numpy', 'stable-baselines3', 'tianshou']


class Learning(Throughput):
    """A full buffer; what the others derive from make updates from it."""

    figure = 'updates_per_s'
    kind: type = peers.StableBaselines3

    def __init__(self, recording: str, size: int, batch_size: int, threads: int) -> None:
        torch.set_num_threads(threads)
        self.batch_size = batch_size
        self.peer = self.kind(size, 'buffer')
        feed = play.steps(recording) if self.peer.feed == 'steps' else play.transitions(recording)
        added = 0
        while added < size:
            items = next(feed)
            self.peer.add(self.peer.prepare(items))
            added += len(items)
        feed.close()

    def close(self) -> None:
        self.peer.close()


class InDIEngine(Learning):
    """A policy of DI-engine's registry."""

    def __init__(self, policy: str, kind: type, learn: Dict[str, Any], *args: Any, cuda: bool = False) -> None:
        from ..common.ding_pipeline import Updates

        self.kind = kind
        super().__init__(*args)
        self._updates = Updates(policy, self.batch_size, learn, cuda)

    def step(self) -> int:
        self._updates.update(self.peer.buffer)
        return 1


class StableBaselines3(Learning):
    """Its ``DQN.train``, on its own buffer with ``optimize_memory_usage``."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        import gymnasium
        from stable_baselines3 import DQN
        from stable_baselines3.common.logger import Logger

        env = gymnasium.Env()  # nothing is played; it only has the shapes
        env.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        env.action_space = gymnasium.spaces.Discrete(ACTIONS)
        self._dqn = DQN('CnnPolicy', env, learning_rate=LEARNING_RATE, buffer_size=8, device=self.peer.device)
        self._dqn.set_logger(Logger(None, []))
        self._dqn.replay_buffer = self.peer.buffer

    def step(self) -> int:
        # one at a time is no disadvantage: the rest of `train` is small
        self._dqn.train(gradient_steps=1, batch_size=self.batch_size)
        return 1


class PlainTorch(Learning):
    """DQN as CleanRL has it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._dqn = PlainDQN(self.peer.device)

    def step(self) -> int:
        self._dqn.update(self.peer.buffer.sample(self.batch_size))
        return 1


class Tianshou(Learning):
    """Its DQN, on its buffer of one screen a transition."""

    kind = peers.Tianshou

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._dqn = tianshou_dqn()

    def step(self) -> int:
        from tianshou.utils.torch_utils import policy_within_training_step

        with policy_within_training_step(self._dqn.policy):
            self._dqn.update(self.peer.buffer, sample_size=self.batch_size)
        return 1


CONTESTANTS: Dict[str, Callable] = {
    REFERENCE: partial(InDIEngine, 'dqn', peers.InDIEngine, {}),
    "DI-engine's dqn, frame buffer": partial(InDIEngine, 'dqn', peers.Frame, {}),
    'ours, lean_dqn': partial(InDIEngine, 'lean_dqn', peers.Frame, {}),
    'ours, lean_dqn, bfloat16': partial(InDIEngine, 'lean_dqn', peers.Frame, dict(autocast='bfloat16')),
    'Stable-Baselines3 DQN': StableBaselines3,
    'plain torch, as CleanRL': PlainTorch,
    'Tianshou DQN': Tianshou,
}


@command(
    *rounds(repeats=5, seconds=10.0),
    click.option('--batch-sizes', default='32', type=Numbers(), help='Transitions of an update, with commas.'),
    THREADS,
    click.option('--transitions', default=100_000, type=click.IntRange(min=32), help='Of a full buffer.'),
    click.option('--play', 'recording', type=click.Path(exists=True), help='Recorded play.  [default: a new one]'),
)
def main(
    repeats: int,
    seconds: float,
    only: tuple,
    batch_sizes: List[int],
    threads: List[int],
    transitions: int,
    recording: Optional[str],
    out: Optional[str],
) -> None:
    """Measure how many updates a second learners make."""
    contestants = chosen(CONTESTANTS, only)
    result = Result(out, PACKAGES, repeats=repeats, seconds=seconds, transitions=transitions)
    with tempfile.TemporaryDirectory() as folder:
        if recording is None:
            recording = os.path.join(folder, 'random.play')
            # a little more: the collector drops some, and the unfinished end of a game is no transition
            play.record('random', transitions * 21 // 20 + 1000, recording)
        for batch_size, thread_num in itertools.product(batch_sizes, threads):
            given = (os.path.abspath(recording), transitions, batch_size, thread_num)
            factories = {name: partial(make, *given) for name, make in contestants.items()}
            runs, failures = interleaved(factories, repeats, keep=True, seconds=seconds)
            title = f'batch of {batch_size}, {thread_num} thread{"s" * (thread_num > 1)}'
            measured = section(title, runs, failures, 'updates_per_s', REFERENCE)
            result.add(measured, batch_size=batch_size, threads=thread_num)


if __name__ == '__main__':
    main()
