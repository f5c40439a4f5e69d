"""``breakout doctor``: what works on this machine, and how to fix the rest."""

import json
import sys
from typing import Iterable, List

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .common import CONTEXT
from .doctor import FAILS, OK, WARNING, Finding, run_checks
from .doctor_checks import CHECKS

COLOURS = {OK: 'green', WARNING: 'yellow', FAILS: 'bold red'}


@click.command(context_settings=CONTEXT)
@click.option('--json', 'as_json', is_flag=True, help='For programs: a list of checks, their states and findings.')
def command(as_json: bool) -> None:
    """
    Try whether everything works on this machine, and say how to fix the rest.

    Exit code 1 if something fails that training needs.

    \b
    Examples:
      breakout doctor
      breakout doctor --json > doctor.json
    """
    findings = run_checks(CHECKS)
    if as_json:
        rows = list(findings)
        click.echo(json.dumps([row._asdict() for row in rows], indent=2))
    else:
        rows = _show(findings)
    sys.exit(any(row.state == FAILS for row in rows))


def _show(findings: Iterable[Finding]) -> List[Finding]:
    """Print findings as a table, and below it the fixes, to be copied."""
    console, table, rows = Console(), Table('check', 'state', 'found'), []
    with console.status('checking ...') as status:
        for row in findings:
            rows.append(row)
            table.add_row(row.name, f'[{COLOURS[row.state]}]{row.state}', escape(row.found))
            status.update(f'checked {row.name} ...')
    console.print(table)
    if any(row.fix for row in rows):
        console.print('How to fix it:')
    for row in rows:
        if row.fix:
            # in one line, as a broken one could not be copied
            console.print(f'  {row.name}: {row.fix}', markup=False, highlight=False, soft_wrap=True)
    return rows
