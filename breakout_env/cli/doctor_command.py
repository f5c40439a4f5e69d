"""``breakout doctor``: what works on this machine, and what mends the rest."""

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .common import CONTEXT
from .doctor import FAILS, OK, WARNING, run_checks
from .doctor_checks import CHECKS

COLOURS = {OK: 'green', WARNING: 'yellow', FAILS: 'bold red'}


@click.command(context_settings=CONTEXT)
@click.option('--json', 'as_json', is_flag=True, help='For programs: a list of checks, their states and findings.')
def command(as_json: bool) -> None:
    """
    Look whether everything works on this machine, by trying it, and say what mends the rest.

    Exit code 1 if something fails that training needs.

    \b
    Examples:
      breakout doctor
      breakout doctor --json > doctor.json
    """
    if as_json:
        rows = list(run_checks(CHECKS))
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        rows = show()
    sys.exit(any(row.state == FAILS for row in rows))


def show() -> list:
    """Run the checks and print them as a table, and below it what mends them, to be copied."""
    console, rows = Console(), []
    with console.status('looking ...') as status:
        for row in run_checks(CHECKS):
            rows.append(row)
            status.update(f'looked at {row.name} ...')
    table = Table()
    for title in ('check', 'state', 'found'):
        table.add_column(title)
    for row in rows:
        table.add_row(row.name, f'[{COLOURS[row.state]}]{row.state}', escape(row.found))
    console.print(table)
    to_mend = [row for row in rows if row.mend]
    if to_mend:
        console.print('What mends it:')
        for row in to_mend:
            # not broken into lines, which would not survive being copied
            console.print(f'  {row.name}: {row.mend}', markup=False, highlight=False, soft_wrap=True)
    return rows
