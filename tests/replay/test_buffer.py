"""The replay buffer ``frame`` as DI-engine uses it: options, what it refuses, batches, reports."""

import logging
import math
import os
from functools import partial

import numpy as np
import pytest
import torch
from ding.utils.data import default_collate
from ding.worker import create_buffer
from ding.worker.replay_buffer import AdvancedReplayBuffer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter

from breakout_env import FrameReplayBuffer, TaskFrameBuffer
from breakout_env.replay import buffer as buffer_module
from breakout_env.replay import size_check
from breakout_env.utils.memory_limits import Room
from breakout_env.utils.resources import ResourceWatch
from helpers.configs import compiled
from helpers.replay import (
    STORAGES,
    Play,
    filled,
    frames_in,
    ids,
    is_exact,
    make,
    other_keys,
    same,
    set_priorities,
    transition,
    transitions,
)

# ---------------------------------------------------------------- options


@pytest.mark.parametrize('named_in', ['create_config', 'main_config'])
def test_a_config_names_the_buffer_and_its_options(named_in):
    gone = dict(
        max_use=math.inf, max_staleness=math.inf, device='cuda', report_every_s=30.0
    )  # of merged configs of 0.1.0
    options = dict(gone, replay_buffer_size=5e1, storage='ring')
    name = dict(type='frame', import_names=['breakout_env'])
    in_main, in_create = ({**options, **name}, {}) if named_in == 'main_config' else (options, dict(replay_buffer=name))
    cfg = compiled(dict(other=dict(replay_buffer=in_main)), **in_create).policy.other.replay_buffer
    buffer = create_buffer(cfg, tb_logger=None, exp_name='exp', instance_name='agent_buffer')
    assert isinstance(buffer, FrameReplayBuffer)
    assert buffer.memory_report()['bytes'] == 0
    buffer.push(transitions(60), cur_collector_envstep=60)
    assert buffer.count() == 50 and buffer.push_count == 60
    assert all(is_exact(t) for t in buffer.sample(20, 0))
    buffer.close()


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(replay_buffer_size=0), r'`replay_buffer_size` is 0 \(int\); expected a whole number from 1'),
        (dict(storage='disk'), r"`storage` is 'disk' \(str\); expected one of 'compressed', 'ring', 'memmap'"),
        (dict(max_use=3), r'`max_use` is 3 \(int\); expected none, as it is gone'),
        (dict(stroage='ring'), r'`stroage` is unknown; did you mean `storage`\?'),
        (dict(thruput_controller=dict(push_sample_rate_limit=dict(max=2))), '`thruput_controller` is .* no limit'),
        (dict(thruput_controller=dict(sample_min_limit_ratio=2)), '`thruput_controller` is .*; expected no limit'),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_opened(options, message, same_footprint):
    with pytest.raises(ValueError, match=message):
        make(**options)


# ---------------------------------------------------------------- a size that does not fit


@pytest.mark.parametrize('interface', ['serial', 'task'])
def test_a_size_without_room_in_memory_is_refused_with_the_numbers(monkeypatch, interface, same_footprint):
    monkeypatch.setattr(size_check, 'memory_room', lambda: Room(2 * 10**9, 4 * 10**9, "the machine's memory"))
    build = (
        make
        if interface == 'serial'
        else lambda replay_buffer_size, **more: TaskFrameBuffer(replay_buffer_size, **more)
    )
    with pytest.raises(ValueError, match='`replay_buffer_size` is 1,000,000: about 7.22 GB') as refused:
        build(replay_buffer_size=1_000_000, storage='ring')
    for part in ('2.00 GB are left of 4.00 GB', "the machine's memory", "storage='compressed'"):
        assert part in str(refused.value)
    fits = int(str(refused.value).split('at most ')[1].split(', or')[0].replace(',', ''))
    build(replay_buffer_size=fits, storage='ring').close()
    build(replay_buffer_size=1_000_000).close()  # compressed


def test_large_screens_are_refused_at_the_first_one(monkeypatch):
    monkeypatch.setattr(size_check, 'memory_room', lambda: Room(10**9, 4 * 10**9, "the machine's memory"))
    buffer = make(replay_buffer_size=100_000, storage='ring')
    with pytest.raises(ValueError, match='40,160 bytes a transition'):
        buffer.push(transition(0, side=200), 0)
    assert buffer.count() == 0
    buffer.push(transition(0, side=84), 0)
    assert is_exact(buffer.sample(1, 0)[0], side=84)


def test_a_size_without_room_on_the_disk_is_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(size_check, 'disk_room', lambda folder: Room(10**9, 10**10, f'the disk of {folder}'))
    with pytest.raises(
        ValueError, match=r'about 7.06 GB, .* 1.00 GB are left of 10.00 GB \(the disk of elsewhere'
    ) as refused:
        make(replay_buffer_size=1_000_000, storage='memmap', folder='elsewhere')
    assert "Expected at most 141,723, another `folder`, or storage='compressed'" in str(refused.value)
    assert not os.path.exists('elsewhere')


