"""What commands leave behind in a process, and how other commands are named for people to paste."""

import contextlib
import logging
import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch


@contextlib.contextmanager
def only_warnings() -> Iterator[None]:
    """Show only warnings of loggers on the screen: DI-engine's workers log into files, too."""
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
    """Restore at the end the root logger, the filters of warnings, the environment variables, PyTorch's number of
    threads and its default type, because the program may continue, as a notebook does. Meanwhile the type is float32.
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


def shell_command(program: str, *words: object) -> str:
    """A command for people to paste into a shell. A program of this installation, such as ``'breakout'`` or ``'ding'``,
    is called by its name if PATH has it, else by its path beside this Python, as after ``make``.
    """
    found = shutil.which(program)
    beside = Path(sys.executable).with_name(program)
    path = os.path.relpath(beside)
    if not beside.exists() or (found is not None and beside.samefile(found)):
        name = program
    else:
        name = str(beside) if path.startswith(os.pardir) or os.sep not in path else path
    return shlex.join(map(str, [name, *words]))


def listed_commands(commands: Mapping[str, str]) -> list[str]:
    """Lines with commands, each after what it is for."""
    return [f'  {what + ":":19}{text}' for what, text in commands.items()]
