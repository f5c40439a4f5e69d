"""A real window on a virtual screen."""

import contextlib
from functools import partial

import numpy as np
import pytest
import Xlib.display
from ding.envs import create_env_manager, get_vec_env_setting

from breakout_env import BreakoutEnv
from breakout_env.utils.child_process import HelperError
from helpers.configs import compiled
from helpers.processes import wait_until
from helpers.window import game_windows, screenshot, windows


def test_the_window_shows_what_render_returns_until_close(display, tmp_path, same_footprint):
    env = BreakoutEnv(dict(render_mode='human', noop_max=0))
    env.reset()
    for _ in range(5):
        env.step(2)
    enlarged = env.render().repeat(3, axis=0).repeat(3, axis=1)

    with contextlib.closing(Xlib.display.Display()) as connection:
        place = game_windows(connection)[0].get_geometry()

    def is_shown():
        screen = screenshot(tmp_path / 'Xvfb_screen0')
        return np.array_equal(screen[place.y : place.y + 630, place.x : place.x + 480], enlarged)

    assert wait_until(is_shown)
    env.close()
    assert wait_until(lambda: windows() == 0)


@pytest.mark.parametrize('of_evaluator', [False, True])
def test_a_config_opens_one_window(display, of_evaluator, same_footprint):
    human = dict(render_mode='human')
    section = dict(evaluator=human) if of_evaluator else human
    cfg = compiled({}, env=dict(section, collector_env_num=3, evaluator_env_num=3))
    env_class, *role_cfgs = get_vec_env_setting(cfg.env)
    for cfgs, expected in zip(role_cfgs, [not of_evaluator, of_evaluator]):
        manager = create_env_manager(cfg.env.manager, [partial(env_class, one) for one in cfgs])
        manager.launch()
        assert wait_until(lambda expected=expected: windows() == expected)
        manager.close()
        assert wait_until(lambda: windows() == 0)


def test_without_a_display_the_error_says_so_and_nothing_is_left(monkeypatch, same_footprint):
    monkeypatch.delenv('DISPLAY', raising=False)
    monkeypatch.delenv('WAYLAND_DISPLAY', raising=False)
    monkeypatch.setenv('SDL_VIDEODRIVER', 'x11')
    env = BreakoutEnv(dict(render_mode='human'))
    with pytest.raises(HelperError, match="render_mode='human' needs a display .DISPLAY is not set"):
        env.reset()
