"""Programs as a user starts them."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Mapping

import psutil

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
# the networks are so small that threads only get in each other's way
ENVIRON = {**os.environ, 'PATH': f'{BIN}{os.pathsep}{os.environ["PATH"]}', 'OMP_NUM_THREADS': '1'}


def watched_by_nobody(environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """
    Variables for a program that is to say and do what it does by itself: while tests are measured (make coverage),
    coverage.py is imported before it, which Ctrl-C would then meet, and warns on its screen.
    """
    return {name: value for name, value in environ.items() if not name.startswith('COVERAGE')}


def wait_until(condition, timeout_s: float = 30.0) -> bool:
    """Whether a condition comes true in time; for what other processes do."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]


def run(command: List[str], cwd: Path, timeout_s: float = 300, **environ: str) -> str:
    """A command as a user runs it, in a folder of the user's; its output, or a failed test that shows it."""
    result = subprocess.run(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        env={**os.environ, 'PATH': f'{BIN}{os.pathsep}{os.environ["PATH"]}', **environ},
    )
    assert result.returncode == 0, result.stdout[-5000:]
    return result.stdout


class Command(object):
    """A command that is running, in a group of its own, and what it says."""

    def __init__(self, command: list, folder: Path) -> None:
        self._path = folder / f'output{time.monotonic_ns()}'
        with open(self._path, 'w') as output:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env=ENVIRON
            )

    @property
    def text(self) -> str:
        return self._path.read_text()

    def wait_for(self, condition) -> None:
        assert wait_until(lambda: condition() or self.process.poll() is not None, 120), self.text
        assert self.process.poll() is None, self.text

    def end(self, number: int, whole_group: bool = False) -> int:
        """Send a signal; the exit code. Nobody is left."""
        workers = psutil.Process(self.process.pid).children(recursive=True)
        if whole_group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        assert wait_until(lambda: not any(worker.is_running() for worker in workers)), workers
        return code
