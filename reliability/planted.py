"""
Are the tests sharp? Plants one fault after the other in a copy of the project and runs the tests that must find it.

    python reliability/planted.py                               # all faults, a quarter of an hour on two cores
    python reliability/planted.py --only window --only fsync    # those with a word in their names

The faults are in ``plants.py``: one release left out, one fsync, one reference kept or dropped too often.
"""

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import click
import psutil
from plants import PLANTS, Plant
from sites import functions_in

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = 'breakout_env'
# A test that a fault makes wait for ever is cut off after so long, and the run of all its tests some time later.
TEST_TIMEOUT_S = 60
RUN_TIMEOUT_S = 240
SOUND_TIMEOUT_S = 600
# What says that the fault is none that a program can have, and not that a test has found it.
NO_FINDING = ('ImportError', 'ModuleNotFoundError', 'SyntaxError', 'IndentationError', 'NameError')

FOUND, SURVIVED, NOT_TRIED = 'found', 'NOT FOUND', 'NOT TRIED'


@dataclass
class Outcome(object):
    """
    Overview:
        What came of a planted fault.
    """

    name: str
    kind: str
    file: str
    # (str) ``FOUND``, ``SURVIVED`` or ``NOT_TRIED``.
    state: str
    # (str) The test that found it, or why there is none.
    by: str
    # (str) The first line of what that test said.
    said: str = ''
    seconds: float = 0.0
    # (str) Of the fault and its file: while it is the same, the fault need not be planted again.
    digest: str = ''


class Copy(object):
    """
    Overview:
        A copy of the project's files to plant faults in.
    Interfaces:
        ``planted``, ``test``, ``close``.
    """

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        """
        Arguments:
            - folder (:obj:`Path`): Where it is made.
            - root (:obj:`Path`): What is copied: the files that git tracks or would track.
        """
        self.folder = folder
        listed = subprocess.run(
            ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
            cwd=root, capture_output=True, check=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.decode().split('\0')):
            source, target = root / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        self._environ = {
            **os.environ,
            'PYTHONPATH': os.pathsep.join(filter(None, [str(folder), os.environ.get('PYTHONPATH')])),
            # by time and size a compiled file might pass for that of the fault before
            'PYTHONDONTWRITEBYTECODE': '1',
        }
        self._check_import()
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name('fork_server.py'))],
            cwd=folder, env=self._environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        """
        Overview:
            End what runs the tests.
        """
        self._server.stdin.close()
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:  # in the midst of tests, as after Ctrl-C
            for process in [*psutil.Process(self._server.pid).children(recursive=True), self._server]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._server.wait()
        self._server.stdout.close()

    def _check_import(self) -> None:
        code = f'import {PACKAGE}; print({PACKAGE}.__file__)'
        answer = subprocess.run(
            [sys.executable, '-c', code], cwd=self.folder, env=self._environ, capture_output=True, text=True
        )
        imported = Path((answer.stdout.strip().splitlines() or ['nothing'])[-1])
        if not imported.is_relative_to(self.folder):
            why = (answer.stderr.strip().splitlines() or [''])[-1]
            raise click.ClickException(f'the tests would import {imported}; expected the copy in {self.folder}. {why}')

    @contextlib.contextmanager
    def planted(self, plant: Plant) -> Any:
        """
        Overview:
            The copy with a fault in it, for as long as the context lasts.
        """
        path = self.folder / PACKAGE / plant.file
        sound = path.read_text()
        faulty = faulty_source(plant, sound)
        compile(faulty, plant.file, 'exec')
        path.write_text(faulty)
        try:
            yield
        finally:
            path.write_text(sound)

    def test(self, tests: Iterable[str], timeout_s: float, *options: str) -> List[Tuple[str, str, str]]:
        """
        Overview:
            Run tests.
        Returns:
            - results (:obj:`List[Tuple[str, str, str]]`): Of each test its name, 'passed', 'skipped' or the class of \
                the error, and what was said. A run that did not come to its end has one result without a name.
        """
        with tempfile.TemporaryDirectory() as folder:
            report, output = Path(folder) / 'report.xml', Path(folder) / 'output.txt'
            arguments = ['-q', '-p', 'no:cacheprovider', f'--junitxml={report}', '-o', 'junit_family=xunit1']
            arguments += ['--basetemp', str(Path(folder) / 'tests'), *options, *(f'tests/{test}' for test in tests)]
            request = dict(arguments=arguments, timeout_s=timeout_s, output=str(output))
            self._server.stdin.write(json.dumps(request) + '\n')
            self._server.stdin.flush()
            code = json.loads(self._server.stdout.readline() or '70')
            if code is None:
                return [('', 'Hang', f'the tests did not end within {timeout_s:g} s')]
            # 0 all passed, 1 some failed; otherwise the tests themselves are at fault, or what runs them was ended
            if code not in (0, 1) or not report.exists():
                said = output.read_text(errors='replace').strip()[-2000:] if output.exists() else 'the server has ended'
                return [('', 'Crash' if code < 0 else 'Unusable', f'exit code {code}: {said}')]
            return list(_results(report))


