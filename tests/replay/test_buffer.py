"""The replay buffers as DI-engine uses them: options, batches, draws, threads, what they take and give back."""

import logging
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ding.config import compile_config
from ding.data import DequeBuffer
from ding.data.buffer.middleware import (
    PriorityExperienceReplay,
    clone_object,
    sample_range_view,
    staleness_check,
    use_time_check,
)
from ding.framework import OnlineRLContext, task
from ding.framework.middleware.functional import data_pusher, offpolicy_data_fetcher
from ding.policy import DQNPolicy, create_policy
from ding.policy.common_utils import default_preprocess_learn
from ding.utils.data import default_collate
from ding.worker import create_buffer
from ding.worker.replay_buffer import AdvancedReplayBuffer
from easydict import EasyDict
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter
from test_replay_exactness import STORAGES, Play, frames_in, other_keys, same

from breakout_env import FrameBuffer, FrameReplayBuffer
from breakout_env.replay import ReplayMemory
from breakout_env.replay import buffer as frame_replay_buffer
from breakout_env.replay import options as replay_options
from breakout_env.replay.frames import device as device_frames
from breakout_env.utils import memory_limits as limits
from breakout_env.utils.memory_limits import Room, memory_room
from helpers.processes import wait_until
from helpers.resources import footprint, grown_since, resident_bytes


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Else storage 'device' has one for all; and large ones, once freed, make malloc keep more of what comes later."""
    monkeypatch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 1)


def make(tb_logger=None, **options):
    np.random.seed(0)  # as DI-engine's set_pkg_seed does
    base = dict(type='frame', import_names=['breakout_env'], replay_buffer_size=500, device='cpu')
    cfg = EasyDict({**base, **options})
    return create_buffer(cfg, tb_logger=tb_logger, exp_name='exp', instance_name='agent_buffer')


def transition(number, side=8, depth=4, **more):
    """All of it follows from its number."""
    pixels = np.random.default_rng(number).integers(256, size=(depth + 1, side, side), dtype=np.uint8)
    return dict(
        obs=torch.from_numpy(pixels[:-1].copy()),
        next_obs=torch.from_numpy(pixels[1:].copy()),
        action=torch.tensor([number % 4]),
        reward=torch.tensor([number / 2, 1.0, 2.0]),
        done=number % 5 == 0,
        id=number,
        **more,
    )


def is_exact(sampled, **kwargs):
    pushed = transition(sampled['id'], **kwargs)
    return same({key: sampled[key] for key in pushed}, pushed)


def ids(batch):
    return [t['id'] for t in batch]


# ---------------------------------------------------------------- how it is made


def a_users_config(create, **options):
    main = EasyDict(
        exp_name='exp',
        env=dict(collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1),
        policy=dict(
            cuda=False,
            model=dict(obs_shape=[4, 84, 84], action_shape=4),
            learn=dict(),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=10)),
            other=dict(replay_buffer=dict(options)),
        ),
    )
    create = EasyDict(
        env=dict(type='breakout', import_names=['breakout_env']),
        env_manager=dict(type='base'),
        policy=dict(type='dqn'),
        **create,
    )
    return compile_config(main, auto=True, create_cfg=create, save_cfg=False).policy.other.replay_buffer


@pytest.mark.parametrize('named_in', ['create_config', 'main_config'])
def test_a_config_names_it_and_its_options(named_in):
    if named_in == 'create_config':
        create = dict(replay_buffer=dict(type='frame', import_names=['breakout_env']))
        cfg = a_users_config(create, replay_buffer_size=50, storage='ring')
    else:
        cfg = a_users_config({}, type='frame', import_names=['breakout_env'], replay_buffer_size=50, storage='ring')
    buffer = create_buffer(cfg, tb_logger=None, exp_name='exp', instance_name='agent_buffer')
    assert isinstance(buffer, FrameReplayBuffer)
    assert (buffer.replay_buffer_size, buffer._memory.storage) == (50, 'ring')
    buffer.start()
    buffer.push([transition(i) for i in range(60)], cur_collector_envstep=60)
    assert buffer.count() == 50 and buffer.push_count == 60
    assert all(is_exact(t) for t in buffer.sample(20, 0))
    buffer.close()


def test_the_default_config_has_every_option():
    default = FrameReplayBuffer.default_config()
    assert default.type == 'frame' and default.cfg_type == 'FrameReplayBufferDict'
    default.replay_buffer_size = 10
    FrameReplayBuffer(default, None, 'exp', 'agent_buffer').close()
    assert FrameReplayBuffer.config['replay_buffer_size'] == 1_000_000


@pytest.mark.parametrize(
    'options, sentence',
    [
        (dict(replay_buffer_size=0), r'`replay_buffer_size` is 0 \(int\); expected a whole number from 1'),
        (dict(replay_buffer_size='many'), r"`replay_buffer_size` is 'many' \(str\); expected a whole number"),
        (dict(replay_buffer_size=1.5), r'`replay_buffer_size` is 1.5 \(float\); expected a whole number'),
        (
            dict(storage='disk'),
            r"`storage` is 'disk' \(str\); expected one of 'compressed', 'ring', 'memmap', 'device'",
        ),
        (dict(eviction='lifo'), r"`eviction` is 'lifo' \(str\); expected one of 'fifo', 'random'"),
        (dict(alpha=2), r'`alpha` is 2 \(int\); expected a number from 0 to 1'),
        (dict(beta=math.nan), r'`beta` is nan \(float\); expected a number from 0 to 1'),
        (dict(anneal_step=-1), r'`anneal_step` is -1 \(int\); expected a whole number from 0'),
        (dict(max_use=0), r'`max_use` is 0 \(int\); expected a number from 1 to inf'),
        (dict(prefetch=1), r'`prefetch` is 1 \(int\); expected one of True, False'),
        (dict(device='gpu'), r"`device` is 'gpu' \(str\); expected a device as PyTorch writes it, such as 'cuda'"),
        (dict(device=0), r'`device` is 0 \(int\); expected a device as PyTorch writes it'),
        (dict(storage='device', device='meta'), r"`device` is 'meta' with storage='device', but PyTorch"),
        (
            dict(storage='device', device='cuda:99'),
            r"`device` is 'cuda:99' with storage='device', but PyTorch .* finds \d+ CUDA GPUs here and says: .*"
            r"Expected a device that is there: device='cpu' always is, and storage='compressed' needs none",
        ),
        (dict(save_path=3), r'`save_path` is 3 \(int\); expected a path'),
        (dict(stroage='ring'), r'`stroage` is unknown; did you mean `storage`\?'),
        (dict(zzz=1), r'`zzz` is unknown; expected one of alpha, anneal_step'),
        (
            dict(thruput_controller=dict(push_sample_rate_limit=dict(max=2, min=0))),
            r'`thruput_controller.push_sample_rate_limit` is .*; expected no limit',
        ),
    ],
)
def test_a_wrong_option_gets_a_sentence_and_opens_nothing(options, sentence, same_footprint):
    with pytest.raises(ValueError, match=sentence):
        make(**options)


@pytest.mark.parametrize('number', [1e3, np.int64(1000), np.float64(1000)])
def test_a_whole_number_may_be_written_as_people_write_it(number):
    assert make(replay_buffer_size=number).replay_buffer_size == 1000


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    'values, error, sentence',
    [
        (dict(obs=torch.zeros(4, 8, 8)), ValueError, r"\['obs'\] is of dtype float32; .*obs_dtype='uint8'.*pixel_dqn"),
        (dict(next_obs=np.zeros((4, 8, 8))), ValueError, r"\['next_obs'\] is of dtype float64; .*obs_dtype='uint8'"),
        (dict(obs=torch.zeros(8, dtype=torch.uint8)), ValueError, r'\(8,\); expected stacked screens.*frame_stack=4'),
        (dict(obs=[1, 2]), TypeError, r"transition\['obs'\] is of type builtins.list"),
        (dict(next_obs=torch.zeros(4, 9, 8, dtype=torch.uint8)), ValueError, 'screens of different sizes'),
        (dict(pair=(1, 2)), TypeError, r"transition\['pair'\] is of type builtins.tuple"),
        (dict(info=dict(deep=object())), TypeError, r"transition\['info'\]\['deep'\] is of type builtins.object"),
        (dict(names=np.array(['a', None])), TypeError, r"transition\['names'\] is an array of object"),
        (dict(sparse=torch.eye(3).to_sparse()), TypeError, r"\['sparse'\] is a sparse tensor of float32"),
        (dict(wave=torch.zeros(2, dtype=torch.complex64)), TypeError, r"\['wave'\] is a tensor of complex64"),
        (dict(large=2**63), TypeError, r"\['large'\] is 9223372036854775808; expected .* at most 64 bits"),
        ({7: 1}, TypeError, r'a key of a transition is 7 \(int\); expected a string'),
        (dict(priority=-1.0), ValueError, 'a priority is -1.0; expected a number from 0'),
        (dict(priority=math.nan), ValueError, 'a priority is nan'),
    ],
)
def test_what_can_not_be_stored_is_named_and_nothing_is_stored(values, error, sentence):
    buffer = make()
    for there in ([], [transition(0), transition(1)]):
        if there:
            buffer.push(there, 0)
        before = frames_in(buffer._memory)
        with pytest.raises(error, match=sentence):
            buffer.push([transition(2), {**transition(3), **values}, transition(4)], 0)
        assert buffer.count() == buffer.push_count == len(there) and frames_in(buffer._memory) == before
    buffer.push(transition(5), 0)
    assert sorted(ids(buffer.sample(3, 0))) == [0, 1, 5]


def test_screens_of_another_size_are_refused_by_name():
    buffer = make()
    buffer.push(transition(0, side=8), 0)
    with pytest.raises(ValueError, match=r'holds screens of 8x8 pixels; a transition has 9x9 \(env option screen_size'):
        buffer.push([transition(1), transition(2, side=9)], 0)
    assert buffer.count() == 1


# ---------------------------------------------------------------- batches


def test_too_few_transitions_give_none_and_no_size_gives_nothing():
    buffer = make()
    assert buffer.sample(1, 0) is None
    buffer.push([transition(i) for i in range(10)], 0)
    assert buffer.sample(11, 0) is None and buffer.sample(0, 0) == []
    assert sorted(ids(buffer.sample(10, 0))) == list(range(10))
    assert len(buffer.sample(30, 0, replace=True)) == 30
    ratio = make(thruput_controller=dict(sample_min_limit_ratio=2))
    ratio.push([transition(i) for i in range(10)], 0)
    assert ratio.sample(6, 0) is None and len(ratio.sample(5, 0)) == 5


def test_a_batch_reads_like_a_list_of_dicts():
    buffer = make()
    buffer.push([transition(i) for i in range(20)], 0)
    batch = buffer.sample(8, 0)
    assert len(batch) == 8 and [t['id'] for t in batch] == [batch[i]['id'] for i in range(8)]
    assert batch[-1] is batch[7] and [t['id'] for t in batch[2:5]] == [batch[i]['id'] for i in (2, 3, 4)]
    assert all(type(t) is dict and is_exact(t) for t in batch)
    assert batch[3].get('no such key', 5) == 5 and batch[0].get('replay_unique_id').startswith('agent_buffer_')
    assert list(reversed(batch))[0] is batch[7]
    with pytest.raises(IndexError):
        batch[8]
    batch[1]['weight'] = 0.25  # as policies write into what they sampled
    batch[1]['reward'] = torch.zeros(3)
    assert batch[1]['weight'] == 0.25 and list(batch)[1]['reward'].sum() == 0
    assert [t.get('weight') for t in batch] == [None, 0.25] + 6 * [None]
    assert all(is_exact(t) for t in buffer.sample(20, 0))


def test_what_was_sampled_can_be_pushed_again():
    buffer, other = make(), make()
    buffer.push([transition(i) for i in range(20)], 0)
    other.push(list(buffer.sample(20, 0)), 0)
    assert all(is_exact(t) for t in other.sample(20, 0))


def equal(one, other):
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return same(one, other)


@pytest.mark.parametrize('kinds', ['one make-up', 'several'])
def test_collated_equals_what_di_engine_collates(kinds):
    more = dict(
        tensor=torch.tensor([1.5]),
        matrix=torch.ones(2, 3, dtype=torch.float64),
        half=torch.tensor(2.0, dtype=torch.bfloat16),
        mask=torch.tensor([True]),
        array=np.arange(3, dtype=np.int16),
        short_array=np.array([2.5], np.float32),
        scalar=np.float64(0.1),
        flag=np.bool_(True),
        decimal=0.1,
        whole=2**40,
        truth=True,
        name='policy',
        nested=dict(inner=dict(x=1, y=torch.tensor([3])), empty={}, collate_ignore_this=torch.ones(2)),
        collate_ignore=dict(a=1),
    )
    buffer = make()
    buffer.push([transition(i, **more, **(dict(extra=1) if kinds == 'several' and i % 2 else {})) for i in range(9)], 0)
    batch = buffer.sample(9, 3)
    if kinds == 'several':
        for t in batch:
            t['extra'] = 2  # default_collate wants the keys of the first in all
    assert equal(batch.collated(), default_collate(list(batch)))
    fresh = buffer.sample(5, 3, sample_range=slice(0, None, 2))
    assert equal(fresh.collated(), default_collate(list(fresh))) and fresh.collated()['whole'].tolist() == [2**40] * 5
    plain = make()
    plain.push([{**transition(i), 'half': more['half'], 'nested': dict(x=more['mask'])} for i in range(9)], 0)
    batch = plain.sample(9, 3)
    assert equal(batch.collated(), default_collate(list(batch)))
    assert batch.collated()['obs'].data_ptr() == batch[0]['obs'].data_ptr()  # no copy was made


def test_what_can_not_be_collated_fails_as_in_di_engine():
    buffer = make()
    buffer.push([transition(i, nothing=None) for i in range(9)], 0)
    batch = buffer.sample(9, 0)
    with pytest.raises(TypeError) as by_di_engine:
        default_collate(list(batch))
    with pytest.raises(TypeError) as by_batch:
        batch.collated()
    assert str(by_batch.value) == str(by_di_engine.value)


def learned_by_dqn(policy, data):
    """Loss and gradient norm of one update."""
    output = policy.learn_mode.forward(data)
    return output['total_loss'], output['priority'], [p.detach().clone() for p in policy._model.parameters()]


def test_dqn_learns_the_same_from_it_as_from_the_advanced_buffer():
    ours = make()
    cfg = AdvancedReplayBuffer.default_config()
    cfg.replay_buffer_size = 500
    theirs = AdvancedReplayBuffer(cfg, SummaryWriter('tb'), 'exp', 'advanced')
    for i in range(40):
        ours.push(transition(i, side=84, value_gamma=torch.tensor(0.9**3)), 0)
        theirs.push(transition(i, side=84, value_gamma=torch.tensor(0.9**3)), 0)
    for buffer in (ours, theirs):
        names = [f'agent_buffer_{i}' for i in range(40)] if buffer is ours else [f'{i}' for i in range(40)]
        if buffer is theirs:
            names = [data['replay_unique_id'] for data in theirs._data[:40]]
        priorities = [0.1 + (i * 7 % 11) for i in range(40)]
        buffer.update(dict(replay_unique_id=names, replay_buffer_idx=list(range(40)), priority=priorities))
    policies = []
    for _ in range(2):
        torch.manual_seed(0)
        cfg = DQNPolicy.default_config()
        cfg.update(cuda=False, nstep=3, priority=True, priority_IS_weight=True, type='dqn')
        cfg.model = EasyDict(
            type='pixel_dqn', import_names=['breakout_env'], obs_shape=[4, 84, 84], action_shape=4, dueling=True
        )
        policies.append(create_policy(cfg, enable_field=['learn']))
    for step in range(3):
        ours_batch = ours.sample(16, step)
        theirs_batch = theirs._sample_with_indices(ids(ours_batch), step)
        for mine, its in zip(ours_batch, theirs_batch):
            assert is_exact(mine, side=84) and mine['IS'] == pytest.approx(its['IS'], rel=1e-5)
            assert mine['priority'] == pytest.approx(its['priority'], rel=1e-5) and mine['staleness'] == -1
        processed = [
            default_preprocess_learn(b, use_priority=True, use_priority_IS_weight=True, use_nstep=True)
            for b in (ours_batch, theirs_batch)
        ]
        for key in ('obs', 'next_obs', 'action', 'reward', 'done', 'value_gamma'):
            assert torch.equal(processed[0][key], processed[1][key]), key
        (loss, errors, weights), (their_loss, their_errors, their_weights) = (
            learned_by_dqn(policy, batch) for policy, batch in zip(policies, (ours_batch, theirs_batch))
        )
        assert loss == pytest.approx(their_loss, rel=1e-5) and errors == pytest.approx(their_errors, rel=1e-4)
        assert all(torch.allclose(w, its, atol=1e-5) for w, its in zip(weights, their_weights))
        for buffer, batch, found in ((ours, ours_batch, errors), (theirs, theirs_batch, their_errors)):
            buffer.update(
                dict(
                    replay_unique_id=[t.get('replay_unique_id') for t in batch],
                    replay_buffer_idx=[t.get('replay_buffer_idx') for t in batch],
                    priority=found,
                )
            )
        assert ours.beta == pytest.approx(theirs.beta)
    theirs.close()


# ---------------------------------------------------------------- who is drawn


def chi_square(counts, expected):
    """How far counts are from what is expected, in standard deviations of the statistic."""
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    statistic = ((counts - expected) ** 2 / expected).sum()
    return (statistic - len(counts)) / math.sqrt(2 * len(counts))


@pytest.mark.parametrize('size', [3, 30], ids=['few of many', 'many of few'])
@pytest.mark.parametrize('holes', [False, True])
def test_every_transition_is_drawn_equally_often_and_none_twice_in_a_batch(size, holes):
    buffer = make(replay_buffer_size=100)
    buffer.push([transition(i, side=2) for i in range(130)], 0)
    there = list(range(30, 130))
    if holes:
        names = {t['id']: t['replay_unique_id'] for t in buffer.sample(100, 0)}
        assert buffer.remove([names[i] for i in range(40, 60)]) == 20
        there = [i for i in there if not 40 <= i < 60]
    drawn = Counter()
    for _ in range(12000 // size):
        batch = buffer.sample(size, 0)
        assert len(set(ids(batch))) == size
        drawn.update(batch.collated()['id'].tolist())
    assert sorted(drawn) == there
    # drawn without replacement, counts vary less than independent draws
    assert chi_square([drawn[i] for i in there], [sum(drawn.values()) / len(there)] * len(there)) < 4


def test_draws_follow_the_priorities_and_weights_correct_for_them():
    buffer = make(replay_buffer_size=60, alpha=0.7, beta=0.5, anneal_step=0)
    buffer.push([transition(i, side=2) for i in range(60)], 0)
    batch = list(buffer.sample(60, 0))
    priorities = np.array([0.0 if t['id'] == 7 else 0.5 + t['id'] % 10 for t in batch])
    buffer.update(
        dict(
            replay_unique_id=[t['replay_unique_id'] for t in batch],
            replay_buffer_idx=[t['replay_buffer_idx'] for t in batch],
            priority=torch.tensor(priorities),
        )
    )
    weight = {t['id']: (p + 1e-5) ** 0.7 for t, p in zip(batch, priorities)}
    total, least = sum(weight.values()), min(weight.values())
    drawn = Counter()
    for _ in range(600):
        sampled = buffer.sample(32, 0)
        drawn.update(ids(sampled))
        for t in sampled:
            assert t['IS'] == t['priority_IS'] == pytest.approx((weight[t['id']] / least) ** -0.5, rel=1e-4)
            assert t['priority'] == pytest.approx(weight[t['id']] ** (1 / 0.7), rel=1e-4)
    likely = [i for i in weight if i != 7]
    assert chi_square([drawn[i] for i in likely], [600 * 32 * weight[i] / total for i in likely]) < 4
    assert drawn[7] <= 25


def test_a_pushed_priority_counts_and_a_new_transition_gets_the_highest():
    buffer = make(alpha=1.0)
    buffer.update(dict(replay_unique_id=[], replay_buffer_idx=[], priority=[]))
    buffer.push(
        [transition(0, priority=3.0), transition(1, priority=None), transition(2, priority=torch.tensor(0.5))], 0
    )
    buffer.update(dict(replay_unique_id=['agent_buffer_0'], replay_buffer_idx=[0], priority=[8.0]))
    buffer.push(transition(3), 0)
    rows = buffer._memory.rows()
    assert buffer._memory.priorities(rows)[0] == pytest.approx([8, 1, 0.5, 8], rel=1e-4)


def test_beta_rises_to_one_over_the_samples_that_were_said():
    buffer = make(beta=0.4, anneal_step=4)
    buffer.push([transition(i) for i in range(10)], 0)
    buffer.sample(5, 0)
    assert buffer.beta == 0.4  # uniform samples have no bias
    buffer.update(dict(replay_unique_id=[], replay_buffer_idx=[], priority=[]))
    betas = []
    for _ in range(6):
        buffer.sample(5, 0)
        betas.append(buffer.beta)
    assert betas == pytest.approx([0.55, 0.7, 0.85, 1, 1, 1])
    buffer.beta = 0.2
    assert buffer.beta == 0.2


def test_an_update_passes_over_what_is_gone():
    buffer = make(replay_buffer_size=10)
    buffer.push([transition(i) for i in range(10)], 0)
    batch = list(buffer.sample(10, 0))
    buffer.push([transition(i) for i in range(10, 17)], 0)
    update = dict(
        replay_unique_id=[t['replay_unique_id'] for t in batch] + ['agent_buffer_9999'],
        replay_buffer_idx=[t['replay_buffer_idx'] for t in batch] + [3],
        priority=[100.0] * 11,
    )
    buffer.update(update)
    rows = buffer._memory.rows()
    assert buffer._memory.priorities(rows)[0] == pytest.approx([(100 + 1e-5) ** 0.6] * 3 + [1.0] * 7, rel=1e-5)
    buffer.update({**update, 'replay_buffer_idx': [None] * 11, 'priority': [5.0] * 11})
    assert buffer._memory.priorities(rows)[0] == pytest.approx([5.00001**0.6] * 3 + [1.0] * 7, rel=1e-5)
    with pytest.raises(ValueError, match='a priority is -1'):
        buffer.update({**update, 'priority': [1.0] * 10 + [-1.0]})
    assert buffer._memory.priorities(rows)[0] == pytest.approx([5.00001**0.6] * 3 + [1.0] * 7, rel=1e-5)
    buffer.update(dict(no_priority=1))


@pytest.mark.parametrize('by_priority', [False, True])
def test_what_was_used_often_enough_is_removed(by_priority):
    buffer = make(max_use=2)
    buffer.push([transition(i) for i in range(6)], 0)
    if by_priority:
        buffer.update(dict(replay_unique_id=[], replay_buffer_idx=[], priority=[]))
    used = Counter()
    while True:
        batch = buffer.sample(2, 0)
        if batch is None:
            break
        assert all(is_exact(t) for t in batch)
        used.update(ids(batch))
        if not by_priority:
            assert all(t['use'] == used[t['id']] for t in batch)
    assert buffer.count() < 2 and max(used.values()) == 2 and sum(n == 2 for n in used.values()) == 6 - buffer.count()


def test_what_is_too_stale_is_removed_and_staleness_is_told():
    buffer = make(max_staleness=10)
    for i in range(20):
        buffer.push(transition(i, collect_iter=i), 0)
    batch = buffer.sample(5, 22)
    assert buffer.count() == 7 and all(t['staleness'] == 22 - t['id'] < 10 for t in batch)
    assert buffer.sample(1, 100) is None and buffer.count() == 0
    buffer.push([transition(i) for i in range(3)], 0)
    assert [t['staleness'] for t in buffer.sample(3, 5)] == [-1] * 3


@pytest.mark.parametrize('by_priority', [False, True])
def test_a_range_is_drawn_from_in_the_order_of_pushing(by_priority):
    buffer = make(replay_buffer_size=50)
    buffer.push([transition(i, side=2) for i in range(70)], 0)
    if by_priority:
        buffer.update(dict(replay_unique_id=[], replay_buffer_idx=[], priority=[]))
    for part, expected in (
        (slice(-10, None), range(60, 70)),
        (slice(0, 5), range(20, 25)),
        (slice(10, 40, 10), (30, 40, 50)),
        (slice(None, None, -7), range(69, 19, -7)),
    ):
        drawn = set()
        for _ in range(40):
            drawn.update(ids(buffer.sample(3, 0, sample_range=part)))
        assert drawn == set(expected)
    assert buffer.sample(4, 0, sample_range=slice(-3, None)) is None


def test_random_eviction_keeps_a_share_that_halves_with_age():
    ages = []
    for seed in range(6):
        memory = ReplayMemory(200, 'ring', 'random', seed=seed)
        for i in range(1600):
            memory.push([dict(id=i)])
        ages += [1599 - t['id'] for t in memory.fetch(memory.rows())]
        assert memory.count == 200
    # someone of 200 goes at each push: after a pushes (1 - 1/200) ** a are left
    for age in (100, 200, 400, 600):
        left = sum(a >= age for a in ages) / len(ages)
        expected = (1 - 1 / 200) ** age
        assert abs(left - expected) < 5 * math.sqrt(expected * (1 - expected) / len(ages))


def test_the_same_seed_draws_the_same():
    def course():
        buffer = make()
        buffer.push([transition(i) for i in range(50)], 0)
        return [ids(buffer.sample(8, 0)) for _ in range(5)]

    assert course() == course()


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize(
    'options', [dict(), dict(prefetch=True), dict(eviction='random'), dict(storage='ring'), dict(storage='device')]
)
def test_threads_that_push_and_sample_at_once_get_exact_transitions(options):
    buffer = make(replay_buffer_size=300, **options)
    buffer.push([transition(i) for i in range(100)], 0)
    errors, stop = [], threading.Event()

    def work(what):
        try:
            while not stop.is_set():
                what()
        except Exception as error:
            errors.append(error)
            stop.set()

    numbers = iter(range(100, 10**9))

    def push():
        buffer.push([transition(next(numbers)) for _ in range(5)], 0)

    def sample():
        batch = list(buffer.sample(16, 0))
        if not all(is_exact(t) for t in batch):
            raise AssertionError('a transition is not what was pushed')
        buffer.update(
            dict(
                replay_unique_id=[t['replay_unique_id'] for t in batch],
                replay_buffer_idx=[t['replay_buffer_idx'] for t in batch],
                priority=[random.random() for _ in batch],
            )
        )
        buffer.remove([batch[0]['replay_unique_id']])
        report = buffer.memory_report()
        assert report['transitions'] <= 300

    def save():
        buffer.state_dict()

    threads = [threading.Thread(target=work, args=(what,)) for what in (push, sample, sample, save)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    buffer.sample(1, 0)
    with buffer._memory.lock:
        buffer._drop_prefetched()
    if buffer._prefetcher is not None:
        buffer._prefetcher.submit(lambda: None).result()
    assert sum(frames_in(buffer._memory).values()) == buffer._memory.frame_references
    buffer.close()


def test_a_prefetched_batch_is_exact_whatever_happens_to_its_transitions():
    buffer = make(replay_buffer_size=40, prefetch=True, max_use=3)
    buffer.push([transition(i) for i in range(40)], 0)
    for start in range(40, 800, 8):
        batch = buffer.sample(8, 0)
        assert all(is_exact(t) for t in batch) and len(set(ids(batch))) == 8
        buffer.push([transition(i) for i in range(start, start + 8)], 0)
    buffer.close()


def test_a_prefetched_batch_is_drawn_one_call_earlier():
    buffer = make(prefetch=True)
    buffer.push([transition(i) for i in range(10)], 0)
    first = buffer.sample(10, 0)
    buffer.push([transition(i) for i in range(10, 500)], 0)
    second, third = buffer.sample(10, 0), buffer.sample(10, 0)
    assert set(ids(first)) == set(ids(second)) == set(range(10)) and max(ids(third)) >= 10
    assert len(buffer.sample(7, 0)) == 7  # another request is drawn at once
    assert set(ids(buffer.sample(7, 0, sample_range=slice(-7, None)))) == set(range(493, 500))
    buffer.close()


@pytest.mark.parametrize('then', ['close', 'clear', 'load', 'drop'])
def test_what_is_prefetched_is_let_go(then, same_footprint, monkeypatch):
    buffer = make(prefetch=True)
    saved = make()
    saved.push([transition(i) for i in range(100, 160)], 0)
    state = saved.state_dict()
    buffer.push([transition(i) for i in range(60)], 0)
    may_go_on, decode = threading.Event(), ReplayMemory.decode

    def slow_decode(memory, *args, **kwargs):
        if threading.current_thread() is not threading.main_thread():
            assert may_go_on.wait(20)
        return decode(memory, *args, **kwargs)

    monkeypatch.setattr(ReplayMemory, 'decode', slow_decode)
    buffer.sample(32, 0)
    if then == 'close':
        threading.Timer(0.1, may_go_on.set).start()
        buffer.close()
    elif then == 'clear':
        buffer.clear()
        buffer.push([transition(i) for i in range(100, 160)], 0)
    elif then == 'load':
        buffer.load_state_dict(state)
    else:
        buffer.sample(5, 0)
    may_go_on.set()
    if then in ('clear', 'load'):
        buffer._prefetcher.submit(lambda: None).result()
        expected = saved._memory
        assert frames_in(buffer._memory) == frames_in(expected)
        assert all(is_exact(t) and t['id'] >= 100 for t in buffer.sample(32, 0))
    buffer.close()
    assert buffer.count() == 0


def test_a_batch_that_is_decoded_in_one_go_lets_other_threads_compute():
    memory = ReplayMemory(50)
    rng = np.random.default_rng(0)
    texture = rng.integers(0, 40, (600, 600), dtype=np.uint8)
    for i in range(40):
        memory.push([dict(obs=np.roll(texture, i * 997)[None])])
    interval, ticks, stop = sys.getswitchinterval(), [0], threading.Event()

    def count():
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0)  # lets go of the GIL, takes it again where nobody else does

    def rate_during(work):
        before, started_s = ticks[0], time.perf_counter()
        work()
        return (ticks[0] - before) / (time.perf_counter() - started_s)

    counter = threading.Thread(target=count)
    sys.setswitchinterval(20)  # nobody who holds the GIL is asked for it
    try:
        counter.start()
        free = max(rate_during(lambda: time.sleep(0.05)) for _ in range(3))
        busy = max(rate_during(lambda: sum(range(10**6))) for _ in range(3))
        decoding = max(
            rate_during(lambda: memory.decode(memory.select(memory.rows()), in_one_go=True)) for _ in range(8)
        )
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        counter.join()
    assert busy < free / 20, 'this test can not tell'
    assert decoding > free / 5, (free, busy, decoding)


# ---------------------------------------------------------------- what it takes


@pytest.mark.parametrize('storage', STORAGES)
def test_the_memory_report_adds_up(storage):
    buffer = make(storage=storage, replay_buffer_size=1000)
    empty = buffer.memory_report()
    assert empty['transitions'] == empty['distinct_frames'] == 0 and empty['compression_ratio'] == 0
    play = Play(4, 1, np.random.default_rng(0))
    buffer.push([{**play.transition(), **other_keys(i)} for i in range(600)], 0)
    report = buffer.memory_report()
    memory = buffer._memory
    assert report['transitions'] == 600 and report['distinct_frames'] == memory.frames > 10
    assert report['frames_per_transition'] == memory.frames / 600
    total = report['bytes'] + report['device_bytes'] + report['file_bytes']
    assert report['bytes_per_transition'] == total / 600
    assert report['compression_ratio'] == pytest.approx(600 * 8 * 400 / total)
    assert (report['file_bytes'] > 0) == (storage == 'memmap')
    assert (report['device_bytes'] > 0) == (storage == 'device')
    assert report['bytes_per_frame'] == 400 if storage != 'compressed' else 0 < report['bytes_per_frame'] < 300
    assert 0 < report['bytes'] < report['resident_bytes']
    buffer.clear()
    after = buffer.memory_report()
    assert after['transitions'] == 0 and after['bytes'] == empty['bytes'] == after['device_bytes'] == 0


@pytest.mark.parametrize('storage', ['compressed', 'ring'])
def test_the_memory_report_is_what_the_process_grows_by(storage):
    def run(count):
        buffer = make(storage=storage, replay_buffer_size=6000)
        before = resident_bytes()
        rng = np.random.default_rng(0)
        for _ in range(count // 100):
            noise = rng.integers(256, size=(100, 1, 84, 84), dtype=np.uint8)
            buffer.push([dict(obs=obs, id=i) for i, obs in enumerate(noise)], 0)
        del noise
        grown, report = resident_bytes() - before, buffer.memory_report()['bytes']
        buffer.close()
        return grown, report

    run(300)  # allocators settle
    grown, report = run(5000)
    assert report > 5000 * 7056
    assert 0.8 * report < grown < 1.3 * report, (grown, report)


def test_the_memorys_curve_is_in_tensorboard():
    writer = SummaryWriter('tb')
    buffer = make(writer, report_every_s=0)
    for step in range(1, 4):
        buffer.push([transition(i) for i in range(10)], cur_collector_envstep=step * 100)
    expected = buffer.memory_report()
    buffer.close()
    writer.close()
    accumulator = EventAccumulator('tb').Reload()
    for name, value in expected.items():
        events = accumulator.Scalars(f'agent_buffer_memory/{name}')
        assert [event.step for event in events] == [100, 200, 300]
        if name not in ('resident_bytes', 'free_bytes'):  # these change while we look
            assert events[-1].value == pytest.approx(value, rel=1e-6)
    assert [event.value for event in accumulator.Scalars('agent_buffer_memory/transitions')] == [10, 20, 30]


def test_the_curve_has_a_point_every_so_many_seconds_only():
    points = []
    buffer = make(SimpleNamespace(add_scalar=lambda *args: points.append(args)), report_every_s=1000)
    for i in range(50):
        buffer.push(transition(i), i)
    assert len(points) == len(buffer.memory_report())


# ---------------------------------------------------------------- limits


def cgroups(root, files):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f'{content}\n')


@pytest.mark.parametrize(
    'membership, files, expected',
    [
        (  # version 2, docker: the limit is the group's own
            '0::/box',
            {'box/memory.max': 10**8, 'box/memory.current': 6 * 10**7, 'box/memory.stat': 'anon 1\ninactive_file 10'},
            (4 * 10**7 + 10, 10**8),
        ),
        (  # version 2, Slurm: the limit is of the job, above the step
            '0::/job/step',
            {
                'job/step/memory.max': 'max',
                'job/step/memory.current': 5,
                'job/memory.max': 10**8,
                'job/memory.current': 10**7,
                'memory.stat': '',
            },
            (9 * 10**7, 10**8),
        ),
        (  # version 2, namespaces: the group itself is mounted at the top
            '0::/../../docker/abc',
            {'memory.max': 10**8, 'memory.current': 10**7},
            (9 * 10**7, 10**8),
        ),
        (  # version 1
            '11:cpu,cpuacct:/x\n4:memory:/box\n0::/',
            {
                'memory/box/memory.limit_in_bytes': 10**8,
                'memory/box/memory.usage_in_bytes': 10**8 - 5,
                'memory/box/memory.stat': 'inactive_file 1\ntotal_inactive_file 1000',
            },
            (1005, 10**8),
        ),
        (  # version 1 without a limit, and what is above it has one
            '4:memory:/a/b',
            {
                'memory/a/b/memory.limit_in_bytes': 9223372036854771712,
                'memory/a/b/memory.usage_in_bytes': 5,
                'memory/a/memory.limit_in_bytes': 10**8,
                'memory/a/memory.usage_in_bytes': 2 * 10**8,
            },
            (0, 10**8),
        ),
    ],
)
def test_the_limit_of_a_container_or_job_is_found(tmp_path, membership, files, expected):
    cgroups(tmp_path / 'cgroup', files)
    (tmp_path / 'membership').write_text(membership + '\n')
    room = memory_room(str(tmp_path / 'cgroup'), str(tmp_path / 'membership'))
    assert (room.free_bytes, room.limit_bytes) == expected and 'control group' in room.whose


@pytest.mark.parametrize('membership', [None, '', '0::/box'])
def test_without_a_limit_the_machines_memory_counts(tmp_path, membership):
    if membership is not None:
        (tmp_path / 'membership').write_text(membership)
    cgroups(tmp_path / 'cgroup', {'box/memory.max': 'max', 'box/memory.current': 5})
    room = memory_room(str(tmp_path / 'cgroup'), str(tmp_path / 'membership'))
    assert 0 < room.free_bytes <= room.limit_bytes and room.whose == "the machine's memory"


@pytest.mark.parametrize('face', ['serial', 'task'])
def test_a_size_that_can_not_fit_is_refused_with_the_numbers(monkeypatch, face, same_footprint):
    monkeypatch.setattr(replay_options, 'memory_room', lambda: Room(2 * 10**9, 4 * 10**9, "the machine's memory"))
    build = (
        make if face == 'serial' else lambda replay_buffer_size, **options: FrameBuffer(replay_buffer_size, **options)
    )
    with pytest.raises(ValueError, match='`replay_buffer_size` is 1,000,000: about 7.22 GB') as refused:
        build(replay_buffer_size=1_000_000, storage='ring')
    for part in ('2.00 GB more of the 4.00 GB', "the machine's memory", "storage='compressed'"):
        assert part in str(refused.value)
    fits = int(str(refused.value).split('at most ')[1].split(', or')[0].replace(',', ''))
    build(replay_buffer_size=fits, storage='ring').close()
    build(replay_buffer_size=1_000_000).close()  # compressed


def test_large_screens_are_refused_when_the_first_comes(monkeypatch):
    monkeypatch.setattr(replay_options, 'memory_room', lambda: Room(10**9, 4 * 10**9, "the machine's memory"))
    buffer = make(replay_buffer_size=100_000, storage='ring')
    with pytest.raises(ValueError, match='of frames of 40,000 pixels'):
        buffer.push(transition(0, side=200), 0)
    assert buffer.count() == 0
    buffer.push(transition(0, side=84), 0)
    assert is_exact(buffer.sample(1, 0)[0], side=84)


def test_a_file_that_can_not_fit_on_the_disk_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(replay_options, 'free_disk_bytes', lambda folder: 10**9)
    with pytest.raises(ValueError, match=r'about 7.06 GB on the disk of elsewhere, which has 1.00 GB left') as refused:
        make(replay_buffer_size=1_000_000, storage='memmap', folder='elsewhere')
    assert "Expected at most 141,723, another `folder`, or storage='compressed'" in str(refused.value)
    assert not os.path.exists('elsewhere')


def test_a_real_control_group_refuses_what_it_would_kill(tmp_path):
    parent = next(iter(limits.control_groups('memory', '/sys/fs/cgroup', '/proc/self/cgroup')), None)
    if parent is None:
        pytest.skip('this process is in no memory control group')
    group = parent / f'breakout-test-{os.getpid()}'
    limit = group / ('memory.limit_in_bytes' if (parent / 'memory.limit_in_bytes').exists() else 'memory.max')
    try:
        group.mkdir()
        limit.write_text(str(3 * 10**9))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f'no control group can be made here: {error}')
    script = f"""
