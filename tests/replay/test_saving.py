"""Saves of the replay buffer: complete or not at all."""

import os
import sys

import pytest

from helpers.processes import ROOT, run
from helpers.replay import (
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
            if closes:
                buffer.close()
        sys.exit()
    assert os.wait()[1] == 0
other = filled(1)
other.load_data('buffer.npz')
print(other.count(), *(len(buffer.sample(50)) for buffer in buffers), sorted(os.listdir('.')))
"""


def test_a_forked_child_that_ends_closes_and_deletes_nothing(tmp_path):
    said = run([sys.executable, '-c', FORKED], tmp_path, PYTHONPATH=str(ROOT / 'tests'))
    assert "50 50 50 ['buffer.npz', 'exp']" in said


def test_a_full_disk_leaves_the_previous_save_and_the_buffer_continues(small_disk):
    path, hole = str(small_disk / 'buffer.npz'), small_disk / 'other'
    buffer = filled(50)
    buffer.save_data(path)
    before = buffer.state_dict()
    with pytest.raises(OSError), open(hole, 'wb') as file:
        while True:
            file.write(bytes(4096))
    buffer.push(transitions(50, 200), 0)
    with pytest.raises(OSError, match='No space left on device.*buffer.npz'):
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
