"""
How many env steps a second a training makes in one process and in many, on this machine.

    python benchmarks/bench_scale.py --out docs/results/bench_scale.json

The recipe for the CPU without evaluations and with short random play (scale_config.py), the learner on one thread:
serial, overlapped (``breakout train --overlap``), and entry/breakout_dqn_dist.py with some numbers of collectors. They
take turns, so that what else slows the machine down slows all of them; what other programs take of it is looked at, and
a turn that they disturb is repeated. Then, with a learner that makes an update a
piece in place of 64, how much collectors could play; and what it costs that one of two is killed every so often.
"""

import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
import psutil
from processes import Processes
from scale_runs import SINGLE, Training, undisturbed, wait_for_quiet
from tabulate import tabulate
from tqdm import tqdm
from turns import numbers, show_surroundings, surroundings, write

PACKAGES = ['DI-engine', 'torch', 'numpy', 'pynng', 'ale-py']
FIGURES = (
    'env_steps_per_s',
    'updates_per_s',
    'memory_bytes',
    'wire_bytes_per_s',
    'weights_age_updates',
    'cpus_busy',
    'others_cpus',
)


def mode_name(collectors: int) -> str:
    """What tables call a distributed training."""
    return f'{collectors} collector{"s" * (collectors > 1)}'


def one_run(folder: Path, mode: str, collectors: int, warm_up_s: float, seconds: float, **changes: Any) -> Dict:
    """
    Overview:
        A training from its beginning, looked at for a while.
    """
    with Processes(folder) as processes:
        training = Training(processes, mode, collectors, **changes)
        training.wait_for_updates(warm_up_s)
        figures = training.window(seconds)
        figures['weights_age_updates'] = training.weights_age_updates()
    wire = figures.get('wire', {})
    figures['wire_bytes_per_s'] = sum(topic['bytes_per_s'] for topic in wire.values())
    figures['cpus_busy'] = sum(figures['cpus'].values())
    return figures