# ---------------------------------------------------------------- transitions that are refused


@pytest.mark.parametrize(
    'values, error, message',
    [
        (dict(obs=torch.zeros(4, 8, 8)), ValueError, r"\['obs'\] is of dtype float32; .*obs_dtype='uint8'.*pixel_dqn"),
        (dict(next_obs=np.zeros((4, 8, 8))), ValueError, r"\['next_obs'\] is of dtype float64; .*obs_dtype='uint8'"),
        (dict(obs=torch.zeros(8, dtype=torch.uint8)), ValueError, r'\(8,\); expected stacked screens.*frame_stack=4'),
        (dict(obs=[1, 2]), TypeError, r"transition\['obs'\] is of type builtins.list"),
        (dict(next_obs=torch.zeros(4, 9, 8, dtype=torch.uint8)), ValueError, 'screens of different sizes|shape'),
        (dict(pair=(1, 2)), TypeError, r"transition\['pair'\] is of type builtins.tuple"),
        (dict(info=dict(deep=object())), TypeError, r"transition\['info'\]\['deep'\] is of type builtins.object"),
        (dict(names=np.array(['a', None])), TypeError, r"transition\['names'\] is an array of object"),
        (dict(sparse=torch.eye(3).to_sparse()), TypeError, r"\['sparse'\] is a sparse tensor of float32"),
        (dict(wave=torch.zeros(2, dtype=torch.complex64)), TypeError, r"\['wave'\] is a tensor of complex64"),
        (dict(large=2**63), TypeError, r"\['large'\] is 9223372036854775808; expected .* at most 64 bits"),
        ({7: 1}, TypeError, r'a key of a transition is 7 \(int\); expected a string'),
        (dict(priority=-1.0), ValueError, 'a priority is -1.0; expected a number from 0'),
        (dict(priority=math.nan), ValueError, 'a priority is nan'),
        (dict(priority=1e70), ValueError, r'a priority is 1e\+70; expected a number from 0 to 3.4e\+38'),
    ],
)
def test_a_transition_that_cannot_be_stored_is_refused_with_all_of_its_push(values, error, message):
    buffer = make()
    for there in ([], [transition(0), transition(1)]):
        if there:
            buffer.push(there, 0)
        before = frames_in(buffer._memory)
        with pytest.raises(error, match=message):
            buffer.push([transition(2), {**transition(3), **values}, transition(4)], 0)
        assert buffer.count() == buffer.push_count == len(there) and frames_in(buffer._memory) == before
    buffer.push(transition(5), 0)
    assert sorted(ids(buffer.sample(3, 0))) == [0, 1, 5]


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(reward=1.0), r"\['reward'\] is of type float; expected a tensor of float32 with the shape \(3,\), as in"),
        (dict(action=torch.tensor([1.0])), r"\['action'\] is a tensor of float32 .*; expected a tensor of int64"),
        (dict(extra=dict(deep=1)), r"\['extra'\]\['deep'\] is of type int; expected no such key"),
        (dict(done=None), r"\['done'\] is None; expected of type bool"),
        (transition(3, side=9), r"\['obs'\] .*\(4, 9, 9\); expected .*\(4, 8, 8\), as in .* \(env options screen_size"),
        (transition(3, depth=2), r"\['obs'\] is a tensor of uint8 with the shape \(2, 8, 8\)"),
    ],
)
def test_a_transition_of_another_structure_than_the_first_is_refused_by_its_key(changes, message):
    buffer = filled(3)
    with pytest.raises(ValueError, match=message):
        buffer.push([transition(3), {**transition(4), **changes}], 0)
    missing = {key: value for key, value in transition(3).items() if key != 'done'}
    with pytest.raises(ValueError, match=r"\['done'\] is missing; expected of type bool"):
        buffer.push(missing, 0)
    assert sorted(ids(buffer.sample(3, 0))) == [0, 1, 2]
    buffer.push(dict(reversed(transition(3).items())), 0)  # the order of keys is free
    assert buffer.count() == 4
    buffer.clear()
    buffer.push(missing, 0)
    assert buffer.count() == 1


# ---------------------------------------------------------------- batches


def test_too_few_transitions_give_none():
    buffer = make()
    assert buffer.sample(1, 0) is None
    buffer.push(transitions(10), 0)
    assert buffer.sample(11, 0) is None and buffer.sample(0, 0) == []
    assert sorted(ids(buffer.sample(10, 0))) == list(range(10))


def test_a_batch_reads_like_a_list_of_dicts():
    buffer = filled(20)
    batch = buffer.sample(8, 0)
    assert len(batch) == 8 and ids(batch) == [batch[i]['id'] for i in range(8)]
    assert batch[-1] is batch[7] and ids(batch[2:5]) == ids(batch)[2:5]
    assert all(type(t) is dict and is_exact(t) for t in batch)
    assert batch[3].get('no such key', 5) == 5 and batch[0].get('replay_unique_id') == batch[0]['id']
    assert list(reversed(batch))[0] is batch[7]
    with pytest.raises(IndexError):
        batch[8]
    batch[1]['weight'] = 0.25  # as policies write into what they sampled
    batch[1]['reward'] = torch.zeros(3)
    assert list(batch)[1]['reward'].sum() == 0
    assert [t.get('weight') for t in batch] == [None, 0.25] + 6 * [None]
    assert all(is_exact(t) for t in buffer.sample(20, 0))


