"""Interleaved rounds: contestants take turns, each in a separate process, and their ratios are taken round by round.

So no contestant meets the threads, workers or settings of another. The order is new in
each round, so that whatever else slows the computer down slows all of them; a ratio compares two turns of one round,
and is steadier than the figures that it is made of.
"""

import contextlib
import json
import multiprocessing
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import torch
from tabulate import tabulate

from breakout_env.policy.learner import fastest_dtype

ROOT = Path(__file__).resolve().parents[2]
# A contestant that has not answered by then never will; filling a buffer takes the longest.
TURN_LIMIT_S = 1200
# Makes a contestant: an object with `measure(**options)`, which returns a dict of figures, and `close()`.
Factory = Callable[[], Any]
Runs = dict[str, list[dict[str, float]]]


class ContestantFailed(Exception):
    """A contestant could not take its turn; the message goes into its row of the table."""


class Throughput(ABC):
    """A contestant whose figure is how much it does a second."""

    figure = 'steps_per_s'

    @abstractmethod
    def step(self) -> int:
        """Do a little; returns how much it was."""

    def measure(self, seconds: float) -> dict[str, float]:
        """Work for so long, after a fifth of it that is not counted."""
        self._work(seconds / 5)
        amount, elapsed_s = self._work(seconds)
        return {self.figure: amount / elapsed_s}

    def _work(self, seconds: float) -> tuple[int, float]:
        start, amount, elapsed_s = time.perf_counter(), 0, 0.0
        while elapsed_s < seconds:
            amount += self.step()
            elapsed_s = time.perf_counter() - start
        return amount, elapsed_s

    def close(self) -> None:  # noqa: B027
        """Release what it holds; some hold nothing."""


def turn(factory: Factory, **options: Any) -> dict[str, Any]:
    """The figures of a contestant's ``measure``. The ``factory``, which must be picklable, makes it in a new
    process, in an empty folder.

    Raises:
        ContestantFailed: If the contestant raises, dies or does not end.
    """
    context = multiprocessing.get_context('spawn')
    connection, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix='contestant-', ignore_cleanup_errors=True) as folder:
        process = context.Process(target=_take_turn, args=(factory, options, folder, theirs))
        process.start()
        theirs.close()
        try:
            failure, figures = _answer(process, connection)
            process.join(30)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing of its group is left, as it should be
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
            connection.close()
    if failure:
        raise ContestantFailed(failure)
    return figures


def _answer(process: Any, connection: Any) -> tuple[str | None, dict[str, Any]]:
    deadline_s = time.monotonic() + TURN_LIMIT_S
    while not connection.poll(0.2):
        # its own workers may hold the other end open: only the end of the process is a sure sign
        if not process.is_alive() and not connection.poll():
            return f'died, exit code {process.exitcode}', {}
        if time.monotonic() > deadline_s:
            return f'did not end within {TURN_LIMIT_S} s', {}
    try:
        return connection.recv()
    except (EOFError, OSError):  # it died while it answered
        process.join(5)
        return f'died, exit code {process.exitcode}', {}


def _take_turn(factory: Factory, options: dict[str, Any], folder: str, connection: Any) -> None:
    """The program of a contestant's process."""
    os.setpgid(0, 0)  # so that all it starts can be ended with it
    # this process had to be spawned; libraries start theirs as they do elsewhere
    multiprocessing.set_start_method('fork', force=True)
    os.chdir(folder)  # DI-engine logs to a folder below the current one
    try:
        contestant = factory()
        try:
            connection.send((None, contestant.measure(**options)))
        finally:
            contestant.close()
    except ModuleNotFoundError as error:  # peers are optional
        connection.send((f'not installed: {error.name}', {}))
    except Exception as error:  # whatever it is, it becomes a row of the table, and the others continue
        traceback.print_exc()
        connection.send((' '.join(f'{type(error).__name__}: {error}'.split())[:300], {}))


