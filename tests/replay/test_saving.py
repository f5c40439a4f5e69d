"""Saves of the replay buffer: whole or not at all, whatever ends the process, fills the disk or flips a bit."""

import errno
import io
import json
import logging
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from test_replay_buffer import ids, is_exact, make, transition
from test_replay_exactness import STORAGES, frames_in, same

from breakout_env.replay.snapshot import array_file, background_saver
from breakout_env.replay.snapshot.snapshot import VERSION
from breakout_env.utils.atomic_file import DamagedFile
from helpers.processes import wait_until


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def filled(count=40, start=0, **options):
    buffer = make(**options)
    buffer.push([transition(i) for i in range(start, start + count)], 0)
    return buffer


def content(buffer):
    """Everything that a save is to keep."""
    memory = buffer._memory
    rows = memory.rows()
    state = dict(buffer._more(), pushed=memory.push_count, tickets=memory.tickets_of(rows), uses=memory._uses[rows])
    state['priorities'] = memory.priorities(rows)[0] if memory.has_priorities else None
    return state, list(memory.fetch(rows))


def same_content(one, other):
    return same(one[0], other[0]) and len(one[1]) == len(other[1]) and all(map(same, one[1], other[1]))


def used(buffer):
    """A buffer with a past: uses, priorities, a beta that has risen, holes."""
    for _ in range(3):
        batch = buffer.sample(8, 0)
        names = [t['replay_unique_id'] for t in batch]
        rows = [t['replay_buffer_idx'] for t in batch]
        buffer.update(dict(replay_unique_id=names, replay_buffer_idx=rows, priority=[t['id'] + 0.5 for t in batch]))
    buffer.remove(names[:3])
    return buffer


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize('to', STORAGES)
@pytest.mark.parametrize('by', ['file', 'state dict'])
@pytest.mark.parametrize('storage', STORAGES)
def test_a_loaded_buffer_is_the_saved_one_and_goes_on_alike(storage, by, to):
    buffer, other = used(filled(60, storage=storage)), filled(30, start=500, storage=to)
    before = content(buffer)
    if by == 'file':
        buffer.save_data('saves/buffer.npz')
        other.load_data('saves/buffer.npz')
        assert os.listdir('saves') == ['buffer.npz']
    else:
        other.load_state_dict(buffer.state_dict())
    assert same_content(content(buffer), before) and same_content(content(other), before)
    for step in range(5):
        one, two = buffer.sample(16, step), other.sample(16, step)
        assert ids(one) == ids(two) and [t['IS'] for t in one] == [t['IS'] for t in two]
        for each in (buffer, other):
            each.push([transition(1000 * step + i) for i in range(20)], 0)
    assert frames_in(other._memory) == frames_in(buffer._memory)
    with pytest.raises(FileNotFoundError, match='there is no saved replay buffer at nowhere.npz'):
        other.load_data('nowhere.npz')
    assert all(is_exact(t) for t in other.sample(16, 0))


def test_a_smaller_buffer_takes_the_newest_and_a_larger_one_has_room():
    buffer = filled(60)
    buffer.save_data('buffer.npz')
    smaller, larger = filled(5, replay_buffer_size=10), make(replay_buffer_size=2000)
    for other in (smaller, larger):
        other.load_data('buffer.npz')
    assert [t['id'] for t in content(smaller)[1]] == list(range(50, 60))
    assert smaller._memory.frames == 50 and same_content(content(larger), content(buffer))
    for other in (smaller, larger):
        other.push(transition(60), 0)
        assert all(is_exact(t) for t in other.sample(10, 0)) and other.push_count == 61


def test_an_empty_buffer_is_saved_and_loaded():
    buffer, other = make(), filled()
    buffer.save_data('empty.npz')
    other.load_data('empty.npz')
    assert other.count() == 0 and other._memory.frames == 0
    other.push(transition(3), 0)
    assert is_exact(other.sample(1, 0)[0])


