"""The environment under DI-engine's env managers: reuse, retries, timeouts, killed workers, and nothing left behind."""

import contextlib
import os
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

STOCK_MANAGERS = ['base', 'subprocess', 'async_subprocess', 'subprocess_v2']
MANAGERS = [*STOCK_MANAGERS, 'breakout', 'breakout_v2']
PROCESSES = MANAGERS[1:]
# what goes wrong is tried under fork with each manager, and under spawn, where a process takes seconds, with one
STOCK_KINDS = [*((kind, 'fork') for kind in STOCK_MANAGERS), ('subprocess', 'spawn')]
KINDS = [*STOCK_KINDS, ('breakout', 'fork'), ('breakout_v2', 'fork')]


class Eventful(object):
    """Writes what happens to an env into a file, which every process can append to, and fails where it is told to."""

    def __init__(self, cfg):
        cfg = dict(cfg)
        self.events, self.failing_resets = cfg.pop('events'), cfg.pop('failing_resets', 0)
        self.endless_step, self.steps = cfg.pop('endless_step', None), 0
        super().__init__(cfg)
        self.note('init')

    def note(self, event):
        with open(self.events, 'a') as f:
            f.write(f'{event} {os.getpid()} {id(self)}\n')

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


class EventfulEnv(Eventful, BreakoutEnv):
    def stall(self):  # inside our step
        self._env.advance = lambda action, frames: time.sleep(30)

    def close(self):
        if hasattr(self, '_env'):
            super().close()


class BlankEnv(BaseEnv):
    """An environment with nothing behind it, to see what DI-engine's managers leave behind by themselves."""

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


class EventfulBlankEnv(Eventful, BlankEnv):
    pass


def build(kind, env_class=BreakoutEnv, env_num=2, context='fork', env_cfg=None, **cfg):
    cfg = EasyDict({'type': kind, **cfg})
    if kind in PROCESSES:
        cfg.update(context=context)
    if kind in STOCK_MANAGERS[1:]:
        # DI-engine's shared memory belongs to the default context, fork; under spawn it asks to be switched off
        cfg.update(shared_memory=context == 'fork')
    cfg = EasyDict({**get_env_manager_cls(cfg).default_config(), **cfg})
    manager = create_env_manager(cfg, [partial(env_class, cfg=env_cfg or {}) for _ in range(env_num)])
    manager.seed(0)
    return manager


def act(manager, action=None):
    """One step of all that are ready, whatever form the manager wants it in; its timesteps as a list."""
    rng = np.random.default_rng(0)
    ready = manager.ready_obs_id
    actions = {i: np.array(rng.integers(4) if action is None else action) for i in ready}
    if type(manager).__name__.endswith('V2'):
        return manager.step(np.stack([actions[i] for i in ready]))
    assert set(manager.ready_obs) <= set(ready)
    return list(manager.step({i: actions[i] for i in manager.ready_obs}).values())


def give_up(manager):
    """What a pipeline does after an error: close, whatever that says."""
    with contextlib.suppress(OSError, EOFError):
        manager.close()


def check_leaves_nothing(scenario):
    """
    A second round takes no more of anything than the first, and no worker is left. The first round is not counted:
    multiprocessing keeps a little for reuse, such as its arenas for shared memory.
    """
    scenario()
    assert wait_until(lambda: not children())
    before = footprint()
    scenario()
    assert wait_until(lambda: not grown_since(before)), f'before: {before}, more: {grown_since(before)}'


def check_adds_nothing(scenario):
    """
    No worker is left, and no more of anything than the manager leaves with an env that holds nothing: an error that
    it has caught holds it in a reference cycle, with its descriptors, until Python next looks for cycles.
    """
    for _ in range(8):  # Python may look at any time, and then the comparison says nothing
        counts = [footprint()]
        for env_class in (EventfulBlankEnv, EventfulEnv):
            scenario(env_class)
            assert wait_until(lambda: not children())
            counts.append(footprint())
        left = [{what: after[what] - before[what] for what in after} for before, after in zip(counts, counts[1:])]
        if all(left[1][what] <= max(0, left[0][what]) for what in left[1]):
            return
    raise AssertionError(f'left by DI-engine: {left[0]}, with our env: {left[1]}')


@pytest.mark.parametrize('context', ['fork', 'spawn'])
@pytest.mark.parametrize('kind', MANAGERS)
def test_launch_close_and_launch_again(kind, context):
    if kind == 'base' and context == 'spawn':
        pytest.skip('the base manager starts no processes')

    def scenario():
        manager = build(kind, context=context)
        for _ in range(2):
            manager.launch()
            for _ in range(15):
                for timestep in act(manager):
                    assert timestep.obs.shape == (4, 84, 84) and timestep.obs.dtype == np.uint8
            assert not hasattr(manager.env_ref, '_env')  # no emulator in the parent for the spaces' sake
            manager.close()
            assert wait_until(lambda: not children())

    check_leaves_nothing(scenario)


def test_a_relaunch_reuses_no_instance_and_a_reset_does(tmp_path):
    events = tmp_path / 'events'
    manager = build('base', EventfulEnv, env_num=1, env_cfg=dict(events=str(events)))
    for _ in range(2):
        manager.launch()
        manager.reset()
        manager.close()
    lines = [line.split() for line in events.read_text().splitlines()][1:]  # the first is env_ref
    assert [line[0] for line in lines] == ['init', 'reset', 'reset', 'close'] * 2
    assert len({line[2] for line in lines[:4]}) == 1 and len({line[2] for line in lines[4:]}) == 1


