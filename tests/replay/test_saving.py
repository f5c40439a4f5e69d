"""Saves of the replay buffer: complete or not at all, and of the moment they began."""

import errno
import logging
import os
import sys
import threading
import traceback

import pytest

from breakout_env.replay import serial_base
from helpers.processes import ROOT, run
from helpers.replay import (
    STORAGES,
    filled,
    frames_in,
    ids,
    is_exact,
    make,
    references_add_up,
    same,
    set_priorities,
    transitions,
)


def used(buffer):
    """A buffer with a past: priorities, a beta that has risen."""
    for _ in range(3):
        batch = buffer.sample(8, 0)
        set_priorities(buffer, batch, [t['id'] + 0.5 for t in batch])
    return buffer


def loaded(name='buffer.npz', **options):
    buffer = make(**options)
    buffer.load_data(name)
    return buffer


@pytest.mark.parametrize('storage, to', [('compressed', 'ring'), ('ring', 'memmap'), ('memmap', 'compressed')])
@pytest.mark.parametrize('by', ['file', 'state dict'])
def test_a_loaded_buffer_equals_the_saved_one_and_continues_alike(storage, by, to):
    buffer, other = used(filled(60, storage=storage)), filled(30, start=500, storage=to)
    before = buffer.state_dict()
    if by == 'file':
        buffer.save_data('saves/buffer.npz')
        other.load_data('saves/buffer.npz')
        assert os.listdir('saves') == ['buffer.npz']
    else:
        state = buffer.state_dict()
        other.load_state_dict(state)
    assert same(buffer.state_dict(), before) and same(other.state_dict(), before)
    for step in range(5):
        one, two = buffer.sample(16, step), other.sample(16, step)
        assert ids(one) == ids(two) and [t['IS'] for t in one] == [t['IS'] for t in two]
        for each in (buffer, other):
            each.push(transitions(1000 * step, 1000 * step + 20), 0)
    assert frames_in(other.memory) == frames_in(buffer.memory)
    if by == 'state dict':  # it does not change with the buffers
        other.load_state_dict(state)
        assert same(other.state_dict(), before)


@pytest.fixture
def may_write(monkeypatch):
    """Saves in the background write nothing before this event."""
    write, event = serial_base.write_arrays, threading.Event()

    def gated_write(path, arrays):
        def gated():
            for name, array in arrays:
                assert event.wait(20)
                yield name, array

        write(path, gated())

    monkeypatch.setattr(serial_base, 'write_arrays', gated_write)
    return event


@pytest.mark.parametrize('eviction', ['fifo', 'random'])
@pytest.mark.parametrize('storage', STORAGES)
def test_a_background_save_is_of_the_moment_it_began(storage, eviction, may_write):
    buffer = used(filled(300, replay_buffer_size=300, storage=storage, eviction=eviction))
    before, finished = buffer.state_dict(), []
    assert buffer.start_saving('buffer.npz', lambda: finished.append(os.path.exists('buffer.npz')))
    assert not buffer.start_saving('buffer.npz', lambda: None)  # one at a time
    for start in range(1000, 2000, 10):  # evicts everything that was there when the save began
        buffer.push(transitions(start, start + 10), 0)
    may_write.set()
    while not finished:
        buffer.push(transitions(2000, 2005), 0)
        assert all(is_exact(t) for t in buffer.sample(8, 0))
    assert buffer.wait_for_saving() is None and finished == [True]
    assert same(loaded(replay_buffer_size=300, eviction=eviction).state_dict(), before)
    assert references_add_up(buffer.memory)


@pytest.mark.parametrize('then', ['clear', 'load', 'close'])
def test_a_background_save_is_complete_though_the_buffer_is_emptied(then, may_write):
    buffer, another = filled(300), filled(20, start=900)
    before, state = buffer.state_dict(), another.state_dict()
    assert buffer.start_saving('buffer.npz', lambda: None)
    threading.Timer(0.1, may_write.set).start()
    buffer.load_state_dict(state) if then == 'load' else getattr(buffer, then)()
    assert buffer.wait_for_saving() is None
    if then != 'close':
        buffer.push(transitions(50), 0)
        assert references_add_up(buffer.memory) and all(is_exact(t) for t in buffer.sample(50, 0))
    assert same(loaded().state_dict(), before)


