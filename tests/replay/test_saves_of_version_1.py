"""Saves of version 1, written by commit c030279, load: of each storage, of slices, and of task pipelines."""

from pathlib import Path

import numpy as np
import pytest
import torch

from breakout_env import TaskFrameBuffer
from helpers.replay import ids, is_exact, make, stored
from helpers.torchrl_buffers import transition as step_of

DATA = Path(__file__).parent / 'data'


def kinds(number: int) -> dict:
    """What the save of the storage ``compressed`` has besides, of every kind of value."""
    return dict(
        name=f'policy {number % 2}',
        pair=dict(half=torch.tensor(number / 7, dtype=torch.bfloat16)),
        nothing=None,
        table=np.full((2, 3), number, '>i2'),
        scalar=np.float32(number / 9),
        empty={},
    )


@pytest.mark.parametrize('storage', ['compressed', 'ring', 'memmap'])
def test_a_save_of_the_storage_compressed_loads_into_any(storage):
    """Pushed 24 after 24 others were removed, and 20 fit."""
    buffer = make(storage=storage)
    buffer.load_data(str(DATA / 'v1_compressed.npz'))
    assert (buffer.count(), buffer.push_count, buffer._sampler.beta) == (20, 48, pytest.approx(0.400012))
    assert all(is_exact(t, **kinds(t['id'])) for t in stored(buffer._memory))
    assert ids(stored(buffer._memory)) == list(range(4, 24))
    batch = [t for _ in range(30) for t in buffer.sample(20)]
    priorities = {t['id']: t['priority'] for t in batch}
    assert priorities[13] == pytest.approx(13.5, rel=1e-4) and priorities[5] == pytest.approx(1)
    assert {t['replay_unique_id'] - t['id'] for t in batch} == {24}


def test_a_save_of_an_uncompressed_storage_loads():
    """Files, memory and a GPU's memory were saved alike. Two transitions had been removed."""
    buffer = make(replay_buffer_size=10)
    buffer.load_data(str(DATA / 'v1_raw.npz'))
    assert ids(stored(buffer._memory)) == list(range(14, 24)) and all(is_exact(t) for t in buffer.sample(10))


def test_a_save_of_slices_loads_with_the_hidden_states_that_it_kept():
    buffer = make(slice_len=10, slice_every=4)
    buffer.load_data(str(DATA / 'v1_slices.npz'))
    slices = {(int(s['episode_id'][0]), int(s['step_id'][0])): s for _ in range(30) for s in buffer.sample(16)}
    assert slices.keys() == {(0, 0), (0, 4), (0, 8), (0, 12), (0, 16), (1, 0)}
    for (episode, step), found in slices.items():
        assert torch.equal(found['prev_state'][0]['h'], step_of(episode, step)['prev_state']['h'])
        assert found['prev_state'][1] is None and torch.equal(found['obs'][1], step_of(episode, step + 1)['obs'])


def test_a_save_of_a_task_buffer_loads_with_its_meta_information():
    buffer = TaskFrameBuffer(20)
    buffer.load_data(str(DATA / 'v1_task.npz'))
    numbers = [4, 5, 6, 8, 9, 10, 11, 12, 13]
    assert [(item.index, item.data['id']) for item in buffer] == [(f'{number:x}', number) for number in numbers]
    assert [item.meta for item in buffer] == [dict(env=i % 3, name=f'p{i % 2}') for i in numbers]
    assert all(is_exact(item.data) for item in buffer)
