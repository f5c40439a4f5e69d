"""
How many bytes it takes to play in one process and learn in another: DI-engine's ContextExchanger, and ours.

    python benchmarks/bench_exchange.py --out docs/results/bench_exchange.json

Both really run, a learner and a collector on this machine, over DI-engine's nng, on environments with uint8 screens,
and all that either of them hands to the queue is counted (counted_queue.py): DI-engine's own middleware
(stock_exchange.py), with 8 environments, with 1, and with 8 and its loader that hands play over in files, which count
as well; and entry/breakout_dqn_dist.py. Both play at random. Ours has fewer bytes the more alike screens are, so the
same is measured on the play of the shipped agent, besides what packing and unpacking take, level by level of zstd.
"""

import logging
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
import counted_queue
import torch
from ding.policy import create_policy
from processes import COUNTED_DIST, ROOT, SCALE_CONFIG, Processes, free_port
from recorded_pieces import NATURE, record, small_config
from tabulate import tabulate
from turns import show_surroundings, surroundings, write

from breakout_env.distributed import compact, weights

PACKAGES = ['DI-engine', 'torch', 'numpy', 'pynng', 'zstandard']
LEVELS = (1, 3, 9, 15)
# Topics that carry play; others carry weights, orders and signs of life.
PLAY = ('piece', 'Role.COLLECTOR', counted_queue.BESIDE)
OURS = 'ours'
STOCK = "DI-engine's ContextExchanger"


def by_kind(counts: List[Dict[str, Any]]) -> Dict[str, Dict[str, int]]:
    """Messages and bytes of two processes together, by the last word of the topic."""
    kinds: Dict[str, Dict[str, int]] = {}
    for process in counts:
        for topic, sent in process['sent'].items():
            kind = topic.split('.', 1)[-1].replace('context_exchanger_', '').removeprefix('exchange.')
            kinds[kind] = dict(messages=sent['messages'], bytes=sent['bytes'])
    return kinds


def row(name: str, env_steps: int, counts: List[Dict[str, Any]], **more: Any) -> Dict[str, Any]:
    """A line of the table."""
    kinds = by_kind(counts)
    play_bytes = sum(sent['bytes'] for kind, sent in kinds.items() if kind in PLAY)
    all_bytes = sum(sent['bytes'] for sent in kinds.values())
    return dict(
        name=name,
        env_steps=env_steps,
        play_bytes_per_env_step=play_bytes / env_steps,
        all_bytes_per_env_step=all_bytes / env_steps,
        kinds=kinds,
        **more,
    )


def run_stock(name: str, folder: Path, env_steps: int, envs: int, files: bool = False) -> Dict[str, Any]:
    """
    Overview:
        DI-engine's exchange, until so many env steps are played.
    """
    script = ROOT / 'benchmarks' / 'stock_exchange.py'
    with Processes(folder) as processes:
        options = ['--port', free_port(), '--env-steps', env_steps, '--envs', envs]
        options += ['--files', folder / 'play'] if files else []
        for role in ('learner', 'collector'):
            processes.start(role, [script, '--role', role, '--counts', f'{role}.json', *options])
            processes.wait_until(lambda role=role: '\nready' in processes.text(role), f'{role} that is ready')
        processes.wait('collector', timeout_s=300)
        # Where the collector is the first to end, DI-engine's learner can wait for more play for ever: that loop of
        # ContextExchanger's does not look at the task's end. All that it has sent is counted by then.
        processes.wait('learner', timeout_s=20, must_end=False)
        counts = [counted_queue.read(folder / f'{role}.json') for role in ('learner', 'collector')]
    # the last steps of the collector are those that the learner has counted
    pieces = counts[1]['sent']['task.context_exchanger_Role.COLLECTOR']['messages']
    return row(name, pieces * 64, counts, envs=envs)


def run_ours(name: str, folder: Path, env_steps: int) -> Dict[str, Any]:
    """
    Overview:
        The distributed entry, until so many env steps are played.
    """
    with Processes(folder) as processes:
        options = ['-c', SCALE_CONFIG, '--parallel-workers', 2, '--threads', 1, '--env-step', env_steps]
        processes.start(
            'run', [COUNTED_DIST, *options, '--channel', 'exchange'],
            BREAKOUT_COUNTS=folder, SCALE_RANDOM_STEPS=256, SCALE_EPSILON=1,
        )  # fmt: skip
        processes.wait('run', timeout_s=300)
        counts = [counted_queue.read(path) for path in folder.glob('[0-9]*.json')]
    pieces = next(process['sent'] for process in counts if 'breakout.exchange.piece' in process['sent'])
    # a piece is the config's n_sample, or a few steps more where DI-engine's collector ends an episode with it
    return row(name, pieces['breakout.exchange.piece']['messages'] * 256, counts, envs=8)