@pytest.mark.parametrize('kind, context', KINDS)
@pytest.mark.parametrize('retry_type', ['reset', 'renew'])
def test_a_reset_that_fails_is_tried_again(kind, context, retry_type, tmp_path):
    events = tmp_path / 'events'

    def scenario(env_class):
        events.unlink(missing_ok=True)
        manager = build(
            kind,
            env_class,
            env_num=1,
            context=context,
            env_cfg=dict(events=str(events), failing_resets=2),
            max_retry=4,
            retry_type=retry_type,
            retry_waiting_time=0.01,
        )
        manager.launch()
        manager.close()

    check_adds_nothing(scenario)
    lines = [line.split() for line in events.read_text().splitlines()][1:]  # the first is env_ref
    order = [line[0] for line in lines]
    if retry_type == 'renew':  # the old instance is closed before there is a new one
        assert order == ['init', 'failed', 'close', 'init', 'failed', 'close', 'init', 'reset', 'close']
    elif kind in ('base', 'breakout', 'breakout_v2'):
        assert order == ['init', 'failed', 'failed', 'reset', 'close']
    else:  # DI-engine's worker closes before it passes the error on
        assert order == ['init', 'failed', 'close', 'failed', 'close', 'reset', 'close']


@pytest.mark.parametrize('kind', MANAGERS)
def test_a_reset_that_fails_for_good_is_the_callers_error(kind, tmp_path):
    def scenario(env_class):
        manager = build(
            kind,
            env_class,
            env_cfg=dict(events=str(tmp_path / 'events'), failing_resets=100),
            max_retry=2,
            retry_waiting_time=0.01,
        )
        try:
            manager.launch()
        except RuntimeError as e:
            assert 'planted' in f'{e} {e.__cause__}'  # the subprocess managers wrap it once more
        else:
            raise AssertionError('the error was lost')
        give_up(manager)

    check_adds_nothing(scenario)


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize('kind, context', STOCK_KINDS[1:])  # ours goes on: test_env_manager.py
def test_a_worker_killed_in_mid_episode_takes_nothing_with_it(kind, context, number):
    def scenario():
        manager = build(kind, env_num=2, context=context)
        manager.launch()
        act(manager)
        children()[0].send_signal(number)
        time.sleep(0.2)
        try:
            for _ in range(3):
                act(manager)
        except (OSError, EOFError):
            give_up(manager)
        else:
            raise AssertionError('nobody noticed')

    check_leaves_nothing(scenario)


@pytest.mark.parametrize('kind, context', STOCK_KINDS)  # ours goes on: test_env_manager.py
def test_a_step_that_overruns_its_time_is_an_error(kind, context, tmp_path):
    def scenario(env_class):
        env_cfg = dict(events=str(tmp_path / 'events'), endless_step=3)
        manager = build(kind, env_class, env_num=1, context=context, env_cfg=env_cfg, step_timeout=1)
        manager.launch()
        start = time.monotonic()
        try:
            for _ in range(5):
                act(manager, 0)
        except (TimeoutError, RuntimeError) as e:
            assert 'TimeoutError' in str(e) or 'Env 0 step has exceeded max retries' in str(e)
        else:
            raise AssertionError('no error')
        assert time.monotonic() - start < 15
        give_up(manager)

    check_adds_nothing(scenario)


def test_a_worker_plays_the_same_games_as_this_process():
    courses = []
    cfg = dict(repeat_action_probability=0.25)
    for kind, extra in (('base', {}), ('subprocess', dict(reset_inplace=True)), ('breakout', {})):
        manager = build(kind, env_num=3, env_cfg=cfg, **extra)
        manager.launch()
        rng, course = np.random.default_rng(0), []
        for _ in range(150):
            course.append([obs.tobytes() for obs in manager.ready_obs.values()])
            for timestep in manager.step({i: rng.integers(4, size=1) for i in range(3)}).values():
                course.append((timestep.reward.item(), timestep.done, sorted(timestep.info.items())))
        courses.append(course)
        manager.close()
    assert courses[0] == courses[1] == courses[2]
    assert any(step[1] for step in courses[0] if isinstance(step, tuple))


@pytest.mark.parametrize('kind', ['base_v2', 'subprocess_v2', 'breakout_v2'])
def test_info_passes_through_the_v2_managers(kind):
    # reset in place, as the stock manager's close trips over a worker that is still resetting
    manager = build(kind, **({} if kind == 'base_v2' else dict(reset_inplace=True)))
    manager.launch()
    for _ in range(400):
        done = [timestep for timestep in act(manager, 3) if timestep.done]
        if done:
            break
    info = done[0].info
    assert float(info.eval_episode_return) >= 0 and int(info.lives) == 4 and int(info.episode_frame_number) > 0
    assert not bool(info.TimeLimit_truncated)  # the manager turns the dot into an underscore
    manager.close()


@pytest.mark.parametrize('kind', ['base', 'subprocess', 'breakout'])
def test_replays_are_recorded_and_pictures_taken(kind, tmp_path):
    manager = build(kind, env_cfg=dict(is_train=False, noop_max=1))
    manager.enable_save_replay(str(tmp_path))
    manager.launch()
    act(manager, 0)
    pictures = manager.ready_imgs
    assert {picture.shape for picture in pictures.values()} == {(210, 160, 3)}
    manager.close()
    assert len(list(tmp_path.glob('*-unfinished.mp4'))) == 2
