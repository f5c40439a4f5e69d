"""
How many bytes is an env step on its way from a collector to the learner: DI-engine's ContextExchanger, and ours?

    python -m benchmarks.distributed.exchange --out docs/results/bench_exchange.json

DI-engine's really runs, a learner and a collector on this machine over its nng queue, with 8 environments and with 1
(stock_exchange.py); what is handed to the queue is counted. Ours are the rollout fragments of ``breakout_env.cluster``,
256 env steps of 8 environments each, packed as they are sent. Both play uniformly random actions on uint8 screens.
Weights are apart: both send them by time or updates, not by env steps.
"""

import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Optional

import click
from tabulate import tabulate

from ..common import recording as play
from ..common.cli import command
from ..common.processes import Processes, free_port
from ..common.rounds import Result
from .stock_exchange import PLAY_TOPIC, READY, STEPS_PER_MESSAGE

PACKAGES = ['DI-engine', 'torch', 'numpy', 'pynng', 'zstandard']
OURS = 'ours'
STOCK = "DI-engine's ContextExchanger"
COLLECTIONS_PER_FRAGMENT = 8  # of 32 transitions: 32 steps of each environment


def stock(folder: Path, env_steps: int, envs: int) -> Dict[str, Any]:
    """Run DI-engine's exchange until so many env steps are played."""
    with Processes(folder) as processes:
        options = ['--port', free_port(), '--env-steps', env_steps, '--envs', envs]
        for role in ('learner', 'collector'):
            script = ['-m', 'benchmarks.distributed.stock_exchange']
            processes.start(role, [*script, '--role', role, '--counts', f'{role}.json', *options])
            processes.wait_until(lambda role=role: f'\n{READY}' in processes.text(role), f'{role} that is ready')
        processes.wait('collector', timeout_s=300)
        counted = json.loads((folder / 'collector.json').read_text())
    played = counted['messages'][PLAY_TOPIC] * STEPS_PER_MESSAGE
    return dict(env_steps=played, play_bytes_per_env_step=counted['bytes'][PLAY_TOPIC] / played)


def ours(folder: Path, env_steps: int) -> Dict[str, Any]:
    """Pack fragments of recorded play."""
    from breakout_env.replay.fragment import pack

    recording = str(folder / 'random.play')
    play.record('random', env_steps * 21 // 20 + 1000, recording)
    feed = play.transitions(recording)
    sent_bytes = played = 0
    while played < env_steps:
        fragment = [transition for _ in range(COLLECTIONS_PER_FRAGMENT) for transition in next(feed)]
        sent_bytes += len(pack(fragment))
        played += len(fragment)
    feed.close()
    return dict(env_steps=played, play_bytes_per_env_step=sent_bytes / played)


@command(click.option('--env-steps', default=2048, type=click.IntRange(min=256), help='Env steps of each exchange.'))
def main(env_steps: int, out: Optional[str]) -> None:
    """Count the bytes of an env step on its way to the learner."""
    result = Result(out, PACKAGES)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # leaves no process behind
    with tempfile.TemporaryDirectory(prefix='exchange-') as name:
        home = Path(name)
        rows = [
            dict(name=OURS, **ours(home, 4 * env_steps)),
            dict(name=f'{STOCK}, 8 environments', **stock(home / '8', env_steps, 8)),
            dict(name=f'{STOCK}, 1 environment', **stock(home / '1', env_steps, 1)),
        ]
    for row in rows:
        row['ratio'] = row['play_bytes_per_env_step'] / rows[0]['play_bytes_per_env_step']
    cells = [[row['name'], f'{row["play_bytes_per_env_step"]:,.0f}', f'{row["ratio"]:,.0f}'] for row in rows]
    headers = ['exchange', 'bytes an env step', 'times ours']
    click.echo(tabulate(cells, headers, disable_numparse=True, colalign=('left', 'right', 'right')))
    result.add(dict(title='exchange', rows=rows))


if __name__ == '__main__':
    main()
