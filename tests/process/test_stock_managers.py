"""The environment under DI-engine's own env managers: it starts again, retries, and leaves nothing behind a kill."""

import contextlib
from functools import partial

import numpy as np
import pytest
from ding.envs import create_env_manager, get_env_manager_cls
from easydict import EasyDict

from breakout_env import BreakoutEnv
from helpers.processes import is_there, wait_until
from helpers.resources import children, footprint, grown_since

STOCK = ['base', 'subprocess', 'async_subprocess', 'subprocess_v2']


def build(kind, context='fork', env_num=2):
    cfg = EasyDict(type=kind)
    if kind != 'base':
        # DI-engine's shared memory belongs to the default context, fork; under spawn it has to be switched off
        cfg.update(context=context, shared_memory=context == 'fork')
    cfg = EasyDict({**get_env_manager_cls(cfg).default_config(), **cfg})
    manager = create_env_manager(cfg, [partial(BreakoutEnv, cfg={})] * env_num)
    manager.seed(0)
    return manager


def act(manager):
    """One step of all that are ready, in the form that the manager takes; its timesteps as a list."""
    ready = manager.ready_obs_id
    if type(manager).__name__.endswith('V2'):
        return manager.step(np.zeros(len(ready), np.int64))
    return list(manager.step({i: np.array(0) for i in manager.ready_obs}).values())


def check_leaves_nothing(scenario):
    """A second round takes no more of anything than the first (multiprocessing keeps a little for reuse)."""
    scenario()
    assert wait_until(lambda: not children())
    before = footprint()
    scenario()
    assert wait_until(lambda: not grown_since(before)), f'before: {before}, more: {grown_since(before)}'


def play(manager):
    manager.launch()
    for _ in range(15):
        for timestep in act(manager):
            assert timestep.obs.shape == (4, 84, 84) and timestep.obs.dtype == np.uint8
    manager.close()
    assert wait_until(lambda: not children())


@pytest.mark.parametrize('kind', STOCK)
def test_launch_close_and_launch_again_leave_nothing(kind):
    def scenario():
        manager = build(kind)
        for _ in range(2):
            play(manager)

    check_leaves_nothing(scenario)


def test_play_under_spawn():
    play(build('subprocess', 'spawn', env_num=1))


@pytest.mark.parametrize('kind', STOCK[1:])
def test_a_worker_killed_in_mid_episode_leaves_nothing(kind):
    def scenario():
        manager = build(kind)
        manager.launch()
        act(manager)
        worker = children()[0]
        worker.kill()
        assert wait_until(lambda: not is_there(worker))
        with pytest.raises((OSError, EOFError)):  # how the stock managers notice
            for _ in range(3):
                act(manager)
        with contextlib.suppress(OSError, EOFError):
            manager.close()

    check_leaves_nothing(scenario)
