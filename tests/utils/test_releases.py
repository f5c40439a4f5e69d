"""What is acquired is released on every path, at once, and though an error or a snapshot still refers to it."""

import errno
import os
import signal
import threading
from functools import partial

import numpy as np
import pytest

from breakout_env import BreakoutEnv
from breakout_env.agent import export, play
from breakout_env.agent.agent import load_agent
from breakout_env.agent.evaluation import evaluate
from breakout_env.replay.memory_lock import MemoryLock
from breakout_env.utils import atomic_file
from helpers.replay import filled
from helpers.resources import children, footprint, grown_since


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fail(*args, **kwargs):
    raise OSError(errno.ENOSPC, 'No space left on device')


# ---------------------------------------------------------------- frames and memory of replay buffers


@pytest.mark.parametrize('by', ['close', 'clear', 'load'])
@pytest.mark.parametrize('storage', ['compressed', 'ring', 'memmap'])
def test_memory_is_freed_at_once_though_a_snapshot_refers_to_it(storage, by):
    before = footprint()
    buffer, another = filled(storage=storage, folder='.'), filled(start=100)
    snapshot, frames = buffer.state_dict(), buffer._memory._store
    buffer.load_state_dict(another.state_dict()) if by == 'load' else getattr(buffer, by)()
    with pytest.raises(ValueError, match='released|closed'):
        frames.storage.read(np.array([0]), np.empty((1, 64), np.uint8))
    loaded_file = 2 if storage == 'memmap' and by == 'load' else 0  # and its memory map's descriptor
    assert snapshot and grown_since(before).get('descriptors', 0) == loaded_file
    buffer.close()


# ---------------------------------------------------------------- games


class Opened(BreakoutEnv):
    """An environment that somebody still refers to."""

    every: list = []

    def __init__(self, cfg):
        super().__init__(cfg)
        self.every.append(self)


@pytest.mark.parametrize('what', ['play', 'evaluate', 'export'])
def test_games_are_closed_though_the_error_that_ended_them_is_referenced(what, monkeypatch):
    Opened.every.clear()
    for module in (play, export):
        monkeypatch.setattr(module, 'BreakoutEnv', Opened)
    agent = load_agent()
    call = dict(
        play=lambda: list(play.play(fail, lambda picture: True, dict(is_train=False))),
        evaluate=lambda: evaluate(agent, 'greedy', 1, 0, max_episode_frames=2000, on_step=fail),
        export=lambda: export._observations(agent),
    )[what]
    if what == 'export':
        monkeypatch.setattr(agent, 'act', fail)
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value is not None and not children()
    assert len(Opened.every) == (what != 'evaluate') and not any(hasattr(env, '_env') for env in Opened.every)


# ---------------------------------------------------------------- signals and files


def test_signals_are_delivered_after_the_outermost_release_of_a_memory_lock():
    lock, heard, others = MemoryLock(), [], []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    handler = signal.getsignal(signal.SIGUSR1)
    try:
        for count in (1, 2):
            with lock:
                with lock:
                    signal.raise_signal(signal.SIGUSR1)
                assert len(heard) == count - 1
            assert len(heard) == count and signal.getsignal(signal.SIGUSR1) is handler
        thread = threading.Thread(target=partial(_acquire, lock, others), daemon=True)
        thread.start()
        thread.join(5)
        assert others == ['acquired']
    finally:
        signal.signal(signal.SIGUSR1, before)


def _acquire(lock, others):
    with lock:
        others.append('acquired')


def test_a_file_is_flushed_before_it_gets_its_name_and_its_folder_after_that(tmp_path, monkeypatch):
    """A power cut leaves the old file or the new one."""
    order = []

    def record(name):
        real = getattr(os, name)

        def call(first, *args, **kwargs):
            path = os.readlink(f'/proc/self/fd/{first}') if isinstance(first, int) else os.fspath(first)
            order.append((name, os.path.relpath(path, tmp_path).split('.')[-1]))
            return real(first, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    record('fsync')
    record('replace')
    atomic_file.write_bytes(tmp_path / 'file', b'content')
    assert order == [('fsync', 'unfinished'), ('replace', 'unfinished'), ('fsync', '')]
