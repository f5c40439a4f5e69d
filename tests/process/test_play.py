"""Games in a real window on a virtual screen: watched, and played by a person at the keyboard."""

import contextlib
import re
import signal
import time

import numpy as np
import pytest
import Xlib.display
import Xlib.ext.xtest
import Xlib.protocol.event
import Xlib.X
import Xlib.XK

from breakout_env.agent.play import RIGHT, open_window, person_env_options, person_player, play
from breakout_env.utils.child_process import HelperError
from helpers.games import paddle_column
from helpers.processes import BIN, Command, wait_until
from helpers.resources import newest_child
from helpers.window import game_windows

pytestmark = pytest.mark.alone

PICTURE = np.zeros((210, 160, 3), np.uint8)


class Keyboard(object):
    """The keyboard and the mouse of the X server."""

    def __init__(self):
        self.connection = Xlib.display.Display()
        self.window = None

    def focus(self):
        assert wait_until(lambda: game_windows(self.connection))
        (self.window,) = game_windows(self.connection)
        self.window.set_input_focus(Xlib.X.RevertToParent, Xlib.X.CurrentTime)
        self.connection.sync()

    def _send(self, kind, key):
        code = self.connection.keysym_to_keycode(Xlib.XK.string_to_keysym(key))
        Xlib.ext.xtest.fake_input(self.connection, kind, code)
        self.connection.sync()

    def press(self, key):
        self._send(Xlib.X.KeyPress, key)

    def release(self, key):
        self._send(Xlib.X.KeyRelease, key)

    def close_window(self):
        """As the cross in its corner does."""
        atom = self.connection.intern_atom
        event = Xlib.protocol.event.ClientMessage(
            window=self.window,
            client_type=atom('WM_PROTOCOLS'),
            data=(32, [atom('WM_DELETE_WINDOW'), Xlib.X.CurrentTime, 0, 0, 0]),
        )
        self.window.send_event(event)
        self.connection.sync()


@pytest.fixture
def keyboard(display):
    keyboard = Keyboard()
    yield keyboard
    keyboard.connection.close()


def right(obs, keys):
    return RIGHT


def test_window_that_hangs_ends_the_game_with_an_error(display, same_footprint):
    window = open_window('Breakout')
    newest_child().send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(HelperError, match='the game window'):
            list(play(right, window.present, dict(is_train=False), games=100))
    finally:
        window.close()


def test_person_plays_in_a_window_until_q_is_pressed(keyboard):
    columns = []
    events = {30: (keyboard.press, 'Left'), 60: (keyboard.release, 'Left'), 80: (keyboard.press, 'q')}

    with contextlib.closing(open_window('Breakout', 1)) as window:

        def show(picture):
            columns.append(paddle_column(picture))
            if len(columns) in events:
                event, key = events[len(columns)]
                event(key)
            return window.present(picture)

        keyboard.focus()
        (game,) = play(person_player, show, person_env_options(), keys=window.keys)
    assert game.end == 'stopped' and 80 <= len(columns) < 100
    assert np.ptp(columns[:30]) == 0  # nothing moves by itself
    assert columns[59] < columns[29] - 10
    assert np.ptp(columns[70:80]) == 0  # nor after the key was released


@pytest.mark.parametrize('ending', ['close', 'Ctrl-C'])
def test_play_command_shows_an_agent_until_it_is_stopped(ending, keyboard, tmp_path):
    command = Command([BIN / 'breakout', 'play', '--seed', '1'], tmp_path)
    keyboard.focus()
    time.sleep(1)
    if ending == 'close':
        keyboard.close_window()
        assert command.process.wait() == 0
    else:
        assert command.end(signal.SIGINT, whole_group=True) == 130
    end = '' if ending == 'close' else 'stopped\n'
    assert re.fullmatch(rf'game 1: \d+ points, stopped with \d lives\n{end}', command.text), command.text
