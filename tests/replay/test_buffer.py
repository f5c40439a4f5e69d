"""The replay buffer ``frame`` as DI-engine uses it: options, what it refuses, batches, reports."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from ding.utils.data import default_collate
from ding.worker import create_buffer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter

from breakout_env import FrameReplayBuffer
from breakout_env.replay import buffer as buffer_module
from breakout_env.replay import size_check, torchrl
from breakout_env.utils import run_registry
from breakout_env.utils.memory_limits import Room
from helpers.configs import compiled
from helpers.replay import filled, frames_in, ids, is_exact, make, open_files_in, same, transition, transitions


@pytest.mark.parametrize('named_in', ['create_config', 'main_config'])
def test_a_config_names_the_buffer_and_its_options(named_in):
    options = dict(replay_buffer_size=5e1, storage='ring')
    name = dict(type='frame', import_names=['breakout_env'])
    in_main, in_create = ({**options, **name}, {}) if named_in == 'main_config' else (options, dict(replay_buffer=name))
    cfg = compiled(dict(other=dict(replay_buffer=in_main)), **in_create).policy.other.replay_buffer
    buffer = create_buffer(cfg, tb_logger=None, exp_name='exp', instance_name='agent_buffer')
    assert isinstance(buffer, FrameReplayBuffer) and buffer.memory_report()['bytes'] == 0
    buffer.push(transitions(60), cur_collector_envstep=60)
    assert buffer.count() == 50 and buffer.push_count == 60
    batch = buffer.sample(20, 0)
    assert all(is_exact(t) for t in batch) and len(batch + batch) == 40
    assert run_registry.look_up('exp', 'buffer') is buffer, 'the hook `resume` saves it, whatever its name'
    buffer.close()


def test_a_training_on_the_cpu_leaves_a_gpu_alone(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'is_initialized', lambda: False)  # pinning memory would do so
    buffer = filled(60)
    assert not buffer.sample(20, 0).collated()['obs'].is_pinned()
    buffer.close()


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(max_use=3), r'`max_use` is 3 \(int\); expected no limit, as it has no effect'),
        (dict(thruput_controller=dict(push_sample_rate_limit=dict(max=2))), '`thruput_controller` is .* no limit'),
        (dict(slice_len=8), '`slice_len` is unknown'),
        (dict(type='torchrl', sampler='slice'), "`slice_len` is None with sampler='slice'; expected the number of"),
        (dict(type='torchrl', alpha=0.5), "`alpha` is 0.5 .*; expected 0.6 where sampler='uniform'; or sampler='prio"),
    ],
)
def test_options_without_effect_or_in_contradiction_are_named(options, message, same_footprint):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize(
    'options, place, message',
    [
        (dict(storage='ring'), (size_check, 'memory_room'), "7.22 GB, .*, or storage='compressed'"),
        (dict(storage='memmap'), (size_check, 'disk_room'), "7.06 GB, .*, another `folder`, or storage='compressed'"),
        (dict(type='torchrl'), (torchrl, 'memory_room'), "0.54 GB, .*, or storage='memmap', which keeps them in files"),
        (dict(type='torchrl', storage='memmap'), (torchrl, 'disk_room'), '0.54 GB, .*, or another `folder`'),
    ],
)
def test_a_size_without_room_is_refused_and_one_that_fits_is_not(options, place, message, monkeypatch):
    monkeypatch.setattr(*place, lambda *_: Room(10**7, 10**8, 'the place'))
    with pytest.raises(ValueError, match=f'`replay_buffer_size` is 1,000,000: about {message}') as refused:
        make(replay_buffer_size=1_000_000, **options).push([transition(0)], 0)
    assert '0.01 GB are left of 0.10 GB (the place). Expected at most ' in str(refused.value)
    assert open_files_in(Path.cwd()) == []
    fits = int(str(refused.value).split('at most ')[1].split(', ')[0].replace(',', ''))
    buffer = make(replay_buffer_size=fits, **options)
    buffer.push(transitions(3), 0)
    report = buffer.memory_report()
    assert report['transitions'] == 3 and 0 < report['bytes'] + report['file_bytes'] <= 10**7
    buffer.close()


def test_large_screens_are_refused_at_the_first_one(monkeypatch):
    monkeypatch.setattr(size_check, 'memory_room', lambda: Room(10**9, 4 * 10**9, "the machine's memory"))
    buffer = make(replay_buffer_size=100_000, storage='ring')
    with pytest.raises(ValueError, match='40,160 bytes a transition'):
        buffer.push(transition(0, side=200), 0)
    assert buffer.count() == 0
    buffer.push(transition(0, side=84), 0)
    assert is_exact(buffer.sample(1, 0)[0], side=84)


@pytest.mark.parametrize(
    'values, error, message',
    [
        (dict(obs=torch.zeros(4, 8, 8)), ValueError, r"\['obs'\] is a tensor of float32 .*obs_dtype"),
        (dict(next_obs=torch.zeros(4, 9, 8, dtype=torch.uint8)), ValueError, 'screens of different sizes|shape'),
        (dict(pair=(1, 2)), TypeError, r"transition\['pair'\] is of type builtins.tuple"),
        (dict(info=dict(deep=object())), TypeError, r"transition\['info'\]\['deep'\] is of type builtins.object"),
        (dict(names=np.array(['a', None])), TypeError, r"\['names'\] is an array of object; expected numbers"),
        (dict(nothing=None), TypeError, r"transition\['nothing'\] is of type .*NoneType; .* takes tensors, arrays"),
        (dict(info={}), TypeError, r"transition\['info'\] is an empty dict"),
        (dict(number=2**63), TypeError, r"transition\['number'\] is 9\d+; expected a whole number of at most 64 bits"),
        (dict(priority=math.nan), ValueError, 'a priority is nan'),
        (dict(priority=1e70), ValueError, r'a priority is 1e\+70; expected a number from 0 to 3.4e\+38'),
    ],
)
def test_a_push_with_a_transition_that_cannot_be_stored_is_refused(values, error, message):
    buffer = make()
    for there in ([], [transition(0), transition(1)]):
        if there:
            buffer.push(there, 0)
        before = frames_in(buffer.memory)
        with pytest.raises(error, match=message):
            buffer.push([transition(2), {**transition(3), **values}, transition(4)], 0)
        assert buffer.count() == buffer.push_count == len(there) and frames_in(buffer.memory) == before
    buffer.push(transition(5), 0)
    assert sorted(ids(buffer.sample(3, 0))) == [0, 1, 5]


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(reward=1.0), r"\['reward'\] is of type float; expected a tensor of float32 with the shape \(3,\), as in"),
        (dict(action=torch.tensor([1.0])), r"\['action'\] is a tensor of float32 .*; expected a tensor of int64"),
        (dict(extra=dict(deep=1)), r"\['extra'\]\['deep'\] is of type int; expected no such key"),
        (transition(3, side=9), r"\['obs'\] .*\(4, 9, 9\); expected .*\(4, 8, 8\), as in .* \(env options screen_size"),
    ],
)
def test_a_transition_of_another_structure_is_refused_by_its_key(changes, message):
    buffer = filled(3)
    with pytest.raises(ValueError, match=message):
        buffer.push([transition(3), {**transition(4), **changes}], 0)
    missing = {key: value for key, value in transition(3).items() if key != 'done'}
    with pytest.raises(ValueError, match=r"\['done'\] is missing; expected of type bool"):
        buffer.push(missing, 0)
    assert sorted(ids(buffer.sample(3, 0))) == [0, 1, 2]
    buffer.push(dict(reversed(transition(3).items())), 0)  # the order of keys is free
    assert buffer.count() == 4


def test_a_batch_reads_like_a_list_of_dicts():
    buffer, other = filled(20), make()
    assert buffer.sample(21, 0) is other.sample(1, 0) is None and buffer.sample(0, 0) == []  # there are too few
    batch = buffer.sample(8, 0)
    assert len(batch) == 8 and ids(batch) == [batch[i]['id'] for i in range(8)]
    assert batch[-1] is batch[7] and ids(batch[2:5]) == ids(batch)[2:5]
    assert ids([{'id': 99}] + batch) == [99, *ids(batch)] and ids(batch + [{'id': 99}]) == [*ids(batch), 99]
    assert all(type(t) is dict and is_exact(t) for t in batch) and batch[0]['replay_unique_id'] == batch[0]['id']
    with pytest.raises(IndexError):
        batch[8]
    batch[1]['weight'] = 0.25  # as policies write into what they sampled
    batch[1]['reward'] = torch.zeros(3)
    assert list(batch)[1]['reward'].sum() == 0 and [t.get('weight') for t in batch] == [None, 0.25] + 6 * [None]
    other.push(list(buffer.sample(20, 0)), 0)  # sampled transitions can be pushed again
    assert sorted(ids(other.sample(20, 0))) == list(range(20)) and all(is_exact(t) for t in other.sample(20, 0))


def test_collated_equals_what_di_engine_collates():
    more = dict(
        tensor=torch.tensor([1.5]),
        half=torch.tensor(2.0, dtype=torch.bfloat16),
        mask=torch.tensor([True]),
        array=np.arange(3, dtype=np.int16),
        scalar=np.float64(0.1),
        decimal=0.1,
        whole=2**40,
        truth=True,
        nested=dict(inner=dict(x=1, y=torch.tensor([3]))),
    )
    buffer = make()
    buffer.push([transition(i, **more) for i in range(9)], 0)
    batch = buffer.sample(5, 3)
    assert same(batch.collated(), default_collate(list(batch))) and batch.collated()['whole'].tolist() == [2**40] * 5
    assert batch.collated()['obs'].data_ptr() == batch[0]['obs'].data_ptr()  # not a copy


def test_the_memorys_curve_is_in_tensorboard(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(buffer_module.time, 'monotonic', lambda: now_s[0])
    writer = SummaryWriter('tb')
    buffer = make(writer)
    for step in range(1, 6):
        now_s[0] += 20
        buffer.push(transitions(10), cur_collector_envstep=step * 100)
    writer.close()
    accumulator = EventAccumulator('tb').Reload()
    for name in buffer.memory_report():
        assert [event.step for event in accumulator.Scalars(f'agent_buffer_memory/{name}')] == [100, 300, 500]
    assert [event.value for event in accumulator.Scalars('agent_buffer_memory/transitions')] == [10, 30, 50]