import os
open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))
from easydict import EasyDict
from breakout_env import FrameReplayBuffer
for size in (100_000, 1_000_000):
    FrameReplayBuffer(EasyDict(replay_buffer_size=size, storage='ring')).close()
    print('fits', size, flush=True)
"""
    try:
        result = subprocess.run(
            [sys.executable, '-c', script], capture_output=True, text=True, cwd=tmp_path, timeout=120
        )
    finally:
        wait_until(lambda: not (group / 'cgroup.procs').read_text())
        group.rmdir()
    assert result.stdout.splitlines()[-1:] == ['fits 100000'], result.stderr
    assert 'of the 3.00 GB that the memory limit of its control group' in result.stderr.splitlines()[-1]


def test_a_warning_comes_before_memory_runs_out(monkeypatch, caplog):
    monkeypatch.setattr(frame_replay_buffer, 'memory_room', lambda: Room(10**8, 4 * 10**9, 'its control group'))
    buffer = make(report_every_s=0)
    with caplog.at_level(logging.WARNING):
        for i in range(5):
            buffer.push(transition(i), 0)
    warnings = [m for m in caplog.messages if 'memory runs short' in m]
    assert len(warnings) == 1 and '0.10 GB are left of the 4.00 GB that its control group allows' in warnings[0]
    assert 'holds 1 of 500 transitions' in warnings[0]


# ---------------------------------------------------------------- what it gives back


@pytest.mark.parametrize('goes_by', ['close', 'last reference'])
@pytest.mark.parametrize('prefetch', [False, True])
# on a device it is PyTorch's allocator, and with it a thread pool, that keeps or gives back what is freed
@pytest.mark.parametrize('storage', sorted(set(STORAGES) - {'device'}))
def test_memory_descriptors_and_threads_are_given_back(storage, prefetch, goes_by, same_footprint):
    noise = np.random.default_rng(0).integers(256, size=(2500, 1, 84, 84), dtype=np.uint8)

    def cycle():
        buffer = make(storage=storage, prefetch=prefetch, replay_buffer_size=3000)
        before = resident_bytes()
        buffer.push([dict(obs=obs, id=i) for i, obs in enumerate(noise)], 0)
        buffer.sample(16, 0)
        if goes_by == 'close':
            buffer.close()
            assert buffer.count() == 0
            buffer.close()
        del buffer
        return resident_bytes() - before

    cycle()  # allocators settle: the training of a dictionary alone takes 10 MB
    assert cycle() < 6 * 2**20  # it held 18 MB


def test_what_is_removed_gives_its_memory_back_at_once():
    buffer = make(replay_buffer_size=3000)
    noise = np.random.default_rng(0).integers(256, size=(2500, 1, 84, 84), dtype=np.uint8)
    buffer.push([dict(obs=obs, id=i) for i, obs in enumerate(noise)], 0)
    full, report = resident_bytes(), buffer.memory_report()['bytes']
    buffer.remove([f'agent_buffer_{i}' for i in range(2400)])
    assert full - resident_bytes() > 12 * 2**20 and buffer.memory_report()['bytes'] < report / 3
    assert np.array_equal(buffer.sample(100, 0, sample_range=slice(-1, None), replace=True)[0]['obs'], noise[2499])


def open_files_in(folder, pid='self'):
    links = (f'/proc/{pid}/fd/{number}' for number in os.listdir(f'/proc/{pid}/fd'))
    return [os.readlink(link) for link in links if os.path.lexists(link) and os.readlink(link).startswith(str(folder))]


@pytest.mark.parametrize('ends_by', ['close', 'SIGKILL'])
def test_a_file_of_frames_has_no_name_and_leaves_nothing(tmp_path, ends_by):
    folder = tmp_path / 'frames'
    if ends_by == 'close':
        buffer = make(storage='memmap', folder=str(folder))
        buffer.push([transition(i) for i in range(50)], 0)
        assert os.listdir(folder) == [] and open_files_in(folder)
        buffer.close()
        assert open_files_in(folder) == []
    else:
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                memory = ReplayMemory(50, 'memmap', folder=str(folder))
                memory.push([transition(i) for i in range(50)])
                os.write(write_end, b'.')
                time.sleep(60)
            finally:
                os._exit(0)
        os.read(read_end, 1)
        assert os.listdir(folder) == [] and open_files_in(folder, pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read_end)
        os.close(write_end)
    assert os.listdir(folder) == []


def test_without_a_folder_the_file_is_below_the_experiment(tmp_path):
    buffer = make(storage='memmap')
    buffer.push(transition(0), 0)
    assert open_files_in(tmp_path / 'exp' / 'replay')
    buffer.close()


def test_a_full_disk_gets_a_sentence_and_the_buffer_goes_on(small_disk, monkeypatch):
    monkeypatch.setattr(replay_options, 'free_disk_bytes', lambda folder: 10**12)  # it was free when training began
    buffer = make(storage='memmap', folder=str(small_disk), replay_buffer_size=5000)
    with pytest.raises(OSError, match='can not grow to .* No space left on device. Make room there') as full:
        for i in range(5000):
            buffer.push(transition(i, side=84, depth=1), 0)
    assert str(small_disk) in str(full.value)
    count = buffer.count()
    assert count * 2 * 7056 > 12 * 2**20  # two frames a transition
    for _ in range(3):
        with pytest.raises(OSError, match='No space left'):
            buffer.push([transition(i, side=84, depth=1) for i in range(6000, 6003)], 0)
    assert all(is_exact(t, side=84, depth=1) for t in buffer.sample(50, 0))
    buffer.remove([f'agent_buffer_{i}' for i in range(10)])
    count = buffer.count()
    buffer.push(transition(7000, side=84, depth=1), 0)  # there is room again
    assert buffer.count() == count + 1
    assert is_exact(buffer.sample(1, 0, sample_range=slice(-1, None))[0], side=84, depth=1)
    assert sum(frames_in(buffer._memory).values()) == buffer._memory.frame_references
    buffer.close()


def test_a_disk_with_little_room_holds_what_fits(small_disk):
    with open(small_disk / 'other', 'wb') as file:
        file.write(bytes(18 * 2**20))
    buffer = make(storage='memmap', folder=str(small_disk), replay_buffer_size=300)
    buffer.push([transition(i, side=84, depth=1) for i in range(300)], 0)  # 4 MB, and 6 MB are free
    assert all(is_exact(t, side=84, depth=1) for t in buffer.sample(300, 0))
    buffer.close()


# ---------------------------------------------------------------- ding.data.Buffer


def pair_of_buffers(size=20):
    return FrameBuffer(size), DequeBuffer(size)


def plain(item):
    return item.data['id'], item.meta


def test_the_task_buffer_answers_as_the_deque_buffer_does():
    ours, theirs = pair_of_buffers()
    indices = []
    for i in range(30):
        pushed = [buffer.push(transition(i), dict(env=i % 3, name=f'p{i % 2}')) for buffer in (ours, theirs)]
        assert plain(pushed[0]) == plain(pushed[1])
        indices.append([p.index for p in pushed])
        assert ours.count() == theirs.count()
    for position in (0, 5, 19, -1, -20):
        assert plain(ours.get(position)) == plain(theirs.get(position))
    for buffer in (ours, theirs):
        with pytest.raises(IndexError):
            buffer.get(20)
        with pytest.raises(KeyError):
            buffer.get_by_index('abcdef')
        assert buffer.update('abcdef', transition(0), {}) is False
    assert [plain(item) for item in ours] == [plain(item) for item in theirs]
    mine, its = indices[25]
    assert plain(ours.get_by_index(mine)) == plain(theirs.get_by_index(its))
    assert ours.update(mine, None, dict(env=7, name='p')) and theirs.update(its, None, dict(env=7, name='p'))
    assert ours.update(indices[26][0], transition(260), None) and theirs.update(indices[26][1], transition(260), None)
    assert ours.update(indices[27][0], transition(270), {}) and theirs.update(indices[27][1], transition(270), {})
    assert [plain(item) for item in ours] == [plain(item) for item in theirs]
    assert is_exact(ours.get_by_index(indices[26][0]).data)
    some = [20, 12, 29, 12]
    fetched = [b.sample(indices=[indices[i][k] for i in some]) for k, b in enumerate((ours, theirs))]
    assert [plain(item) for item in fetched[0]] == [plain(item) for item in fetched[1]]
    for k, buffer in enumerate((ours, theirs)):
        buffer.delete([indices[i][k] for i in (12, 13, 29, 0)])
    assert [plain(item) for item in ours] == [plain(item) for item in theirs]
    ours.delete(indices[15][0])  # their own loses track of its indices in the first call
    assert [plain(item)[0] for item in ours] == [10, 11, 14, *range(16, 26), 260, 270, 28]
    for buffer in (ours, theirs):
        buffer.clear()
        assert buffer.count() == 0 and list(buffer) == []
    ours.close()


def test_the_task_buffers_samples_are_of_the_size_range_and_group_that_was_asked_for():
    ours, theirs = pair_of_buffers(30)
    for i in range(40):
        for buffer in (ours, theirs):
            buffer.push(transition(i), dict(env=i % 3))
    for buffer in (ours, theirs):
        assert len(set(plain(item)[0] for item in buffer.sample(30))) == 30
        assert len(buffer.sample(60, replace=True)) == 60
        assert {plain(item)[0] for item in buffer.sample(5, sample_range=slice(25, 30))} == set(range(35, 40))
        with pytest.raises(ValueError, match=r'There are less than 31|there are less than 31'):
            buffer.sample(31)
        assert buffer.sample(31, ignore_insufficient=True) == []
        for group in buffer.sample(3, groupby='env'):
            numbers = [plain(item)[0] for item in group]
            assert numbers == [i for i in range(10, 40) if i % 3 == numbers[0] % 3]
        assert len(buffer.sample(7, groupby='env', replace=True)) == 7
        starts = set()
        for _ in range(30):
            for group in buffer.sample(2, groupby='env', unroll_len=4):
                numbers = [plain(item)[0] for item in group]
                assert len(numbers) == 4 and set(np.diff(numbers)) == {3}
                starts.add(numbers[0])
        assert len(starts) > 6
        with pytest.raises((ValueError, AssertionError)):
            buffer.sample()
        with pytest.raises((ValueError, AssertionError)):
            buffer.sample(2, unroll_len=4)
        with pytest.raises(ValueError):
            buffer.sample(4, groupby='env')
        with pytest.raises(ValueError):
            buffer.sample(1, groupby='env', unroll_len=11)
    assert all(is_exact(item.data) for item in ours.sample(30))


@pytest.mark.parametrize('seed', range(3))
def test_priority_experience_replay_draws_the_same_from_it(seed):
    drawn = []
    for buffer in pair_of_buffers():
        buffer.use(PriorityExperienceReplay(buffer, IS_weight=True))
        np.random.seed(seed)
        for i in range(30):
            buffer.push(transition(i))
        course = []
        for _ in range(5):
            batch = buffer.sample(8)
            course.append([(t.data['id'], t.meta['priority_idx'], t.data['priority_IS'].item()) for t in batch])
            for t in batch:
                t.meta['priority'] = float(t.data['id'] % 7)
                buffer.update(index=t.index, data=None, meta=t.meta)
        drawn.append(course)
    assert drawn[0] == drawn[1] and len({i for batch in drawn[0] for i, _, _ in batch}) > 8


def test_middleware_that_looks_through_a_buffer_works_on_it():
    uses, stale, view, cloned = (FrameBuffer(20) for _ in range(4))
    uses.use(use_time_check(uses, max_use=2))
    stale.use(staleness_check(stale, max_staleness=5))
    view.use(sample_range_view(view, -5, None))
    cloned.use(clone_object())
    for i in range(20):
        for buffer in (uses, stale, view, cloned):
            buffer.push(transition(i), meta=dict(train_iter_data_collected=i))
    assert [item.meta['use_count'] for item in uses.sample(20)] == [1] * 20
    assert [item.meta['use_count'] for item in uses.sample(20)] == [2] * 20 and uses.count() == 0
    assert {plain(item)[0] for item in stale.sample(20, 5)} <= set(range(15, 20))
    assert stale.count() == 5
    assert {plain(item)[0] for item in view.sample(5)} == set(range(15, 20))
    assert all(is_exact(item.data) for item in cloned.sample(10))
    view_of = uses.view()
    uses.push(transition(3), meta={})
    assert view_of.count() == 1 and view_of._middleware == []


@pytest.mark.parametrize('unroll_len', [1, 3])
@pytest.mark.parametrize('with_priorities', [False, True])
def test_a_task_pushes_to_it_and_fetches_from_it(unroll_len, with_priorities):
    if unroll_len > 1 and with_priorities:
        pytest.skip('DI-engine fetches no sequences by priority')
    cfg = EasyDict(policy=dict(learn=dict(batch_size=6), collect=dict(unroll_len=unroll_len)))
    buffer = FrameBuffer(40)
    if with_priorities:
        buffer.use(PriorityExperienceReplay(buffer))
    seen = []

    class Trajectory(dict):
        """A transition as DI-engine's collector makes it: its env under an attribute, too."""

        env_data_id = property(lambda self: torch.tensor(self['id'] % 2))

    def collect(ctx):
        start = 12 * ctx.total_step
        ctx.trajectories = [Trajectory(transition(start + i)) for i in range(12)]

    def learn(ctx):
        assert ctx.train_data is not None and len(ctx.train_data) == 6
        for data in ctx.train_data:
            for t in data if unroll_len > 1 else [data]:
                assert is_exact(t)
                seen.append(t['id'])
        ctx.train_output = dict(priority=[1.0] * 6)

    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(collect)
        task.use(data_pusher(cfg, buffer, group_by_env=unroll_len > 1 or None))
        task.use(offpolicy_data_fetcher(cfg, buffer))
        task.use(learn)
        task.run(max_step=8)
    assert buffer.count() == 40 and len(set(seen)) > 20


def test_the_task_buffer_saves_loads_and_closes(tmp_path, same_footprint):
    buffer, other = FrameBuffer(20), FrameBuffer(20, storage='ring')
    for i in range(30):
        buffer.push(transition(i), dict(env=i % 3))
    buffer.save_data('saves/buffer.npz')
    other.load_data('saves/buffer.npz')
    assert [plain(item) for item in other] == [plain(item) for item in buffer]
    assert all(is_exact(item.data) and item.index == mine.index for item, mine in zip(other, buffer))
    before = footprint()
    for each in (buffer, other, buffer):
        each.close()
    assert not grown_since(before) and buffer.count() == 0
