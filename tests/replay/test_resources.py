"""What the replay buffer opens it closes, also when the disk is full."""

import os

import numpy as np
import pytest

from breakout_env.replay import size_check
from breakout_env.replay.rows import Rows
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
)
from helpers.resources import resident_bytes


@pytest.mark.parametrize('goes_by, prefetch', [('close', False), ('load', False), ('last reference', True)])
@pytest.mark.parametrize('storage', STORAGES)
def test_memory_descriptors_and_threads_are_released(storage, prefetch, goes_by, same_footprint):
    noise = np.random.default_rng(0).integers(256, size=(2500, 1, 84, 84), dtype=np.uint8)
    small = filled(3).state_dict()

    def cycle():
        buffer = make(storage=storage, prefetch=prefetch, replay_buffer_size=3000)
        before = resident_bytes()
        buffer.push([dict(obs=obs, id=i) for i, obs in enumerate(noise)], 0)
        buffer.sample(16, 0)
        if goes_by == 'close':
            buffer.close()
            assert buffer.count() == 0
            buffer.close()
            with pytest.raises(RuntimeError, match='the replay buffer is closed'):
                buffer.push(dict(obs=noise[0], id=0), 0)
        elif goes_by == 'load':
            buffer.load_state_dict(small)
        else:
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
        grown, report = resident_bytes() - before, buffer.memory_report()
        buffer.clear()
        assert buffer.memory_report()['bytes'] == 0
        return grown, report

    grow(300)  # allocators settle
    grown, report = grow(5000)
    assert report['transitions'] == report['distinct_frames'] == 5000 and report['bytes'] > 5000 * 7056
    assert report['bytes_per_transition'] == report['bytes'] / 5000
    assert 0.8 * report['bytes'] < grown < 1.3 * report['bytes'], (grown, report)


@pytest.mark.parametrize('eviction', ['fifo', 'random'])
def test_memory_does_not_grow_with_what_was_evicted(eviction, everything_happens_often):
    """Segments of several dictionaries are emptied as their frames go."""
    buffer, rng = make(replay_buffer_size=100, eviction=eviction), np.random.default_rng(0)
    sizes = []
    for _ in range(60):
        buffer.push([dict(obs=screen(rng, 10**6)[None], id=i) for i in range(50)], 0)
        sizes.append(buffer.memory_report()['bytes'])
    # an eighth of it may be dead, two segments, and one for each dictionary is being filled
    assert max(sizes[5:]) < 1.2 * min(sizes[5:]) + 24 * 4096


def test_a_file_of_frames_has_no_name_so_that_a_kill_leaves_nothing(tmp_path):
    for options, folder in ((dict(folder='frames'), tmp_path / 'frames'), ({}, tmp_path / 'exp' / 'replay')):
        buffer = filled(50, storage='memmap', **options)
        assert os.listdir(folder) == [] and open_files_in(folder) and buffer.memory_report()['file_bytes'] >= 250 * 64
        buffer.close()
        assert open_files_in(folder) == []


def test_a_buffer_that_was_interrupted_in_a_push_can_be_closed(monkeypatch, same_footprint):
    """As by Ctrl-C in a notebook."""

    def interrupted(*args):
        raise KeyboardInterrupt

    buffer = filled(20, prefetch=True)
    buffer.sample(8, 0)
    monkeypatch.setattr(Rows, 'write', interrupted)
    with pytest.raises(KeyboardInterrupt):
        buffer.push(transition(20), 0)
    buffer.close()
    assert buffer.count() == 0


def test_a_full_disk_is_reported_and_the_buffer_continues(small_disk, monkeypatch):
    # it was free when training began
    monkeypatch.setattr(size_check, 'disk_room', lambda folder: Room(10**12, 10**12, folder))
    buffer = make(storage='memmap', folder=str(small_disk), replay_buffer_size=5000)
    set_priorities(buffer, [], [])
    with pytest.raises(OSError, match='cannot grow to .* No space left on device. Make room there') as full:
        for i in range(5000):
            buffer.push(transition(i, side=84, depth=1), 0)
    assert str(small_disk) in str(full.value)
    assert buffer.count() * 2 * 7056 > 12 * 2**20  # two frames a transition
    pushed = buffer.push_count
    with pytest.raises(OSError, match='No space left'):
        buffer.push([transition(pushed - 1, side=84, depth=1), transition(6000, side=84, depth=1)], 0)
    assert buffer.push_count == pushed  # not even the one whose screens are there
    assert all(is_exact(t, side=84, depth=1) for t in buffer.sample(50, 0))
    assert (buffer.state_dict()['priorities'] > 0).all() and references_add_up(buffer.memory)
    buffer.push(transition(buffer.push_count - 1, side=84, depth=1), 0)  # its screens are there
    assert is_exact(stored(buffer.memory)[-1], side=84, depth=1) and references_add_up(buffer.memory)
    buffer.close()
