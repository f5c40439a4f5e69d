"""Processes that a benchmark starts, observes from outside, and never leaves behind."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import click
import psutil

ROOT = Path(__file__).resolve().parents[2]


class Processes(object):
    """
    A context of Python programs that run beside each other in a folder, which keeps their output. At its end all of
    them are killed, with everything that they have started.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._started: Dict[str, subprocess.Popen] = {}
        self._seen: Dict[tuple, psutil.Process] = {}

    def __enter__(self) -> 'Processes':
        return self

    def __exit__(self, *error: Any) -> None:
        for name, process in self._started.items():
            if process.poll() is None:
                self.tree(name)
        for process in self._seen.values():
            with contextlib.suppress(psutil.Error):
                process.kill()
        for process in self._started.values():
            process.wait()

    def start(self, name: str, arguments: Sequence[Any], **environ: Any) -> None:
        """Start Python with these arguments and environment variables; the other methods find the program by name."""
        variables = dict(os.environ, PYTHONPATH=str(ROOT), **{key: str(value) for key, value in environ.items()})
        with open(self.folder / f'{name}.log', 'wb') as output:
            self._started[name] = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                cwd=self.folder,
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def text(self, name: str) -> str:
        """The output of a program so far."""
        return (self.folder / f'{name}.log').read_text(errors='replace')

    def wait(self, name: str, timeout_s: float) -> None:
        """
        Wait for the end of a program. A ClickException, with the end of its output, says that it failed or ran longer.
        """
        try:
            code: Any = self._started[name].wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = f'not after {timeout_s:.0f} s'
        if code:
            raise click.ClickException(f'{name} ended: {code}; expected 0. The end of its output:\n{self._tail(name)}')

    def wait_until(self, condition: Callable[[], Any], what: str, timeout_s: float = 120.0) -> None:
        """
        Wait until these programs have done something, called ``what`` in messages. A ClickException says that it is not
        done in time, or that a program has failed.
        """
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            ended = [name for name, process in self._started.items() if process.poll()]
            if ended or time.monotonic() > deadline_s:
                output = '\n'.join(f'{name}: {self._tail(name)}' for name in ended or self._started)
                reason = f'{", ".join(ended)} ended' if ended else f'{timeout_s:.0f} s have passed'
                raise click.ClickException(f'no {what}: {reason}. The end of the output:\n{output}')
            time.sleep(0.05)

    def _tail(self, name: str) -> str:
        return '\n'.join(self.text(name).splitlines()[-15:])

    def tree(self, name: str) -> List[psutil.Process]:
        """A program's process and all below it."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._started[name].pid)
            found = [process, *process.children(recursive=True)]
            # remembered, so that they are killed in the end even if their parents have ended before
            self._seen.update({(each.pid, each.create_time()): each for each in found})
            return found
        return []

    def memory_bytes(self, name: str) -> int:
        """Memory of a program's processes, each page that they share counted once (PSS)."""
        total_bytes = 0
        for process in self.tree(name):
            with contextlib.suppress(psutil.Error):
                total_bytes += process.memory_full_info().pss
        return total_bytes


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]
