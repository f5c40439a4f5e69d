"""
What benchmarks of whole pipelines share: contestants that take turns, each in a process of its own, and their table.

A process of its own means that no contestant meets the threads, workers or settings of another. They take turns, in a
new order in each round, so that whatever else slows the computer down slows all of them; a ratio compares two turns of
the same round.
"""

import contextlib
import json
import multiprocessing
import os
import platform
import random
import signal
import statistics
import tempfile
import time
import traceback
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import click
from tabulate import tabulate
from tqdm import tqdm

# A contestant that has not answered by then never will; filling a buffer takes the longest.
TURN_LIMIT_S = 1200
Build = Callable[[], Any]
Runs = Dict[str, List[Dict[str, float]]]


class SeatFailed(Exception):
    """A contestant could not take its turn; the message is for its row of the table."""


class Seat(object):
    """
    Overview:
        A process for one contestant, in an empty folder of its own. What the contestant prints is not shown.
    Interfaces:
        ``turn``, ``close``.
    """

    def __init__(self, build: Build) -> None:
        """
        Arguments:
            - build (:obj:`Build`): What makes the contestant, over there: an object with ``turn(**options)``, which \
                returns a dict of figures, and ``close()``. It has to be something that can be pickled.
        """
        self._folder = tempfile.TemporaryDirectory(prefix='turns-', ignore_cleanup_errors=True)
        context = multiprocessing.get_context('spawn')
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_sit, args=(build, self._folder.name, theirs))
        with _output_to(os.path.join(self._folder.name, 'output.txt')):  # from the first import on
            self._process.start()
        theirs.close()

    def turn(self, **options: Any) -> Dict[str, float]:
        """
        Overview:
            Let it take its turn, and wait for that.
        Raises:
            - SeatFailed: If it raises, dies or does not end.
        """
        with contextlib.suppress(OSError):  # it is dead already; waiting for its answer says so
            self._connection.send(options)
        failure, figures = self._answer()
        if failure:
            raise SeatFailed(failure)
        return figures

    def _answer(self) -> Tuple[Optional[str], Dict[str, float]]:
        deadline = time.monotonic() + TURN_LIMIT_S
        while not self._connection.poll(0.2):
            # its own workers may hold the other end open, so that the end of the process is what tells
            if not self._process.is_alive() and not self._connection.poll():
                return f'died, exit code {self._process.exitcode}', {}
            if time.monotonic() > deadline:
                return f'did not end within {TURN_LIMIT_S} s', {}
        try:
            return self._connection.recv()
        except (EOFError, OSError):  # it ended while it answered
            self._process.join(5)
            return f'died, exit code {self._process.exitcode}', {}

    def close(self) -> None:
        """End the process, and with it whatever the contestant has not closed itself."""
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._process.join(30)
        with contextlib.suppress(ProcessLookupError):  # as it should be; else what it has started goes with it
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()
        self._connection.close()
        self._folder.cleanup()


@contextlib.contextmanager
def _output_to(path: str) -> Iterator[None]:
    """What processes that are started meanwhile print goes to a file."""
    screen = [os.dup(1), os.dup(2)]
    with open(path, 'wb') as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, mine in zip((1, 2), screen):
            os.dup2(mine, descriptor)
            os.close(mine)


def _sit(build: Build, folder: str, connection: Any) -> None:
    """What runs in the process of a seat."""
    os.setpgid(0, 0)  # so that all it starts can be ended with it
    # what was asked for to start this process is not what libraries are to start theirs with
    multiprocessing.set_start_method('fork', force=True)
    os.chdir(folder)  # DI-engine logs to a folder below the current one
    try:
        contestant = build()
        try:
            for options in iter(connection.recv, None):
                connection.send((None, contestant.turn(**options)))
        finally:
            contestant.close()
    except ModuleNotFoundError as error:  # a library that not everybody has; a row that says so
        connection.send((f'not installed: {error.name}', {}))
    except Exception as error:  # whatever it is, it is a row of the table and must not end the others' run
        traceback.print_exc()
        connection.send((' '.join(f'{type(error).__name__}: {error}'.split())[:300], {}))