def test_a_state_dict_stays_as_it_is_when_the_buffer_goes_on():
    buffer = used(filled())
    before, state = content(buffer), buffer.state_dict()
    buffer.push([transition(i) for i in range(100, 700)], 0)
    other = make()
    other.load_state_dict(state)
    assert same_content(content(other), before)
    other.push([transition(i) for i in range(100, 700)], 0)
    another = make()
    another.load_state_dict(state)
    assert same_content(content(another), before)


@pytest.mark.parametrize('eviction', ['fifo', 'random'])
@pytest.mark.parametrize('storage', STORAGES)
def test_a_background_save_is_of_the_moment_it_began(storage, eviction, monkeypatch):
    buffer = used(filled(300, replay_buffer_size=300, storage=storage, eviction=eviction))
    before = content(buffer)
    write, may_write, finished = array_file.write, threading.Event(), []

    def slow_write(path, arrays):
        def slowly():
            for name, array in arrays:
                assert may_write.wait(20)
                time.sleep(0.001)
                yield name, array

        return write(path, slowly())

    monkeypatch.setattr(background_saver.saved_file, 'write', slow_write)
    assert buffer.start_saving('buffer.npz', lambda: finished.append(os.path.exists('buffer.npz')))
    assert not buffer.start_saving('buffer.npz', lambda: None)  # one at a time
    numbers = iter(range(1000, 100_000))
    for _ in range(100):  # all that was there when the save began goes
        buffer.push([transition(next(numbers)) for _ in range(10)], 0)
    may_write.set()
    while buffer._saver.is_busy:
        buffer.push([transition(next(numbers)) for _ in range(5)], 0)
        assert all(is_exact(t) for t in buffer.sample(8, 0))
    assert buffer.wait_for_saving() is None and finished == [True]
    other = make(replay_buffer_size=300)
    other.load_data('buffer.npz')
    assert same_content(content(other), before)
    assert sum(frames_in(buffer._memory).values()) == buffer._memory.frame_references


@pytest.mark.parametrize('then', ['clear', 'load', 'close'])
def test_a_background_save_is_whole_though_the_buffer_is_emptied(then, monkeypatch):
    buffer, another = filled(300), filled(20, start=900)
    before = content(buffer)
    write = array_file.write

    def slow_write(path, arrays):
        time.sleep(0.3)
        return write(path, arrays)

    monkeypatch.setattr(background_saver.saved_file, 'write', slow_write)
    assert buffer.start_saving('buffer.npz', lambda: None)
    buffer.load_state_dict(another.state_dict()) if then == 'load' else getattr(buffer, then)()
    assert buffer.wait_for_saving() is None
    if then != 'close':
        buffer.push([transition(i) for i in range(50)], 0)
        assert sum(frames_in(buffer._memory).values()) == buffer._memory.frame_references
        assert all(is_exact(t) for t in buffer.sample(50, 0))
    other = make()
    other.load_data('buffer.npz')
    assert same_content(content(other), before)


def test_two_saves_to_one_place_at_once_leave_a_whole_one():
    buffers = [filled(200, start=1000 * k) for k in range(3)]
    threads = [
        threading.Thread(target=lambda b=b: [b.save_data('buffer.npz') for _ in range(15)], name=str(k))
        for k, b in enumerate(buffers)
    ]
    errors = []
    hook, threading.excepthook = threading.excepthook, errors.append
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = hook
    assert not errors, errors[0]
    for name in ('buffer.npz', 'buffer.npz.previous'):
        other = make()
        other.load_data(name)
        assert any(same_content(content(other), content(b)) for b in buffers)
    assert sorted(os.listdir('.')) == ['buffer.npz', 'buffer.npz.previous']


# ---------------------------------------------------------------- whatever ends the process


def forked(what):
    """A child process that does something until it is killed; forked, as it takes a second to start one anew."""
    pid = os.fork()
    if pid == 0:
        try:
            what()
        finally:
            os._exit(1)
    return pid


LOAD = """
import sys
import numpy as np
sys.path.insert(0, {tests!r})
from test_replay_buffer import is_exact, make
for path in sys.argv[1:]:
    buffer = make(replay_buffer_size=100_000)
    buffer.load_data(path)
    transitions = buffer._memory.fetch(buffer._memory.rows())
    assert all(is_exact(t) for t in transitions)
    numbers = [t['id'] for t in transitions]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    print(path, len(numbers), flush=True)
"""


