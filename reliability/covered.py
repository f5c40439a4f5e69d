"""
How much of the package the tests run: its lines, and both ways of each of its branches.

    python reliability/covered.py --out docs/results/coverage.json

runs the tests under coverage.py, in all processes that they start, and prints what each module has; less than 90% of
the branches in all ends it with exit code 1. Arguments behind ``--`` go to pytest. The tests can be run in parts, one
after the other or in separate containers, with what each part saw kept and added up::

    python reliability/covered.py --keep seen -- tests/test_env.py
    python reliability/covered.py --keep seen --out docs/results/coverage.json -- --ignore tests/test_env.py

What runs in a process that is killed is not counted, so the figure is a lower bound.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import click
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
LEAST_PERCENT = 90.0


def measure(arguments: Optional[Tuple[str, ...]], folder: str) -> Tuple[Optional[int], Dict[str, Any]]:
    """
    Overview:
        Run the tests.
    Arguments:
        - arguments (:obj:`Optional[Tuple[str, ...]]`): For pytest; None to run nothing.
        - folder (:obj:`str`): Where what each process saw is gathered, with what lies there already.
    Returns:
        - code (:obj:`Optional[int]`): pytest's exit code.
        - report (:obj:`Dict[str, Any]`): coverage.py's report.
    """
    environ = {**os.environ, 'COVERAGE_FILE': f'{folder}/seen'}
    coverage = [sys.executable, '-m', 'coverage']

    def call(*command: str) -> int:
        return subprocess.run([*coverage, *command], cwd=ROOT, env=environ).returncode

    code = None if arguments is None else call('run', '-m', 'pytest', *arguments)
    report = Path(folder, 'report.json')
    if call('combine', '--quiet', '--append') or call('json', '--quiet', '-i', '-o', str(report)):
        raise click.ClickException('coverage.py has no report; the reason is above')
    return code, json.loads(report.read_text())


def branch_percent(summary: Dict[str, Any]) -> float:
    """Of the ways out of branches, how many were taken."""
    return 100 * summary['covered_branches'] / max(1, summary['num_branches'])


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
@click.option('--out', type=click.Path(dir_okay=False), help='Write the figures into this file (JSON).')
@click.option('--keep', type=click.Path(file_okay=False), help='Keep what was seen here, and add it up.')
@click.option('--no-tests', is_flag=True, help='Run nothing: add up the parts (seen.*) in --keep.')
@click.argument('arguments', nargs=-1)
def main(out: Optional[str], keep: Optional[str], no_tests: bool, arguments: Tuple[str, ...]) -> None:
    """Run the tests, and see what of the package they run."""
    with contextlib.nullcontext(keep) if keep else tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder, exist_ok=True)
        code, report = measure(None if no_tests else arguments, os.path.abspath(folder))
    modules = {
        name: dict(
            lines=entry['summary']['num_statements'],
            lines_percent=round(
                100 * entry['summary']['covered_lines'] / max(1, entry['summary']['num_statements']), 1
            ),
            branches=entry['summary']['num_branches'],
            branches_percent=round(branch_percent(entry['summary']), 1),
        )
        for name, entry in sorted(report['files'].items())
    }
    totals = report['totals']
    found = dict(
        date=datetime.now(timezone.utc).isoformat(timespec='seconds'),
        coverage=metadata.version('coverage'),
        arguments=list(arguments),
        tests_exit_code=code,
        lines=totals['num_statements'],
        lines_percent=round(100 * totals['covered_lines'] / totals['num_statements'], 2),
        branches=totals['num_branches'],
        branches_percent=round(branch_percent(totals), 2),
        modules=modules,
    )
    if out:
        Path(out).write_text(json.dumps(found, indent=1) + '\n')
    headers = ['module', 'lines', 'run, %', 'branches', 'taken, %']
    click.echo(tabulate([[name, *entry.values()] for name, entry in modules.items()], headers))
    click.echo(
        f'{found["lines_percent"]}% of {found["lines"]:,} lines and {found["branches_percent"]}% of '
        f'{found["branches"]:,} branches'
    )
    if code:
        raise click.ClickException('not all tests passed; see above')
    if branch_percent(totals) < LEAST_PERCENT:
        raise click.ClickException(f'less than {LEAST_PERCENT:g}% of the branches')


if __name__ == '__main__':
    main()
