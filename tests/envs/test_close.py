"""``close`` releases everything, from every state."""

import logging
import os
import signal
import time

import pytest

from breakout_env import BreakoutEnv
from breakout_env.envs import emulator
from helpers.games import play
from helpers.processes import wait_until
from helpers.resources import footprint, grown_since, resident_bytes


def fail(*args):
    raise RuntimeError('planted')


def test_close_before_reset_and_twice_is_safe_and_reset_opens_again(same_footprint):
    env = BreakoutEnv({})
    env.close()
    env.close()
    for _ in range(2):
        play(env, 20)
        env.close()
        env.close()


@pytest.mark.parametrize('failing', ['reload', 'reset_game', 'advance'])
def test_a_failed_reset_or_step_leaves_nothing_open_and_the_next_reset_works(
    failing, monkeypatch, same_footprint, tmp_path
):
    env = BreakoutEnv(dict(fire_on_reset=False))
    env.enable_save_replay(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(emulator.Emulator, failing, fail)
        with pytest.raises(RuntimeError, match='planted'):
            env.reset()
            env.step(0)
        assert not hasattr(env, '_env')
    play(env, 20)
    env.close()


def test_a_failing_release_does_not_prevent_the_others(monkeypatch, caplog, tmp_path, same_footprint):
    env = BreakoutEnv({})
    env.enable_save_replay(str(tmp_path))
    play(env, 20)
    closed = []
    close_emulator, close_recorder = env._env.close, env._recorder.close
    monkeypatch.setattr(env._env, 'close', lambda: (close_emulator(), closed.append('emulator'), fail()))
    monkeypatch.setattr(env._recorder, 'close', lambda: (close_recorder(), closed.append('recorder'), fail()))
    with caplog.at_level(logging.WARNING):
        env.close()
    assert closed == ['recorder', 'emulator']
    assert 'closing the recorder failed' in caplog.text and 'closing the emulator failed' in caplog.text
    env.close()


def test_garbage_collection_closes(tmp_path, same_footprint):
    env = BreakoutEnv({})
    env.enable_save_replay(str(tmp_path))
    play(env, 20)
    del env
    assert wait_until(lambda: [f.name.endswith('-unfinished.mp4') for f in tmp_path.iterdir()] == [True])


def test_a_forked_copy_neither_closes_nor_keeps_what_its_parent_uses(tmp_path, caplog):
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


def test_memory_and_descriptors_stay_level_over_cycles_and_instances():
    def cycle():
        env = BreakoutEnv({})
        play(env, 3)
        env.close()
        play(env, 3)  # the second emulator goes with the instance

    for _ in range(8):  # allocators and caches settle
        cycle()
    before, resident = footprint(), resident_bytes()
    for _ in range(30):
        cycle()
    grown = resident_bytes() - resident
    assert not grown_since(before)
    assert grown < 5 * 2**20, f'{grown / 2**20:.1f} MB'  # an emulator takes 0.6 MB