def _results(report: Path) -> Iterable[Tuple[str, str, str]]:
    for case in ElementTree.parse(report).iter('testcase'):
        name = f'{Path(case.get("file", case.get("classname"))).name}::{case.get("name")}'
        problem = next((part for part in case if part.tag in ('failure', 'error', 'skipped')), None)
        if problem is None:
            yield name, 'passed', ''
            continue
        message = (problem.get('message') or '').strip()
        if problem.tag == 'skipped':
            yield name, 'skipped', message
            continue
        message = message.removeprefix('failed on teardown with "').removeprefix('failed on setup with "')
        error, _, said = message.partition(':')
        error = 'AssertionError' if message.startswith('assert') else error.strip().splitlines()[0] if error else '?'
        # without this machine's paths, as the documents keep it
        said = (said or message).replace(sys.executable, 'python')
        said = re.sub(rf'{re.escape(tempfile.gettempdir())}/[^/\s]+/', '', said)
        yield name, error, ' '.join(said.split())[:160]


def faulty_source(plant: Plant, sound: str) -> str:
    """
    Overview:
        A file with a fault planted.
    Arguments:
        - plant (:obj:`Plant`): The fault.
        - sound (:obj:`str`): The file as it is.
    Raises:
        - ValueError: If what is to be changed is not there, or there more than once: the plant is out of date.
    """
    start, end = place_of(plant, sound)
    return sound[:start] + plant.new + sound[end:]


def place_of(plant: Plant, sound: str) -> Tuple[int, int]:
    """Where the text that a plant changes begins and ends in its file."""
    functions = functions_in(sound)
    if plant.function not in functions:
        raise ValueError(f'{plant.name}: there is no {plant.function} in {plant.file}')
    start, end = functions[plant.function]
    count = sound.count(plant.old, start, end)
    if count != 1:
        raise ValueError(f'{plant.name}: {plant.old!r} is {count} times in {plant.function}; expected once')
    at = sound.index(plant.old, start, end)
    return at, at + len(plant.old)


def is_there(test: str, root: Path = ROOT) -> bool:
    """Whether there is a test of this name; one that is not would keep pytest from running the others."""
    file, _, name = test.partition('::')
    path = root / 'tests' / file
    return path.exists() and f'def {name.split("[")[0]}(' in path.read_text()


def digest_of(plant: Plant, root: Path = ROOT) -> str:
    """What an outcome depends on, in short: the fault with the names of its tests, and the file that it is in."""
    digest = hashlib.sha256(repr(plant).encode())
    digest.update((root / PACKAGE / plant.file).read_bytes())
    return digest.hexdigest()[:16]


def try_plant(copy: Copy, plant: Plant, sound: Dict[str, str]) -> Outcome:
    """
    Overview:
        Plant a fault and see whether its tests find it. The one that does has to pass without the fault.
    Arguments:
        - copy (:obj:`Copy`): Where to.
        - plant (:obj:`Plant`): The fault.
        - sound (:obj:`Dict[str, str]`): What is known of tests without a fault, by name; filled here.
    """
    outcome = Outcome(plant.name, plant.kind, plant.file, SURVIVED, 'no test', digest=digest_of(plant, copy.folder))
    begin_s = time.monotonic()
    missing = [test for test in plant.tests if not is_there(test, copy.folder)]
    if missing:
        outcome.state, outcome.by = NOT_TRIED, f'there is no test {missing[0]}'
        return outcome
    with copy.planted(plant):
        results = copy.test(plant.tests, RUN_TIMEOUT_S, '-x', '-o', f'timeout={TEST_TIMEOUT_S}')
    _judge(outcome, plant, results)
    if outcome.state == FOUND:
        if outcome.by not in sound:
            _, sound[outcome.by], said = copy.test([outcome.by], SOUND_TIMEOUT_S)[0]
        if sound[outcome.by] != 'passed':
            outcome.state, outcome.said = NOT_TRIED, f'it does not pass without the fault, either ({sound[outcome.by]})'
    outcome.seconds = round(time.monotonic() - begin_s, 1)
    return outcome


def _judge(outcome: Outcome, plant: Plant, results: List[Tuple[str, str, str]]) -> None:
    """What the results of a fault's tests say about it."""
    if not any(how == 'passed' for _, how, _ in results):
        outcome.by = f'every test is skipped here: {plant.tests[0]}'
        outcome.state = NOT_TRIED if all(how == 'skipped' for _, how, _ in results) else SURVIVED
    for name, how, said in results:
        if how in ('passed', 'skipped'):
            continue
        hangs = how == 'Hang' or 'Timeout' in how or 'Timeout >' in said
        outcome.by, outcome.said = name or plant.tests[0], f'{how}: {said}'
        is_none = how == 'Unusable' or how in NO_FINDING or (hangs and not plant.hangs)
        outcome.state = NOT_TRIED if is_none else FOUND
        return
    if outcome.state == SURVIVED:
        outcome.by = 'no test'


