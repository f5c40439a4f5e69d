"""What does a transition cost in memory, and a batch in time, in this project's replay buffer and in others?

    python -m benchmarks.common.recording --player random --steps 1050000 --out random_1m.play
    python -m benchmarks.replay.cost --play random_1m.play --out docs/results/bench_replay.json

Each buffer is filled with real play at three sizes, each in a new process. Bytes are the growth of the process's
resident memory from before the buffer is built until it is full, so nothing is left out; the row 'nothing' keeps
nothing and shows the error of the measurement. Times are medians over single batches of 32 sampled from the full
buffer, with 3-step returns; pushes are timed without what brings a transition into the form that a buffer takes. A
buffer that would not fit into this machine at a size is extrapolated from the size before, and marked so.
"""

import contextlib
import ctypes
import json
import os
import shutil
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import torch
from tabulate import tabulate

from ..common import recording as play
from ..common.cli import command
from ..common.rounds import ContestantFailed, Result, turn
from .peers import CONTESTANTS, NOTHING, OURS

PACKAGES = ['DI-engine', 'torch', 'numpy', 'zstandard', 'stable-baselines3', 'torchrl', 'python-snappy']
BATCHES = 400
WARM_UP_TRANSITIONS = 1600
# left free for the rest of the machine
MARGIN_BYTES = 4 * 2**30


class Filling:
    """One of ``CONTESTANTS`` that is filled with a recording and measured in a fresh process."""

    def __init__(self, name: str, size: int, recording: str) -> None:
        torch.set_num_threads(1)
        self._name, self._size, self._recording = name, size, recording

    def measure(self) -> dict[str, Any]:
        """Bytes a transition, and times."""
        kind, size = CONTESTANTS[self._name], self._size
        if kind.feed == 'steps':
            feed = play.steps(self._recording)
        else:
            feed = play.transitions(self._recording, obs_dtype=kind.obs_dtype)
        # Playing back, importing and a first use allocate before the baseline. Playing back continues from there:
        # a second one would be counted.
        warm_up = kind(2000, 'warm-up')
        done = 0
        while done < WARM_UP_TRANSITIONS:
            batch = next(feed)
            warm_up.add(warm_up.prepare(batch))
            done += len(batch)
        for _ in range(20):
            warm_up.collated()
        warm_up.close()
        del warm_up
        _return_free_pages()  # else the buffer would grow into what the first use left behind
        before = _resident()
        buffer = kind(size, 'buffer')
        done, adding_s = 0, 0.0
        for batch in feed:
            batch = batch[: size - done]
            prepared = buffer.prepare(batch)
            start = time.perf_counter()
            buffer.add(prepared)
            adding_s += time.perf_counter() - start
            done += len(batch)
            if done >= size:
                break
        if done < size:
            raise ValueError(f'{self._recording} holds {done} transitions; expected {size}')
        del batch, prepared
        after = _resident()
        feed.close()
        result: dict[str, Any] = dict(
            bytes_per_transition=(after['VmRSS'] - before['VmRSS']) / size,
            file_backed_bytes_per_transition=(after['RssFile'] - before['RssFile']) / size,
            disk_bytes_per_transition=buffer.disk_bytes / size,
            pushes_per_s=size / adding_s,
        )
        if self._name != NOTHING:
            result['collated_ms'] = _quartiles_ms(buffer.collated)
        buffer.close()
        return result

    def close(self) -> None:
        """Nothing is left open."""


def _resident() -> dict[str, int]:
    """Resident memory of this process, and the part of it that files back."""
    lines = Path('/proc/self/status').read_text().splitlines()
    fields = dict(line.split(':') for line in lines if line.startswith(('VmRSS', 'RssFile')))
    return {name: int(value.split()[0]) * 1024 for name, value in fields.items()}


def _return_free_pages() -> None:
    """Have glibc return whole pages that lie free between pieces of memory in use."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL('libc.so.6').malloc_trim(0)


def _quartiles_ms(call: Any) -> list[float]:
    """Quartiles of the milliseconds that a call takes."""
    for _ in range(20):
        call()
    times = []
    for _ in range(BATCHES):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return np.percentile(times, [25, 50, 75]).tolist()


def in_memory(result: dict[str, Any]) -> float:
    """Bytes a transition of memory that nobody else can have: pages of files are counted with the files."""
    return result['bytes_per_transition'] - result['file_backed_bytes_per_transition']


def fits(smaller: dict[str, Any] | None, size: int) -> bool:
    """Whether there is memory and disk for a size, by what a smaller one took."""
    if smaller is None:
        return True
    if smaller.get('extrapolated', False):  # once, then from then on
        return False
    free = [psutil.virtual_memory().available, shutil.disk_usage(tempfile.gettempdir()).free]
    needed = [in_memory(smaller) * size, smaller['disk_bytes_per_transition'] * size]
    return all(need + MARGIN_BYTES < there for need, there in zip(needed, free))


def table(results: dict[str, dict[str, Any]], sizes: list[int]) -> str:
    """The results of all sizes, by buffer; this project's in bold."""
    rows = []
    for name, by_size in results.items():
        largest = by_size[str(sizes[-1])]
        mark = ' (extrapolated)' if largest.get('extrapolated') else ''
        memory, disk = in_memory(largest), largest['disk_bytes_per_transition']
        batches = [by_size[str(size)].get('collated_ms') for size in sizes]
        rows.append(
            [
                f'**{name}**' if name in OURS else name,
                f'{memory:,.0f}{f" + {disk:,.0f} on disk" if disk else ""}{mark}',
                f'{(memory + disk) * sizes[-1] / 1e9:,.2f} GB',
                *('' if quartiles is None else f'{quartiles[1]:.2f}' for quartiles in batches),
                f'{largest["pushes_per_s"]:,.0f}' if 'pushes_per_s' in largest else '',
            ]
        )
    headers = ['buffer', f'bytes a transition at {sizes[-1]:,}', 'in total']
    headers += [*(f'ms a batch at {size:,}' for size in sizes), 'pushes/s']
    align = ('left', *['right'] * (len(headers) - 1))
    return tabulate(rows, headers, tablefmt='github', disable_numparse=True, colalign=align)


@command(
    click.option('--play', 'recording', required=True, type=click.Path(exists=True), help='Recorded play.'),
    click.option('--size', 'sizes', multiple=True, default=[10**4, 10**5, 10**6], help='Transitions, smallest first.'),
    click.option('--only', multiple=True, type=click.Choice(list(CONTESTANTS)), help='These; may be repeated.'),
)
def main(recording: str, sizes: list[int], only: tuple, out: str | None) -> None:
    """Measure memory and time of replay buffers."""
    recording = os.path.abspath(recording)
    with zipfile.ZipFile(recording) as archive:
        played = json.loads(archive.read('summary.json'))
    results: dict[str, dict[str, Any]] = {}
    result = Result(out, PACKAGES, play=played, sizes=sizes, results=results)
    for name in only or CONTESTANTS:
        smaller = None
        by_size: dict[str, Any] = {}
        for size in sizes:
            if fits(smaller, size):
                try:
                    smaller = turn(partial(Filling, name, size, recording))
                except ContestantFailed as failure:
                    click.echo(f'{name} at {size:,} is left out: {failure}', err=True)
                    break
            else:
                keys = [key for key in smaller if key.endswith('bytes_per_transition')]
                smaller = dict({key: smaller[key] for key in keys}, extrapolated=True)
            by_size[str(size)] = smaller
        else:
            results[name] = by_size
            result.write()
    click.echo(table(results, sizes))


if __name__ == '__main__':
    main()
