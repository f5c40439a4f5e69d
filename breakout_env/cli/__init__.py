"""The ``breakout`` command: train, watch and evaluate agents, without a line of code.

``breakout_command.py``, beside the package, has its help and calls the group here. Each command is a thin file of its
own, imported when it is called; the work is done by functions of the package that programs can call, too.
"""

import importlib
from pathlib import Path

import click

from ..utils.command_line import Program


class LazyGroup(Program, click.Group):
    """Imports a command when it is called: ``eval`` from ``eval_command.py``, and so on."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As click's."""
        files = Path(__file__).parent.glob('*_command.py')
        return sorted(file.stem.removesuffix('_command').replace('_', '-') for file in files)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """As click's."""
        if name not in self.list_commands(ctx):
            return None
        return importlib.import_module(f'.{name.replace("-", "_")}_command', __name__).command


main = LazyGroup('breakout', context_settings=dict(help_option_names=['-h', '--help']))
