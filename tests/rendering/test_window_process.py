"""A real window on a virtual screen shows an agent's games, and never holds a game up, whatever happens to it."""

import contextlib
import logging
import os
import re
import signal
import time
from functools import partial

import pytest
import Xlib.display
import Xlib.ext.xtest
import Xlib.protocol.event
import Xlib.X
import Xlib.XK

from breakout_env import BreakoutEnv
from helpers.processes import BIN, Command, alarm_that_raises, wait_until
from helpers.resources import children, newest_child
from helpers.window import game_windows, windows

pytestmark = [pytest.mark.process, pytest.mark.alone]

GIVEN_UP = 'the window is given up, the game goes on without it'


@contextlib.contextmanager
def stopped(server):
    """An X server that does not answer for a while."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
def env(display):
    env = BreakoutEnv(dict(render_mode='human', episodic_life=False))
    yield env
    env.close()


def step_with_log(env, caplog, steps):
    with caplog.at_level(logging.WARNING, logger='breakout_env'):
        for _ in range(steps):
            env.step(0)


def test_the_game_has_the_speed_at_which_people_play_it(env):
    env.reset()
    for _ in range(5):
        env.step(0)
    start = time.monotonic()
    for _ in range(30):
        env.step(1)
    seconds = time.monotonic() - start
    assert seconds > 1.6, seconds  # 30 steps of 4 frames at 60 frames a second take 2 s


@pytest.mark.parametrize('steps', [0, 100])
def test_a_stopped_x_server_hangs_neither_the_game_nor_close(env, display, same_footprint, caplog, steps):
    env.reset()
    with stopped(display):
        step_with_log(env, caplog, steps)
        env.close()
    assert (GIVEN_UP in caplog.text) == (steps > 0) and wait_until(lambda: windows() == 0)


@pytest.mark.parametrize('gone', ['window', 'display'])
def test_the_game_continues_without_its_window_or_display(env, display, same_footprint, caplog, gone):
    env.reset()
    newest_child().terminate() if gone == 'window' else display.kill()
    step_with_log(env, caplog, 20)
    assert caplog.text.count(GIVEN_UP) == 1
    env.close()


def test_an_alarm_while_the_window_opens_leaves_no_process(env, display, same_footprint):
    with stopped(display), alarm_that_raises(TimeoutError('planted'), 0.5):
        with pytest.raises(TimeoutError, match='planted'):
            env.reset()
    assert [child.pid for child in children()] == [display.pid]


def press(connection, window, key):
    window.set_input_focus(Xlib.X.RevertToParent, Xlib.X.CurrentTime)
    code = connection.keysym_to_keycode(Xlib.XK.string_to_keysym(key))
    connection.sync()
    Xlib.ext.xtest.fake_input(connection, Xlib.X.KeyPress, code)
    Xlib.ext.xtest.fake_input(connection, Xlib.X.KeyRelease, code)


def click_on_the_cross(connection, window):
    atom = connection.intern_atom
    data = (32, [atom('WM_DELETE_WINDOW'), Xlib.X.CurrentTime, 0, 0, 0])
    window.send_event(Xlib.protocol.event.ClientMessage(window=window, client_type=atom('WM_PROTOCOLS'), data=data))


@pytest.mark.parametrize('ending', [partial(press, key='q'), partial(press, key='Escape'), click_on_the_cross, None])
def test_play_command_shows_an_agent_until_it_is_stopped(ending, display, tmp_path):
    command = Command([BIN / 'breakout', 'play', '--seed', '1'], tmp_path)
    with contextlib.closing(Xlib.display.Display()) as connection:
        assert wait_until(lambda: game_windows(connection))
        time.sleep(1)
        if ending is None:
            assert command.end(signal.SIGINT, whole_group=True) == 130
        else:
            ending(connection, *game_windows(connection))
            connection.sync()
            assert command.process.wait() == 0
    end = '' if ending else 'stopped\n'
    keys = r'Keys in the window: q or Esc closes it, which ends the games. Ctrl-C here does, too.\n'
    assert re.fullmatch(rf'{keys}game 1: \d+ points, stopped with \d lives\n{end}', command.text), command.text
