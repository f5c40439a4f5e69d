"""The manager's side of one worker process: start it, send it commands, notice when it is lost."""

import contextlib
import math
import os
import pickle
import select
import threading
import time
from typing import Any, Callable, Dict, Optional

from ding.utils import CloudPickleWrapper

from .worker_main import run_group

# A timeout is counted in slices of waiting: a process that was stopped (Ctrl-Z) or suspended with its machine does not
# count that time against its workers.
SLICE_S = 1.0


class WorkerLost(RuntimeError):
    """A worker process ended or did not answer in time; the message says which."""


class WorkerEnded(WorkerLost):
    """A worker process ended, or was killed by somebody else."""


class WorkerProcess(object):
    """
    A worker process. It has one command at a time; an answer to an earlier one, whose caller was interrupted
    while it waited, is dropped.
    """

    def __init__(self, context: Any, env_fns: Dict[int, Callable], *options: Any) -> None:
        """Start the process; the first command must be ``open``. ``env_fns`` and ``options`` are ``EnvGroup``'s."""
        self.env_ids = list(env_fns)
        self.lost = False  # whether it was ended for good
        self._connection, theirs = context.Pipe()
        self._number = 0
        forked = context.get_start_method() == 'fork'
        try:
            self._process = context.Process(
                target=run_group,
                args=(
                    theirs,
                    self._connection if forked else None,
                    os.getpid(),
                    threading.current_thread() is threading.main_thread(),
                    CloudPickleWrapper(env_fns),
                    *options,
                ),
                daemon=True,
                name=f'environments {self.env_ids[0]} to {self.env_ids[-1]}',
            )
            self._process.start()
        except BaseException:  # no more processes, or an environment that can't be sent to one
            self._connection.close()
            raise
        finally:
            theirs.close()
        self.pid: int = self._process.pid
        self._poller = select.poll()
        self._poller.register(self._connection.fileno(), select.POLLIN)
        self._poller.register(self._process.sentinel, select.POLLIN)

    @property
    def alive(self) -> bool:
        return not self.lost and self._process.is_alive()

    def send(self, command: str, *args: Any) -> None:
        """Give it a command: the name of a method of ``EnvGroup``, and arguments. ``WorkerEnded`` if it has ended."""
        self._number += 1
        message = pickle.dumps((self._number, command, args), pickle.HIGHEST_PROTOCOL)
        try:
            self._connection.send_bytes(message)
            return
        except OSError:  # the other end of the pipe is closed
            pass  # raised below, as a cause would keep this frame and its callers, the pool among them
        raise WorkerEnded(self._how_it_ended())

    def receive(self, timeout_s: Optional[float] = None) -> Any:
        """
        Wait for the answer to the last command, ``timeout_s`` seconds or, with None, as long as the process lives;
        ``WorkerLost`` if there is none in time, ``WorkerEnded`` if the process has ended.
        """
        slices = math.inf if timeout_s is None else max(math.ceil(timeout_s / SLICE_S), 1)
        slice_ms = 1000 * (SLICE_S if timeout_s is None else timeout_s / slices)
        has_ended = False
        while slices > 0 and not has_ended:
            ready = [descriptor for descriptor, _ in self._poller.poll(slice_ms)]
            if self._connection.fileno() in ready:
                try:
                    number, result = pickle.loads(self._connection.recv_bytes())
                    if number == self._number:
                        return result
                except (EOFError, OSError):  # it ended before or while it answered
                    has_ended = True
            elif ready:
                has_ended = True
            else:
                slices -= 1
        if has_ended:
            raise WorkerEnded(self._how_it_ended())
        raise WorkerLost(f'worker process {self.pid} did not answer within {timeout_s:g} s')

    def _how_it_ended(self) -> str:
        if self.lost:
            return f'the worker process of environments {self.env_ids} has ended; reset them to start another'
        self._process.join(SLICE_S)
        code = self._process.exitcode
        how = f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'
        return f'worker process {self.pid} has ended ({how})'

    def request_end(self) -> None:
        """Ask it to close its environments and end; returns at once."""
        # Closing the pipe alone may not reach it: processes forked since have copies of our end.
        with contextlib.suppress(WorkerLost):
            if not self.lost:
                self.send('end')

    def end(self, deadline: float = 0.0) -> None:
        """Wait for its end until a time of ``time.monotonic``, then kill it; release what belonged to it."""
        if self.lost:
            return
        self.lost = True
        self._connection.close()
        self._process.join(max(deadline - time.monotonic(), 0.0))
        if self._process.is_alive():
            self._process.kill()  # a stopped process does not see a SIGTERM
            self._process.join()
        self._process.close()
