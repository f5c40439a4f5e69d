"""
What trainings on the CPU make of a machine that does other work besides: threads, and how long they wait by spinning.

    python benchmarks/bench_busy.py --out docs/results/bench_busy.json

Each turn is the training of benchmarks/bench_train.py, first on an idle machine, then beside processes that compute
without end, one for each core. PyTorch's threads wait for each other by spinning (libgomp, the OpenMP of GCC): an idle
machine loses nothing by that, on a busy one a thread that spins keeps the core from the one that it waits for.
``GOMP_SPINCOUNT`` is how long, in turns of the loop; it is read when PyTorch is imported. Where it is not given,
libgomp decides.
"""

import contextlib
import multiprocessing
import os
from functools import partial
from typing import Any, Dict, Iterator, Optional, Sequence

import click
from turns import Build, numbers, show, show_surroundings, surroundings, take_turns, write

CORES = len(os.sched_getaffinity(0))
REFERENCE = '1 thread'


def build(threads: int, spin_count: Optional[int], random_steps: int) -> Any:
    """
    Overview:
        A training, in the process that called this, where PyTorch must not have been imported before.
    """
    if spin_count is not None:
        os.environ['GOMP_SPINCOUNT'] = str(spin_count)
    import bench_train

    return bench_train.InDIEngine(bench_train.OURS, False, threads=threads, random_steps=random_steps)


def contestants(spins: Sequence[int]) -> Dict[str, Build]:
    """What takes turns: one thread, and one for each core with each of the ways to wait."""
    ways = {f'{CORES} threads': partial(build, CORES, None)}
    ways.update({f'{CORES} threads, {spin:,} spins': partial(build, CORES, spin) for spin in spins})
    return {REFERENCE: partial(build, 1, None), **ways}


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


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--repeats', default=5, type=click.IntRange(min=1), help='Turns of each.')
@click.option('--seconds', default=20.0, type=click.FloatRange(min=0.1), help='Of training, counted in each turn.')
@click.option('--random-steps', default=1000, type=click.IntRange(min=64), help='Env steps before the first update.')
@click.option('--spins', default='10000', help='Values of GOMP_SPINCOUNT, with commas.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
def main(repeats: int, seconds: float, random_steps: int, spins: str, out: Optional[str]) -> None:
    """Measure trainings on an idle and on a busy machine."""
    builds = {name: partial(made, random_steps) for name, made in contestants(numbers(spins)).items()}
    result = dict(surroundings(['DI-engine', 'torch']), repeats=repeats, seconds=seconds, sections=[])
    show_surroundings(result)
    for others in (0, CORES):
        with busy(others):
            runs, failures = take_turns(builds, repeats, warm_up_s=2.0, seconds=seconds)
        title = f'beside {others} busy processes' if others else 'on an idle machine'
        section = show(title, runs, failures, 'steps_per_s', REFERENCE, more=['updates_per_step'])
        result['sections'].append(dict(section, busy=others))
        write(out, result)


if __name__ == '__main__':
    main()
