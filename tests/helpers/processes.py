"""Programs as a user starts them, each in a session of its own; and interrupts of this one."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def environ_now() -> dict[str, str]:
    """The variables of a program that is started now. Its networks are too small for more than one thread."""
    return {**os.environ, 'PATH': f'{BIN}{os.pathsep}{os.environ["PATH"]}', 'OMP_NUM_THREADS': '1'}


def wait_until(condition, timeout_s: float = 240.0) -> bool:
    """Whether a condition comes true, for what other processes do; on a busy machine that may take a while."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _session(cwd: str | Path, environ: Mapping[str, str] | None) -> dict[str, Any]:
    """Options of ``subprocess`` for a program in a session of its own."""
    env = environ_now() if environ is None else environ
    return dict(cwd=cwd, env=env, stdin=subprocess.DEVNULL, text=True, start_new_session=True)


def completed(
    command: Sequence[Any],
    cwd: str | Path = '.',
    environ: Mapping[str, str] | None = None,
    merged: bool = False,
) -> 'subprocess.CompletedProcess[str]':
    """Run a program to its end, whatever that is. ``merged`` puts stderr into ``stdout``, in order."""
    stderr = subprocess.STDOUT if merged else subprocess.PIPE
    return subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=stderr, **_session(cwd, environ))


def run(command: Sequence[Any], cwd: Path, **environ: str) -> str:
    """A command as a user runs it, in a folder of the user's; its output, or a failed test that shows it."""
    result = completed(command, cwd, {**environ_now(), **environ}, merged=True)
    assert result.returncode == 0, result.stdout[-5000:]
    return result.stdout


class Command:
    """A command that is running, and what it says."""

    def __init__(
        self,
        command: Sequence[Any],
        folder: Path,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._path = folder / f'output{time.monotonic_ns()}'
        with open(self._path, 'w') as output:
            streams = dict(stdout=output, stderr=subprocess.STDOUT, **_session(cwd or folder, environ))
            self.process = subprocess.Popen([*map(str, command)], **streams)
        self.pid = self.process.pid

    @property
    def text(self) -> str:
        return self._path.read_text(errors='replace')

    def wait_for(self, condition) -> None:
        assert wait_until(lambda: condition() or self.process.poll() is not None), self.text
        assert self.process.poll() is None, self.text

    def end(self, number: int, whole_group: bool = False) -> int:
        """Send a signal; the exit code. Nobody is left."""
        workers = psutil.Process(self.pid).children(recursive=True)
        os.killpg(self.pid, number) if whole_group else self.process.send_signal(number)
        code = self.process.wait()
        assert wait_until(lambda: not any(map(is_there, workers))), workers
        return code


def is_there(process: psutil.Process) -> bool:
    """Whether it runs: a killed process that nobody has waited for does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@contextlib.contextmanager
def alarm_that_raises(error: BaseException, seconds: float) -> Iterator[None]:
    """Raise an error in the main thread after some seconds, as DI-engine's ``reset_timeout`` and Ctrl-C do."""

    def interrupt(number, frame):
        raise error

    previous = signal.signal(signal.SIGALRM, interrupt)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)  # of the test's own time limit
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, left_s)
