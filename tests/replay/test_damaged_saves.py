"""A save that is damaged, or another file in its place, is refused, and no code in it is run."""

import io
import json
import os
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from breakout_env.replay.saved_arrays import VERSION
from breakout_env.replay.snapshot import FORMAT
from breakout_env.utils.atomic_file import DamagedFile
from helpers.replay import Harm, make, same, set_priorities, transition

TYPES = [dict(type='frame'), dict(type='torchrl', sampler='prioritized')]
IDS = ['frame', 'torchrl']


def saved(options):
    """A save with everything in it, and what it holds."""
    buffer = make(**options, replay_buffer_size=20)
    buffer.push([transition(i, weight=i / 3) for i in range(16)], 0)
    batch = buffer.sample(8, 0)
    set_priorities(buffer, batch, [float(t['id']) + 0.5 for t in batch])
    buffer.save_data('good.npz')
    return Path('good.npz').read_bytes(), buffer.state_dict()


class Target:
    """A buffer with some transitions, into which damaged files are loaded."""

    def __init__(self, options):
        self.buffer = make(**options, replay_buffer_size=20)
        self.buffer.push([transition(i, weight=0.0) for i in range(5)], 0)
        self.before = self.buffer.state_dict()

    def refuses(self, data):
        """The error message, if the file is refused and the buffer is unchanged; None if it loads."""
        Path('bad.npz').write_bytes(data)
        try:
            self.buffer.load_data('bad.npz')
        except DamagedFile as error:
            assert 'bad.npz' in str(error) and same(self.buffer.state_dict(), self.before)
            return str(error)
        return None


@pytest.mark.parametrize('options', TYPES, ids=IDS)
def test_a_file_that_is_cut_off_is_refused(options):
    (data, _), target = saved(options), Target(options)
    lengths = {0, 1, 3, 4, 21, 22, 29, 30, 100, 128, len(data) // 2, len(data) - 23, len(data) - 22, len(data) - 1}
    lengths.update(random.Random(0).sample(range(len(data)), 30))
    for length in sorted(lengths):
        assert target.refuses(data[:length]), f'{length} of {len(data)} bytes'


@pytest.mark.parametrize('options', TYPES, ids=IDS)
def test_a_flipped_byte_is_refused_or_without_effect(options):
    (data, expected), rng = saved(options), random.Random(0)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        starts, directory = [info.header_offset for info in archive.infolist()], archive.start_dir
    offsets = rng.sample(range(directory), 80)
    for start in starts:  # the head of each array: name, sizes, checksum, dtype, shape
        offsets += rng.sample(range(start, start + 180), 4)
    offsets += rng.sample(range(directory, len(data)), min(len(data) - directory, 150))
    without_effect, target = 0, Target(options)
    for offset in offsets:
        damaged = bytearray(data)
        damaged[offset] ^= rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])
        if target.refuses(damaged) is None:  # dates, versions and the like
            without_effect += 1
            assert same(target.buffer.state_dict(), expected), f'byte {offset} of {len(data)}'
            target = Target(options)
    assert without_effect < len(offsets) / 2


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def meta(**changes):
    values = dict(format=FORMAT, version=VERSION, fields=[], frames=0, next_id=1)
    values.update(priorities=False, slots=[10, 'fifo', 0], random={}, more={})
    return np.frombuffer(json.dumps({**values, **changes}).encode(), np.uint8)


@pytest.mark.parametrize(
    'data, message',
    [
        (npz(hello=np.zeros(3)), 'is not a saved replay buffer'),
        (npz(meta=np.frombuffer(b'{"format": "other"}', np.uint8)), 'is not a saved replay buffer'),
        (npz(meta=np.array([Harm()], object)), 'Object arrays cannot be loaded'),
        (npz(meta=meta(version=VERSION + 1)), f'is not a saved replay buffer of frames of version {VERSION}'),
        (npz(meta=meta()), 'is damaged'),
        (npz(meta=meta(), ids=np.array([Harm()], object)), 'Object arrays cannot be loaded'),
        (pickle.dumps(Harm()), 'is not a saved replay buffer'),
    ],
)
def test_another_file_is_refused_and_no_code_in_it_is_run(data, message, same_footprint):
    for options in TYPES:
        assert 'is not a saved' in Target(options).refuses(saved(TYPES[options == TYPES[0]])[0])
    assert message in Target(TYPES[0]).refuses(data) and not os.path.exists('harm was done')
