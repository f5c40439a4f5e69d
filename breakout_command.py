"""The front door of the ``breakout`` command: its help, its version and the names of its commands, at once.

It lies beside the package because the import of any part of ``breakout_env`` registers it with DI-engine, which takes
the seconds that PyTorch and DI-engine need. Here they are imported when a command is called.
"""

import importlib.util
import runpy
import threading
from pathlib import Path
from typing import Any, NoReturn

import click

# \b keeps click from making one paragraph of it.
EXIT_CODES = """\b
Exit codes:
  0    done; or a training was stopped by one Ctrl-C, SIGTERM or SIGHUP, and
       saved if it had learned anything
  1    it could not be done, or a check failed; the last line says why
  2    a wrong option or config
  129  ended by SIGHUP (the terminal was closed), 130 by Ctrl-C,
       143 by SIGTERM: no training, or at once, by a second Ctrl-C"""

# What the help of each says first; the commands themselves are in breakout_env/cli.
COMMANDS = dict(
    train='Train an agent on Breakout.',
    eval='Evaluate an agent over full games of Breakout.',
    play='Watch an agent play full games.',
    record="Record an agent's games in one video, which appears when it is complete.",
    plot='Draw the curves of runs.',
    average="Make one agent out of a run's last checkpoints.",
    doctor='Try whether everything works on this machine, and say how to fix the rest.',
    **{'check-env': "Check how an environment of DI-engine's interface is reset, reused and closed."},
)


def version() -> str:
    """The package's version, from its file: importing it takes seconds, and installed metadata may be out of date."""
    spec = importlib.util.find_spec('breakout_env')
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError('breakout_env is not there; expected pip install . in its checkout')
    return runpy.run_path(str(Path(spec.origin).with_name('_version.py')))['__version__']


def end_interrupted(ctx: click.Context) -> NoReturn:
    """End a command that a KeyboardInterrupt has interrupted: by Ctrl-C, or by OpenBLAS, which sends itself the signal
    of Ctrl-C where it cannot start a thread.
    """
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        raise click.ClickException(
            'no thread can be started: a limit of processes (ulimit -u, or the pids of a container or job) or of '
            'memory (ulimit -v) is reached; expected a higher one, or OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1'
        ) from None
    click.echo('stopped', err=True)
    ctx.exit(130)


class FrontDoor(click.Group):
    """Describes the commands without importing them; it imports the package where more than its help is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The name of a command and its help's first line, if there is such a command."""
        return click.Command(name, help=COMMANDS[name]) if name in COMMANDS else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Check the command's name and call it; this process ends with it."""
        if args[0] not in COMMANDS:
            ctx.fail(f'there is no command {args[0]!r}; expected one of {", ".join(COMMANDS)}')
        try:
            from breakout_env.cli import main as commands

            return commands(args, prog_name=ctx.command_path)
        except KeyboardInterrupt:  # during the import
            end_interrupted(ctx)


@click.group(cls=FrontDoor, epilog=EXIT_CODES, context_settings=dict(help_option_names=['-h', '--help']))
@click.version_option(version(), prog_name='breakout')
def main() -> None:
    """Atari Breakout for DI-engine: train an agent, watch it, evaluate it.

    \b
    Examples:
      breakout play --pretrained          watch the agent that is in the package
      breakout train                      train one to above the human score
      breakout eval --pretrained -n 100   evaluate it over 100 games
      breakout doctor                     what works here, and how to fix the rest
    """