def test_killed_at_any_moment_there_is_a_whole_save_for_a_new_process(tmp_path):
    rng, paths = random.Random(0), []
    for attempt in range(12):
        path = tmp_path / f'run{attempt}' / 'buffer.npz'
        buffer = filled(60, save_path=str(path), save_every_pushes=20, replay_buffer_size=200)
        buffer.save_data(str(path))

        def train(buffer=buffer):
            for i in range(60, 10**6):
                buffer.push(transition(i), 0)

        pid = forked(train)
        time.sleep(rng.uniform(0, 0.15))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        buffer._options.__dict__.update(save_every_pushes=0)  # the parent has nothing to save at its end
        paths.append(str(path))
    result = subprocess.run(
        [sys.executable, '-c', LOAD.format(tests=str(Path(__file__).parent)), *paths], capture_output=True, text=True
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith(str(tmp_path))]
    assert len(lines) == len(paths), result.stderr
    assert any(int(line.split()[1]) > 60 for line in lines)  # some got further than the first save
    assert 'was taken instead' not in result.stderr  # not even the one before was needed


def test_a_reader_never_sees_a_file_that_can_not_be_read(tmp_path):
    buffer = filled(30)
    path = tmp_path / 'buffer.npz'
    buffer.save_data(str(path))

    def save():
        for i in range(30, 10**6):
            buffer.push(transition(i), 0)
            buffer.save_data(str(path))

    pid = forked(save)
    other, seen = make(), set()
    try:
        begun, limit = time.monotonic(), time.monotonic() + 60
        while (time.monotonic() < begun + 1.5 or len(seen) < 6) and time.monotonic() < limit:
            array_file.read_newest(
                str(path), lambda arrays: other._restore(arrays, 'it'), lambda note: pytest.fail(note)
            )
            assert all(is_exact(t) for t in other.sample(10, 0))
            assert other.count() == min(other.push_count, other.replay_buffer_size)
            seen.add(other.push_count)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert len(seen) > 5