def run_plants(plants: Sequence[Plant], jobs: int, say: Any) -> List[Outcome]:
    """
    Overview:
        Try faults, several at once, each in a copy of the project of its own.
    Arguments:
        - plants (:obj:`Sequence[Plant]`): The faults.
        - jobs (:obj:`int`): How many at once.
        - say (:obj:`Callable`): Told each outcome.
    """
    with contextlib.ExitStack() as at_the_end:
        folder = at_the_end.enter_context(tempfile.TemporaryDirectory(prefix='planted-'))
        pool = at_the_end.enter_context(ThreadPoolExecutor(jobs))
        copies: 'Queue[Copy]' = Queue()
        for number in range(jobs):
            copies.put(at_the_end.enter_context(contextlib.closing(Copy(Path(folder) / str(number)))))

        def borrow(what: Any) -> Any:
            copy = copies.get()
            try:
                return what(copy)
            finally:
                copies.put(copy)

        sound: Dict[str, str] = {}
        outcomes = []

        def attempt(plant: Plant) -> Outcome:
            outcome = borrow(lambda copy: try_plant(copy, plant, sound))
            outcomes.append(outcome)
            say(outcome, len(outcomes), len(plants))
            return outcome

        return list(pool.map(attempt, plants))


def _say(outcome: Outcome, number: int, count: int) -> None:
    click.echo(f'{number:4} of {count}  {outcome.state:9}  {outcome.name}  ({outcome.by}, {outcome.seconds:.0f} s)')
    if outcome.state != FOUND:
        click.echo(f'              {outcome.said}')


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a table."""
    rows = [('fault', 'file', 'found by', 'seconds')]
    for outcome in outcomes:
        by = outcome.by if outcome.state == FOUND else f'{outcome.state}: {outcome.by}'
        rows.append((outcome.name.split(': ', 1)[-1], outcome.file, by, f'{outcome.seconds:.0f}'))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    rows.insert(1, tuple('-' * width for width in widths))
    return '\n'.join('  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def figures(outcomes: Sequence[Outcome], jobs: int) -> Dict[str, Any]:
    """What the documents quote."""
    kinds = sorted({outcome.kind for outcome in outcomes})
    return dict(
        date=datetime.date.today().isoformat(),
        machine=f'{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GB',
        python=platform.python_version(),
        packages={name: importlib.metadata.version(name) for name in ('pytest', 'torch', 'DI-engine', 'ale-py')},
        jobs=jobs,
        seconds=round(sum(outcome.seconds for outcome in outcomes)),
        by_kind={
            kind: dict(
                planted=sum(outcome.kind == kind for outcome in outcomes),
                found=sum(outcome.kind == kind and outcome.state == FOUND for outcome in outcomes),
            )
            for kind in kinds
        },
        planted=len(outcomes),
        found=sum(outcome.state == FOUND for outcome in outcomes),
        faults=[asdict(outcome) for outcome in outcomes],
    )


@click.command(help=__doc__.strip().splitlines()[0])
@click.option('--only', multiple=True, help='Faults with this in their names, kinds or tests; may be repeated.')
@click.option('--jobs', type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help='At once.')
@click.option('--out', type=click.Path(dir_okay=False), help='Write the figures to this file as JSON.')
@click.option('--resume', is_flag=True, help='Pass over what --out says was found, if nothing has changed since.')
@click.option('--list', 'list_only', is_flag=True, help='Say which faults there are, and plant none.')
def main(only: Tuple[str, ...], jobs: int, out: Optional[str], resume: bool, list_only: bool) -> None:
    plants = [p for p in PLANTS if not only or any(o in f'{p.name} {p.kind} {" ".join(p.tests)}' for o in only)]
    if not plants:
        raise click.UsageError(f'--only {only[0]!r} names no fault; --list shows all of them')
    if list_only:
        click.echo('\n'.join(plant.name for plant in plants))
        return
    if resume and not out:
        raise click.UsageError('--resume goes on with what is in a file; expected --out as well')
    done = _read(Path(out)) if resume and Path(out).exists() else {}
    left = [plant for plant in plants if digest_of(plant) not in done]
    begin_s, outcomes = time.monotonic(), dict(done)

    def note(outcome: Outcome, number: int, count: int) -> None:
        _say(outcome, number, count)
        outcomes[outcome.digest] = outcome
        if out:
            there = [outcomes[digest] for digest in map(digest_of, PLANTS) if digest in outcomes]
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            Path(out).write_text(json.dumps(figures(there, jobs), indent=1) + '\n')

    if left:
        run_plants(left, min(jobs, len(left)), note)
    wanted = [outcomes[digest] for digest in map(digest_of, plants) if digest in outcomes]
    click.echo('\n' + table(wanted) + '\n')
    found = sum(outcome.state == FOUND for outcome in wanted)
    click.echo(f'{found} of {len(plants)} planted faults were found, in {time.monotonic() - begin_s:.0f} s.')
    sys.exit(found != len(plants))


def _read(path: Path) -> Dict[str, Outcome]:
    """What was found already, by digest."""
    outcomes = [Outcome(**fields) for fields in json.loads(path.read_text())['faults']]
    return {outcome.digest: outcome for outcome in outcomes if outcome.state == FOUND}


if __name__ == '__main__':
    main()
