"""
Whether anything grows: memory, descriptors, threads, processes, shared memory, windows or files.

    python reliability/soak.py --out docs/results/soak.json

runs each part of the package again and again, in a process of its own, two of them at a time: 10,000 environments
opened and closed, 200 env managers, evaluations, buffers far past their capacity, saves, and a training in
fast-forward. Samples are taken between cycles, when all that a cycle opened is closed again. Growth ends it with exit
code 1 and a sentence for each resource that grew. A quarter of an hour on two cores; ``--hours`` for longer ones.
"""

import contextlib
import importlib.util
import json
import multiprocessing
import os
import platform
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from multiprocessing import connection
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

import click
import psutil
import torch
from keeper import end_now, keep
from screen import PACKAGES, virtual_screen
from soak_sections import SECTIONS, Section
from tabulate import tabulate
from watching import COUNTS, MEMORY, NAMES, WARM_UP_SHARE, Look, Sample, Verdict, Watch, columns, judge, sentence

# What the counts of the sections are made for, on two cores that do nothing else.
DEFAULT_HOURS = 0.25
# A section that ends no cycle for so long will end none any more; most take less than a second.
SILENCE_S = 300
SAY_EVERY_S = 60
VERSIONS = ('DI-engine', 'ale-py', 'gymnasium', 'torch', 'numpy', 'opencv-python', 'torchrl')


@dataclass
class Run(object):
    """
    Overview:
        A section that runs or has run: its samples, its notes, and what is wrong with it.
    """

    section: Section
    cycles: int
    samples: List[Sample] = field(default_factory=list)
    notes: Dict[str, Any] = field(default_factory=dict)
    failures: List[str] = field(default_factory=list)
    verdicts: Dict[str, Verdict] = field(default_factory=dict)
    duration_s: float = 0.0
    done: int = 0

    @property
    def warm_up_cycles(self) -> int:
        """Cycles at the start that are not judged."""
        return max(self.section.least_warm_up, int(WARM_UP_SHARE * self.cycles))

    def take(self, kind: str, content: Any) -> None:
        """
        Overview:
            Note what the section's process told.
        """
        name = self.section.name
        if kind == 'sample':
            self.samples.append(content)
            self.done = content['cycle']
        elif kind == 'cycle':
            self.done = content
        elif kind == 'notes':
            self.notes = content
        elif kind == 'error':
            self.failures.append(f'{name}: it did not run to its end: {content.strip().splitlines()[-1]}')
            click.echo(content, err=True)
        else:
            self.failures += [f'{name}: left a process behind: {process}' for process in content]

    def end(self, duration_s: float) -> None:
        """
        Overview:
            Judge what there is.
        """
        self.duration_s = duration_s
        if any('did not run to its end' in failure for failure in self.failures):
            return
        try:
            self.verdicts = judge(self.samples, self.warm_up_cycles)
        except ValueError as error:
            self.failures.append(f'{self.section.name}: {error}')
        for name, verdict in self.verdicts.items():
            if verdict.is_growth:
                self.failures.append(sentence(self.section.name, name, verdict, self.cycles))

    def as_dict(self) -> Dict[str, Any]:
        """All of it, for JSON."""
        resources = {
            name: dict(first=v.first, last=v.last, growth=round(v.growth, 2), limit=v.limit, is_growth=v.is_growth)
            for name, v in self.verdicts.items()
        }
        return dict(
            name=self.section.name,
            what=self.section.what,
            date=datetime.now(timezone.utc).isoformat(timespec='seconds'),
            cycles=self.cycles,
            warm_up_cycles=self.warm_up_cycles,
            duration_s=round(self.duration_s, 1),
            failures=self.failures,
            resources=resources,
            notes=self.notes,
            series=columns(self.samples),
        )


def cycles_of(section: Section, share: float) -> int:
    """How many cycles a section has where all have a share of the usual ones."""
    return max(section.least_cycles, round(section.cycles * share))


def _work(section: Section, cycles: int, seed: int, folder: Path, display: Optional[str], told: Any) -> None:
    """A section, in its own process and folder."""
    temporary = folder / 'temporary'
    temporary.mkdir(parents=True)
    tempfile.tempdir = os.environ['TMPDIR'] = str(temporary)
    os.chdir(folder)
    os.environ.pop('SDL_VIDEODRIVER', None)
    os.environ.pop('DISPLAY', None)
    if display is not None:
        os.environ['DISPLAY'] = display
    torch.set_num_threads(1)
    look = Look(Watch(folder, display), cycles, lambda *what: told.send(what))
    notes = section.run(cycles, seed, look)
    told.send(('notes', notes))


