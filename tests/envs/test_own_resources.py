"""What a subclass hands over is released once, whatever happens."""

import os

import pytest

from breakout_env import BreakoutEnv

RELEASED = []


class Controller(object):
    def disconnect(self):
        RELEASED.append(self)


class Controlled(BreakoutEnv):
    fails = False

    def open_resources(self):
        self.controller = self.own(Controller(), Controller.disconnect)
        if self.fails:
            raise OSError('no answer')


@pytest.fixture
def env():
    RELEASED.clear()
    return Controlled({})


def test_reset_opens_it_once_and_close_releases_it_once(env):
    assert not hasattr(env, 'controller')
    env.reset()
    first = env.controller
    env.reset()
    assert env.controller is first and not RELEASED
    env.close()
    env.close()
    assert RELEASED == [first] and not hasattr(env, 'controller')
    env.reset()
    assert env.controller is not first
    env.close()
    assert len(RELEASED) == 2


def test_an_error_in_open_resources_or_a_step_releases_it_and_the_emulator(env, monkeypatch):
    env.fails = True
    with pytest.raises(OSError, match='no answer'):
        env.reset()
    assert len(RELEASED) == 1 and not hasattr(env, '_env') and not hasattr(env, 'controller')
    env.fails = False
    env.reset()
    monkeypatch.setattr(env._env, 'advance', None)
    with pytest.raises(TypeError):
        env.step(0)
    assert len(RELEASED) == 2 and not hasattr(env, '_env')


def test_a_release_that_fails_does_not_prevent_the_others_and_the_newest_comes_first(env, caplog):
    env.reset()
    oldest = env.controller
    newest = env.own(Controller(), lambda controller: RELEASED.append(controller) or 1 / 0)
    env.close()
    assert RELEASED == [newest, oldest] and 'closing the Controller failed' in caplog.text
    env.close()
    assert len(RELEASED) == 2


@pytest.mark.parametrize(
    'resource, release, message',
    [(3, os.close, 'expected an object'), (object(), None, 'expected a function'), (object(), 'own', 'is no method')],
)
def test_what_could_not_be_released_is_refused(env, resource, release, message):
    with pytest.raises(ValueError, match=message):
        env.own(resource, getattr(env, release) if isinstance(release, str) else release)
