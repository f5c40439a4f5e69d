"""
How fast is a training on a machine that does other work, by its threads and by how long they spin while they wait?

    python -m benchmarks.training.busy --out docs/results/bench_busy.json

Each turn is a training of benchmarks/training/speed.py, first on an idle machine, then beside processes that compute
without end, one for each core. PyTorch's threads wait for each other by spinning (libgomp, the OpenMP of GCC): an idle
machine loses nothing by that, on a busy one a thread that spins keeps the core from the one that it waits for.
``GOMP_SPINCOUNT`` limits the spinning; it is read when PyTorch is imported. Without it, libgomp decides.
"""

import contextlib
import multiprocessing
import os
from functools import partial
from typing import Any, Iterator, List, Optional

import click

from ..common.cli import CORES, Numbers, chosen, command, rounds
from ..common.rounds import Result, interleaved, section

REFERENCE = '1 thread'


def training(threads: int, spin_count: Optional[int], random_steps: int) -> Any:
    """
    Overview:
        A training, in the process that calls this, where PyTorch must not have been imported before.
    """
    if spin_count is not None:
        os.environ['GOMP_SPINCOUNT'] = str(spin_count)
    from . import speed

    return speed.InDIEngine(speed.OURS, False, threads=threads, random_steps=random_steps)


def _compute(parent: int) -> None:
    while os.getppid() == parent:  # whatever ends the benchmark ends this
        pass


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes compute meanwhile."""
    context = multiprocessing.get_context('spawn')
    started = [context.Process(target=_compute, args=(os.getpid(),), daemon=True) for _ in range(processes)]
    try:
        for process in started:
            process.start()
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


@command(
    *rounds(repeats=5, seconds=20.0),
    click.option('--random-steps', default=1000, type=click.IntRange(min=64), help='Env steps before learning.'),
    click.option('--spins', default='10000', type=Numbers(), help='Values of GOMP_SPINCOUNT, with commas.'),
)
def main(repeats: int, seconds: float, only: tuple, random_steps: int, spins: List[int], out: Optional[str]) -> None:
    """Measure trainings on an idle and on a busy machine."""
    ways = {REFERENCE: (1, None), f'{CORES} threads': (CORES, None)}
    ways.update({f'{CORES} threads, {spin:,} spins': (CORES, spin) for spin in spins})
    factories = chosen({name: partial(training, *way, random_steps) for name, way in ways.items()}, only)
    result = Result(out, ['DI-engine', 'torch'], repeats=repeats, seconds=seconds)
    for others in (0, CORES):
        with busy(others):
            runs, failures = interleaved(factories, repeats, warm_up_s=2.0, seconds=seconds)
        title = f'beside {others} busy processes' if others else 'on an idle machine'
        measured = section(title, runs, failures, 'steps_per_s', REFERENCE, more=['updates_per_step'])
        result.add(measured, busy=others)


if __name__ == '__main__':
    main()
