"""A process for a check, so that a check that hangs or crashes is a finding."""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil

from .signals import follow_parent


class CheckProcess:
    """A fork of this process that runs a check. ``end`` kills it with all that it has started, and it dies with this
    process. It is not a ``multiprocessing.Process``: the interpreter would wait for it at its exit, and a process that
    hangs in a driver does not even obey SIGKILL.

    Arguments:
        check: What to run; it sends its messages by the connection.
        output: The file for what the check prints; on SIGUSR1 it gets the stack, too.
    """

    def __init__(self, check: Callable[[Connection], None], output: str = os.devnull) -> None:
        self._connection, of_check = multiprocessing.Pipe()
        self._exit_code: int | None = None
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)  # of a fork in a process with threads
            self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                follow_parent(parent)
                _print_into(output)
                self._connection.close()
                check(of_check)
            finally:
                os._exit(0)  # never run the parent's code
        of_check.close()

    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self._exit_code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code

    def receive(self, timeout_s: float) -> Any:
        """The next message; a TimeoutError if it takes too long, an EOFError if the process has ended without one."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            has_ended = self.exit_code() is not None
            # processes that it has started may hold the connection open
            if self._connection.poll(0 if has_ended else 0.2):
                with contextlib.suppress(ConnectionResetError):
                    return self._connection.recv()
            if has_ended:
                raise EOFError
        raise TimeoutError

    def end(self) -> None:
        """Kill the process and all that it has started; give up after a second if it does not even obey SIGKILL."""
        self._connection.close()
        doomed = []
        with contextlib.suppress(psutil.Error):  # it has ended
            doomed = psutil.Process(self.pid).children(recursive=True)
        for process in doomed:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + 1
        while self.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.005)


def _print_into(path: str) -> None:
    sys.stdout = sys.stderr = log = open(path, 'a', buffering=1)
    for descriptor in (1, 2):
        os.dup2(log.fileno(), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.enable(log, all_threads=False)
    faulthandler.register(signal.SIGUSR1, log, all_threads=False)
