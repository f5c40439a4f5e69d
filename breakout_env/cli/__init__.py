"""
The ``breakout`` command: train, watch, evaluate and export agents, without a line of code.

Each command is a thin file of its own here, imported when it is called; the work is done by functions of the package
that programs can call, too. ``utils/command_line.py`` says what the exit codes mean, as does their help.
"""

import importlib
from typing import Any, List, Optional

import click

from ..utils.command_line import Program

COMMANDS = ('train', 'eval', 'play', 'record', 'plot', 'average', 'export', 'doctor')


class LazyGroup(Program, click.Group):
    """Imports a command when it is called: ``eval`` from ``eval_command.py``, and so on."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        """All commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        """As click's."""
        if name not in COMMANDS:
            return None
        return importlib.import_module(f'.{name}_command', __name__).command

    def resolve_command(self, ctx: click.Context, args: List[str]) -> Any:
        """As click's, which does not list the commands when a name is unknown."""
        if args and args[0] not in COMMANDS:
            ctx.fail(f'there is no command {args[0]!r}; expected one of {", ".join(COMMANDS)}')
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings=dict(help_option_names=['-h', '--help']))
@click.version_option(package_name='breakout-env', prog_name='breakout')
def main() -> None:
    """
    Atari Breakout for DI-engine: train an agent, watch it, evaluate it.

    \b
    Examples:
      breakout play --pretrained          watch the agent that is in the package
      breakout train                      train one to above the human score
      breakout eval --pretrained -n 100   evaluate it over 100 games
      breakout doctor                     what works here, and how to fix the rest
    """
