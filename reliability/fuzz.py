"""
Odd input, ten thousand times: every option of ours, whole configs, command lines. Each is accepted, and then what it
asks for can be built and closed, or it is refused by a sentence that says what was found and what is expected::

    python reliability/fuzz.py --examples 10000 --out docs/results/fuzz.json
    python reliability/fuzz.py --only 'env manager' --seed 3

A traceback, an error of somebody else's, a file, a process or a descriptor that stays, a file outside of the folder it
runs in, memory of gigabytes, or half a minute without an answer is a failure: the shortest input that shows it is
printed, with the command that repeats it, and the exit code is 1. Options are read from the package, so that a new one
is tried without a change here. DI-engine's own options are DI-engine's to check, but for those that our pipelines read.
"""

import json
import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Any, Dict, Optional, Tuple

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
import hypothesis
import psutil
from fuzz_commands import make_files
from fuzz_judge import Failure, Place, Refused, TookTooLong
from fuzz_surfaces import Surface, surfaces
from hypothesis import HealthCheck, Phase
from rich.console import Console
from rich.table import Table

PACKAGES = ('breakout-env', 'DI-engine', 'torch', 'numpy', 'click', 'easydict', 'hypothesis')
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
OUTCOMES = ('accepted', 'refused')


def fuzz(surface: Surface, examples: int, seed: int, place: Place, files: Path) -> Tuple[Counter, Optional[str]]:
    """
    Overview:
        Try a surface.
    Arguments:
        - surface (:obj:`Surface`): What takes the input.
        - examples (:obj:`int`): How many to try.
        - seed (:obj:`int`): Which ones.
        - place (:obj:`Place`): Where to try them.
        - files (:obj:`Path`): The folder of files that an input may name.
    Returns:
        - outcomes (:obj:`Counter`): How many were accepted, and refused.
        - failure (:obj:`Optional[str]`): The shortest input that neither worked nor got a sentence, and what became \
            of it; None if there was none.
    """
    outcomes: Counter = Counter()
    last: Dict[str, Any] = {}

    def prepare(folder: Path) -> None:
        if surface.files:
            shutil.copytree(files, folder, dirs_exist_ok=True)

    def attempt(given: Any) -> None:
        outcome = 'accepted'
        try:
            with place.example(prepare) as look:
                try:
                    surface.attempt(given)
                except Refused:
                    outcome = 'refused'
                look(outcome == 'accepted' and surface.leaves_files)
        except Failure as failure:
            last.update(given=given, failure=str(failure))
            raise
        except (Exception, TookTooLong) as error:  # whatever it is, it is none of the two
            last.update(given=given, failure=''.join(traceback.format_exception(error))[-3000:])
            raise Failure(str(error)) from None
        outcomes[outcome] += 1

    test = hypothesis.given(surface.strategy().map(Given))(lambda given: attempt(given.value))
    test = hypothesis.settings(
        max_examples=examples,
        phases=PHASES,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )(test)
    try:
        hypothesis.seed(seed)(test)()
    except (Failure, hypothesis.errors.FlakyFailure):  # the latter: not again with the same input
        return outcomes, f'{_shown(last["given"])}\n{last["failure"]}'
    return outcomes, None


