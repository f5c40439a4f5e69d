"""``close`` releases everything, a subclass's resources too, from every state; a copy is an environment of its own."""

import copy
import os
import pickle
import re
import signal
import time

import pytest

from breakout_env import BreakoutEnv
from breakout_env.envs.emulator import Emulator
from breakout_env.testing import lifecycle_checks
from helpers.games import play


@pytest.mark.parametrize('check', lifecycle_checks())
def test_lifecycle(check, tmp_path, same_footprint):
    def recorded():
        env = BreakoutEnv(dict(is_train=False, repeat_action_probability=0.25, max_episode_frames=400))
        env.enable_save_replay(str(tmp_path))
        return env

    check(recorded)


RELEASED = []


class Controller:
    def disconnect(self):
        RELEASED.append(self)


class Controlled(BreakoutEnv):
    """Hands over a resource of its own."""

    label, fails = None, False

    def open_resources(self):
        self.controller = self.own(Controller(), Controller.disconnect)
        if self.fails:
            raise OSError('no answer')


@pytest.fixture
def env():
    RELEASED.clear()
    return Controlled(dict(frame_stack=2, episodic_life=False))


@pytest.mark.parametrize('copied', [copy.copy, copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize('state', ['closed', 'playing'])
def test_a_copy_is_a_closed_environment_of_its_own(copied, state, env, same_footprint):
    reference = Controlled(dict(frame_stack=2, episodic_life=False))
    for one in (env, reference):
        one.label = 'its own'
        one.seed(7)
        if state == 'playing':
            play(one, 20)
    twin = copied(env)
    with pytest.raises(RuntimeError, match="in state 'closed'"):
        twin.step(0)
    assert not hasattr(twin, 'controller') and twin.label == 'its own'
    drawn = [twin.random_action().item() for _ in range(9)]
    course = play(twin, 20, seed=3)
    its_own = twin.controller
    twin.close()
    assert RELEASED == [its_own]
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


def test_a_resource_is_released_once_even_if_another_release_fails(env, caplog):
    env.reset()
    first = env.controller
    env.reset()
    assert env.controller is first and not RELEASED
    newest = env.own(Controller(), lambda controller: RELEASED.append(controller) or 1 / 0)
    env.close()
    env.close()
    assert RELEASED == [newest, first] and not hasattr(env, 'controller')
    assert re.search(r'closing Controller \d+ failed', caplog.text)
    env.reset()
    assert env.controller is not first
    env.close()
    assert len(RELEASED) == 3


def test_an_error_in_open_resources_or_a_step_releases_everything(env, monkeypatch):
    env.fails = True
    with pytest.raises(OSError, match='no answer'):
        env.reset()
    assert len(RELEASED) == 1 and not hasattr(env, '_env') and not hasattr(env, 'controller')
    env.fails = False
    env.reset()
    monkeypatch.setattr(Emulator, 'advance', None)
    with pytest.raises(TypeError):
        env.step(0)
    assert len(RELEASED) == 2 and not hasattr(env, '_env')
