"""The ``breakout`` command: train, watch and evaluate agents, without a line of code.

Help, version and wrong options are answered at once, because the modules of the commands import only click. A command
imports ``breakout_env`` when it runs, which takes the seconds that PyTorch and DI-engine need.
"""

import re
from pathlib import Path

import click

from . import average, check_env, doctor, eval, play, plot, record, train
from .program import CONTEXT, Program

# \b keeps click from making one paragraph of it.
EXIT_CODES = """\b
Exit codes:
  0    done; or a training was stopped by one Ctrl-C, SIGTERM or SIGHUP, and
       saved if it had learned anything
  1    it could not be done, or a check failed; the last line says why
  2    a wrong option or config
  129  ended by SIGHUP (the terminal was closed), 130 by Ctrl-C,
       143 by SIGTERM: no training, or at once, by a second Ctrl-C"""
VERSION_FILE = Path(__file__).parents[1] / 'breakout_env' / '_version.py'  # read, because importing takes seconds


class CommandGroup(Program, click.Group):
    """Lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As click's."""
        return list(self.commands)


@click.group(cls=CommandGroup, epilog=EXIT_CODES, context_settings=CONTEXT)
@click.version_option(re.findall("'(.+)'", VERSION_FILE.read_text())[0], prog_name='breakout')
def main() -> None:
    """Atari Breakout for DI-engine: train an agent, watch it, evaluate it.

    \b
    Examples:
      breakout play --pretrained          watch the agent that is in the package
      breakout train                      train one to above the human score
      breakout eval --pretrained -n 100   evaluate it over 100 games
      breakout doctor                     what works here, and how to fix the rest
    """


for module in (train, eval, play, record, plot, average, doctor, check_env):
    main.add_command(module.command)
