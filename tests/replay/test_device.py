"""Frames on the learner's device: sent once, gathered there, refused where there is no device or no room."""

import weakref

import numpy as np
import pytest
import torch
from test_replay_buffer import ids, is_exact, make, transition
from test_replay_exactness import frames_in, same

from breakout_env.replay import options as replay_options
from breakout_env.replay.frames import device as device_frames
from breakout_env.replay.frames.device import DeviceFrames
from breakout_env.replay.options import DoesNotFit, ReplayOptions
from breakout_env.utils.memory_limits import Room


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize('prefetch', [False, True])
@pytest.mark.parametrize('one_by_one', [False, True])
def test_new_frames_go_to_the_device_in_one_copy_and_batches_need_none(monkeypatch, prefetch, one_by_one):
    sent = []
    send = DeviceFrames._sent
    monkeypatch.setattr(DeviceFrames, '_sent', lambda self, array: sent.append(array.copy()) or send(self, array))
    buffer = make(storage='device', prefetch=prefetch)
    for start in (0, 50, 100):
        transitions = [transition(i) for i in range(start, start + 50)]
        for part in [[t] for t in transitions] if one_by_one else [transitions]:
            buffer.push(part, 0)
        sent.clear()
        assert all(is_exact(t) for t in buffer.sample(16, 0))
        assert [len(array) for array in sent if array.dtype == np.uint8] == [50 * 5] and len(sent) <= 3
        for _ in range(3):
            sent.clear()
            assert all(is_exact(t) for t in buffer.sample(16, 0))
            assert [array.dtype for array in sent] == [np.int64]
    assert buffer._prefetcher is None


def test_a_batch_of_the_device_storage_reads_like_any_other(monkeypatch):
    monkeypatch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 1)  # 500 transitions, 2,500 frames: many chunks
    buffers = [make(storage='ring'), make(storage='device')]
    for buffer in buffers:
        buffer.push([transition(i) if i % 2 else dict(transition(i), extra=i) for i in range(700)], 0)
    assert len(buffers[1]._memory._store._storage._chunks) > 8
    for _ in range(5):
        one, two = [buffer.sample(64, 0) for buffer in buffers]
        assert ids(one) == ids(two) and all(same(a, b) for a, b in zip(one, two))
    same_kind = [make(storage='ring'), make(storage='device')]
    for buffer in same_kind:
        buffer.push([transition(i) for i in range(700)], 0)
    one, two = [buffer.sample(64, 0).collated() for buffer in same_kind]
    assert same(one, two) and two['obs'].is_contiguous() and two['obs'].dtype == torch.uint8


def test_a_device_that_is_full_gets_a_sentence_and_keeps_what_was_there(monkeypatch):
    monkeypatch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 64 * 100)
    buffer = make(storage='device', replay_buffer_size=80)
    buffer.push([transition(i) for i in range(15)], 0)
    before = frames_in(buffer._memory)

    def full(*args, **kwargs):
        raise torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 16.00 MiB.\nMore about it')

    monkeypatch.setattr(device_frames.torch, 'empty', full)
    with pytest.raises(MemoryError, match=r'can not grow to 0.00 GB on cpu: CUDA out of memory. Tried .* Choose a'):
        buffer.push([transition(i) for i in range(100, 140)], 0)
    monkeypatch.undo()
    assert set(before) <= set(frames_in(buffer._memory)) and all(is_exact(t) for t in buffer.sample(15, 0))


def test_pushed_in_inference_mode_it_takes_more_outside():
    buffer = make(storage='device')
    with torch.inference_mode():
        buffer.push([transition(i) for i in range(20)], 0)
        assert all(is_exact(t) for t in buffer.sample(8, 0))
    buffer.push([transition(i) for i in range(20, 40)], 0)
    assert all(is_exact(t) for t in buffer.sample(40, 0))


@pytest.mark.parametrize('goes_by', ['close', 'clear', 'last reference'])
def test_the_devices_memory_is_given_back_at_once(goes_by):
    buffer = make(storage='device')
    buffer.push([transition(i) for i in range(20)], 0)
    buffer.sample(8, 0)
    chunk = weakref.ref(buffer._memory._store._storage._chunks[0])
    assert chunk() is not None
    if goes_by == 'last reference':
        del buffer
    else:
        getattr(buffer, goes_by)()
    assert chunk() is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason='there is no CUDA GPU here')
def test_on_a_gpu_batches_are_there_and_exact():
    buffer = make(storage='device', device='cuda', replay_buffer_size=200)
    for start in range(0, 1000, 50):
        buffer.push([transition(i) for i in range(start, start + 50)], 0)
        batch = buffer.sample(32, 0)
        assert batch.collated()['obs'].device.type == batch[0]['next_obs'].device.type == 'cuda'
        on_host = [{k: v.cpu() if torch.is_tensor(v) else v for k, v in t.items()} for t in batch]
        assert all(is_exact(t) for t in on_host)
    other = make(replay_buffer_size=200)
    other.load_state_dict(buffer.state_dict())
    assert all(is_exact(t) for t in other.sample(32, 0))


def test_frames_that_can_not_fit_on_the_gpu_are_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda device: (2 * 10**9, 4 * 10**9))
    monkeypatch.setattr(replay_options, 'memory_room', lambda: Room(10**9, 4 * 10**9, "the machine's memory"))
    for device in ('cuda', 'cuda:1'):
        options = ReplayOptions(replay_buffer_size=1_000_000, storage='device', device=device)
        with pytest.raises(DoesNotFit, match='`replay_buffer_size` is 1,000,000: about 7.06 GB') as refused:
            options.check_room(7056, '')
        assert f'the GPU {device} has 2.00 GB left of 4.00 GB. Expected at most 283,446, another' in str(refused.value)
    ReplayOptions(replay_buffer_size=283_446, storage='device').check_room(7056, '')  # more than the host has
    with pytest.raises(DoesNotFit, match="1.00 GB more of the 4.00 GB that the machine's memory allows"):
        ReplayOptions(replay_buffer_size=10_000_000, storage='device').check_room(84, '')  # its rows lie on the host
    with pytest.raises(DoesNotFit, match="1.00 GB more of the 4.00 GB that the machine's memory allows"):
        ReplayOptions(replay_buffer_size=1_000_000, storage='device', device='cpu').check_room(7056, '')