def summary(name: str, collectors: Optional[int], runs: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Medians of the runs of a mode, and their spread."""
    row = dict(name=name, collectors=collectors, runs=runs)
    for figure in FIGURES:
        values = [run[figure] for run in runs if run[figure] is not None]
        row[figure] = statistics.median(values) if values else None
    row['low'] = min(run['env_steps_per_s'] for run in runs)
    row['high'] = max(run['env_steps_per_s'] for run in runs)
    return row


# ------------------------------------------------------------------------------------------------ collectors that die


class Killer(object):
    """
    Overview:
        Kills a collector every so often: the process that plays, which leads a process group of its own.
    Interfaces:
        ``look``.
    Properties:
        ``killed``: for each, when, and the seconds from there to the first piece of its successor.
    """

    def __init__(self, training: Training, launcher: psutil.Process, every_s: float) -> None:
        self._training = training
        self._launcher = launcher
        self._every_s = every_s
        self._due_s = time.monotonic()
        self._before = {process.pid for process in launcher.children()}
        self._newcomers: Dict[int, float] = {}
        self.killed = 0
        self.start_s: List[float] = []

    def look(self) -> None:
        """Kill one if it is time, and see whether those that came after others play."""
        for process in self._launcher.children():
            if process.pid not in self._before:
                self._before.add(process.pid)
                self._newcomers[process.pid] = process.create_time()
        for pid in list(self._newcomers):
            with contextlib.suppress(psutil.Error):
                sent = self._training.counts_of(psutil.Process(pid))['sent']
                first = [counts for topic, counts in sent.items() if topic.endswith('.piece')]
                if first:
                    self.start_s.append(first[0]['first_after_s'])
                    del self._newcomers[pid]
        if time.monotonic() >= self._due_s:
            self._due_s += self._every_s
            # the one that has lived longest: the others are still coming
            oldest = min(self._launcher.children(), key=psutil.Process.create_time)
            oldest.kill()
            self.killed += 1


def with_deaths(folder: Path, collectors: int, every_s: float, seconds: float, warm_up_s: float) -> Dict[str, Any]:
    """
    Overview:
        A training with collectors under the entry's launcher: for a while undisturbed, then with one of them killed \
        every so often, then undisturbed again.
    """
    with Processes(folder) as processes:
        training = Training(processes, 'distributed', collectors, launched=True)
        training.wait_for_updates(warm_up_s)
        (launcher,) = [p for p in processes.tree('collector 1') if p.ppid() == os.getpid()]
        undisturbed = [training.window(every_s)['env_steps_per_s']]
        killer = Killer(training, launcher, every_s)
        figures = training.window(seconds, killer.look)
        time.sleep(every_s)  # the last one's successor comes
        undisturbed.append(training.window(every_s)['env_steps_per_s'])
        learner_said = processes.text('learner')
    without = statistics.mean(undisturbed)
    start_s = statistics.median(killer.start_s)
    # of the time, the share in which one of the collectors is not there, but being started
    missing = killer.killed * start_s / seconds / collectors
    return dict(
        collectors=collectors,
        every_s=every_s,
        seconds=seconds,
        killed=killer.killed,
        came_back=len(killer.start_s),
        start_s=start_s,
        env_steps_per_s=figures['env_steps_per_s'],
        undisturbed=undisturbed,
        ratio=figures['env_steps_per_s'] / without,
        share_missing=missing,
        learner_crashed='Traceback' in learner_said,
    )


# ------------------------------------------------------------------------------------------------ all of it


def show(result: Dict[str, Any]) -> None:
    """Print the tables."""
    cells = []
    for row in result['modes']:
        age = row['weights_age_updates']
        cells.append(
            [row['name'], f'{row["env_steps_per_s"]:.0f}', f'{row["low"]:.0f} to {row["high"]:.0f}',
             f'{row["updates_per_s"]:.1f}', f'{row["memory_bytes"] / 1e9:.2f} GB',
             f'{row["wire_bytes_per_s"] / 1e6:.2f} MB/s', '' if age is None else f'{age:.0f}',
             f'{row["cpus_busy"]:.2f}', f'{row["others_cpus"]:.2f}']
        )  # fmt: skip
    headers = [
        'training',
        'env steps/s',
        'min to max',
        'updates/s',
        'memory',
        'wire',
        'weights age',
        'cores',
        "others'",
    ]
    click.echo(tabulate(cells, headers, disable_numparse=True, colalign=('left', *['right'] * 8)) + '\n')
    cells = [[row['name'], f'{row["env_steps_per_s"]:.0f}', f'{row["cpus_busy"]:.2f}'] for row in result['capacity']]
    headers = ['an update a piece', 'env steps/s', 'cores busy']
    click.echo(tabulate(cells, headers, disable_numparse=True, colalign=('left', 'right', 'right')) + '\n')
    if deaths := result.get('deaths'):
        click.echo(
            f'{deaths["killed"]} of {deaths["collectors"]} collectors killed in {deaths["seconds"]:.0f} s: '
            f'{deaths["env_steps_per_s"]:.0f} env steps/s, {deaths["ratio"]:.2f} of undisturbed; a new one plays after '
            f'{deaths["start_s"]:.1f} s, so {deaths["share_missing"]:.2f} of the collectors were missing'
        )


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--rounds', default=3, type=click.IntRange(min=1), help='Turns of each training.')
@click.option('--seconds', default=25.0, type=click.FloatRange(min=5), help='Of training, counted in each turn.')
@click.option('--warm-up-seconds', default=4.0, type=click.FloatRange(min=0), help='Of training before that.')
@click.option('--collectors', default='1,2,3,4', help='Numbers of collectors, with commas.')
@click.option(
    '--capacity-seconds', default=12.0, type=click.FloatRange(min=0), help='For each number; 0 leaves it out.'
)
@click.option('--kill-every', default=20.0, type=click.FloatRange(min=1), help='Seconds between two collectors killed.')
@click.option('--kill-for', default=180.0, type=click.FloatRange(min=0), help='Seconds of it; 0 leaves it out.')
@click.option(
    '--others',
    default=0.1,
    type=click.FloatRange(min=0),
    help='Cores that other programs may take; a turn that they disturb more is repeated, twice at most.',
)
@click.option('--wait', default=120.0, type=click.FloatRange(min=0), help='Seconds to wait for that before each turn.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
def main(
    rounds: int,
    seconds: float,
    warm_up_seconds: float,
    collectors: str,
    capacity_seconds: float,
    kill_every: float,
    kill_for: float,
    others: float,
    wait: float,
    out: Optional[str],
) -> None:
    """Measure trainings in one process and in many."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # leaves no process behind
    out = out and os.path.abspath(out)
    result = dict(surroundings(PACKAGES), rounds=rounds, seconds=seconds, load_before=os.getloadavg()[0])
    show_surroundings(result)
    counts = numbers(collectors)
    modes = [(name, name, None) for name in SINGLE] + [(mode_name(n), 'distributed', n) for n in counts]
    runs: Dict[str, list] = {name: [] for name, _, _ in modes}
    with tempfile.TemporaryDirectory(prefix='scale-', ignore_cleanup_errors=True) as name:
        home = Path(name)

        def turn(name: str, run: Callable[..., Dict[str, Any]], *arguments: Any, **changes: Any) -> Dict[str, Any]:
            """A run in a folder of its own, again if it was disturbed."""
            return undisturbed(lambda tried: run(home / f'{name}-{tried}', *arguments, **changes), others, wait)

        for number in tqdm(range(rounds), unit=' rounds', leave=False, disable=None):
            for name, mode, count in modes:
                window = (warm_up_seconds, seconds)
                runs[name].append(turn(f'{number}-{name}', one_run, mode, count or 0, *window))
        result['modes'] = [summary(name, count, runs[name]) for name, _, count in modes]
        result['capacity'] = []
        for count in counts if capacity_seconds else []:
            window = (warm_up_seconds / 2, capacity_seconds)
            run = turn(f'capacity-{count}', one_run, 'distributed', count, *window, SCALE_UPDATES=1)
            result['capacity'].append(summary(mode_name(count), count, [run]))
        if kill_for:
            # what those that are killed have taken of the CPUs would be counted as others'
            wait_for_quiet(others, wait)
            result['deaths'] = with_deaths(home / 'deaths', 2, kill_every, kill_for, warm_up_seconds)
    result['load_after'] = os.getloadavg()[0]
    show(result)
    write(out, result)


if __name__ == '__main__':
    main()
