"""Replay buffers and their saves in processes that are killed, stopped, interrupted or short of memory."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from helpers.processes import ROOT, wait_until
from helpers.replay import content, filled, is_exact, make, set_priorities, transition


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
from helpers.replay import is_exact, make
for path in sys.argv[1:]:
    buffer = make(replay_buffer_size=100_000)
    buffer.load_data(path)
    transitions = buffer._memory.fetch(buffer._memory.rows())
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
            buffer = filled(60, save_path=path, save_every_pushes=20, replay_buffer_size=200)
            for i in range(60, 10**6):
                buffer.push(transition(i), 0)

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


STOPPED = """
import signal
from helpers.replay import make, transition
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
buffer = make(save_path=sys.argv[1], save_every_s=10_000.0, replay_buffer_size=300)
for i in range(10**9):
    buffer.push(transition(i), i)
    if i == 500:
        print('running', flush=True)
"""


@pytest.mark.parametrize('number, code', [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_program_that_exits_on_a_signal_saves_what_it_has(tmp_path, number, code):
    child = subprocess.Popen(
        python(STOPPED, 'buffer.npz'), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert any(line == 'running\n' for line in child.stdout)
    assert not os.path.exists('buffer.npz')
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == code, errors
    other = make()
    other.load_data('buffer.npz')
    numbers = [t['id'] for t in content(other)[1]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and 299 <= len(numbers) <= 300
    assert numbers[-1] >= 500 and all(is_exact(t) for t in other.sample(200, 0))
    assert os.listdir(tmp_path) == ['buffer.npz']


class Stop(BaseException):
    """What a signal's handler raises."""


@pytest.mark.parametrize('eviction', ['fifo', 'random'])
def test_a_push_interrupted_anywhere_leaves_an_exact_buffer(eviction):
    """Ctrl-C and SIGTERM come in the middle of a push, too; the next save is as right as ever."""
    rng = random.Random(0)
    buffer = filled(50, replay_buffer_size=50, eviction=eviction)
    set_priorities(buffer, [], [])
    known = [transition(i) for i in range(400)]

    def stop(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(150):
            with pytest.raises(Stop):
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.003))
                while True:
                    buffer.push(rng.sample(known, 3), 0)
            other = make(replay_buffer_size=50)
            other.load_state_dict(buffer.state_dict())
            for each in (buffer, other):
                transitions = each._memory.fetch(each._memory.rows())
                assert len(transitions) >= 47 and all(is_exact(t) for t in transitions)
                assert all(is_exact(t) for t in each.sample(20, 0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
