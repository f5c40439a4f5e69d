"""What the tests share: a look at the resources a process holds, a virtual screen, and a way to play."""

import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Dict, Iterator, List, Mapping

import numpy as np
import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

# A shell's background job ignores Ctrl-C and hands that down; the tests that press it are about what we do.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def footprint() -> Dict[str, int]:
    """What this process holds besides memory, and its children hold for it."""
    process = psutil.Process()
    return dict(
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        children=len(children()),
        shared_memory=len(os.listdir('/dev/shm')),
    )


def children() -> List[psutil.Process]:
    """The processes started from this one that are not done yet."""
    multiprocessing.active_children()  # collects those that have ended: DI-engine's managers do not
    # spawning starts a resource tracker of multiprocessing's that stays until the interpreter exits
    tracker_pid = resource_tracker._resource_tracker._pid
    return [process for process in psutil.Process().children(recursive=True) if process.pid != tracker_pid]


def newest_child() -> psutil.Process:
    """The process that was started last; not the one with the highest number, as numbers start over."""
    return max(children(), key=psutil.Process.create_time)


def grown_since(before: Dict[str, int]) -> Dict[str, int]:
    """What there is more of now; less is no harm, as Python may have collected what an earlier test left."""
    return {what: now - before[what] for what, now in footprint().items() if now > before[what]}


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss


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


def play(env, steps: int, seed: int = 0) -> List[tuple]:
    """The course of some random play, resets included, in a form that can be compared."""
    rng = np.random.default_rng(seed)
    course = [('reset', env.reset().tobytes())]
    for _ in range(steps):
        timestep = env.step(np.array([rng.integers(4)]))
        course.append((timestep.obs.tobytes(), timestep.reward.item(), timestep.done, sorted(timestep.info.items())))
        if timestep.done:
            course.append(('reset', env.reset().tobytes()))
    return course


@pytest.fixture
def same_footprint() -> Iterator[None]:
    """The test leaves no more descriptors, threads, children and shared memory than it found."""
    before = footprint()
    yield
    assert wait_until(lambda: not grown_since(before)), f'before: {before}, more: {grown_since(before)}'


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A disk of 24 MB."""
    folder = tmp_path / 'disk'
    folder.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', str(folder)], capture_output=True).returncode:
        pytest.skip('this user can not mount a small disk')
    yield folder
    subprocess.run(['umount', '--lazy', str(folder)], check=True)


@pytest.fixture
def display(monkeypatch, tmp_path) -> Iterator[subprocess.Popen]:
    """A virtual screen, named by DISPLAY, its picture in ``tmp_path``; the X server's process."""
    if shutil.which('Xvfb') is None:
        pytest.skip('no Xvfb on this machine (apt-get install xvfb)')
    read_end, write_end = os.pipe()
    server = subprocess.Popen(
        [
            'Xvfb',
            '-displayfd',
            str(write_end),
            '-screen',
            '0',
            '800x800x24',
            '-nolisten',
            'tcp',
            '-noreset',
            '-fbdir',
            str(tmp_path),
        ],
        pass_fds=[write_end],
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    with os.fdopen(read_end) as numbers:
        number = numbers.readline().strip()  # it picks a free one and says so when it is up
    monkeypatch.setenv('DISPLAY', f':{number}')
    monkeypatch.delenv('SDL_VIDEODRIVER', raising=False)
    yield server
    server.kill()
    server.wait()