def take_turns(builds: Dict[str, Build], repeats: int, stay: bool = False, **options: Any) -> Tuple[Runs, Dict]:
    """
    Overview:
        Let contestants take turns.
    Arguments:
        - builds (:obj:`Dict[str, Build]`): What makes each, by name; see ``Seat``.
        - repeats (:obj:`int`): Rounds.
        - stay (:obj:`bool`): Whether a contestant keeps its process from round to round, for those that take long to \
            get ready and do nothing while others have their turn; else each turn has a process of its own.
        - options (:obj:`Any`): What each turn is called with.
    Returns:
        - runs (:obj:`Runs`): The figures of each turn, of those that took all of them.
        - failures (:obj:`Dict[str, str]`): What kept the others from it.
    """
    runs: Runs = {name: [] for name in builds}
    failures: Dict[str, str] = {}
    seats: Dict[str, Seat] = {}
    order = list(builds)
    shuffle = random.Random(0).shuffle
    bar = tqdm(total=repeats * len(order), unit=' turns', leave=False, disable=None)
    try:
        for _ in range(repeats):
            for name in [name for name in order if name not in failures]:
                bar.set_postfix_str(name)
                if name not in seats:
                    seats[name] = Seat(builds[name])
                try:
                    runs[name].append(seats[name].turn(**options))
                except SeatFailed as failure:  # its row says so; the others go on
                    failures[name] = str(failure)
                if not stay or name in failures:
                    seats.pop(name).close()
                bar.update()
            shuffle(order)
    finally:
        bar.close()
        for seat in seats.values():
            seat.close()
    return {name: of_name for name, of_name in runs.items() if name not in failures}, failures


def show(
    title: str, runs: Runs, failures: Dict[str, str], figure: str, reference: str, more: Sequence[str] = ()
) -> Dict[str, Any]:
    """
    Overview:
        Print a table of one figure.
    Arguments:
        - title (:obj:`str`): Heads the first column.
        - runs, failures (:obj:`Runs`, :obj:`Dict[str, str]`): What ``take_turns`` returned.
        - figure (:obj:`str`): Which of the figures; its name heads the column.
        - reference (:obj:`str`): Whom the ratios are to. Where it took no part there are none.
        - more (:obj:`Sequence[str]`): Figures whose medians are shown besides.
    Returns:
        - section (:obj:`Dict[str, Any]`): The same, with each single turn, for JSON.
    """
    rows, cells = [], []
    for name, of_name in runs.items():
        values = [run[figure] for run in of_name]
        ratio = None
        if reference in runs:
            ratio = statistics.median(value / run[figure] for value, run in zip(values, runs[reference]))
        row = dict(name=name, median=statistics.median(values), low=min(values), high=max(values), ratio=ratio)
        row.update({key: statistics.median(run[key] for run in of_name) for key in more})
        rows.append(dict(row, runs=of_name))
        digits = 0 if row['median'] >= 100 else 1
        cells.append([name, f'{row["median"]:,.{digits}f}', f'{row["low"]:,.{digits}f} to {row["high"]:,.{digits}f}'])
        cells[-1] += ['' if ratio is None else f'{ratio:.2f}', *(f'{row[key]:.3f}' for key in more)]
    for name, failure in failures.items():
        rows.append(dict(name=name, failure=failure))
        cells.append([name, failure if len(failure) < 40 else failure[:37] + '...'])
    headers = [title, figure.replace('_', ' '), 'min to max', 'ratio', *(key.replace('_', ' ') for key in more)]
    click.echo(tabulate(cells, headers, disable_numparse=True, colalign=('left', *['right'] * (len(headers) - 1))))
    click.echo('' if reference not in runs else f'ratio: to {reference}\n')
    return dict(title=title, figure=figure, reference=reference, rows=rows)


def surroundings(packages: Sequence[str]) -> Dict[str, Any]:
    """
    Overview:
        What the figures depend on besides the code.
    Arguments:
        - packages (:obj:`Sequence[str]`): Whose versions are told, where they are installed.
    """
    cpuinfo = Path('/proc/cpuinfo').read_text().splitlines()
    cpu = next((line.split(': ', 1)[1] for line in cpuinfo if line.startswith('model name')), platform.machine())
    versions = {'python': platform.python_version()}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    date = datetime.now(timezone.utc).isoformat(timespec='seconds')
    return dict(cpu=cpu, cores=len(os.sched_getaffinity(0)), date=date, versions=versions)


def show_surroundings(about: Dict[str, Any]) -> None:
    """Print what ``surroundings`` returned."""
    click.echo(f'{about["cpu"]}, {about["cores"]} cores, {about["date"]}')
    click.echo(', '.join(f'{package} {version}' for package, version in about['versions'].items()) + '\n')


def write(out: Optional[str], result: Dict[str, Any]) -> None:
    """Write JSON, where that was asked for."""
    if out:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        Path(out).write_text(json.dumps(result, indent=1) + '\n')


def chosen(builds: Dict[str, Build], only: Sequence[str]) -> Dict[str, Build]:
    """
    Overview:
        Those whose names contain one of the given words; all if none is given.
    Raises:
        - click.UsageError: If no name does.
    """
    kept = {name: build for name, build in builds.items() if not only or any(word in name for word in only)}
    if not kept:
        raise click.UsageError(f'--only is {", ".join(only)}; expected part of one of these: {"; ".join(builds)}')
    return kept


def numbers(text: str) -> List[int]:
    """Integers with commas between them."""
    try:
        return [int(word) for word in text.split(',') if word]
    except ValueError:  # what the user typed is no number
        raise click.UsageError(f'found {text}; expected integers with commas between them, such as 1,2,4') from None
