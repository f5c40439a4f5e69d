"""A real window on a real (virtual) screen: it opens, shows the game, goes, and never holds the game up."""

import logging
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import Xlib.display

from breakout_env import BreakoutEnv
from breakout_env.utils.child_process import HelperError
from helpers.processes import wait_until
from helpers.resources import children, footprint, grown_since, newest_child


def windows() -> int:
    """How many windows of the game the X server has."""
    connection = Xlib.display.Display()
    try:
        title, pending, count = connection.intern_atom('_NET_WM_NAME'), [connection.screen().root], 0
        while pending:
            window = pending.pop()
            count += window.get_full_text_property(title) == 'Breakout'
            pending += window.query_tree().children
        return count
    finally:
        connection.close()


def screenshot(framebuffer: Path) -> np.ndarray:
    """What the X server shows, as (H, W, 3) uint8: Xvfb keeps it in a file in the xwd format."""
    raw = framebuffer.read_bytes()
    header = np.frombuffer(raw[:100], dtype='>u4')
    size, width, height, line, colours = (int(header[i]) for i in (0, 4, 5, 12, 19))
    pixels = np.frombuffer(raw[size + colours * 12 :], np.uint8)[: height * line].reshape(height, line)
    return pixels[:, : width * 4].reshape(height, width, 4)[:, :, 2::-1]


def test_a_window_opens_and_goes_twenty_times_over(display, same_footprint):
    env = BreakoutEnv(dict(render_mode='human', noop_max=0))
    assert windows() == 0
    for _ in range(20):
        env.reset()
        assert wait_until(lambda: windows() == 1)
        env.step(0)
        env.close()
        assert wait_until(lambda: windows() == 0)


def test_the_window_shows_what_render_returns(display, tmp_path):
    env = BreakoutEnv(dict(render_mode='human', noop_max=0))
    env.reset()
    for _ in range(5):
        env.step(2)
    picture = env.render()
    enlarged = picture.repeat(3, axis=0).repeat(3, axis=1)

    def shown():
        screen = screenshot(tmp_path / 'Xvfb_screen0')
        rows, columns = np.nonzero(screen.any(axis=2))
        top, left = rows.min(), columns.min()
        # the picture's own black border is as black as the screen: compare from the first coloured pixel on
        theirs = screen[top : top + 400, left : left + 450]
        own_rows, own_columns = np.nonzero(enlarged.any(axis=2))
        ours = enlarged[own_rows.min() : own_rows.min() + 400, own_columns.min() : own_columns.min() + 450]
        return theirs.shape == ours.shape and (theirs == ours).all()

    assert wait_until(shown, 5)
    env.close()


def test_the_game_runs_at_the_speed_people_play_it(display):
    env = BreakoutEnv(dict(render_mode='human', episodic_life=False))
    env.reset()
    for _ in range(5):
        env.step(0)
    start = time.monotonic()
    for _ in range(30):
        env.step(1)
    seconds = time.monotonic() - start
    env.close()
    assert 1.6 < seconds < 4, seconds  # 30 steps of 4 frames at 60 frames a second are 2 s


def test_a_stopped_x_server_can_not_hang_the_game_or_close(display, same_footprint, caplog):
    env = BreakoutEnv(dict(render_mode='human', episodic_life=False))
    env.reset()
    os.kill(display.pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        with caplog.at_level(logging.WARNING, logger='breakout_env'):
            for _ in range(100):
                env.step(0)
            env.close()
        seconds = time.monotonic() - start
    finally:
        os.kill(display.pid, signal.SIGCONT)
    assert seconds < 10, seconds
    assert 'the window is given up, the game goes on without it' in caplog.text
    assert wait_until(lambda: windows() == 0)


def test_close_alone_survives_a_stopped_x_server(display, same_footprint, caplog):
    env = BreakoutEnv(dict(render_mode='human'))
    env.reset()
    os.kill(display.pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        env.close()
        seconds = time.monotonic() - start
    finally:
        os.kill(display.pid, signal.SIGCONT)
    assert seconds < 5, seconds


def test_a_window_that_its_user_closes_is_given_up(display, caplog, same_footprint):
    env = BreakoutEnv(dict(render_mode='human', episodic_life=False))
    env.reset()
    newest_child().terminate()
    with caplog.at_level(logging.WARNING, logger='breakout_env'):
        for _ in range(20):
            env.step(0)
    assert caplog.text.count('the window is given up') == 1
    env.close()


def test_a_display_that_vanishes_is_given_up(display, caplog):
    env = BreakoutEnv(dict(render_mode='human', episodic_life=False))
    env.reset()
    display.kill()
    display.wait()
    with caplog.at_level(logging.WARNING, logger='breakout_env'):
        for _ in range(20):
            env.step(0)
    assert 'the window is given up' in caplog.text
    env.close()


def test_an_interrupt_while_the_window_opens_leaves_no_process(display, same_footprint):
    """DI-engine's reset_timeout is an alarm, too."""

    def interrupt(number, frame):
        raise TimeoutError('planted')

    os.kill(display.pid, signal.SIGSTOP)
    env = BreakoutEnv(dict(render_mode='human'))
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(TimeoutError, match='planted'):
            env.reset()
    finally:
        signal.signal(signal.SIGALRM, previous)
        os.kill(display.pid, signal.SIGCONT)
    assert [child.pid for child in children()] == [display.pid]


def test_no_display_is_a_sentence_and_leaves_nothing(monkeypatch):
    monkeypatch.delenv('DISPLAY', raising=False)
    monkeypatch.delenv('WAYLAND_DISPLAY', raising=False)
    monkeypatch.setenv('SDL_VIDEODRIVER', 'x11')
    before = footprint()
    env = BreakoutEnv(dict(render_mode='human'))
    with pytest.raises(HelperError, match="render_mode='human' needs a display .DISPLAY is not set"):
        env.reset()
    assert not grown_since(before)
    env.close()
