"""``breakout doctor``: what works on this machine, and how to fix the rest."""

import json
import sys

import click

from .program import Program

COLOURS = dict(ok='green', warning='yellow', fails='red')


@click.command('doctor', cls=Program)
@click.option('--json', 'as_json', is_flag=True, help='For programs: a list of checks, their states and answers.')
def command(as_json: bool) -> None:
    """Try whether everything works on this machine, and say how to fix the rest.

    Exit code 1 if something fails that training needs.

    \b
    Examples:
      breakout doctor
      breakout doctor --json > doctor.json
    """
    from .doctor_checks import CHECKS, run_checks

    rows = []
    for row in run_checks(CHECKS):
        rows.append(row)
        if not as_json:  # each when it is there
            click.echo(f'{click.style(f"{row.state:9}", fg=COLOURS[row.state])}{row.name:16}{row.found}')
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows], indent=2))
    elif fixes := [f'  {row.name}: {row.fix}' for row in rows if row.fix]:
        click.echo('\n'.join(['How to fix it:', *fixes]))
    if any(row.state == 'fails' for row in rows):
        sys.exit(1)