def milliseconds(call: Any, repeats: int) -> float:
    """The median time of the CPU that a call takes."""
    times = []
    for _ in range(repeats):
        begin_s = time.process_time()
        call()
        times.append(time.process_time() - begin_s)
    return 1000 * statistics.median(times)


def codec(play: str, pieces: List[list], repeats: int) -> List[Dict[str, Any]]:
    """
    Overview:
        What packing and unpacking take, at each level of zstd; levels take turns, so that a slow moment hits all.
    """
    took: Dict[int, Dict[str, list]] = {level: dict(pack=[], unpack=[], size=[]) for level in LEVELS}
    kept = compact.LEVEL
    try:
        for piece in pieces:
            for level in LEVELS:
                compact.LEVEL = level
                payload = compact.pack(piece)
                took[level]['pack'].append(milliseconds(lambda piece=piece: compact.pack(piece), repeats))
                took[level]['unpack'].append(milliseconds(lambda payload=payload: compact.unpack(payload), repeats))
                took[level]['size'].append(len(payload) / len(piece))
    finally:
        compact.LEVEL = kept
    return [
        dict(
            play=play,
            level=level,
            transitions=len(pieces[0]),
            pack_ms=statistics.median(figures['pack']),
            unpack_ms=statistics.median(figures['unpack']),
            bytes_per_env_step=statistics.mean(figures['size']),
        )
        for level, figures in took.items()
    ]


def weights_bytes() -> Dict[str, int]:
    """Bytes of a broadcast, by network."""
    cfg, sizes = small_config(), {}
    for name, widths in dict(small=cfg.policy.model.encoder_hidden_size_list, nature=NATURE).items():
        cfg.policy.model.encoder_hidden_size_list = widths
        policy = create_policy(cfg.policy, enable_field=['collect'])
        sizes[name] = len(weights.to_bytes(policy.collect_mode.state_dict()['model']))
    return sizes


def show(result: Dict[str, Any]) -> None:
    """Print the tables."""
    cells = [
        [row['name'], f'{row["env_steps"]:,}', f'{row["play_bytes_per_env_step"]:,.0f}', f'{row["ratio"]:,.0f}',
         f'{row["all_bytes_per_env_step"]:,.0f}']
        for row in result['exchange']
    ]  # fmt: skip
    headers = ['bytes an env step on the wire', 'env steps', 'play', 'times ours', 'all messages']
    click.echo(tabulate(cells, headers, disable_numparse=True, colalign=('left', *['right'] * 4)) + '\n')
    cells = [
        [row['play'], str(row['level']), f'{row["pack_ms"]:.1f}', f'{row["unpack_ms"]:.1f}',
         f'{row["bytes_per_env_step"]:.0f}']
        for row in result['codec']
    ]  # fmt: skip
    headers = ['a piece of 256 steps', 'zstd level', 'pack ms', 'unpack ms', 'bytes an env step']
    click.echo(tabulate(cells, headers, disable_numparse=True, colalign=('left', *['right'] * 4)) + '\n')
    for name, size in result['weights_bytes'].items():
        click.echo(f'a broadcast of the {name} network: {size:,} bytes')


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--env-steps', default=2048, type=click.IntRange(min=512), help='Env steps of each exchange.')
@click.option('--pieces', default=16, type=click.IntRange(min=2), help='Pieces to pack and unpack.')
@click.option('--repeats', default=5, type=click.IntRange(min=1), help='Times that each of them is.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
def main(env_steps: int, pieces: int, repeats: int, out: Optional[str]) -> None:
    """Count the bytes of an env step on the wire."""
    out = out and os.path.abspath(out)
    result = surroundings(PACKAGES)
    show_surroundings(result)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # leaves no process behind
    logging.basicConfig()
    for handler in logging.getLogger().handlers:  # DI-engine prints what it also writes to files
        handler.setLevel(logging.WARNING)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix='exchange-') as name:
        home = Path(name)
        exchange = [
            run_ours(OURS, home / 'ours', 4 * env_steps),
            run_stock(f'{STOCK}, 8 environments', home / 'stock', env_steps, 8),
            run_stock(f'{STOCK}, 1 environment', home / 'single', env_steps, 1),
            run_stock(f'{STOCK}, 8 environments, by files', home / 'files', env_steps, 8, files=True),
        ]
        os.chdir(home)  # DI-engine logs to a folder below the current one
        plays = {
            'random play': record(pieces, 1.0, False, 'random'),
            "the shipped agent's play": record(pieces, 0.01, True, 'trained')[1:],  # the first is all beginnings
        }
        result['codec'] = [row for play, recorded in plays.items() for row in codec(play, recorded, repeats)]
        result['weights_bytes'] = weights_bytes()
        os.chdir(ROOT)
    for each in exchange:
        each['ratio'] = each['play_bytes_per_env_step'] / exchange[0]['play_bytes_per_env_step']
    result['exchange'] = exchange
    show(result)
    write(out, result)


if __name__ == '__main__':
    main()