def test_a_buffer_may_end_in_the_thread_of_its_save(same_footprint):
    """DI-engine's learner and its hooks refer to each other, so it may go anywhere."""
    references, may_go, gone = [filled(50)], threading.Event(), threading.Event()
    before = references[0].state_dict()
    assert references[0].start_saving('buffer.npz', lambda: (may_go.wait(20), references.clear(), gone.set()))
    may_go.set()  # now the list has the last one
    assert gone.wait(20) and same(loaded().state_dict(), before)


FORKED = """
import os, sys
from helpers.replay import filled
buffers = [filled(50, storage=storage, prefetch=True) for storage in ('compressed', 'memmap')]
for buffer in buffers:
    buffer.sample(8)
    buffer.save_data('buffer.npz')
for closes in (False, True):
    if os.fork() == 0:
        for buffer in buffers:
            buffer.clear()
            buffer.push(list(filled(10).sample(10)))
            assert not buffer.start_saving('buffer.npz', print)
            if closes:
                buffer.close()
        sys.exit()
    assert os.wait()[1] == 0
other = filled(1)
other.load_data('buffer.npz')
print(other.count(), *(len(buffer.sample(50)) for buffer in buffers), sorted(os.listdir('.')))
"""


def test_a_forked_child_that_ends_saves_closes_and_deletes_nothing(tmp_path):
    said = run([sys.executable, '-c', FORKED], tmp_path, PYTHONPATH=str(ROOT / 'tests'))
    assert "50 50 50 ['buffer.npz', 'exp']" in said


def test_a_full_disk_leaves_the_previous_save_and_training_continues(small_disk, caplog):
    path, hole = str(small_disk / 'buffer.npz'), small_disk / 'other'
    buffer = filled(50)
    buffer.save_data(path)
    before = buffer.state_dict()
    with pytest.raises(OSError), open(hole, 'wb') as file:
        while True:
            file.write(bytes(4096))
    with caplog.at_level(logging.WARNING):
        buffer.push(transitions(50, 200), 0)
        assert buffer.start_saving(path, lambda: None)
        error = buffer.wait_for_saving()
    assert error.errno == errno.ENOSPC and buffer.count() == 200
    held = {name for frame, _ in traceback.walk_tb(error.__traceback__) for name in frame.f_locals}
    assert held.isdisjoint(['write', 'then']), 'the error does not keep what was to be written'
    (message,) = [m for m in caplog.messages if 'was not saved' in m]
    assert path in message and 'No space left' in message and 'The save before it is kept' in message
    with pytest.raises(OSError, match='No space left'):
        buffer.save_data(path)
    assert sorted(os.listdir(small_disk)) == ['buffer.npz', 'other'] and same(loaded(path).state_dict(), before)
    assert all(is_exact(t) for t in buffer.sample(100, 0)) and references_add_up(buffer.memory)


def test_a_save_replaces_the_one_before_also_behind_a_link():
    buffer = filled(10)
    buffer.save_data('buffer.npz')
    os.symlink('buffer.npz', 'link')
    buffer.push(transitions(10, 20), 0)
    buffer.save_data('link')
    assert os.path.islink('link') and set(os.listdir()) == {'buffer.npz', 'link'}
    assert same(loaded().state_dict(), buffer.state_dict())


def test_a_missing_save_leaves_the_buffer_as_it_was():
    buffer = filled(3)
    with pytest.raises(FileNotFoundError, match='no saved replay buffer at buffer.npz'):
        buffer.load_data('buffer.npz')
    assert sorted(ids(buffer.sample(3, 0))) == [0, 1, 2]