class _Running(object):
    """A section's processes and the end of the pipe that they write to."""

    def __init__(self, run: Run, seed: int, home: Path, display: Optional[str]) -> None:
        self.run = run
        self.start_s = self.heard_s = time.monotonic()
        self.is_ending = False
        context = multiprocessing.get_context('fork')
        self.told, theirs = context.Pipe(duplex=False)
        name = run.section.name.replace(' ', '_')

        def work() -> None:
            _work(run.section, run.cycles, seed, home / name, display if run.section.draws else None, theirs)

        self.process = context.Process(target=keep, args=(work, home / f'{name}.log', theirs), name=run.section.name)
        self.process.start()
        theirs.close()

    @property
    def progress(self) -> str:
        """How far it is."""
        return f'{self.run.section.name} {self.run.done / self.run.cycles:.0%}'

    def hear(self) -> bool:
        """Take what it told; whether that was all."""
        with contextlib.suppress(EOFError, OSError):
            while self.told.poll():
                self.run.take(*self.told.recv())
                self.heard_s = time.monotonic()
            if self.process.is_alive():
                return False
        self.process.join()
        self.told.close()
        if self.process.exitcode:
            self.run.take('error', f'its keeper ended with exit code {self.process.exitcode}')
        self.run.end(time.monotonic() - self.start_s)
        return True

    def end_if_silent(self) -> None:
        if not self.is_ending and time.monotonic() - self.heard_s > SILENCE_S:
            self.is_ending = True
            name = self.run.section.name
            self.run.failures.append(f'{name}: it did not run to its end: no cycle ended for {SILENCE_S} seconds')
            end_now(self.process.pid)

    def kill(self) -> None:
        end_now(self.process.pid)
        self.process.join(15)  # its keeper waits up to 10 for what is left
        self.process.kill()


def soak(
    sections: Iterable[Section],
    share: float = 1.0,
    seed: int = 0,
    at_once: int = 2,
    on_end: Callable[[Run], None] = lambda run: None,
) -> List[Run]:
    """
    Overview:
        Run sections, each in processes forked from this one, which is to have no threads at work.
    Arguments:
        - sections (:obj:`Iterable[Section]`): The sections.
        - share (:obj:`float`): Of their usual cycles.
        - seed (:obj:`int`): Of their games.
        - at_once (:obj:`int`): How many run at a time.
        - on_end (:obj:`Callable`): Called with each when it has ended.
    Returns:
        - runs (:obj:`List[Run]`): What became of each.
    """
    runs = [Run(section, cycles_of(section, share)) for section in sections]
    waiting, running = list(runs), []
    with tempfile.TemporaryDirectory(prefix='soak-') as home, virtual_screen() as display:
        if display is None and any(run.section.draws for run in runs):
            click.echo(f'Windows are not opened: that takes {PACKAGES}.', err=True)
        said_s = time.monotonic()
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    running.append(_Running(waiting.pop(0), seed, Path(home), display))
                connection.wait([each.told for each in running] + [each.process.sentinel for each in running], 5)
                if time.monotonic() - said_s > SAY_EVERY_S:
                    said_s = time.monotonic()
                    click.echo(', '.join(each.progress for each in running))
                for each in list(running):
                    each.end_if_silent()
                    if each.hear():
                        running.remove(each)
                        _say(each.run, Path(home))
                        on_end(each.run)
        finally:
            for each in running:
                each.kill()
    return runs


def _say(run: Run, home: Path) -> None:
    """A line about a section that has ended, and the end of what it printed where it failed."""
    verdict = 'failed' if run.failures else 'nothing grew'
    click.echo(f'{run.section.name}: {run.cycles:,} cycles in {run.duration_s:.0f} s, {verdict}')
    if any('did not run to its end' in failure for failure in run.failures):
        log = home / f'{run.section.name.replace(" ", "_")}.log'
        with contextlib.suppress(OSError):
            click.echo('\n'.join(log.read_text(errors='replace').splitlines()[-15:]), err=True)


