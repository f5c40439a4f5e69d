"""
Programs as a user starts them.

``Command``, ``run`` and ``completed`` start Python programs (``breakout``, ``ding``, ``python FILE``, ``python -c``,
``python -m``) warm: as forks of a process that has imported PyTorch and DI-engine, see ``fork_server.py``. Whatever
else they are given (a shell, ``ip netns exec``, options of the interpreter) starts cold. So does all with
``cold=True``, for tests about a new interpreter: what an import prints or loads, or the command line that other
processes see.
"""

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import psutil

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
# the networks are so small that threads only get in each other's way
ENVIRON = {**os.environ, 'PATH': f'{BIN}{os.pathsep}{os.environ["PATH"]}', 'OMP_NUM_THREADS': '1'}


def environ_now() -> Dict[str, str]:
    """The variables of a program that is started now, with what a fixture has set."""
    return {**os.environ, 'PATH': ENVIRON['PATH'], 'OMP_NUM_THREADS': '1'}


def without_coverage(environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """
    Variables for a program whose screen or interruption a test looks at: while coverage is measured (nox -s coverage),
    coverage.py is imported first, which Ctrl-C may then meet, and it warns on the screen.
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


class ForkServer(object):
    """This process's server of warm starts; it starts with the first program and ends with the tests."""

    def __init__(self) -> None:
        self._process: Optional[subprocess.Popen] = None
        self._folder = ''
        atexit.register(self.stop)

    @property
    def pid(self) -> Optional[int]:
        return self._process and self._process.pid

    def connect(self) -> socket.socket:
        """A connection for one program."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(f'{self._folder}/socket')
        return connection

    def _start(self) -> None:
        self.stop()
        self._folder = tempfile.mkdtemp(prefix='fork-server-', dir='/tmp')  # a short path: a socket's has 107 bytes
        with open(f'{self._folder}/output', 'w') as output:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name('fork_server.py')), f'{self._folder}/socket'],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=ENVIRON,
            )
        listens = wait_until(lambda: os.path.exists(f'{self._folder}/socket') or self._process.poll() is not None, 120)
        assert listens and self._process.poll() is None, Path(self._folder, 'output').read_text()

    def descendants(self) -> List[psutil.Process]:
        """The programs that run, what they have started, and what those that have ended left behind."""
        return [] if self._process is None else psutil.Process(self._process.pid).children(recursive=True)

    def stop(self) -> None:
        """End the server and all below it."""
        if self._process is not None:
            for process in self.descendants():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.kill()
            self._process.wait()
            self._process = None
            shutil.rmtree(self._folder)


FORK_SERVER = ForkServer()


class WarmProcess(object):
    """A program that the fork server runs; it has what tests use of ``subprocess.Popen``."""

    def __init__(
        self, argv: List[str], cwd: Path, environ: Mapping[str, str], stdio: Sequence[int], terminal: bool
    ) -> None:
        self.args = argv
        self.returncode: Optional[int] = None
        self._connection = FORK_SERVER.connect()
        request = dict(argv=argv, cwd=str(cwd), environ=dict(environ), terminal=terminal)
        socket.send_fds(self._connection, [json.dumps(request).encode()], list(stdio))
        self.pid: int = json.loads(self._connection.recv(1000))['pid']

    def wait(self, timeout: Optional[float] = None) -> int:
        """As ``Popen.wait``."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                answer = self._connection.recv(1000)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0) from None
            self._connection.close()
            assert answer, 'the fork server has ended'
            self.returncode = json.loads(answer)['code']
        return self.returncode

    def poll(self) -> Optional[int]:
        """As ``Popen.poll``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        """As ``Popen.send_signal``."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """As ``Popen.terminate``."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As ``Popen.kill``."""
        self.send_signal(signal.SIGKILL)


Process = Union[subprocess.Popen, WarmProcess]


def _python_arguments(command: Sequence[Any], environ: Mapping[str, str]) -> Optional[List[str]]:
    """What follows the interpreter in a command that can start warm; None for any other."""
    program, *arguments = map(str, command)
    path = shutil.which(program, path=environ.get('PATH'))
    if path is None or Path(path).parent != BIN:
        return None
    if any(environ.get(name) != ENVIRON.get(name) for name in {*environ, *ENVIRON} if name.startswith('PYTHON')):
        return None  # an interpreter reads these when it starts
    if Path(path).name.startswith('python'):
        return arguments if arguments and (arguments[0] in ('-c', '-m') or arguments[0][0] != '-') else None
    with open(path, 'rb') as file:
        return [path, *arguments] if file.read(len(b'#!') + len(os.fsencode(BIN))) == b'#!' + os.fsencode(BIN) else None


def start(
    command: Sequence[Any],
    cwd: Union[str, Path] = '.',
    environ: Optional[Mapping[str, str]] = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.STDOUT,
    cold: bool = False,
    terminal: bool = False,
) -> Process:
    """
    Start a program in a session of its own. ``stdin``, ``stdout`` and ``stderr`` are descriptors, or one of
    ``subprocess.DEVNULL`` and ``subprocess.STDOUT``; ``terminal`` makes stdin its controlling terminal.
    """
    environ = environ_now() if environ is None else environ
    argv = None if cold else _python_arguments(command, environ)
    with open(os.devnull, 'r+b') as nothing:
        stdin, stdout = (nothing.fileno() if one == subprocess.DEVNULL else one for one in (stdin, stdout))
        stderr = {subprocess.DEVNULL: nothing.fileno(), subprocess.STDOUT: stdout}.get(stderr, stderr)
        if argv is not None:
            return WarmProcess(argv, Path(cwd).absolute(), environ, (stdin, stdout, stderr), terminal)
        return subprocess.Popen(
            [*map(str, command)],
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env=environ,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if terminal else None,
        )


def completed(
    command: Sequence[Any],
    cwd: Union[str, Path] = '.',
    timeout_s: float = 300,
    environ: Optional[Mapping[str, str]] = None,
    input: str = '',
    cold: bool = False,
    merged: bool = False,
) -> 'subprocess.CompletedProcess[str]':
    """
    Run a program to its end, whatever that is; as ``subprocess.run`` with ``capture_output`` and ``text``. ``merged``
    puts what is written to stderr into ``stdout``, in order.
    """
    with contextlib.ExitStack() as files:
        stdin, stdout, stderr = (files.enter_context(tempfile.TemporaryFile('w+')) for _ in range(3))
        stdin.write(input)
        stdin.seek(0)
        errors = subprocess.STDOUT if merged else stderr.fileno()
        process = start(command, cwd, environ, stdin.fileno(), stdout.fileno(), errors, cold)
        try:
            code = process.wait(timeout_s)
        except BaseException:  # out of time, or the tests are stopped
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        for file in (stdout, stderr):
            file.seek(0)
        return subprocess.CompletedProcess(list(command), code, stdout.read(), stderr.read())


def run(command: Sequence[Any], cwd: Path, timeout_s: float = 300, cold: bool = False, **environ: str) -> str:
    """A command as a user runs it, in a folder of the user's; its output, or a failed test that shows it."""
    result = completed(command, cwd, timeout_s, {**environ_now(), **environ}, cold=cold, merged=True)
    assert result.returncode == 0, result.stdout[-5000:]
    return result.stdout


class Command(object):
    """A command that is running, in a session of its own, and what it says."""

    def __init__(
        self, command: Sequence[Any], folder: Path, environ: Optional[Mapping[str, str]] = None, cold: bool = False
    ) -> None:
        self._path = folder / f'output{time.monotonic_ns()}'
        with open(self._path, 'w') as output:
            self.process = start(command, folder, environ, stdout=output.fileno(), cold=cold)
        self.pid = self.process.pid

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
