"""The environment under DI-engine's own env managers: reuse, retries, timeouts, killed workers, and nothing left."""

import contextlib
import signal
import time
from functools import partial

import gym
import numpy as np
import pytest
from ding.envs import BaseEnv, BaseEnvTimestep, create_env_manager, get_env_manager_cls
from easydict import EasyDict

from breakout_env import BreakoutEnv
from helpers.processes import wait_until
from helpers.resources import children, footprint, grown_since

STOCK = ['base', 'subprocess', 'async_subprocess', 'subprocess_v2']
PROCESSES = STOCK[1:]
# What goes wrong is tried under fork with each manager, and under spawn, where a process takes seconds, with one.
STOCK_KINDS = [*((kind, 'fork') for kind in STOCK), ('subprocess', 'spawn')]


class Faulty(object):
    """Notes its life in a file, which every process can append to; fails and stalls as its config says."""

    def __init__(self, cfg):
        cfg = dict(cfg)
        self.events, self.failing_resets = cfg.pop('events'), cfg.pop('failing_resets', 0)
        self.endless_step, self.steps = cfg.pop('endless_step', None), 0
        super().__init__(cfg)
        self.note('init')

    def note(self, event):
        with open(self.events, 'a') as f:
            f.write(f'{event}\n')

    def reset(self):
        obs = super().reset()
        with open(self.events) as f:
            failed = sum(line.startswith('failed') for line in f)
        if failed < self.failing_resets:
            self.note('failed')
            raise RuntimeError('planted')
        self.note('reset')
        return obs

    def step(self, action):
        self.steps += 1
        if self.steps == self.endless_step:
            self.stall()
        return super().step(action)

    def stall(self):
        time.sleep(30)

    def close(self):
        self.note('close')
        super().close()


class FaultyBreakout(Faulty, BreakoutEnv):
    def stall(self):  # inside our step
        self._env.advance = lambda action, frames: time.sleep(30)

    def close(self):
        if hasattr(self, '_env'):
            super().close()


class BlankEnv(BaseEnv):
    """An environment that holds nothing, to see what DI-engine's managers leave by themselves."""

    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(4)
    reward_space = gym.spaces.Box(0, 1, (1,), np.float32)

    def __init__(self, cfg):
        pass

    def reset(self):
        return np.zeros((4, 84, 84), np.uint8)

    def step(self, action):
        return BaseEnvTimestep(self.reset(), np.zeros(1, np.float32), False, {})

    def seed(self, seed, dynamic_seed=True):
        pass

    def close(self):
        pass

    def __repr__(self):
        return 'BlankEnv()'


class FaultyBlank(Faulty, BlankEnv):
    pass


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


def close_in_any_case(manager):
    """What a pipeline does after an error."""
    with contextlib.suppress(OSError, EOFError):
        manager.close()


def check_leaves_nothing(scenario):
    """A second round takes no more of anything than the first (multiprocessing keeps a little for reuse)."""
    scenario()
    assert wait_until(lambda: not children())
    before = footprint()
    scenario()
    assert wait_until(lambda: not grown_since(before)), f'before: {before}, more: {grown_since(before)}'


def check_adds_nothing(scenario):
    """
    No worker is left, and no more of anything than the manager leaves with an env that holds nothing: an error that
    DI-engine has caught holds it in a reference cycle, with its descriptors, until Python next looks for cycles.
    """
    for _ in range(8):  # Python may look at any time, and then the comparison says nothing
        counts = [footprint()]
        for env_class in (FaultyBlank, FaultyBreakout):
            scenario(env_class)
            assert wait_until(lambda: not children())
            counts.append(footprint())
        left = [{what: after[what] - before[what] for what in after} for before, after in zip(counts, counts[1:])]
        if all(left[1][what] <= max(0, left[0][what]) for what in left[1]):
            return
    raise AssertionError(f'left by DI-engine: {left[0]}, with our env: {left[1]}')


@pytest.mark.parametrize('kind, context', STOCK_KINDS)
def test_launch_close_and_launch_again_leave_nothing(kind, context):
    def scenario():
        manager = build(kind, context=context)
        for _ in range(2):
            manager.launch()
            for _ in range(15):
                for timestep in act(manager):
                    assert timestep.obs.shape == (4, 84, 84) and timestep.obs.dtype == np.uint8
            assert not hasattr(manager.env_ref, '_env')  # its spaces need no emulator in this process
            manager.close()
            assert wait_until(lambda: not children())

    check_leaves_nothing(scenario)


@pytest.mark.parametrize('kind, context', STOCK_KINDS)
@pytest.mark.parametrize('retry_type', ['reset', 'renew'])
def test_a_failed_reset_is_retried(kind, context, retry_type, tmp_path):
    events = tmp_path / 'events'

    def scenario(env_class):
        events.unlink(missing_ok=True)
        env_cfg = dict(events=str(events), failing_resets=2)
        options = dict(context=context, max_retry=4, retry_type=retry_type, retry_waiting_time=0.01)
        manager = build(kind, env_class, 1, env_cfg=env_cfg, **options)
        manager.launch()
        manager.close()

    check_adds_nothing(scenario)
    env_ref, *order = events.read_text().split()
    # with `reset`, DI-engine's worker closes before it passes the error on
    again = ['init'] if retry_type == 'renew' else []
    failed = ['failed'] if kind == 'base' and retry_type == 'reset' else ['failed', 'close', *again]
    assert order == ['init', *failed, *failed, 'reset', 'close']


@pytest.mark.parametrize('kind', STOCK)
def test_a_reset_that_fails_max_retry_times_is_the_callers_error(kind, tmp_path):
    def scenario(env_class):
        env_cfg = dict(events=str(tmp_path / 'events'), failing_resets=100)
        manager = build(kind, env_class, env_cfg=env_cfg, max_retry=2, retry_waiting_time=0.01)
        try:
            manager.launch()
        except RuntimeError as error:
            assert 'planted' in f'{error} {error.__cause__}'  # the subprocess managers wrap it once more
        else:
            raise AssertionError('the error was lost')
        close_in_any_case(manager)

    check_adds_nothing(scenario)


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize('kind, context', STOCK_KINDS[1:])
def test_a_worker_killed_in_mid_episode_leaves_nothing(kind, context, number):
    def scenario():
        manager = build(kind, context=context)
        manager.launch()
        act(manager)
        children()[0].send_signal(number)
        time.sleep(0.2)
        try:
            for _ in range(3):
                act(manager)
        except (OSError, EOFError):
            close_in_any_case(manager)
        else:
            raise AssertionError('the manager did not notice')

    check_leaves_nothing(scenario)


@pytest.mark.parametrize('kind, context', STOCK_KINDS)
def test_a_step_that_exceeds_its_timeout_is_an_error(kind, context, tmp_path):
    def scenario(env_class):
        env_cfg = dict(events=str(tmp_path / 'events'), endless_step=3)
        manager = build(kind, env_class, env_num=1, context=context, env_cfg=env_cfg, step_timeout=1)
        manager.launch()
        start = time.monotonic()
        with pytest.raises((TimeoutError, RuntimeError), match='TimeoutError|Env 0 step has exceeded max retries'):
            for _ in range(5):
                act(manager)
        assert time.monotonic() - start < 15
        close_in_any_case(manager)

    check_adds_nothing(scenario)
