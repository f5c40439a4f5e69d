"""A child process that is fed through its standard input and can never make its parent wait for long."""

import os
import select
import subprocess
import tempfile
import time
import weakref
from typing import List, Optional


class HelperError(RuntimeError):
    """
    Overview:
        A helper process did not start, ended early or did not answer in time; the message says which and quotes what \
        the helper printed.
    """


class HelperProcess(object):
    """
    Overview:
        Start a program, write to it, end it; each within a bounded time, whatever the program does. The program is \
        expected to finish its work and exit when its standard input ends, so it also does so when this process is \
        killed. It runs in a session of its own: Ctrl-C reaches us alone, and we end it in order.
    Interfaces:
        ``wait_ready``, ``write``, ``read``, ``close``.
    """

    def __init__(self, name: str, command: List[str]) -> None:
        """
        Overview:
            Start the program.
        Arguments:
            - name (:obj:`str`): What it is, for messages, such as ``video encoder``.
            - command (:obj:`List[str]`): Program and arguments.
        Raises:
            - HelperError: If it can't be started.
        """
        self._name = name
        self._messages = tempfile.TemporaryFile()  # a file, because an unread pipe would fill and block the program
        try:
            self._process: Optional[subprocess.Popen] = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
                start_new_session=True,
            )
        except OSError as e:  # no such program, no more processes: the file is ours to close all the same
            self._messages.close()
            raise HelperError(f'the {name} could not be started: {e}') from e
        os.set_blocking(self._process.stdin.fileno(), False)
        _RUNNING.add(self)

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    def wait_ready(self, timeout_s: float) -> None:
        """
        Overview:
            Wait until the program prints anything on its standard output.
        Arguments:
            - timeout_s (:obj:`float`): How long to wait, in seconds.
        Raises:
            - HelperError: If it ends or stays silent.
        """
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not ready:
            raise HelperError(f'the {self._name} did not answer within {timeout_s:g} s')
        if not os.read(self._process.stdout.fileno(), 64):
            raise HelperError(f'the {self._name} ended at once{self._last_words()}')

    def write(self, data: memoryview, timeout_s: float) -> None:
        """
        Overview:
            Hand bytes to the program.
        Arguments:
            - data (:obj:`memoryview`): The bytes.
            - timeout_s (:obj:`float`): How long the program may take them, in seconds.
        Raises:
            - HelperError: If it ended or does not take them in time.
        """
        stdin, rest = self._process.stdin.fileno(), memoryview(data).cast('B')
        deadline = time.monotonic() + timeout_s
        while rest:
            try:
                rest = rest[os.write(stdin, rest) :]
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([], [stdin], [], left)[1]:
                    raise HelperError(f'the {self._name} took no data for {timeout_s:g} s') from None
            except BrokenPipeError:
                raise HelperError(f'the {self._name} has ended{self._last_words()}') from None

    def read(self) -> bytes:
        """
        Overview:
            What the program has printed on its standard output since it was asked last; never waits.
        Returns:
            - printed (:obj:`bytes`): Up to 64 KiB, empty if there is nothing, also where the program has ended.
        """
        stdout = self._process.stdout
        return os.read(stdout.fileno(), 65536) if select.select([stdout], [], [], 0)[0] else b''

    def close(self, timeout_s: float) -> bool:
        """
        Overview:
            End the program's input and wait for it to finish; kill it where it does not. May be called repeatedly.
        Arguments:
            - timeout_s (:obj:`float`): How long it may take to finish, in seconds.
        Returns:
            - finished (:obj:`bool`): Whether it was this call that ended the program.
        Raises:
            - HelperError: If it had to be killed or reported a failure. It is gone then, too.
        """
        process, self._process = self._process, None
        if process is None:
            return False
        try:
            process.stdin.close()
            process.stdout.close()
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise HelperError(f'the {self._name} did not finish within {timeout_s:g} s and was killed') from None
            if code != 0:
                raise HelperError(f'the {self._name} failed with exit code {code}{self._last_words()}')
            return True
        finally:
            if process.poll() is None:  # out of time, or we were interrupted while we waited
                process.kill()  # SIGKILL, which a stopped process or one stuck in a system call obeys, too
                process.wait()
            self._messages.close()

    def _last_words(self) -> str:
        if self._process is not None:
            try:
                self._process.wait(1)  # it may still be writing them
            except subprocess.TimeoutExpired:
                return ''
        self._messages.seek(0)
        text = self._messages.read().decode(errors='replace').strip()
        return f': {text.splitlines()[-1]}' if text else ''

    def _forget(self) -> None:
        """In a forked process: drop the copies of the pipes, or the program would never see its input end."""
        process, self._process = self._process, None
        if process is not None:
            process.stdin.close()
            process.stdout.close()
            process.returncode = 0  # not our child: keeps Popen's destructor from warning about it
            self._messages.close()


_RUNNING: 'weakref.WeakSet[HelperProcess]' = weakref.WeakSet()


def _forget_all() -> None:
    for helper in list(_RUNNING):
        helper._forget()


os.register_at_fork(after_in_child=_forget_all)
