"""What the replay buffer opens it closes, also when the disk is full."""

import os

import numpy as np
import pytest

from breakout_env.replay import size_check
from breakout_env.utils.memory_limits import Room
from helpers.replay import (
    STORAGES,
    filled,
    is_exact,
    make,
    open_files_in,
    references_add_up,
    screen,
    set_priorities,
    stored,
    transition,
    transitions,
)
from helpers.resources import footprint, grown_since, resident_bytes


@pytest.mark.parametrize('goes_by, prefetch', [('close', False), ('last reference', True)])
@pytest.mark.parametrize('storage', STORAGES)
def test_memory_descriptors_and_threads_are_released(storage, prefetch, goes_by, same_footprint):
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


@pytest.mark.parametrize('storage', ['compressed', 'ring'])
def test_the_memory_report_is_what_the_process_grows_by(storage):
    def grow(count):
        buffer = make(storage=storage, replay_buffer_size=6000)
        before = resident_bytes()
        rng = np.random.default_rng(0)
        for _ in range(count // 100):
            noise = rng.integers(256, size=(100, 1, 84, 84), dtype=np.uint8)
            buffer.push([dict(obs=obs, id=i) for i, obs in enumerate(noise)], 0)
        del noise
        grown, reported = resident_bytes() - before, buffer.memory_report()['bytes']
        buffer.close()
        return grown, reported

    grow(300)  # allocators settle
    grown, reported = grow(5000)
    assert reported > 5000 * 7056
    assert 0.8 * reported < grown < 1.3 * reported, (grown, reported)


@pytest.mark.parametrize('eviction', ['fifo', 'random'])
def test_memory_does_not_grow_with_what_was_evicted(eviction, everything_happens_often):
    """Segments of several dictionaries are emptied as their frames go."""
    buffer, rng = make(replay_buffer_size=100, eviction=eviction), np.random.default_rng(0)
    for number in range(60):
        buffer.push([dict(obs=screen(rng, 10**6)[None], id=i) for i in range(50)], 0)
        storage = buffer._memory.frame_store.backend
        # an eighth of it may be dead, two segments, and one for each dictionary is being filled; and the addresses
        assert number < 5 or storage.resident_bytes < 1.2 * storage._live_bytes + 24 * 4096


@pytest.mark.parametrize('by', ['close', 'clear', 'load'])
@pytest.mark.parametrize('storage', ['compressed', 'ring', 'memmap'])
def test_memory_is_freed_at_once_though_a_snapshot_refers_to_it(storage, by):
    before = footprint()
    folder = dict(folder='.') if storage == 'memmap' else {}
    buffer, another = filled(storage=storage, **folder), filled(start=100)
    snapshot, frames = buffer.state_dict(), buffer._memory.frame_store
    buffer.load_state_dict(another.state_dict()) if by == 'load' else getattr(buffer, by)()
    with pytest.raises(ValueError, match='released|closed'):
        frames.gather(np.array([0]))
    loaded_file = 2 if storage == 'memmap' and by == 'load' else 0  # and its memory map's descriptor
    assert snapshot and grown_since(before).get('descriptors', 0) == loaded_file
    buffer.close()


def test_a_file_of_frames_has_no_name_so_that_a_kill_leaves_nothing(tmp_path):
    for options, folder in ((dict(folder='frames'), tmp_path / 'frames'), ({}, tmp_path / 'exp' / 'replay')):
        buffer = filled(50, storage='memmap', **options)
        assert os.listdir(folder) == [] and open_files_in(folder)
        buffer.close()
        assert open_files_in(folder) == []


def test_a_full_disk_is_reported_and_the_buffer_continues(small_disk, monkeypatch):
    monkeypatch.setattr(
        size_check, 'disk_room', lambda folder: Room(10**12, 10**12, folder)
    )  # it was free when training began
    buffer = make(storage='memmap', folder=str(small_disk), replay_buffer_size=5000)
    set_priorities(buffer, [], [])
    with pytest.raises(OSError, match='cannot grow to .* No space left on device. Make room there') as full:
        for i in range(5000):
            buffer.push(transition(i, side=84, depth=1), 0)
    assert str(small_disk) in str(full.value)
    assert buffer.count() * 2 * 7056 > 12 * 2**20  # two frames a transition
    for _ in range(3):
        with pytest.raises(OSError, match='No space left'):
            buffer.push(transitions(6000, 6003, side=84, depth=1), 0)
    assert all(is_exact(t, side=84, depth=1) for t in buffer.sample(50, 0))
    assert (buffer._sampler.state()[1] > 0).all()  # the last ones before the error, too
    buffer.push(transition(buffer.push_count - 1, side=84, depth=1), 0)  # its screens are there
    assert is_exact(stored(buffer._memory)[-1], side=84, depth=1)
    assert references_add_up(buffer._memory)
    buffer.close()
