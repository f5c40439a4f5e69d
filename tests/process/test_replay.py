"""Saves of replay buffers in processes that are killed."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from helpers.processes import ROOT, wait_until
from helpers.replay import filled, transition


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def forked(action):
    """A child process that does something until it is killed; forked, as it takes a second to start one anew."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(1)
    return pid


def killed(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def python(script, *arguments):
    """A Python program that imports the tests' helpers."""
    return [sys.executable, '-c', f'import sys; sys.path.insert(0, {str(ROOT / "tests")!r})\n{script}', *arguments]


LOAD = """
from helpers.replay import is_exact, make, stored
for path in sys.argv[1:]:
    buffer = make(replay_buffer_size=100_000)
    buffer.load_data(path)
    transitions = stored(buffer._memory)
    assert all(is_exact(t) for t in transitions)
    numbers = [t['id'] for t in transitions]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    print(path, len(numbers), flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_a_complete_save(tmp_path):
    rng, paths = random.Random(0), []
    for attempt in range(12):
        path = str(tmp_path / f'run{attempt}' / 'buffer.npz')
        filled(60).save_data(path)
        size = os.path.getsize(path)

        def train(path=path):
            buffer = filled(60, replay_buffer_size=200)
            for i in range(60, 10**6):
                buffer.push(transition(i), 0)
                buffer.start_saving(path, lambda: None)

        pid = forked(train)
        if attempt % 2:  # some get further than the first save
            assert wait_until(lambda path=path, first=size: os.path.getsize(path) > 1.2 * first)
        time.sleep(rng.uniform(0, 0.15))
        killed(pid)
        paths.append(path)
    result = subprocess.run(python(LOAD, *paths), capture_output=True, text=True)
    lines = [line for line in result.stdout.splitlines() if line.startswith(str(tmp_path))]
    assert len(lines) == len(paths), result.stderr
    assert sum(int(line.split()[1]) > 60 for line in lines) >= 6
    assert 'was taken instead' not in result.stderr  # not even the previous save was needed
