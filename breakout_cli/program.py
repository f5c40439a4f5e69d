"""How all commands start and end: signals, lost output and errors."""

import contextlib
import errno
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

import click

CONTEXT = dict(help_option_names=['-h', '--help'])
_THIS_PROCESS = 'this process'


class Program(click.Command):
    """A click command with a graceful shutdown. SIGTERM and SIGHUP raise ``SystemExit``; after Ctrl-C it prints
    'stopped' and exits with 130, as shells expect (click: 1). Errors that this package or the system raises are one
    line with exit code 1, or 2 if the config is wrong; others keep their traceback.

    Calling the command installs the signal handlers; ``main``, for a program that continues afterwards, does not.

    Arguments:
        may_lose_output: Whether the command has done its work although nobody could read what it printed.
    """

    def __init__(self, *args: Any, may_lose_output: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._may_lose_output = may_lose_output

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run as the command of this process, which ends afterwards."""
        return self.main(*args, obj=_THIS_PROCESS, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's."""
        try:
            if isinstance(self, click.Group) or ctx.obj != _THIS_PROCESS:
                return super().invoke(ctx)
            with self._as_this_process():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            _end_interrupted(ctx)
        except (ValueError, OSError, RuntimeError) as error:
            if not _is_for_the_user(error):
                raise
            from breakout_env.utils.options import ConfigError

            is_usage = isinstance(error, ConfigError)
            text = f'{error}{_limit_of_files(error)}'
            raise (click.UsageError(text, ctx) if is_usage else click.ClickException(text)) from None

    @contextlib.contextmanager
    def _as_this_process(self) -> Iterator[None]:
        from breakout_env.utils import output, signals

        signals.exit_on_signals()
        stdout = output.survive_lost_output()
        os.environ.pop('MPLBACKEND', None)  # of a notebook, say; figures are files here, and ding asks for a backend
        try:
            yield
            sys.stdout.flush()
            if stdout is not None and stdout.error is not None and not self._may_lose_output:
                raise click.ClickException(f'What was to be printed is lost: {stdout.error}')
        finally:
            # From here on nothing catches a KeyboardInterrupt.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_interrupted(ctx: click.Context) -> NoReturn:
    """End a command after a KeyboardInterrupt: by Ctrl-C, or by OpenBLAS, which sends itself the signal of Ctrl-C where
    it cannot start a thread.
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


def _is_for_the_user(error: Exception) -> bool:
    """Whether this package has raised an error, or the system."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    is_ours = frame.f_globals.get('__name__', '').startswith(('breakout_env.', 'breakout_cli.'))
    return is_ours or getattr(error, 'errno', None) not in (None, errno.EPIPE)


def _limit_of_files(error: Exception) -> str:
    """What to add to the message of an error that the shell's limit of a file's size has caused."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if getattr(error, 'errno', None) != errno.EFBIG or limit < 0:
        return ''
    return f'; a file, or shared memory, may have {limit:,} bytes (ulimit -f)'
