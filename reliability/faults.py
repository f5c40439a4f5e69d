"""
Faults, planted into real runs: after each, is the outcome the one that the table promises?

    python reliability/faults.py --out docs/results/faults.json

Each fault of ``fault_table.py`` is made several times, in a run of its own, at a moment that its seed chooses: signals,
exceptions and hangs, disks that are full, read-only or slow, damaged files, a clock that is set. Then nothing of the
run may be left (processes, shared memory, temporary files), its saves have to be whole, and what it was to say has to
be said. A line that fails has the options that repeat it.
"""

import contextlib
import fnmatch
import gc
import json
import math
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
import fault_disk
import fault_emulator
import fault_files
import fault_runs
import fault_signals
import psutil
from fault_case import CASE_LIMIT_S, Case, Seen, start_case
from fault_table import TABLE, Promise
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

CASES: Dict[Tuple[str, str], Callable[[Case], Seen]] = {
    **fault_signals.CASES,
    **fault_emulator.CASES,
    **fault_disk.CASES,
    **fault_files.CASES,
}
PACKAGES = ('breakout-env', 'DI-engine', 'torch', 'numpy', 'ale-py', 'opencv-python', 'psutil')


@dataclass
class Trial:
    """
    Overview:
        One fault: a row of the table and a seed; and, when it is over, what came of it.
    """

    promise: Promise
    seed: int
    seconds: float = 0.0
    outcome: Optional[str] = None
    error: Optional[str] = None
    skipped: Optional[str] = None
    text: str = ''
    facts: Any = None

    @property
    def name(self) -> str:
        return f'{self.promise.fault}/{self.promise.role}'

    @property
    def repeat(self) -> str:
        """The command that makes it again."""
        times = '' if self.promise.times == 1 else '  (and several after it)'
        return f'python reliability/faults.py --only {self.name!r} --seed {self.seed} --times 1{times}'


def trials_of(table: Sequence[Promise], only: Sequence[str], seed: int, times: int) -> List[Trial]:
    """
    Overview:
        What to try, the rows in turns, so that a run that is broken off has seen something of each.
    Arguments:
        - table (:obj:`Sequence[Promise]`): What is promised.
        - only (:obj:`Sequence[str]`): Classes, or class/role; with ``*``. All if it is empty.
        - seed (:obj:`int`): Of the first trial of each row.
        - times (:obj:`int`): Trials of each row, or the row's own multiple of it.
    """
    rows = [p for p in table if not only or any(_matches(p, pattern) for pattern in only)]
    most = max((times * p.times for p in rows), default=0)
    return [Trial(p, seed + i) for i in range(most) for p in rows if i < times * p.times]


def _matches(promise: Promise, pattern: str) -> bool:
    names = (promise.fault, f'{promise.fault}/{promise.role}', promise.role)
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for name in names)


def judge(trial: Trial, result: Dict[str, Any]) -> None:
    """
    Overview:
        Compare what was seen with what is promised.
    Arguments:
        - trial (:obj:`Trial`): Gets outcome and, where they differ, error.
        - result (:obj:`Dict[str, Any]`): What the case has written.
    """
    promise = trial.promise
    trial.seconds, trial.facts = result.get('seconds', 0.0), result.get('facts')
    trial.outcome, trial.text = result.get('outcome'), result.get('text', '')
    trial.skipped, trial.error = result.get('skipped'), result.get('error')
    if trial.error or trial.skipped:
        return
    if trial.outcome not in promise.outcome.split(' or '):
        trial.error = f'it {trial.outcome}; promised is that it {promise.outcome}'
    elif promise.message is not None and not re.search(promise.message, trial.text):
        trial.error = f'it does not say what is promised: {promise.message}'
    elif promise.silent is not None and re.search(promise.silent, trial.text):
        trial.error = f'it says what it is promised not to: {promise.silent}'