class Given(object):
    """An input that can be shown, whatever it is: hypothesis does so."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return _shown(self.value)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # a number of thousands of digits, or what is made not to be shown
        text = 'a value that can not be printed, in ' + type(value).__name__
    return text if len(text) < 2000 else f'{text[:2000]} ...'


def run(examples: int, seed: int, only: Tuple[str, ...], say: Any) -> Tuple[Dict[str, Dict[str, Any]], Dict[str, str]]:
    """
    Overview:
        Try all surfaces, or some.
    Arguments:
        - examples (:obj:`int`): Inputs altogether; at least two dozen for each surface.
        - seed (:obj:`int`): Which ones.
        - only (:obj:`Tuple[str, ...]`): Beginnings of the names of surfaces; none for all.
        - say (:obj:`Callable`): Told what is under way.
    Returns:
        - rows (:obj:`Dict[str, Dict[str, Any]]`): Figures by surface.
        - failures (:obj:`Dict[str, str]`): What failed, by surface.
    """
    chosen = {
        name: surface
        for name, surface in surfaces().items()
        if not only or any(name.startswith(beginning) for beginning in only)
    }
    if not chosen:
        raise click.UsageError(f'--only is {", ".join(only)}; expected one of {", ".join(surfaces())}')
    total = sum(surface.share for surface in chosen.values())
    rows, failures = {}, {}
    logging.disable(logging.ERROR)
    warnings.simplefilter('ignore')
    with tempfile.TemporaryDirectory(prefix='breakout_fuzz_') as folder:
        files = Path(folder, 'files')
        files.mkdir()
        make_files(files)
        root = Path(folder, 'place')
        root.mkdir()
        place = Place(root)
        for name, surface in chosen.items():
            start_s = time.monotonic()
            count = max(24, round(examples * surface.share / total))
            outcomes, failure = fuzz(surface, count, seed, place, files)
            rows[name] = dict(
                options=surface.options,
                examples=sum(outcomes.values()) + (failure is not None),
                **{outcome: outcomes[outcome] for outcome in OUTCOMES},
                failures=int(failure is not None),
                seconds=round(time.monotonic() - start_s, 1),
            )
            if failure is not None:
                failures[name] = failure
            say(name, rows[name], failure)
        place.close()
    logging.disable(logging.NOTSET)
    return rows, failures


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
@click.option('--examples', default=10_000, show_default=True, type=click.IntRange(1, 10**9), help='Inputs altogether.')
@click.option('--seed', default=0, show_default=True, type=click.IntRange(0, 2**31 - 1), help='Which inputs.')
@click.option('--only', multiple=True, metavar='NAME', help='Surfaces whose names begin so; may be repeated.')
@click.option('--out', type=click.Path(dir_okay=False), help='Write the figures here, as JSON.')
def main(examples: int, seed: int, only: Tuple[str, ...], out: Optional[str]) -> None:
    """Try odd input, ten thousand times."""
    start_s, here = time.monotonic(), Path.cwd()
    out_path = None if out is None else here / out

    def say(name: str, row: Dict[str, Any], failure: Optional[str]) -> None:
        click.echo(f'{name}: {row["examples"]} examples in {row["seconds"]} s', err=True)
        if failure is not None:
            options = f'--only {quote(name)} --examples {max(1000, 2 * examples)} --seed {seed}'
            click.echo(f'failed on {failure}\nAgain: python reliability/fuzz.py {options}\n', err=True)

    rows, failures = run(examples, seed, only, say)
    table = Table(title='Odd input, and what became of it')
    titles = ('options', 'examples', *OUTCOMES, 'failures', 'seconds')
    for title in ('surface', *titles):
        table.add_column(title, justify='left' if title == 'surface' else 'right')
    for name, row in rows.items():
        table.add_row(name, *(f'{row[title]:,}' for title in titles), style='bold red' if row['failures'] else '')
    sums = {title: round(sum(row[title] for row in rows.values()), 1) for title in titles}
    table.add_section()
    table.add_row('all', *(f'{sums[title]:,}' for title in titles))
    Console(width=max(100, Console().width)).print(table)
    if out_path is not None:
        found = dict(
            date=datetime.now(timezone.utc).isoformat(timespec='seconds'),
            machine=f'{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GB',
            python=sys.version.split()[0],
            versions={name: version(name) for name in PACKAGES},
            seed=seed,
            seconds=round(time.monotonic() - start_s),
            all=sums,
            surfaces=rows,
        )
        out_path.parent.mkdir(parents=True, exist_ok=True)
        out_path.write_text(json.dumps(found, indent=2) + '\n')
    sys.exit(bool(failures))


if __name__ == '__main__':
    main()
