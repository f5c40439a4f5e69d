"""The environment under DI-engine's own env managers: it starts again, retries, and leaves nothing behind a kill."""

import contextlib
import time
from functools import partial

import numpy as np
import pytest
from ding.envs import create_env_manager, get_env_manager_cls
from easydict import EasyDict

from breakout_env import BreakoutEnv
from helpers.processes import wait_until
from helpers.resources import children, footprint, grown_since

STOCK = ['base', 'subprocess', 'async_subprocess', 'subprocess_v2']
# each manager under fork, and one under spawn, where a process takes seconds
STOCK_KINDS = [*((kind, 'fork') for kind in STOCK), ('subprocess', 'spawn')]


class FaultyEnv(BreakoutEnv):
    """Notes its life in a file, which every process can append to; its first resets fail."""

    def __init__(self, cfg):
        cfg = dict(cfg)
        self.events, self.failing_resets = cfg.pop('events'), cfg.pop('failing_resets', 0)
        super().__init__(cfg)
        self.note('init')

    def note(self, event):
        with open(self.events, 'a') as f:
            f.write(f'{event}\n')

    def reset(self):
        obs = super().reset()
        if self.events.read_text().count('failed') < self.failing_resets:
            self.note('failed')
            raise RuntimeError('planted')
        self.note('reset')
        return obs

    def close(self):
        if hasattr(self, '_env'):
            self.note('close')
        super().close()


def build(kind, env_class=BreakoutEnv, env_num=2, context='fork', env_cfg=None, **cfg):
    cfg = EasyDict({'type': kind, **cfg})
    if kind != 'base':
        # DI-engine's shared memory belongs to the default context, fork; under spawn it has to be switched off
        cfg.update(context=context, shared_memory=context == 'fork')
    cfg = EasyDict({**get_env_manager_cls(cfg).default_config(), **cfg})
    manager = create_env_manager(cfg, [partial(env_class, cfg=env_cfg or {}) for _ in range(env_num)])
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


@pytest.mark.parametrize('kind, context', STOCK_KINDS)
def test_launch_close_and_launch_again_leave_nothing(kind, context):
    def scenario():
        manager = build(kind, context=context)
        for _ in range(2):
            manager.launch()
            for _ in range(15):
                for timestep in act(manager):
                    assert timestep.obs.shape == (4, 84, 84) and timestep.obs.dtype == np.uint8
            manager.close()
            assert wait_until(lambda: not children())

    check_leaves_nothing(scenario)


@pytest.mark.parametrize('kind, retry_type', [('base', 'reset'), ('base', 'renew'), ('subprocess', 'renew')])
def test_a_failed_reset_is_retried(kind, retry_type, tmp_path):
    events = tmp_path / 'events'
    options = dict(max_retry=4, retry_type=retry_type, retry_waiting_time=0.01)
    manager = build(kind, FaultyEnv, 1, env_cfg=dict(events=events, failing_resets=2), **options)
    manager.launch()
    manager.close()
    assert wait_until(lambda: not children())
    env_ref, *order = events.read_text().split()
    failed = ['failed'] if retry_type == 'reset' else ['failed', 'close', 'init']
    assert order == ['init', *failed, *failed, 'reset', 'close']


@pytest.mark.parametrize('kind, context', STOCK_KINDS[1:])
def test_a_worker_killed_in_mid_episode_leaves_nothing(kind, context):
    def scenario():
        manager = build(kind, context=context)
        manager.launch()
        act(manager)
        children()[0].kill()
        time.sleep(0.2)
        with pytest.raises((OSError, EOFError)):  # how the stock managers notice
            for _ in range(3):
                act(manager)
        with contextlib.suppress(OSError, EOFError):
            manager.close()

    check_leaves_nothing(scenario)