LOOP = """
import os, sys
sys.path.insert(0, {tests!r})
from test_replay_buffer import make, transition
buffer = make(save_path={path!r}, save_every_s=10_000.0, replay_buffer_size=300)
for i in range(10**9):
    buffer.push(transition(i), i)
    if i == 500:
        print('going', flush=True)
"""


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_is_stopped_saves_what_it_has(tmp_path, number):
    path = str(tmp_path / 'buffer.npz')
    child = subprocess.Popen(
        [sys.executable, '-c', LOOP.format(tests=str(Path(__file__).parent), path=path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # who runs the tests in the background of a shell has Ctrl-C ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert any(line == 'going\n' for line in child.stdout)
    assert not os.path.exists(path)
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == (143 if number == signal.SIGTERM else -signal.SIGINT), errors
    other = make()
    other.load_data(path)
    numbers = [t['id'] for t in content(other)[1]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and 299 <= len(numbers) <= 300
    assert numbers[-1] >= 500 and all(is_exact(t) for t in other.sample(200, 0))
    assert os.listdir(tmp_path) == ['buffer.npz']


class Stop(BaseException):
    """What a signal's handler raises."""


@pytest.mark.parametrize('eviction', ['fifo', 'random'])
def test_a_push_that_is_interrupted_anywhere_leaves_what_can_be_saved_and_is_exact(eviction):
    """Ctrl-C and SIGTERM come in the midst of a push, too; what is saved then is as right as ever."""
    rng = random.Random(0)
    buffer = filled(50, replay_buffer_size=50, eviction=eviction)
    buffer.update(dict(replay_unique_id=[], replay_buffer_idx=[], priority=[]))
    known = [transition(i) for i in range(400)]

    def stop(*_):
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    interrupted = 0
    try:
        for _ in range(150):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.003))
                while True:
                    buffer.push(rng.sample(known, 3), 0)
            except Stop:
                interrupted += 1
            other = make(replay_buffer_size=50)
            other.load_state_dict(buffer.state_dict())
            for each in (buffer, other):
                transitions = each._memory.fetch(each._memory.rows())
                assert len(transitions) >= 47 and all(is_exact(t) for t in transitions)
                assert all(is_exact(t) for t in each.sample(20, 0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted == 150


# ---------------------------------------------------------------- a full disk


def test_a_full_disk_leaves_the_save_before_and_training_goes_on(small_disk, caplog):
    path = str(small_disk / 'buffer.npz')
    buffer = make(save_path=path, save_every_pushes=50)
    buffer.push([transition(i) for i in range(50)], 0)
    assert buffer.wait_for_saving() is None
    before = content(buffer)
    hole = small_disk / 'other'
    with pytest.raises(OSError), open(hole, 'wb') as file:
        while True:
            file.write(bytes(4096))
    with caplog.at_level(logging.WARNING):
        buffer.push([transition(i) for i in range(50, 200)], 0)
        error = buffer.wait_for_saving()
    assert error.errno == errno.ENOSPC and buffer.count() == 200
    (message,) = [m for m in caplog.messages if 'was not saved' in m]
    assert path in message and 'No space left' in message and 'The save before it is kept' in message
    with pytest.raises(OSError, match='No space left'):
        buffer.save_data(path)
    assert sorted(os.listdir(small_disk)) == ['buffer.npz', 'other']
    other = make()
    other.load_data(path)
    assert same_content(content(other), before)
    assert all(is_exact(t) for t in buffer.sample(100, 0))
    assert sum(frames_in(buffer._memory).values()) == buffer._memory.frame_references
    hole.unlink()
    buffer.close()  # there is room again, and nothing new: it is saved all the same
    other.load_data(path)
    assert other.count() == 200


def test_a_disk_that_is_full_at_the_end_gets_a_warning(monkeypatch, caplog):
    buffer = filled(10, save_path='buffer.npz', save_every_s=1000)

    def full(*_):
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(os, 'fsync', full)
    with caplog.at_level(logging.WARNING):
        buffer.close()
    assert 'the replay buffer was not saved to buffer.npz: [Errno 28] No space left on device' in caplog.text
    assert os.listdir('.') == []


@pytest.mark.parametrize('fails', ['fsync', 'replace', 'unlink'])
def test_whatever_call_of_the_system_fails_there_is_a_whole_save(fails, monkeypatch):
    buffer = filled(10)
    for _ in range(2):
        buffer.save_data('buffer.npz')
    before = content(buffer)
    buffer.push([transition(i) for i in range(10, 20)], 0)
    real = getattr(os, fails)

    def failing(path, *args, **kwargs):
        if fails == 'unlink' and str(path).endswith('.unfinished'):
            return real(path, *args, **kwargs)
        raise OSError(errno.EIO, 'Input/output error')

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, failing)
        with pytest.raises(OSError, match='Input/output error'):
            buffer.save_data('buffer.npz')
    other = make()
    other.load_data('buffer.npz')
    assert same_content(content(other), before)
    assert not [name for name in os.listdir('.') if name.endswith('.unfinished')]
    buffer.save_data('buffer.npz')
    other.load_data('buffer.npz')
    assert same_content(content(other), content(buffer))


def test_a_disk_without_hard_links_keeps_the_newest_save(monkeypatch):
    buffer = filled(10)

    def no_links(*args, **kwargs):
        raise OSError(errno.EPERM, 'Operation not permitted')

    monkeypatch.setattr(os, 'link', no_links)
    for _ in range(2):
        buffer.save_data('buffer.npz')
    other = make()
    other.load_data('buffer.npz')
    assert same_content(content(other), content(buffer)) and os.listdir('.') == ['buffer.npz']


def test_what_a_killed_save_left_behind_is_removed_by_the_next():
    gone = subprocess.Popen([sys.executable, '-c', ''])
    gone.wait()
    Path(f'buffer.npz.{gone.pid}-1.unfinished').write_bytes(b'half')
    Path(f'buffer.npz.{os.getppid()}-1.unfinished').write_bytes(b'of a process that goes on')
    filled(10).save_data('buffer.npz')
    assert sorted(os.listdir('.')) == ['buffer.npz', f'buffer.npz.{os.getppid()}-1.unfinished']


# ---------------------------------------------------------------- damaged and foreign files


@pytest.fixture
def saved(tmp_path):
    """A save with everything in it, and what it holds."""
    buffer = used(filled(12))
    buffer.push([transition(i, name=f'policy {i % 2}') for i in range(12, 16)], 0)
    buffer.save_data('good.npz')
    return Path('good.npz').read_bytes(), content(buffer)


def refused(data):
    """The sentence of the refusal, with what was there before still there; None if it loads."""
    Path('bad.npz').write_bytes(data)
    there = filled(5)
    try:
        there.load_data('bad.npz')
    except DamagedFile as error:
        assert [t['id'] for t in content(there)[1]] == list(range(5)) and there._memory.frames == 25
        assert 'bad.npz' in str(error)
        return str(error)
    return None if there.count() != 5 else pytest.fail('nothing was loaded, and nothing said')


def test_a_file_that_is_cut_off_is_refused_wherever_that_is(saved):
    data, _ = saved
    rng = random.Random(0)
    lengths = {0, 1, 3, 4, 21, 22, 29, 30, 100, 128, len(data) // 2, len(data) - 23, len(data) - 22, len(data) - 1}
    lengths.update(rng.sample(range(len(data)), 60))
    for length in sorted(lengths):
        assert refused(data[:length]), f'{length} of {len(data)} bytes'


def members(data):
    """Where in the file are the data that a save consists of, and where what describes them."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(info.header_offset, info.file_size) for info in archive.infolist()], archive.start_dir


def test_a_flipped_byte_is_refused_or_of_no_meaning(saved):
    data, expected = saved
    rng = random.Random(0)
    entries, directory = members(data)
    offsets = rng.sample(range(directory), 150)
    for start, _ in entries:  # the head of each array: name, sizes, checksum, dtype, shape
        offsets += rng.sample(range(start, start + 180), 6)
    offsets += rng.sample(range(directory, len(data)), min(len(data) - directory, 400))
    harmless = 0
    for offset in offsets:
        damaged = bytearray(data)
        damaged[offset] ^= rng.choice([1 << rng.randrange(8), rng.randrange(1, 256)])
        if refused(damaged) is None:
            harmless += 1
            other = make()
            other.load_data('bad.npz')
            assert same_content(content(other), expected), f'byte {offset} of {len(data)}, directory at {directory}'
    # dates, versions and the like
    assert harmless < len(offsets) / 2


class Harm(object):
    """A pickle that does something when it is loaded."""

    def __reduce__(self):
        return open, ('harm was done', 'w')


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def foreign_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as archive:
        archive.writestr('hello.txt', 'hello')
    return file.getvalue()


def a_meta(**changes):
    meta = dict(
        format='breakout_env replay memory',
        version=VERSION,
        frame_shape=None,
        schemas=[],
        frames=0,
        pieces=0,
        priorities=False,
    )
    return np.frombuffer(json.dumps({**meta, **changes}).encode(), np.uint8)


@pytest.mark.parametrize(
    'data, sentence',
    [
        (b'', 'is no saved replay buffer, or it is cut off'),
        (b'\x89PNG\r\n\x1a\n' + bytes(1000), 'is no saved replay buffer'),
        (foreign_zip(), 'is no saved replay buffer'),
        (npz(a=np.arange(5)), 'is no saved replay buffer'),
        (npz(meta=np.frombuffer(b'{"format": "other"}', np.uint8)), 'is no saved replay buffer'),
        (npz(meta=np.frombuffer(b'[1, 2]', np.uint8)), 'is no saved replay buffer'),
        (npz(meta=np.array([Harm()], object)), 'is damaged (meta: Object arrays cannot be loaded'),
        (npz(meta=a_meta(version=VERSION + 1)), f'version {VERSION + 1}; this program reads version {VERSION}'),
        (npz(meta=a_meta()), 'its parts do not fit together'),
        (npz(meta=a_meta(), schema=np.array([Harm()], object)), 'is damaged (schema: Object arrays cannot be loaded'),
        (npz(meta=a_meta(schemas=[7]), schema=np.zeros(1, 'u1'), tickets=np.zeros(1, 'u4'), uses=np.zeros(1)), 'fit'),
        (pickle.dumps(Harm()), 'is no saved replay buffer'),
    ],
    ids=[
        'empty',
        'png',
        'zip',
        'npz',
        'json',
        'list',
        'object',
        'version',
        'bare',
        'later object',
        'schemas',
        'pickle',
    ],
)
def test_a_foreign_file_is_refused_and_nothing_in_it_is_run(data, sentence):
    assert sentence in refused(data)
    assert not os.path.exists('harm was done')


def test_the_harm_in_these_files_is_real():
    """Whoever loads pickles runs it."""
    Path('bad.npz').write_bytes(npz(meta=np.array([Harm()], object)))
    for load in (lambda: np.load('bad.npz', allow_pickle=True)['meta'], lambda: pickle.loads(pickle.dumps(Harm()))):
        load()
        os.unlink('harm was done')


def test_a_folder_is_no_save(tmp_path):
    (tmp_path / 'folder').mkdir()
    with pytest.raises(DamagedFile, match='folder is no saved replay buffer'):
        make().load_data('folder')


@pytest.mark.parametrize('newest', ['damaged', 'gone'])
def test_the_save_before_is_taken_and_that_is_said(newest, caplog):
    buffer = filled(10)
    buffer.save_data('buffer.npz')
    before = content(buffer)
    buffer.push([transition(i) for i in range(10, 20)], 0)
    buffer.save_data('buffer.npz')
    data = Path('buffer.npz').read_bytes()
    if newest == 'damaged':
        Path('buffer.npz').write_bytes(data[: len(data) // 2])
    else:
        os.unlink('buffer.npz')
    other = make()
    with caplog.at_level(logging.WARNING):
        other.load_data('buffer.npz')
    assert same_content(content(other), before)
    (message,) = [m for m in caplog.messages if 'was taken instead' in m]
    assert 'The save before it, buffer.npz.previous, was taken instead' in message
    if newest == 'damaged':
        shutil.copy('buffer.npz', 'buffer.npz.previous')
    else:
        os.unlink('buffer.npz.previous')
    there = filled(3)
    with pytest.raises(DamagedFile if newest == 'damaged' else FileNotFoundError, match='buffer.npz'):
        there.load_data('buffer.npz')
    assert sorted(ids(there.sample(3, 0))) == [0, 1, 2]


# ---------------------------------------------------------------- when it saves by itself


def test_it_saves_itself_every_so_many_pushes():
    buffer = make(save_every_pushes=100)
    path = os.path.join('exp', 'replay', 'agent_buffer.npz')
    saves = []
    for i in range(350):
        buffer.push(transition(i), 0)
        if i % 50 == 49:
            buffer.wait_for_saving()
            other = make()
            if os.path.exists(path):
                other.load_data(path)
            saves.append(other.count())
    assert saves == [0, 100, 100, 200, 200, 300, 300]
    buffer.close()  # and what came after that
    other.load_data(path)
    assert other.count() == 350
    written = os.stat(path).st_mtime_ns
    resumed = make(save_every_pushes=100)
    resumed.load_data(path)
    resumed.close()  # there is nothing new
    assert os.stat(path).st_mtime_ns == written


def test_it_saves_itself_every_so_many_seconds():
    buffer = make(save_every_s=0.2, save_path='buffer.npz')
    buffer.push(transition(0), 0)
    assert not os.path.exists('buffer.npz')
    number = iter(range(1, 10**9))
    assert wait_until(lambda: buffer.push(transition(next(number)), 0) or os.path.exists('buffer.npz.previous'))
    buffer.close()
    other = make()
    other.load_data('buffer.npz')
    assert other.push_count == buffer._saved_at_push > 0


def test_it_saves_nothing_unless_it_is_asked_to():
    filled(10).close()
    assert os.listdir('.') == []
