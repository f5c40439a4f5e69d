"""``breakout doctor``: what works on this machine, and how to fix the rest."""

import sys

import click

from .program import Program

COLOURS = dict(ok='green', warning='yellow', fails='red')


@click.command('doctor', cls=Program)
def command() -> None:
    """Try whether everything works on this machine, and say how to fix the rest.

    Exit code 1 if something fails that training needs.

    \b
    Examples:
      breakout doctor
    """
    from .doctor_checks import CHECKS, run_checks

    rows = []
    for row in run_checks(CHECKS):
        rows.append(row)
        click.echo(f'{click.style(f"{row.state:9}", fg=COLOURS[row.state])}{row.name:16}{row.found}')
    if fixes := [f'  {row.name}: {row.fix}' for row in rows if row.fix]:
        click.echo('\n'.join(['How to fix it:', *fixes]))
    if any(row.state == 'fails' for row in rows):
        sys.exit(1)
