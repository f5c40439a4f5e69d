"""
How much memory does a training take when its replay buffer holds a million transitions, learner included?

    python -m benchmarks.common.recording --player random --steps 1050000 --out random_1m.play
    python -m benchmarks.replay.training_memory --play random_1m.play --out docs/results/training_memory.json

Begins a run of configs/breakout_lean_dqn_config.py, stops it after its random play, fills its saved buffer with
recorded play, resumes it, and reads the resident memory of the training process (its env workers apart) every two
seconds.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import List, Optional

import click
import psutil
from ding.config import read_config

from breakout_env import FrameReplayBuffer
from breakout_env.run.paths import saves_in

from ..common import recording as play
from ..common.cli import command
from ..common.processes import ROOT
from ..common.rounds import Result

ENTRY = ROOT / 'entry' / 'serial.py'
CONFIG = ROOT / 'configs' / 'breakout_lean_dqn_config.py'
EXPERIMENT = 'experiments/breakout_lean_dqn'


def fill(folder: Path, recording: str) -> int:
    """Fill the buffer of a saved run with recorded play; returns the transitions in it."""
    options = read_config(str(CONFIG))[0].policy.other.replay_buffer
    buffer = FrameReplayBuffer(options, exp_name=str(folder / 'filling'))
    path = str(folder / saves_in(folder)[0]['buffer'])
    buffer.load_data(path)
    for transitions in play.transitions(recording):
        if buffer.count() == buffer.replay_buffer_size:
            break
        buffer.push(transitions, 0)
    buffer.save_data(path)
    count = buffer.count()
    buffer.close()
    return count


@command(
    click.option('--play', 'recording', required=True, type=click.Path(exists=True), help='Recorded play.'),
    click.option('--env-step', default=120_000, help='Env steps to train to.'),
)
def main(recording: str, env_step: int, out: Optional[str]) -> None:
    """Measure the resident memory of a training with a full replay buffer."""
    result = Result(out, ['DI-engine', 'torch', 'numpy', 'zstandard'])
    recording = os.path.abspath(recording)
    with tempfile.TemporaryDirectory() as home:
        run = Path(home, EXPERIMENT)
        subprocess.run([sys.executable, str(ENTRY), '--env-step', '20500'], cwd=home, check=True)
        transitions = fill(run, recording)
        command = [sys.executable, str(ENTRY), '--resume', str(run), '--env-step', str(env_step)]
        process = subprocess.Popen(command, cwd=home)
        resident: List[int] = []
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                resident.append(psutil.Process(process.pid).memory_info().rss)
            time.sleep(2)
        if process.wait():
            raise click.ClickException(f'the training ended with {process.returncode}')
        updates = saves_in(run)[0]['iteration']
    largest, median = max(resident), int(statistics.median(resident))
    result.content.update(transitions=transitions, updates=updates, largest_bytes=largest, median_bytes=median)
    result.write()
    click.echo(
        f'{transitions:,} transitions in the buffer, {updates:,} updates: '
        f'{largest / 1e9:.2f} GB at most, {median / 1e9:.2f} GB in the median'
    )


if __name__ == '__main__':
    main()
