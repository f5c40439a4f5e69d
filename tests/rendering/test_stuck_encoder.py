"""An encoder that does not answer costs its video, never the game."""

import logging
import signal

import pytest

from breakout_env import BreakoutEnv
from helpers.processes import alarm_that_raises
from helpers.resources import children, newest_child

pytestmark = [pytest.mark.process, pytest.mark.alone]


@pytest.fixture
def stuck(tmp_path, same_footprint):
    """An environment whose encoder is stopped."""
    env = BreakoutEnv(dict(is_train=False, noop_max=0))
    env.enable_save_replay(str(tmp_path / 'video'))
    env.reset()
    env.step(0)
    newest_child().send_signal(signal.SIGSTOP)
    yield env
    env.close()


def test_a_stuck_encoder_is_killed_and_the_game_continues(stuck, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger='breakout_env'):
        for _ in range(60):
            stuck.step(0)
    assert 'the recording of this game is given up' in caplog.text and not children()
    assert not list((tmp_path / 'video').iterdir())


def test_a_stuck_encoder_does_not_hang_close(stuck, caplog):
    stuck.close()
    assert 'did not finish within 3 s and was killed' in caplog.text


def test_an_interrupted_close_leaves_no_encoder(stuck):
    with alarm_that_raises(KeyboardInterrupt(), 0.3), pytest.raises(KeyboardInterrupt):
        stuck.close()
