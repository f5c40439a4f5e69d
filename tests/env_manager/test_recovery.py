"""Failures of environments and workers: retries, lost workers and their replacement."""

import math
import os
from unittest import mock

import numpy as np
import pytest

from breakout_env.env_manager import pool
from helpers.managers import GameEnv, assert_consistent, build_inline, frozen, kill_worker_of, launched
from helpers.resources import children


@pytest.fixture
def faults(tmp_path):
    """A file with what goes wrong in the next resets of an environment that has it as ``reset_faults``."""
    path = tmp_path / 'faults'
    path.write_text('')
    return path


@pytest.mark.parametrize('retry_type, reset_inplace', [('reset', True), ('reset', False), ('renew', True)])
@pytest.mark.parametrize('when', ['launch', 'reset', 'end of an episode'])
def test_a_failed_reset_is_retried(when, retry_type, reset_inplace, faults, tmp_path):
    events = tmp_path / 'events'
    cfgs = [{}, dict(events=str(events), reset_faults=str(faults)), {}, {}]
    faults.write_text('raise\nraise\n' if when == 'launch' else '')
    options = dict(max_retry=3, retry_type=retry_type, reset_inplace=reset_inplace)
    with launched(build_inline(env_cfg=cfgs, **options)) as manager:
        workers = list(manager.pool.workers)
        if when != 'launch':
            faults.write_text('raise\nraise\n')
        if when == 'reset':
            manager.reset({1: None})
        while when == 'end of an episode' and faults.read_text():
            timesteps = manager.step({i: 0 for i in range(4)})
            assert not reset_inplace or all((timesteps[i].obs == manager.ready_obs[i]).all() for i in range(4))
        assert faults.read_text() == '' and manager.ready_obs_id == [0, 1, 2, 3]
        assert_consistent(manager)
        assert manager.pool.workers == workers and all(manager.seeds), 'also one that was made again has a seed'
    order = events.read_text().split()
    again = ['raise', 'close', 'init'] if retry_type == 'renew' else ['raise']
    assert order == ['init', *again, *again, 'close']


@pytest.mark.parametrize(
    'fault, context, max_retry, message',
    [
        ('raise', 'inline', 2, r'max retries\(2\).*planted'),
        ('kill', 'fork', 1, r'max retries\(1\), .* has ended'),  # the first kill does not count
    ],
)
def test_a_reset_that_fails_max_retry_times_closes_the_manager(fault, context, max_retry, message, faults):
    faults.write_text(f'{fault}\n' * 9)
    cfgs = [{}, {}, {}, dict(reset_faults=str(faults))]
    manager = build_inline(env_cfg=cfgs, worker_num=4, max_retry=max_retry, context=context)
    with pytest.raises(RuntimeError, match=f'(?s)Env 3 reset has exceeded {message}'):
        manager.launch()
    assert manager.closed and faults.read_text().count(fault) == 7


def test_a_seed_that_an_environment_refuses_is_not_dropped_by_a_retry():
    manager = build_inline(max_retry=2, seed=[0, 1, -1, 2])
    with pytest.raises(RuntimeError, match='(?s)Env 2 reset has exceeded max retries.*non-negative'):
        manager.launch()


def test_a_worker_lost_in_a_reset_is_replaced(faults):
    cfgs = [{}, {}, {}, dict(reset_faults=str(faults))]
    with launched(build_inline(env_cfg=cfgs, context='fork')) as manager:
        pids = manager.pid
        for _ in range(2):
            manager.step({i: 0 for i in range(4)})
        faults.write_text('kill\n')
        manager.reset({3: None})
        assert 3 in manager.ready_obs
        # environment 2 was lost beside it, and this reports it; the other worker's games continue
        timesteps = manager.step({i: 0 for i in range(4)})
        assert [i for i, timestep in timesteps.items() if timestep.info.get('abnormal')] == [2]
        assert_consistent(manager)
        assert [manager.pid[i] == pids[i] for i in range(4)] == [True, True, False, False] and manager.ticks[0] == 3


def test_each_command_has_the_time_limit_of_its_option():
    def limits(**options):
        with mock.patch.object(pool, 'Command', side_effect=pool.Command) as sent:
            with launched(build_inline(env_num=3, worker_num=1, **options)) as manager:
                manager.step({0: 0, 1: 0})
        return [call.args[2:] for call in sent.mock_calls]

    start, end = ('connect_timeout', 7.0), ('close_timeout', 5.0)
    options = dict(connect_timeout=7.0, step_timeout=2.0, reset_timeout=5.0)
    assert limits(**options) == [start, ('reset_timeout', 5.0), ('step_timeout', 2.0), end]
    assert limits(connect_timeout=7.0, step_timeout=None) == [start, start, ('step_timeout', math.inf), end]


@pytest.mark.parametrize('dynamic_seed, different', [(None, 9), (False, 3)])
def test_restarted_environments_repeat_games_only_with_a_fixed_seed(dynamic_seed, different):
    """The same ones in each run."""
    runs = []
    for _ in range(2):
        manager = build_inline(worker_num=1, env_num=3, seed=None)
        manager.seed(4, dynamic_seed=dynamic_seed)
        with launched(manager):
            games = [frozen(obs) for obs in manager.ready_obs.values()]
            for _ in range(2):
                kill_worker_of(manager, 0)
                manager.step({i: 0 for i in range(3)})
                manager.reset()
                games += [frozen(obs) for obs in manager.ready_obs.values()]
            runs.append(games)
    assert runs[0] == runs[1] and len(set(runs[0])) == different


def test_a_lost_worker_ends_the_v2_manager():
    with launched(build_inline(kind='breakout_v2')) as manager:
        kill_worker_of(manager, 3)
        with pytest.raises(RuntimeError, match='environment 2 lost a step: .* ended'):
            manager.step(np.zeros((4, 1), np.int64))
        assert manager.closed


def test_an_inline_manager_starts_no_process_and_can_be_interrupted():
    before = os.nice(0)
    with launched(build_inline(nice=5)) as manager:
        assert set(manager.pid) == {os.getpid()} and os.nice(0) == before and not children()
        with mock.patch.object(GameEnv, 'step', side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 3: 0})
        manager.reset()
        manager.step({i: 0 for i in range(4)})
        assert manager.ticks == [1] * 4
