"""
The ``breakout`` command: train, watch, judge and carry away agents, without a line of code.

Each command is a file of its own here, loaded when it is called, and a thin one: what it does lies in the package, for
programs to call. What their exit codes mean is in ``program.py``, and in their help.
"""

import importlib
from typing import Any, List, Optional

import click

from ..utils.program import Program

COMMANDS = ('train', 'eval', 'play', 'record', 'plot', 'average', 'export', 'doctor')


class LazyGroup(Program, click.Group):
    """
    Overview:
        Commands that are imported when they are called; ``eval`` is found in ``eval_command.py``, and so on.
    """

    def list_commands(self, ctx: click.Context) -> List[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f'.{name}_command', __name__).command

    def resolve_command(self, ctx: click.Context, args: List[str]) -> Any:
        """As click's, which lists no commands for a name that is none."""
        if args and args[0] not in COMMANDS:
            ctx.fail(f'there is no command {args[0]!r}; expected one of {", ".join(COMMANDS)}')
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings=dict(help_option_names=['-h', '--help']))
@click.version_option(package_name='breakout-env', prog_name='breakout')
def main() -> None:
    """
    Atari Breakout for DI-engine: train an agent, watch it, judge it.

    \b
    Examples:
      breakout play --pretrained          watch the agent that is in the package
      breakout train                      train one, past a human within the hour
      breakout eval --pretrained -n 100   judge it over 100 games
      breakout doctor                     what works here, and what mends the rest
    """
