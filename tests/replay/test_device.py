"""Frames on the learner's device: sent once, gathered there, refused where there is no size_check."""

import weakref

import numpy as np
import pytest
import torch

from breakout_env.replay.frames import device as device_frames
from breakout_env.replay.frames.device import DeviceFrames
from helpers.replay import filled, frames_in, ids, is_exact, make, same, transition, transitions


@pytest.mark.parametrize('prefetch', [False, True])
@pytest.mark.parametrize('one_by_one', [False, True])
def test_new_frames_are_sent_in_one_copy_and_batches_need_none(monkeypatch, prefetch, one_by_one):
    monkeypatch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 2**24)
    sent, send = [], DeviceFrames._sent
    monkeypatch.setattr(DeviceFrames, '_sent', lambda self, array: sent.append(array.copy()) or send(self, array))
    buffer = make(storage='device', prefetch=prefetch)
    for start in (0, 50, 100):
        pushed = transitions(start, start + 50)
        for part in [[t] for t in pushed] if one_by_one else [pushed]:
            buffer.push(part, 0)
        sent.clear()
        assert all(is_exact(t) for t in buffer.sample(16, 0))
        assert [len(array) for array in sent if array.dtype == np.uint8] == [50 * 5] and len(sent) <= 3
        for _ in range(3):
            sent.clear()
            assert all(is_exact(t) for t in buffer.sample(16, 0))
            assert [array.dtype for array in sent] == [np.int64]
    assert buffer._prefetcher is None


@pytest.mark.parametrize('structures', [1, 2])
def test_a_batch_of_storage_device_reads_like_any_other(structures):
    buffers = [make(storage='ring'), make(storage='device')]
    for buffer in buffers:  # 500 transitions, 2,500 frames: many chunks
        buffer.push([transition(i, **(dict(extra=i) if i % structures else {})) for i in range(700)], 0)
    assert len(buffers[1]._memory._store.storage._chunks) > 8
    for _ in range(5):
        one, two = [buffer.sample(64, 0) for buffer in buffers]
        assert ids(one) == ids(two) and all(same(a, b) for a, b in zip(one, two))
    if structures == 1:
        one, two = [buffer.sample(64, 0).collated() for buffer in buffers]
        assert same(one, two) and two['obs'].is_contiguous() and two['obs'].dtype == torch.uint8


def test_a_full_device_is_reported_and_its_frames_stay(monkeypatch):
    monkeypatch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 64 * 100)
    buffer = filled(15, storage='device', replay_buffer_size=80)
    before = frames_in(buffer._memory)

    def full(*args, **kwargs):
        raise torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 16.00 MiB.\nMore about it')

    with monkeypatch.context() as patch:
        patch.setattr(device_frames.torch, 'empty', full)
        with pytest.raises(MemoryError, match=r'cannot grow to 0.00 GB on cpu: CUDA out of memory. Tried .* Choose a'):
            buffer.push(transitions(100, 140), 0)
    assert set(before) <= set(frames_in(buffer._memory)) and all(is_exact(t) for t in buffer.sample(15, 0))


def test_a_buffer_filled_in_inference_mode_takes_more_outside():
    buffer = make(storage='device')
    with torch.inference_mode():
        buffer.push(transitions(20), 0)
        assert all(is_exact(t) for t in buffer.sample(8, 0))
    buffer.push(transitions(20, 40), 0)
    assert all(is_exact(t) for t in buffer.sample(40, 0))


@pytest.mark.parametrize('goes_by', ['close', 'clear', 'last reference'])
def test_the_devices_memory_is_released_at_once(goes_by):
    buffer = filled(20, storage='device')
    buffer.sample(8, 0)
    chunk = weakref.ref(buffer._memory._store.storage._chunks[0])
    assert chunk() is not None
    if goes_by == 'last reference':
        del buffer
    else:
        getattr(buffer, goes_by)()
    assert chunk() is None
