"""An agent's games in a real window on a virtual screen."""

import contextlib
import re
import signal
import time

import pytest
import Xlib.display
import Xlib.ext.xtest
import Xlib.protocol.event
import Xlib.X
import Xlib.XK

from helpers.processes import BIN, Command, wait_until
from helpers.window import game_windows

pytestmark = pytest.mark.alone


def press_q(connection, window):
    window.set_input_focus(Xlib.X.RevertToParent, Xlib.X.CurrentTime)
    code = connection.keysym_to_keycode(Xlib.XK.string_to_keysym('q'))
    connection.sync()
    Xlib.ext.xtest.fake_input(connection, Xlib.X.KeyPress, code)
    Xlib.ext.xtest.fake_input(connection, Xlib.X.KeyRelease, code)


def click_on_the_cross(connection, window):
    atom = connection.intern_atom
    data = (32, [atom('WM_DELETE_WINDOW'), Xlib.X.CurrentTime, 0, 0, 0])
    window.send_event(Xlib.protocol.event.ClientMessage(window=window, client_type=atom('WM_PROTOCOLS'), data=data))


@pytest.mark.parametrize('ending', [press_q, click_on_the_cross, None])
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
    assert re.fullmatch(rf'game 1: \d+ points, stopped with \d lives\n{end}', command.text), command.text
