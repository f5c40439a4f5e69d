"""Fixtures of all tests: the resources that a process holds, a small disk, a virtual screen; and the test tiers."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from helpers.processes import wait_until
from helpers.resources import children, footprint, grown_since

# A shell's background job ignores Ctrl-C and hands that down; the tests that press it are about what we do.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The default tests are deterministic. HYPOTHESIS_PROFILE=release tries more examples, other ones each time.
_COMMON = settings(deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.register_profile('default', _COMMON, derandomize=True, max_examples=25)
settings.register_profile('release', _COMMON, max_examples=1000)
settings.load_profile(os.environ.get('HYPOTHESIS_PROFILE', 'default'))


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch) -> None:
    """Each test begins in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def same_footprint() -> Iterator[None]:
    """The test leaves no more descriptors, threads, children and shared memory than it found."""
    before = footprint()
    yield
    assert wait_until(lambda: not grown_since(before)), f'before: {before}, more: {grown_since(before)}'


@pytest.fixture(scope='module')
def memory_for_reuse() -> None:
    """multiprocessing keeps some shared memory for the next manager: ``same_footprint`` must not count it."""
    from helpers.managers import launched

    with launched():
        pass


@pytest.fixture(autouse=True)
def end_processes(request) -> Iterator[None]:
    """What a failed process test has left running ends with it: later tests count processes."""
    yield
    if request.node.get_closest_marker('process') is not None:
        for process in children():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture(autouse=True)
def close_writers() -> Iterator[None]:
    """Close what ``SerialRun`` has opened. Its learner is garbage in a reference cycle: a process that a later test
    forks would collect it, too, and end the writer's thread here by a message through their common queue.
    """
    yield
    module = sys.modules.get('helpers.serial_run')
    while module is not None and module.open_writers:
        module.open_writers.pop().close()


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
    screen = ['-screen', '0', '800x800x24', '-nolisten', 'tcp', '-noreset', '-fbdir', str(tmp_path)]
    command = ['Xvfb', '-displayfd', str(write_end), *screen]
    server = subprocess.Popen(command, pass_fds=[write_end], stderr=subprocess.DEVNULL)
    os.close(write_end)
    with os.fdopen(read_end) as numbers:
        number = numbers.readline().strip()  # it picks a free one and says so when it is up
    monkeypatch.setenv('DISPLAY', f':{number}')
    monkeypatch.delenv('SDL_VIDEODRIVER', raising=False)
    yield server
    server.kill()
    server.wait()