# ---------------------------------------------------------------- what is shown and kept


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """
    Overview:
        What became of the resources of each section: growth of memory by trend, counts after the warm-up and at the \
            end.
    Arguments:
        - results (:obj:`Sequence[Mapping]`): The ``sections`` of the JSON.
    """
    rows = []
    for result in results:
        resources, own = result['resources'], []
        cells = [result['name'], f'{result["cycles"]:,}', f'{result["duration_s"]:,.0f} s']
        for name in (*MEMORY, *COUNTS):
            there = resources.get(name)
            cells.append('' if there is None else _cell(name, there))
        for name, there in resources.items():
            if there['is_growth'] and name not in MEMORY and name not in COUNTS:
                own.append(f'{NAMES[name]} grew')
        cells.append('; '.join(own) or ('failed' if result['failures'] else 'passed'))
        rows.append(cells)
    headers = ['section', 'cycles', 'time', *(_header(name) for name in (*MEMORY, *COUNTS)), '']
    return tabulate(rows, headers, disable_numparse=True, colalign=('left', *['right'] * (len(headers) - 2), 'left'))


def _cell(name: str, resource: Mapping[str, Any]) -> str:
    if name.endswith('_bytes'):
        return f'{resource["growth"] / 1e6:+.1f} MB'
    return f'{resource["first"]:.0f} to {resource["last"]:.0f}'


def _header(name: str) -> str:
    return name.replace('_bytes', '').replace('_', ' ')


def surroundings() -> Dict[str, Any]:
    """
    Overview:
        What the figures depend on besides the code.
    """
    cpuinfo = Path('/proc/cpuinfo').read_text().splitlines()
    cpu = next((line.split(': ', 1)[1] for line in cpuinfo if line.startswith('model name')), platform.machine())
    versions = {'python': platform.python_version()}
    for package in VERSIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return dict(
        machine=f'{cpu}, {len(os.sched_getaffinity(0))} cores, {psutil.virtual_memory().total / 1e9:.0f} GB',
        date=datetime.now(timezone.utc).isoformat(timespec='seconds'),
        versions=versions,
    )


def chosen(only: Sequence[str]) -> List[Section]:
    """
    Overview:
        The sections whose names begin with one of the given words; all if none is given.
    Raises:
        - click.UsageError: If no name does.
    """
    for word in only:
        if not any(section.name.startswith(word) for section in SECTIONS):
            names = ', '.join(section.name for section in SECTIONS)
            raise click.UsageError(f'--only is {word!r}; expected the beginning of one of these: {names}')
    there = [section for section in SECTIONS if not only or section.name.startswith(tuple(only))]
    for section in list(there):
        missing = [package for package in section.needs if importlib.util.find_spec(package) is None]
        if missing:
            click.echo(f'{section.name}: passed over, as {", ".join(missing)} is not installed', err=True)
            there.remove(section)
    return there


def keep_result(out: str, result: Mapping[str, Any]) -> None:
    """
    Overview:
        Put a section's result into the file, in the place of an earlier one. Those of other sections stay, if they \
        were made on the same machine with the same packages.
    """
    about, earlier = surroundings(), {}
    if Path(out).exists():
        earlier = json.loads(Path(out).read_text())
    if any(earlier.get(key) != about[key] for key in ('machine', 'versions')):
        earlier = {}
    by_name = {each['name']: each for each in earlier.get('sections', [])}
    by_name[result['name']] = result
    in_order = [by_name[section.name] for section in SECTIONS if section.name in by_name]
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(json.dumps(dict(about, sections=in_order)) + '\n')


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
@click.option(
    '--out',
    type=click.Path(dir_okay=False),
    help='JSON to write: figures, verdicts, curves. What it has of other sections is kept.',
)
@click.option(
    '--hours',
    default=DEFAULT_HOURS,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help='About how long it takes on two quiet cores; the counts are in proportion.',
)
@click.option(
    '--only',
    multiple=True,
    metavar='NAME',
    help='Sections to run, by the beginning of their names, once for each.',
)
@click.option('--seed', default=0, show_default=True, type=click.IntRange(min=0), help='Of the games.')
@click.option(
    '--at-once', default=2, show_default=True, type=click.IntRange(min=1), help='Sections that run at a time.'
)
def main(out: Optional[str], hours: float, only: Sequence[str], seed: int, at_once: int) -> None:
    """Open, use and close everything again and again, and fail if something grows."""

    def on_end(run: Run) -> None:
        if out:  # at once: hours of other sections may follow
            keep_result(out, dict(run.as_dict(), seed=seed, hours=hours))

    runs = soak(chosen(only), hours / DEFAULT_HOURS, seed, at_once, on_end)
    click.echo(f'\n{table([run.as_dict() for run in runs])}\n')
    failures = [failure for run in runs for failure in run.failures]
    for failure in failures:
        click.echo(failure, err=True)
    if failures:
        raise SystemExit(1)


if __name__ == '__main__':
    main()
