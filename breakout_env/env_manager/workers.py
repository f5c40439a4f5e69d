"""Workers of an env manager, seen from the manager: processes, or objects in the manager's own process."""

import contextlib
import os
import pickle
import select
import threading
from collections.abc import Callable
from typing import Any

import psutil
from ding.utils import CloudPickleWrapper

from ..compat import multiprocessing_forks  # noqa: F401  # before a worker is started
from .errors import EnvFailed, WorkerEnded, WorkerLost
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .worker_main import EnvGroup, run_group

Outcome = tuple[Any, WorkerLost | EnvFailed | None]  # a command's result, or why there is none


class _Worker:
    """A worker carries out commands in their order; their replies may be received in any order."""

    def __init__(self, env_fns: dict[int, Callable], shared: SharedSteps) -> None:
        self.env_ids = list(env_fns)
        self.pid = self.owner_pid = os.getpid()
        self.lost = False  # whether it was ended for good
        self._shared = shared
        self._number = 0
        self._replies: dict[int, Outcome] = {}

    def call_count(self) -> int:
        """How many calls of its environments have returned."""
        return self._shared.call_count(self.env_ids)

    def is_computing(self) -> bool:
        """Whether it computes or waits for a core."""
        with contextlib.suppress(psutil.Error):  # it has ended
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_RUNNING)
        return False

    def _ended(self, how: str = 'for good; reset its environments to start another') -> Outcome:
        return None, WorkerEnded(f'worker process {self.pid} has ended ({how})')


class WorkerProcess(_Worker):
    """A worker in a process."""

    def __init__(
        self, context: Any, env_fns: dict[int, Callable], shared: SharedSteps, options: EnvManagerOptions
    ) -> None:
        """Start the process; the first command must be ``open``."""
        super().__init__(env_fns, shared)
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
        with contextlib.suppress(OSError):  # the process has ended, as ``receive`` will say
            self._connection.send_bytes(message)
        return self._number

    def receive(self, number: int, wait_s: float) -> Outcome | None:
        """Wait for a reply; None if none comes in time."""
        while number not in self._replies:
            if self.lost:
                return self._ended()
            ready = dict(self._poller.poll(1000 * wait_s))
            if not ready:
                return None
            try:
                if self._connection.fileno() not in ready:
                    raise EOFError
                replied, result, error = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # from a process that this one started
            except (EOFError, OSError):  # it ended before or while it replied
                self._process.join(1)
                code = self._process.exitcode
                return self._ended(f'signal {-code}' if code is not None and code < 0 else f'exit code {code}')
            self._replies[replied] = result, error
        return self._replies.pop(number)

    def end(self, wait_s: float = 0.0) -> None:
        """End the process, which may take some seconds to end by itself."""
        if self.lost:
            return
        self.lost = True
        self._replies.clear()  # steps of environments that are gone
        self._connection.close()
        self._process.join(wait_s)
        if self._process.is_alive():
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
        self.alive = True

    def send(self, command: str, *args: object) -> int:
        self._number += 1
        try:
            if self.alive:
                self._replies[self._number] = self.group.carry_out(command, args)
        except BaseException:  # interrupted: the state of its environments is unknown
            self.alive = False
            raise
        return self._number

    def receive(self, number: int, wait_s: float) -> Outcome:
        return self._replies.pop(number) if number in self._replies else self._ended()

    def end(self, wait_s: float = 0.0) -> None:
        self.lost, self.alive = True, False
        self.group.close()


Worker = WorkerProcess | InlineWorker
