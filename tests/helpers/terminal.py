"""A program in a pseudo-terminal."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path
from typing import Any, Callable, List

import psutil

from helpers.processes import environ_now, is_there, wait_until

# PyTorch keeps a folder for what it compiles; wandb, which DI-engine imports, removes its folders in a graceful
# shutdown, for which there may be no time
FOLDERS_OF_OTHERS = 'torchinductor|wandb'


def _log_in() -> None:
    """In the child: its stdin is its terminal, and it ignores no signal, as the tests may under nohup."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class Terminal(object):
    """A terminal of 150 columns with a program in the foreground, which a person types at and closes."""

    def __init__(self, command: List[str], folder: Path) -> None:
        self._temporary = folder / 'temporary'
        self._temporary.mkdir(exist_ok=True)
        self._end, program_end = pty.openpty()
        fcntl.ioctl(program_end, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 150, 0, 0))
        # coverage.py, which a measured run imports first, warns on the screen
        environ = {name: value for name, value in environ_now().items() if not name.startswith('COVERAGE')}
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environ, 'TMPDIR': str(self._temporary), 'TERM': 'xterm-256color'},
            stdin=program_end,
            stdout=program_end,
            stderr=program_end,
            start_new_session=True,
            preexec_fn=_log_in,
        )
        self.pid = self._process.pid
        os.close(program_end)
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, args=(self._end,), daemon=True)
        self._reader.start()
        self._family: List[psutil.Process] = []

    def _read(self, end: int) -> None:
        while True:
            try:
                self._output += os.read(end, 65536)
            except OSError:  # the program or the test has closed it
                return

    @property
    def text(self) -> str:
        return self._output.decode(errors='replace')

    def workers(self) -> List[psutil.Process]:
        """Its forks: the workers of environments, not the git that DI-engine calls."""
        program, found = psutil.Process(self.pid).cmdline(), []
        for child in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child] if child.cmdline() == program else []
        return found

    def plays(self, number: int) -> bool:
        """Whether a worker, by the order of their starts, has computed for longer than its start takes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            workers = sorted(self.workers(), key=psutil.Process.create_time)
            return len(workers) > number and workers[number].cpu_times().user > 0.5
        return False

    def wait_for(self, condition: Callable[[], Any]) -> 'Terminal':
        assert wait_until(lambda: condition() or self._process.poll() is not None), self.text
        assert self._process.poll() is None, self.text
        self._family = psutil.Process(self.pid).children(recursive=True)
        return self

    def press_ctrl_c(self, times: int = 1, every_s: float = 0.0) -> None:
        for _ in range(times):
            with contextlib.suppress(OSError):  # the program may have ended already
                os.write(self._end, b'\x03')
            time.sleep(every_s)

    def hang_up(self) -> None:
        os.close(self._end)
        self._end = -1

    def exit_code(self) -> int:
        """The exit code. No process and no temporary file is left, and no traceback was shown."""
        code = self._process.wait()
        assert wait_until(lambda: not any(map(is_there, self._family))), self._family
        if self._end >= 0:
            self._reader.join(5)
            self.hang_up()
        left = [path.name for path in self._temporary.iterdir() if not re.search(FOLDERS_OF_OTHERS, path.name)]
        assert not left and 'Traceback' not in self.text and 'Exception ignored' not in self.text, (left, self.text)
        return code

    def kill(self) -> None:
        """End what a failed test has left of the program."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