def interleaved(factories: dict[str, Factory], repeats: int, **options: Any) -> tuple[Runs, dict[str, str]]:
    """Let contestants take turns in so many rounds; ``options`` are what ``measure`` is called with.

    Returns:
        The figures of each turn, of the contestants that took all of them; then why the others did not.
    """
    runs: Runs = {name: [] for name in factories}
    failures: dict[str, str] = {}
    order = list(factories)
    shuffle = random.Random(0).shuffle
    for _ in range(repeats):
        for name in [name for name in order if name not in failures]:
            try:
                runs[name].append(turn(factories[name], **options))
            except ContestantFailed as failure:
                failures[name] = str(failure)
        shuffle(order)
    return {name: of_name for name, of_name in runs.items() if name not in failures}, failures


def as_dict(
    title: str, runs: Runs, failures: dict[str, str], figure: str, reference: str, more: Sequence[str] = ()
) -> dict[str, Any]:
    """Print a table of one figure, from what ``interleaved`` returned, with ratios to the contestant ``reference``
    where it took part, and the medians of ``more`` figures. Returns the same, with each single turn, for JSON.
    """
    rows = []
    for name, of_name in runs.items():
        values = [run[figure] for run in of_name]
        ratio = None
        if reference in runs:
            ratio = statistics.median(value / run[figure] for value, run in zip(values, runs[reference]))
        row = dict(name=name, median=statistics.median(values), low=min(values), high=max(values), ratio=ratio)
        row.update({key: statistics.median(run[key] for run in of_name) for key in more})
        rows.append(dict(row, runs=of_name))
    columns = ['name', 'median', 'low', 'high', 'ratio', *more]
    headers = [title, figure.replace('_', ' '), 'min', 'max', 'ratio', *(key.replace('_', ' ') for key in more)]
    click.echo(tabulate([[row[key] for key in columns] for row in rows], headers, floatfmt=',.2f') + '\n')
    for name, failure in failures.items():
        rows.append(dict(name=name, failure=failure))
        click.echo(f'{name}: {failure}')
    return dict(title=title, figure=figure, reference=reference, rows=rows)


class Result:
    """The JSON file of a benchmark: machine, versions of packages, where they are installed, the settings, and a
    section for each table. It is written after each section, so that a benchmark that is interrupted leaves what it has
    measured.
    """

    def __init__(self, out: str | None, packages: Sequence[str], **settings: Any) -> None:
        self._path = None if out is None else Path(out).absolute()
        self.content = dict(machine(packages), **settings, sections=[])
        click.echo(f'{self.content["cpu"]}, {self.content["cores"]} cores, {self.content["date"]}')
        click.echo(', '.join(f'{name} {version}' for name, version in self.content['versions'].items()) + '\n')

    def add(self, section: dict[str, Any], **about: Any) -> None:
        """Append a section, and write the file."""
        self.content['sections'].append(dict(section, **about))
        self.write()

    def write(self) -> None:
        """Write the file, where one was asked for."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self.content, indent=1) + '\n')


def measured_commit() -> str:
    """The commit whose code is measured, with a + if files were changed."""
    describe = ['git', 'describe', '--always', '--dirty=+', '--exclude=*']
    if shutil.which('git') is None:  # as on a machine that was given the files alone
        return ''
    return subprocess.run(describe, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """What figures depend on: date and commit, processor, other load, and versions of packages."""
    cpuinfo = Path('/proc/cpuinfo').read_text().splitlines()
    cpu = next((line.split(': ', 1)[1] for line in cpuinfo if line.startswith('model name')), platform.machine())
    cpu += ' with bfloat16' if fastest_dtype('auto', 'cpu') is torch.bfloat16 else ' without bfloat16'
    versions = {'python': platform.python_version()}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    date = datetime.now(timezone.utc).isoformat(timespec='seconds')
    load = round(os.getloadavg()[0], 1)
    about = dict(cpu=cpu, cores=len(os.sched_getaffinity(0)), load=load, date=date, commit=measured_commit())
    return dict(about, versions=versions)