class Trials(object):
    """
    Overview:
        Some trials at a time, each in a process of its own; all of them end with this object.
    Interfaces:
        ``run``, ``close``.
    """

    def __init__(self, jobs: int) -> None:
        """
        Arguments:
            - jobs (:obj:`int`): How many at a time.
        """
        self._jobs = jobs
        # no TemporaryDirectory: forks of this process would remove it when they end
        self._folder = Path(tempfile.mkdtemp(prefix='faults-'))
        self._running: Dict[int, Tuple[Trial, Path, float]] = {}
        self._template: Optional[Path] = None
        self._count = 0

    def make_template(self) -> None:
        """
        Overview:
            One run that goes to its end, for the trials that begin with one.
        Raises:
            - click.ClickException: If that fails without any fault.
        """

        def whole_run(case: Case) -> Seen:
            run = fault_runs.start(case)
            fault_runs.check_finished(case, run)
            # out of the disk that goes with the case
            shutil.copytree(case.folder / fault_runs.NAME, case.folder.parent / fault_runs.NAME)
            return Seen('continues', run.text)

        folder = self._folder / 'template'
        folder.mkdir()
        os.waitpid(start_case(whole_run, 'template', 0, folder), 0)
        result = _result_in(folder)
        if not result.get('ok'):
            raise click.ClickException(f'a run without any fault fails: {result.get("error")}\n{result.get("text")}')
        self._template = folder

    def run(self, trials: Sequence[Trial], tell: Callable[[Trial], None], until_s: float = math.inf) -> None:
        """
        Overview:
            Make all of them.
        Arguments:
            - trials (:obj:`Sequence[Trial]`): What to make.
            - tell (:obj:`Callable`): Called with each that is over.
            - until_s (:obj:`float`): Time, by ``time.monotonic``, from which on none is begun any more.
        """
        waiting = list(trials)
        while waiting or self._running:
            if time.monotonic() > until_s:
                waiting.clear()
            while waiting and len(self._running) < self._jobs:
                self._start(waiting.pop(0))
            for trial in self._ended():
                tell(trial)
            time.sleep(0.01)

    def _start(self, trial: Trial) -> None:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        key = (trial.promise.fault, trial.promise.role)
        pid = start_case(CASES[key], trial.name, trial.seed, folder, self._template)
        self._running[pid] = trial, folder, time.monotonic()

    def _ended(self) -> List[Trial]:
        ended = []
        for pid, (trial, folder, begun_s) in list(self._running.items()):
            is_late = time.monotonic() - begun_s > CASE_LIMIT_S
            if is_late:
                self._end(pid)
            elif os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
            del self._running[pid]
            judge(trial, dict(error=f'it was not over after {CASE_LIMIT_S:g} s') if is_late else _result_in(folder))
            shutil.rmtree(folder, ignore_errors=True)
            ended.append(trial)
        return ended

    def _end(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(pid, signal.SIGTERM)  # the supervisor kills all that it has
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

    def close(self) -> None:
        """End what is running; may be called again."""
        for pid in list(self._running):
            self._end(pid)
        self._running.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def _result_in(folder: Path) -> Dict[str, Any]:
    try:
        return json.loads((folder / 'result.json').read_text())
    except (OSError, ValueError):
        return dict(error='the case ended without a result')


def summary(table: Sequence[Promise], trials: Sequence[Trial]) -> List[Dict[str, Any]]:
    """
    Overview:
        A row for each row of the table that was tried.
    """
    rows = []
    for promise in table:
        ours = [t for t in trials if t.promise is promise and (t.outcome or t.error or t.skipped)]
        tried = [t for t in ours if t.skipped is None]
        if ours:
            rows.append(
                dict(
                    fault=promise.fault,
                    role=promise.role,
                    outcome=promise.outcome,
                    promise=promise.promise,
                    tried=len(tried),
                    kept=sum(t.error is None for t in tried),
                    skipped=len(ours) - len(tried),
                    missing=next((t.skipped for t in ours if t.skipped), None),
                    median_s=round(statistics.median(t.seconds for t in tried), 2) if tried else None,
                    failures=[dict(seed=t.seed, error=t.error.splitlines()[-1][:300]) for t in tried if t.error],
                )
            )
    return rows


def _with_others(
    table: Sequence[Promise], rows: Sequence[Dict[str, Any]], others: Sequence[Dict[str, Any]]
) -> List[Dict[str, Any]]:
    """The rows, and those of an earlier time that are not among them, in the order of the table."""
    found = {(row['fault'], row['role']): row for row in (*others, *rows)}
    return [found[p.fault, p.role] for p in table if (p.fault, p.role) in found]


def show(rows: Sequence[Dict[str, Any]]) -> None:
    """
    Overview:
        Print the table.
    """
    table = Table('fault', 'role', 'promised', 'tried', 'kept', 'seconds')
    for row in rows:
        style = 'red' if row['kept'] < row['tried'] else 'yellow' if row['skipped'] else None
        seconds = '' if row['median_s'] is None else f'{row["median_s"]:.1f}'
        table.add_row(
            row['fault'], row['role'], row['outcome'], str(row['tried']), str(row['kept']), seconds, style=style
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def machine() -> Dict[str, Any]:
    """
    Overview:
        Where this was seen, in words.
    """
    gigabytes = psutil.virtual_memory().total / 2**30
    return dict(
        machine=f'{len(os.sched_getaffinity(0))} cores, {gigabytes:.0f} GB',
        python='.'.join(map(str, sys.version_info[:3])),
        versions={name: metadata.version(name) for name in PACKAGES},
        date=datetime.now(timezone.utc).date().isoformat(),
    )


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option(
    '--seed', default=0, type=click.IntRange(min=0), help='Of the first trial of each row; then one more each.'
)
@click.option('--times', default=10, type=click.IntRange(min=1), help='Trials of each row; of whole kills five times.')
@click.option('--only', multiple=True, metavar='CLASS', help='A class, a role, or CLASS/ROLE; * stands for anything.')
@click.option('--jobs', default=2, type=click.IntRange(min=1), help='Trials at a time.')
@click.option('--minutes', type=click.FloatRange(min=0), help='Begin no trial after so long; rows take turns.')
@click.option('--list', 'lists', is_flag=True, help='Only print what is promised.')
@click.option('--add', is_flag=True, help='Keep those rows of the JSON that are not tried now.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
def main(
    seed: int,
    times: int,
    only: Tuple[str, ...],
    jobs: int,
    minutes: Optional[float],
    lists: bool,
    add: bool,
    out: Optional[str],
) -> None:
    """Plant faults into runs, and compare what becomes of them with what is promised."""
    trials = trials_of(TABLE, only, seed, times)
    if not trials:
        raise click.UsageError(f'--only is {", ".join(only)}; expected one of {", ".join(sorted({*_names()}))}')
    if lists:
        for promise in dict.fromkeys(trial.promise for trial in trials):
            click.echo(f'{promise.fault} / {promise.role}: {promise.outcome}. {promise.promise}')
        return
    out = out and os.path.abspath(out)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # leaves no process behind
    fault_runs.warm_up()
    gc.freeze()  # so that collections in the forks do not touch, and so copy, what they share
    begun_s = time.monotonic()
    running = Trials(jobs)
    bar = tqdm(total=len(trials), unit=' faults', leave=False, disable=None)

    def tell(trial: Trial) -> None:
        if trial.error is not None:
            bar.write(f'{trial.name}, seed {trial.seed}, {trial.facts}: {trial.error}\n  again: {trial.repeat}')
            bar.write(''.join(f'  | {line}\n' for line in trial.text.splitlines()[-30:]))
        elif trial.skipped is not None:
            bar.write(f'{trial.name}, seed {trial.seed}: left out, for want of {trial.skipped}')
        else:
            bar.write(f'{trial.name}, seed {trial.seed}: {trial.outcome}, as promised ({trial.seconds:.1f} s)')
        bar.update()

    try:
        if any(CASES[t.promise.fault, t.promise.role] in fault_files.CASES.values() for t in trials):
            running.make_template()
        running.run(trials, tell, math.inf if minutes is None else begun_s + 60 * minutes)
    finally:
        running.close()
        bar.close()
    rows = summary(TABLE, trials)
    minutes_before = 0.0
    if add and out and os.path.exists(out):
        before = json.loads(Path(out).read_text())
        rows, minutes_before = _with_others(TABLE, rows, before['rows']), before['minutes']
    kills = [row['tried'] for row in rows if (row['fault'], row['role']) == ('SIGKILL', 'whole run')]
    result = dict(
        machine(),
        seed=seed,
        times=times,
        jobs=jobs,
        minutes=round(minutes_before + (time.monotonic() - begun_s) / 60, 1),
        faults=sum(row['tried'] for row in rows),
        kept=sum(row['kept'] for row in rows),
        skipped=sum(row['skipped'] for row in rows),
        kills_of_the_whole_run=sum(kills),
        rows=rows,
    )
    show(rows)
    click.echo(
        f'{result["kept"]} of {result["faults"]} faults had the promised outcome, in {result["minutes"]} minutes'
        + (f'; {result["skipped"]} could not be made here' if result['skipped'] else '')
    )
    if out:
        Path(out).write_text(f'{json.dumps(result, indent=1)}\n')
    if result['kept'] < result['faults'] or not result['faults']:
        sys.exit(1)


def _names() -> List[str]:
    return [name for promise in TABLE for name in (promise.fault, f'{promise.fault}/{promise.role}')]


if __name__ == '__main__':
    main()
