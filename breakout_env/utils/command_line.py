"""How all programs of this project start and end: the ``breakout`` command and the pipelines of ``entry/``."""

import contextlib
import errno
import logging
import os
import resource
import shlex
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import torch

from . import output, signals
from .child_process import HelperError


@contextlib.contextmanager
def only_warnings() -> Iterator[None]:
    """Keep from the screen what loggers print besides warnings: DI-engine's workers also log into files."""
    root = logging.getLogger()
    before, level = {handler: handler.level for handler in root.handlers}, root.level
    logging.basicConfig()
    for handler in root.handlers:
        handler.setLevel(max(handler.level, logging.WARNING))
    try:
        yield
    finally:
        for handler in [handler for handler in root.handlers if handler not in before]:
            root.removeHandler(handler)
        for handler, handler_level in before.items():
            handler.setLevel(handler_level)
        root.setLevel(level)


@contextlib.contextmanager
def process_as_found() -> Iterator[None]:
    """For what a program calls that continues afterwards, such as a notebook or a sweep: it finds the root logger, the
    filters of warnings, the environment variables, PyTorch's number of threads and its default type as they were.
    Meanwhile that is float32.
    """
    environ, threads, dtype = dict(os.environ), torch.get_num_threads(), torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float32)
        with warnings.catch_warnings(), only_warnings():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        for name in set(os.environ) - set(environ):
            del os.environ[name]
        os.environ.update(environ)


def shell_command(program: str, *words: Any) -> str:
    """A command for people to paste into a shell. A program of this installation, such as ``'breakout'`` or ``'ding'``,
    is called by its name where PATH has it, else by the path of the one beside this Python, as after ``make``.
    """
    found, beside = shutil.which(program), Path(sys.executable).with_name(program)
    path = os.path.relpath(beside)
    if found is not None and (not beside.exists() or beside.samefile(found)):
        name = [program]
    elif beside.exists():
        name = [str(beside) if path.startswith(os.pardir) or os.sep not in path else path]
    else:
        name = [sys.executable, '-m', 'breakout_env'] if program == 'breakout' else [program]
    return shlex.join(map(str, [*name, *words]))


def listed_commands(commands: Mapping[str, str]) -> list[str]:
    """Lines with commands, each after what it is for."""
    return [f'  {what + ":":19}{text}' for what, text in commands.items()]


class Program(click.Command):
    """A click command with a graceful shutdown. SIGTERM and SIGHUP raise ``SystemExit``; after Ctrl-C it prints
    'stopped' and exits with 130, as shells expect (click: 1). What its user can fix is shown as click does, in a line
    with exit code 1: errors that this package or the system raises; others keep their traceback.

    Calling the command installs the signal handlers; ``main``, for a program that continues afterwards, does not.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run as the command of this process, which ends afterwards."""
        signals.exit_on_signals()
        output.survive_lost_output()
        os.environ.pop('MPLBACKEND', None)  # of a notebook, say; figures are files here, and ding asks for a backend
        try:
            return self.main(*args, **kwargs)
        except SystemExit as end:
            if not end.code and (error := output.lost_output()):
                sys.exit(f'What was to be printed is lost: {error}')
            raise
        finally:
            # as signals.let_ctrl_c_kill, outside of the command's context
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from breakout_command import end_interrupted  # beside the package, for commands alone

            end_interrupted(ctx)
        except (ValueError, OSError, HelperError) as error:
            raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename).resolve()
            is_ours = Path(__file__).resolve().parent.parent in raised_in.parents
            if is_ours or getattr(error, 'errno', None) not in (None, errno.EPIPE):
                limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
                cut = f'; a file, or shared memory, may have {limit:,} bytes (ulimit -f)'
                too_large = isinstance(error, OSError) and error.errno == errno.EFBIG and limit >= 0
                raise click.ClickException(f'{error}{cut if too_large else ""}') from None
            raise
