"""
How much memory training takes with a full replay buffer: the real config, a million transitions, learner included.

    python benchmarks/play.py --player random --steps 1050000 --out random_1m.play
    python benchmarks/training_memory.py --play random_1m.play --out docs/results/training_memory.json

Begins a run of configs/breakout_dqn_config.py, stops it after its random play, fills its saved buffer up with recorded
play, goes on with it by ``--resume``, and looks at the resident memory of the training process (its env workers apart)
every two seconds. What is in the buffer is real, and so is the training.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import play
import psutil
from ding.config import read_config

from breakout_env import FrameReplayBuffer
from breakout_env.run.saver import pairs_in

ROOT = Path(__file__).resolve().parent.parent
ENTRY = ROOT / 'entry' / 'breakout_dqn_main.py'
CONFIG = ROOT / 'configs' / 'breakout_dqn_config.py'
EXPERIMENT = 'experiments/breakout_dqn'


def fill(folder: Path, recording: str) -> int:
    """
    Overview:
        Fill the buffer of a saved run up with recorded play.
    Returns:
        - transitions (:obj:`int`): What is in it then.
    """
    options = read_config(str(CONFIG))[0].policy.other.replay_buffer
    buffer = FrameReplayBuffer(options, exp_name=str(folder / 'filling'))
    path = str(folder / pairs_in(folder)[0]['buffer'])
    buffer.load_data(path)
    for transitions in play.transitions(recording):
        if buffer.count() == buffer.replay_buffer_size:
            break
        # what the collector adds to a transition, at the update where the run was saved
        buffer.push(transitions, 0)
    buffer.save_data(path)
    count = buffer.count()
    buffer.close()
    return count


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
@click.option('--play', 'recording', required=True, type=click.Path(exists=True), help='Of benchmarks/play.py.')
@click.option('--env-step', default=120_000, show_default=True, help='Env steps to train to.')
@click.option('--out', type=click.Path(dir_okay=False), required=True, help='JSON to write.')
def main(recording: str, env_step: int, out: str) -> None:
    """Resident memory of training with a full replay buffer."""
    recording = os.path.abspath(recording)
    with tempfile.TemporaryDirectory() as home:
        run = Path(home, EXPERIMENT)
        subprocess.run([sys.executable, str(ENTRY), '--env-step', '20500'], cwd=home, check=True)
        transitions = fill(run, recording)
        command = [sys.executable, str(ENTRY), '--resume', str(run), '--env-step', str(env_step)]
        process = subprocess.Popen(command, cwd=home)
        start, curve = time.monotonic(), []
        while process.poll() is None:
            try:
                memory = psutil.Process(process.pid).memory_info()
            except psutil.NoSuchProcess:  # it ended since it was looked at
                break
            curve.append((round(time.monotonic() - start, 1), memory.rss))
            time.sleep(2)
        if process.wait():
            raise click.ClickException(f'the training ended with {process.returncode}')
        pair = pairs_in(run)[0]
    results = dict(
        transitions=transitions,
        env_steps=pair['env_step'],
        updates=pair['iteration'],
        largest_bytes=max(rss for _, rss in curve),
        median_bytes=sorted(rss for _, rss in curve)[len(curve) // 2],
        curve=curve,
    )
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(json.dumps(results))
    click.echo(
        f'{transitions:,} transitions in the buffer, {results["updates"]:,} updates: '
        f'{results["largest_bytes"] / 1e9:.2f} GB at most, {results["median_bytes"] / 1e9:.2f} GB in the median'
    )


if __name__ == '__main__':
    main()
