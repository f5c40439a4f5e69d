"""Workers of an env manager, seen from the manager: processes, or objects in the manager's own process."""

import contextlib
import logging
import os
import pickle
import select
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import psutil
from ding.utils import CloudPickleWrapper

from ..compat import multiprocessing_forks  # noqa: F401  # before a worker is started
from .errors import EnvFailed, InlineCrash, WorkerEnded
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .worker_main import EnvGroup, run_group

logger = logging.getLogger(__name__)
SLICE_S = 1.0  # the longest wait at a time


class _Worker:
    """A worker carries out commands in their order; their replies may be taken in any order."""

    def __init__(self, env_fns: dict[int, Callable], shared: SharedSteps) -> None:
        self.env_ids = list(env_fns)
        self.pid = self.owner_pid = os.getpid()
        self.lost = False  # whether it was ended for good
        self._shared = shared
        self._number = 0
        self._replies: dict[int, tuple[Any, EnvFailed | None]] = {}

    def take(self, number: int) -> Any:
        """The result of a command. Raises ``EnvFailed`` if an environment raised, ``WorkerEnded`` without a reply."""
        if number not in self._replies:
            raise WorkerEnded(self._how_it_ended())
        result, error = self._replies.pop(number)
        if error is not None:
            raise error
        return result

    def call_count(self) -> int:
        """How many calls of its environments have returned."""
        return self._shared.call_count(self.env_ids)

    def is_computing(self) -> bool:
        """Whether it computes or waits for a core."""
        with contextlib.suppress(psutil.Error):  # it has ended
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_RUNNING)
        return False

    def _how_it_ended(self) -> str:
        return f'the worker of environments {self.env_ids} has ended; reset them to start another'


class WorkerProcess(_Worker):
    """A worker in a process."""

    def __init__(
        self, context: Any, env_fns: dict[int, Callable], shared: SharedSteps, options: EnvManagerOptions
    ) -> None:
        """Start the process; the first command must be ``open``."""
        super().__init__(env_fns, shared)
        self._close_timeout_s = options.close_timeout
        self._connection, of_process = context.Pipe()
        in_main_thread = threading.current_thread() is threading.main_thread()
        args = (of_process, self.owner_pid, in_main_thread, CloudPickleWrapper(env_fns), shared, options)
        self._process = context.Process(target=run_group, args=args, daemon=True)
        try:
            self._process.start()
        finally:
            of_process.close()
        self.pid = self._process.pid
        self._poller = select.poll()
        self._poller.register(self._connection.fileno(), select.POLLIN)
        self._poller.register(self._process.sentinel, select.POLLIN)

    @property
    def alive(self) -> bool:
        return not self.lost and self._process.is_alive()

    def send(self, command: str, *args: object) -> int:
        """Give it a command, the name of a method of ``EnvGroup``. Returns the number of the reply."""
        self._number += 1
        message = pickle.dumps((self._number, command, args), pickle.HIGHEST_PROTOCOL)
        with contextlib.suppress(OSError):  # the process has ended, as ``take`` will say
            self._connection.send_bytes(message)
        return self._number

    def has_reply(self, number: int, wait_s: float) -> bool:
        """Wait for a reply. Returns False if none comes in time, unless the process has ended."""
        while number not in self._replies and not self.lost:
            ready = dict(self._poller.poll(1000 * wait_s))
            if not ready:
                return False
            if self._connection.fileno() not in ready:
                break
            try:
                replied, result, error = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # from a process that this one started
            except (EOFError, OSError):  # it ended before or while it replied
                break
            self._replies[replied] = result, error
        return True

    def _how_it_ended(self) -> str:
        if self.lost:
            return super()._how_it_ended()
        self._process.join(SLICE_S)
        code = self._process.exitcode
        how = f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'
        return f'worker process {self.pid} has ended ({how})'

    def end(self, asked_at: float | None = None) -> None:
        """Kill the process if it does not end in time. ``close_timeout`` begins when it was asked to end (by
        ``time.monotonic``), and again when it has closed an environment; None: kill it at once.
        """
        if self.lost:
            return
        self.lost = True
        self._replies.clear()  # steps of environments that are gone
        deadline = 0.0 if asked_at is None else asked_at + self._close_timeout_s
        sources = self._connection, self._process.sentinel
        with contextlib.suppress(EOFError, OSError):
            while (left_s := deadline - time.monotonic()) > 0 and self._connection in wait(sources, left_s):
                self._connection.recv_bytes()  # it has closed another environment
                deadline = time.monotonic() + self._close_timeout_s
        self._connection.close()
        self._process.join(max(deadline - time.monotonic(), 0.0))
        if self._process.is_alive():
            if asked_at is not None:
                message = 'worker process %d closed no environment for %g s: killed'
                logger.warning(message, self.pid, self._close_timeout_s)
            self._process.kill()  # a stopped process does not see a SIGTERM
            self._process.join()
        self._process.close()


class InlineWorker(_Worker):
    """A worker in the manager's process, for debuggers, profilers and tests: it carries out a command when it is sent.
    Time limits do not hold.
    """

    def __init__(self, env_fns: dict[int, Callable], shared: SharedSteps, options: EnvManagerOptions) -> None:
        super().__init__(env_fns, shared)
        self.group = EnvGroup(env_fns, shared, options)
        self._is_dead = False

    @property
    def alive(self) -> bool:
        return not self.lost and not self._is_dead

    def kill(self) -> None:
        """Let it die, as if somebody had killed its process."""
        self._is_dead = True

    def send(self, command: str, *args: object) -> int:
        self._number += 1
        try:
            if self.alive and command != 'end':
                self._replies[self._number] = self.group.carry_out(command, args)
        except InlineCrash:
            self.kill()
        except BaseException:  # interrupted: the state of its environments is unknown
            self.kill()
            raise
        return self._number

    def has_reply(self, number: int, wait_s: float) -> bool:
        return True

    def end(self, asked_at: float | None = None) -> None:
        if not self.lost:
            self.lost = True
            self.group.close(lambda message: None)


Worker = WorkerProcess | InlineWorker
