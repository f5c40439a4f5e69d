"""close() gives everything back, from every state, and says nothing about what was never there."""

import logging
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from breakout_env import BreakoutEnv
from breakout_env.envs import emulator
from helpers.games import play
from helpers.processes import wait_until
from helpers.resources import footprint, grown_since, resident_bytes


def test_before_the_first_reset_and_twice_and_again(same_footprint):
    env = BreakoutEnv({})
    env.close()
    env.close()
    play(env, 20)
    env.close()
    env.close()
    play(env, 20)
    env.close()


def test_a_failed_reset_leaves_nothing_open_and_the_next_one_works(monkeypatch, same_footprint, tmp_path):
    env = BreakoutEnv({})
    env.enable_save_replay(str(tmp_path))

    def fail(self, noop_frames):
        raise RuntimeError('planted')

    with monkeypatch.context() as patch:
        patch.setattr(emulator.Emulator, 'reset_game', fail)
        with pytest.raises(RuntimeError, match='planted'):
            env.reset()
        assert not hasattr(env, '_env')
        env.close()
    play(env, 20)
    env.close()


def test_a_constructor_that_fails_half_way_leaves_nothing(monkeypatch, same_footprint):
    def fail(self, seed):
        raise OSError('no ROM')

    monkeypatch.setattr(emulator.Emulator, 'reload', fail)
    env = BreakoutEnv({})
    with pytest.raises(OSError, match='no ROM'):
        env.reset()
    env.close()


def test_a_failed_step_closes_and_the_next_reset_works(monkeypatch):
    env = BreakoutEnv({})
    env.reset()
    with monkeypatch.context() as patch:
        patch.setattr(env._env, 'advance', lambda action, frames: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            env.step(0)
    assert not hasattr(env, '_env')
    play(env, 20)
    env.close()


def test_one_failing_release_does_not_keep_the_others_from_theirs(monkeypatch, caplog, tmp_path, same_footprint):
    env = BreakoutEnv({})
    env.enable_save_replay(str(tmp_path))
    play(env, 20)
    alive = []
    close_emulator, close_recorder = env._env.close, env._recorder.close
    monkeypatch.setattr(env._env, 'close', lambda: (close_emulator(), alive.append('emulator'), 1 / 0))
    monkeypatch.setattr(env._recorder, 'close', lambda: (close_recorder(), alive.append('recorder'), 1 / 0))
    with caplog.at_level(logging.WARNING):
        env.close()
    assert alive == ['recorder', 'emulator']
    assert 'closing the recorder failed' in caplog.text and 'closing the emulator failed' in caplog.text
    env.close()


def test_garbage_collection_closes(tmp_path, same_footprint):
    env = BreakoutEnv({})
    env.enable_save_replay(str(tmp_path))
    play(env, 20)
    del env
    assert wait_until(lambda: [f.name.endswith('-unfinished.mp4') for f in tmp_path.iterdir()] == [True])


SCRIPT = """
import os, sys, time
from breakout_env import BreakoutEnv
env = BreakoutEnv(dict(episodic_life=False)); env.enable_save_replay({folder!r}); env.reset()
for _ in range(30): env.step(0)
print('playing', flush=True)
{then}
"""


def start(folder, then):
    process = subprocess.Popen(
        [sys.executable, '-c', SCRIPT.format(folder=str(folder), then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.stdout.readline() != 'playing\n':
        assert process.poll() is None, process.stderr.read()
    return process, psutil.Process(process.pid).children()


@pytest.mark.parametrize('then', ['pass', 'sys.exit(0)', 'keep = env; keep.self = keep'])
def test_the_interpreters_exit_closes_without_a_word(tmp_path, then):
    process, children = start(tmp_path, then)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0 and 'Traceback' not in errors and 'Exception' not in errors, errors
    assert len(children) == 1 and not any(child.is_running() for child in children)
    assert [f.name.endswith('-unfinished.mp4') for f in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_killed_leaves_no_process_and_a_whole_video(tmp_path, number):
    av = pytest.importorskip('av')
    process, children = start(tmp_path, 'time.sleep(60)')
    process.send_signal(number)
    process.communicate(timeout=30)
    assert len(children) == 1 and wait_until(lambda: not any(child.is_running() for child in children))
    (video,) = tmp_path.iterdir()
    with av.open(str(video)) as container:
        assert len(list(container.decode(video=0))) == 31  # what reset left, and 30 steps


def test_a_forked_copy_neither_closes_nor_holds_what_its_parent_uses(tmp_path, caplog):
    env = BreakoutEnv(dict(episodic_life=False))
    env.enable_save_replay(str(tmp_path))
    env.reset()
    env.step(0)
    pids = []
    for what in (env.close, lambda: time.sleep(60)):  # one child closes its copy, one lives on with it
        pids.append(os.fork())
        if pids[-1] == 0:
            try:
                what()
            finally:
                os._exit(0)
    while not env.step(1).done:
        pass
    env.close()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    (video,) = tmp_path.iterdir()
    assert '-score' in video.name and 'killed' not in caplog.text


def test_300_cycles_grow_nothing():
    env = BreakoutEnv({})
    for _ in range(20):  # allocators and caches settle
        play(env, 5)
        env.close()
    before, resident = footprint(), resident_bytes()
    for _ in range(300):
        play(env, 5)
        env.close()
    grown = resident_bytes() - resident
    assert not grown_since(before)
    assert grown < 5 * 2**20, f'{grown / 2**20:.1f} MB'


def test_300_instances_grow_nothing():
    for _ in range(20):
        play(BreakoutEnv({}), 5)
    before, resident = footprint(), resident_bytes()
    for _ in range(300):
        play(BreakoutEnv({}), 5)
    grown = resident_bytes() - resident
    assert not grown_since(before)
    assert grown < 5 * 2**20, f'{grown / 2**20:.1f} MB'
