"""The manager's side of one worker process: start it, talk to it, and be told when it is lost."""

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

# Waiting is done in slices, and only slices count: a process that was stopped (Ctrl-Z) or slept with its machine does
# not take its own sleep for its worker's silence.
SLICE_S = 1.0


class WorkerLost(RuntimeError):
    """
    Overview:
        A worker process ended or did not answer in time; the message says which.
    """


class WorkerEnded(WorkerLost):
    """
    Overview:
        A worker process ended, or was killed by somebody else.
    """


class GroupWorker(object):
    """
    Overview:
        A worker process. One command is under way at a time; an answer to an earlier one, whose caller was \
        interrupted while it waited, is dropped.
    Interfaces:
        ``send``, ``receive``, ``ask_to_end``, ``end``.
    Properties:
        ``env_ids``, ``pid``, ``alive``, ``lost``.
    """

    def __init__(self, context: Any, env_fns: Dict[int, Callable], *options: Any) -> None:
        """
        Overview:
            Start the process; ``open`` is to be the first command.
        Arguments:
            - context (:obj:`multiprocessing.context.BaseContext`): How processes are started.
            - env_fns (:obj:`Dict[int, Callable]`): What makes each of its environments.
            - options (:obj:`Any`): ``EnvGroup``'s other arguments.
        """
        self.env_ids = list(env_fns)
        self.lost = False  # ended for good
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
        """Whether the process is there."""
        return not self.lost and self._process.is_alive()

    def send(self, command: str, *args: Any, **kwargs: Any) -> None:
        """
        Overview:
            Give it something to do.
        Raises:
            - WorkerEnded: If it has ended.
        """
        self._number += 1
        message = pickle.dumps((self._number, command, args, kwargs), pickle.HIGHEST_PROTOCOL)
        try:
            self._connection.send_bytes(message)
        except OSError as error:  # nobody reads the pipe any more
            raise WorkerEnded(self._how_it_ended()) from error

    def receive(self, timeout_s: Optional[float] = None) -> Any:
        """
        Overview:
            Wait for the answer to the last command.
        Arguments:
            - timeout_s (:obj:`Optional[float]`): Seconds to wait; None for as long as it lives.
        Raises:
            - WorkerEnded: If it has ended.
            - WorkerLost: If it does not answer in time.
        """
        slices = math.inf if timeout_s is None else max(math.ceil(timeout_s / SLICE_S), 1)
        slice_ms = 1000 * (SLICE_S if timeout_s is None else timeout_s / slices)
        while slices > 0:
            ready = [descriptor for descriptor, _ in self._poller.poll(slice_ms)]
            if self._connection.fileno() in ready:
                try:
                    number, result = pickle.loads(self._connection.recv_bytes())
                except (EOFError, OSError) as error:  # it ended before or while it answered
                    raise WorkerEnded(self._how_it_ended()) from error
                if number == self._number:
                    return result
            elif ready:
                raise WorkerEnded(self._how_it_ended())
            else:
                slices -= 1
        raise WorkerLost(f'worker process {self.pid} did not answer within {timeout_s:g} s')

    def _how_it_ended(self) -> str:
        if self.lost:
            return f'the worker process of environments {self.env_ids} has ended; reset them to start another'
        self._process.join(SLICE_S)
        code = self._process.exitcode
        how = f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'
        return f'worker process {self.pid} has ended ({how})'

    def ask_to_end(self) -> None:
        """Have it close its environments and end; returns at once."""
        # The end of the pipe alone may not reach it, as processes forked since hold our side of it, too.
        with contextlib.suppress(WorkerLost):
            if not self.lost:
                self.send('end')

    def end(self, deadline: float = 0.0) -> None:
        """
        Overview:
            Wait until it has ended, kill it if that takes too long, and release what belonged to it.
        Arguments:
            - deadline (:obj:`float`): Time, by ``time.monotonic``, until which it may close its environments.
        """
        if self.lost:
            return
        self.lost = True
        self._connection.close()
        self._process.join(max(deadline - time.monotonic(), 0.0))
        if self._process.is_alive():
            self._process.kill()  # a stopped process does not see a SIGTERM
            self._process.join()
        self._process.close()
