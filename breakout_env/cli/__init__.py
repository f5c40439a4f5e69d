"""
The ``breakout`` command: train, watch, evaluate and export agents, without a line of code.

``breakout_command.py``, beside the package, has its help and calls the group here. Each command is a thin file of its
own, imported when it is called; the work is done by functions of the package that programs can call, too.
"""

import importlib
from typing import Optional

import click

from breakout_command import COMMANDS, CommandGroup
from breakout_command import main as front_door

from ..utils.command_line import Program


class LazyGroup(Program, CommandGroup):
    """Imports a command when it is called: ``eval`` from ``eval_command.py``, and so on."""

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        """As click's."""
        return importlib.import_module(f'.{name}_command', __name__).command if name in COMMANDS else None


main = LazyGroup(
    'main',
    help=front_door.help,
    callback=front_door.callback,
    params=front_door.params,
    context_settings=front_door.context_settings,
)