def test_sampled_transitions_can_be_pushed_again():
    buffer, other = filled(20), make()
    other.push(list(buffer.sample(20, 0)), 0)
    assert all(is_exact(t) for t in other.sample(20, 0))


def test_collated_equals_what_di_engine_collates():
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
    buffer.push([transition(i, **more) for i in range(9)], 0)
    batch = buffer.sample(5, 3)
    assert same(batch.collated(), default_collate(list(batch))) and batch.collated()['whole'].tolist() == [2**40] * 5
    plain = make()
    plain.push([{**transition(i), 'half': more['half'], 'nested': dict(x=more['mask'])} for i in range(9)], 0)
    batch = plain.sample(9, 3)
    assert same(batch.collated(), default_collate(list(batch)))
    assert batch.collated()['obs'].data_ptr() == batch[0]['obs'].data_ptr()  # not a copy


def test_weights_and_priorities_are_those_of_di_engines_advanced_buffer():
    ours, cfg = make(anneal_step=2), AdvancedReplayBuffer.default_config()
    cfg.replay_buffer_size, cfg.anneal_step = 500, 2
    theirs = AdvancedReplayBuffer(cfg, SummaryWriter('tb'), 'exp', 'advanced')
    for number in range(40):
        ours.push(transition(number), 0)
        theirs.push(transition(number), 0)
    first = ours.sample(40, 0)
    priorities = [0.1 + (number * 7 % 11) for number in ids(first)]
    for step in range(3):
        set_priorities(ours, first, priorities)
        set_priorities(theirs, [theirs._data[number] for number in ids(first)], priorities)
        batch = ours.sample(16, step)
        for mine, its in zip(batch, theirs._sample_with_indices(ids(batch), step)):
            assert mine['IS'] == pytest.approx(its['IS'], rel=1e-5)
            assert mine['priority'] == pytest.approx(its['priority'], rel=1e-5)
        assert ours._sampler.beta == pytest.approx(theirs.beta)
        first, priorities = batch, [number % 3 + step + 0.5 for number in ids(batch)]
    assert ours._sampler.beta == 1  # it rises with each batch
    theirs.close()


# ---------------------------------------------------------------- reports


@pytest.mark.parametrize('storage', STORAGES)
def test_the_memory_report_adds_up(storage):
    buffer = make(storage=storage, replay_buffer_size=1000)
    empty = buffer.memory_report()
    assert empty['transitions'] == empty['distinct_frames'] == 0
    play = Play(4, 1, np.random.default_rng(0))
    buffer.push([{**play.transition(), **other_keys(i)} for i in range(600)], 0)
    report = buffer.memory_report()
    assert report['transitions'] == 600 and report['distinct_frames'] == len(frames_in(buffer._memory)) > 10
    assert (report['file_bytes'] > 0) == (storage == 'memmap')
    assert 0 < report['bytes'] < report['resident_bytes']
    assert report['bytes_per_transition'] == (report['bytes'] + report['file_bytes']) / 600
    buffer.clear()
    after = buffer.memory_report()
    assert after['transitions'] == 0 and after['bytes'] == empty['bytes'] == 0


def test_the_memorys_curve_is_in_tensorboard(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(buffer_module.time, 'monotonic', lambda: now_s[0])
    writer = SummaryWriter('tb')
    buffer = make(writer)
    for step in range(1, 6):
        now_s[0] += 20
        buffer.push(transitions(10), cur_collector_envstep=step * 100)
    expected = buffer.memory_report()
    buffer.close()
    writer.close()
    accumulator = EventAccumulator('tb').Reload()
    for name, value in expected.items():
        events = accumulator.Scalars(f'agent_buffer_memory/{name}')
        assert [event.step for event in events] == [100, 300, 500]
        if name not in ('resident_bytes', 'free_bytes'):  # these change at any time
            assert events[-1].value == pytest.approx(value, rel=1e-6)
    assert [event.value for event in accumulator.Scalars('agent_buffer_memory/transitions')] == [10, 30, 50]


def test_a_warning_comes_before_memory_runs_out(monkeypatch, caplog):
    room = Room(10**8, 4 * 10**9, 'its control group')
    monkeypatch.setattr(buffer_module, 'ResourceWatch', partial(ResourceWatch, room=lambda: room))
    buffer = make()
    with caplog.at_level(logging.WARNING):
        for i in range(5):
            buffer.push(transition(i), 0)
    (warning,) = [m for m in caplog.messages if 'memory is running out' in m]
    assert '0.10 GB left of the 4.00 GB that its control group allows' in warning
