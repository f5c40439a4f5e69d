"""A helper program that reads its standard input and can never make its parent wait for long."""

import os
import select
import subprocess
import tempfile
import time
import weakref
from typing import IO, cast


class HelperError(RuntimeError):
    """A helper process did not start, ended early or did not answer in time; the message quotes its last line."""


class HelperTimeout(HelperError):
    """A helper process did not take data in time."""


class HelperProcess:
    """Start a program, write to it, end it; each within a bounded time, whatever the program does. The program should
    finish its work and exit when its standard input ends, so it also does so when this process is killed. It runs in
    another session: Ctrl-C reaches this process alone, which then closes the program.

    Examples:
        >>> helper = HelperProcess('copy', ['cat'])
        >>> helper.write(memoryview(b'frame'), timeout_s=5.0)
        >>> helper.wait_ready(timeout_s=5.0)
        >>> helper.close(timeout_s=5.0)
        True
    """

    def __init__(self, name: str, command: list[str]) -> None:
        """Start a command, called ``name`` in messages."""
        self._name = name
        self._closed = False
        self._messages = tempfile.TemporaryFile()  # a file, because an unread pipe would fill and block the program
        try:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
                start_new_session=True,
            )
        except OSError as e:  # no such program, or no more processes
            self._messages.close()
            raise HelperError(f'the {name} could not be started: {e}') from e
        self._stdin, self._stdout = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        os.set_blocking(self._stdin.fileno(), False)
        _RUNNING.add(self)

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the program prints anything on its standard output."""
        if not _is_ready(self._stdout, select.POLLIN, timeout_s):
            raise HelperError(f'the {self._name} did not answer within {timeout_s:g} s')
        if not os.read(self._stdout.fileno(), 64):
            raise HelperError(f'the {self._name} ended at once{self._last_message()}')

    def write(self, data: memoryview, timeout_s: float) -> None:
        """Send bytes to the program."""
        stdin, rest = self._stdin.fileno(), memoryview(data).cast('B')
        deadline = time.monotonic() + timeout_s
        while rest:
            try:
                rest = rest[os.write(stdin, rest) :]
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0 or not _is_ready(self._stdin, select.POLLOUT, left):
                    raise HelperTimeout(f'the {self._name} took no data for {timeout_s:g} s') from None
            except BrokenPipeError:
                raise HelperError(f'the {self._name} has ended{self._last_message()}') from None

    def close(self, timeout_s: float) -> bool:
        """End the program's input and wait for the program to finish; kill it if it does not. May be called repeatedly;
        returns whether it was this call that ended the program.

        Raises:
            HelperError: If the program had to be killed or reported a failure. It has ended then, too.
        """
        if self._closed:
            return False
        self._closed = True
        process = self._process
        try:
            self._stdin.close()
            self._stdout.close()
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise HelperError(f'the {self._name} did not finish within {timeout_s:g} s and was killed') from None
            if code != 0:
                raise HelperError(f'the {self._name} failed with exit code {code}{self._last_message()}')
            return True
        finally:
            if process.poll() is None:  # out of time, or the wait was interrupted
                process.kill()  # SIGKILL, which a stopped process obeys, too
                process.wait()
            self._messages.close()

    def _last_message(self) -> str:
        try:
            self._process.wait(1)  # it may still be writing
        except subprocess.TimeoutExpired:
            return ''
        self._messages.seek(0)
        text = self._messages.read().decode(errors='replace').strip()
        return f': {text.splitlines()[-1]}' if text else ''

    def forget(self) -> None:
        """In a forked process: close the copies of the pipes, or the program would never see its input end."""
        if not self._closed:
            self._closed = True
            self._stdin.close()
            self._stdout.close()
            self._process.returncode = 0  # another process's child: keeps Popen's destructor from warning about it
            self._messages.close()


def _is_ready(pipe: IO[bytes], event: int, timeout_s: float) -> bool:
    poller = select.poll()  # select.select takes no descriptor above 1,023
    poller.register(pipe, event)
    return bool(poller.poll(timeout_s * 1000))


def _forget_all() -> None:
    for helper in list(_RUNNING):
        helper.forget()


_RUNNING: 'weakref.WeakSet[HelperProcess]' = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_all)
