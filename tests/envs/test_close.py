"""``close`` releases everything, from every state, and a copy is an environment of its own."""

import copy
import io
import os
import pickle
import signal
import time

import pytest

from breakout_env import BreakoutEnv
from breakout_env.testing import lifecycle_checks
from helpers.games import play


@pytest.mark.parametrize('check', lifecycle_checks())
def test_lifecycle(check, tmp_path, same_footprint):
    def recorded():
        env = BreakoutEnv(dict(is_train=False, repeat_action_probability=0.25, max_episode_frames=400))
        env.enable_save_replay(str(tmp_path))
        return env

    check(recorded)


class Labelled(BreakoutEnv):
    label = None

    def open_resources(self):
        self.log = self.own(io.StringIO())


@pytest.mark.parametrize('copied', [copy.copy, copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize('state', ['closed', 'playing'])
def test_a_copy_is_a_closed_environment_of_its_own(copied, state, same_footprint):
    env, reference = (Labelled(dict(frame_stack=2, episodic_life=False)) for _ in range(2))
    for one in (env, reference):
        one.label = 'its own'
        one.seed(7)
        if state == 'playing':
            play(one, 20)
    twin = copied(env)
    with pytest.raises(RuntimeError, match="in state 'closed'"):
        twin.step(0)
    assert not hasattr(twin, 'log') and twin.label == 'its own'
    drawn = [twin.random_action().item() for _ in range(9)]
    course = play(twin, 20, seed=3)
    log = twin.log
    twin.close()
    assert log.closed and (state == 'closed' or not env.log.closed)
    assert play(env, 30) == play(reference, 30)  # undisturbed
    reference.seed(7)
    assert [reference.random_action().item() for _ in range(9)] == drawn and play(reference, 20, seed=3) == course
    env.close(), reference.close()


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
