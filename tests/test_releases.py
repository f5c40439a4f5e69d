"""
What is opened is given back at once, also when something fails, and whoever still holds a part of it: an error that
somebody looks at holds on to all that there was where it was raised.
"""

import errno
import logging
import mmap
import os
import signal
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest
from ding.worker import create_buffer
from easydict import EasyDict
from tensorboardX import SummaryWriter
from test_replay_buffer import is_exact, make, open_files_in, transition
from test_replay_exactness import STORAGES, frames_in

from breakout_env import BreakoutEnv, FrameBuffer
from breakout_env.agent import export as export_module
from breakout_env.agent import play as play_module
from breakout_env.agent.agent import load_agent
from breakout_env.agent.evaluation import evaluate
from breakout_env.cli.doctor import Check, Finding, run_checks
from breakout_env.compat.tensorboardx_disk_full import PatientFile, make_patient
from breakout_env.env_manager import GroupEnvManager
from breakout_env.env_manager.worker_main import EnvGroup
from breakout_env.envs.emulator import Emulator
from breakout_env.rendering.video import GameRecorder
from breakout_env.rendering.video_file import VideoFile
from breakout_env.replay import ReplayMemory, memory_lock
from breakout_env.replay.frames.compressed import CompressedFrames
from breakout_env.replay.memory_lock import MemoryLock
from breakout_env.replay.snapshot import array_file
from breakout_env.run.lock import RunLock
from breakout_env.utils import signals
from breakout_env.utils.atomic_file import DamagedFile
from breakout_env.utils.child_process import HelperError, HelperProcess
from helpers.games import play
from helpers.processes import wait_until
from helpers.resources import children, footprint, grown_since, newest_child, resident_bytes


@pytest.fixture(autouse=True)
def as_before(tmp_path, monkeypatch):
    """In a folder of its own; and a buffer that saves at exit listens to signals, the next test does not."""
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in signals.STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def filled(count=40, start=0, **options):
    buffer = make(**options)
    buffer.push([transition(i) for i in range(start, start + count)], 0)
    return buffer


def files_in(folder):
    """Distinct ones: a memory map has a descriptor of its own."""
    return set(open_files_in(folder))


def balanced(memory):
    """Each frame is referred to as often as it occurs in transitions: none is held, none let go too often."""
    return sum(frames_in(memory).values()) == memory.frame_references


# ---------------------------------------------------------------- memory and files


def is_given_back(store):
    """Whether a store that is held by somebody, as by a save under way, has no memory any more."""
    storage = store._storage
    if storage.device is not None:
        return storage.device_bytes == storage.resident_bytes == 0
    try:
        return len(storage._memory._map) == 0
    except ValueError:  # it is unmapped
        return True


@pytest.mark.parametrize('goes_by', ['close', 'clear', 'load'])
@pytest.mark.parametrize('storage', STORAGES)
def test_memory_goes_at_once_though_a_save_under_way_holds_a_part_of_it(storage, goes_by, tmp_path):
    buffer, another = filled(storage=storage, folder=str(tmp_path)), filled(start=100)
    image = buffer.image()
    store = buffer._memory._store
    assert not is_given_back(store) and len(files_in(tmp_path)) == (storage == 'memmap')
    buffer.load_state_dict(another.state_dict()) if goes_by == 'load' else getattr(buffer, goes_by)()
    assert is_given_back(store)
    assert len(files_in(tmp_path)) == (storage == 'memmap' and goes_by == 'load')
    image.close()


def test_the_task_buffers_memory_goes_with_close():
    buffer = FrameBuffer(50)
    for i in range(40):
        buffer.push(transition(i))
    store = buffer._memory._store
    buffer.close()
    assert is_given_back(store) and buffer.count() == 0


@pytest.mark.parametrize('storage', STORAGES)
def test_what_was_evicted_is_counted_no_more(storage):
    buffer = filled(200, storage=storage, replay_buffer_size=20)
    memory = buffer._memory
    assert balanced(memory) and memory.frames == 100
    pixels = 100 * 64
    assert memory.stored_frame_bytes == pixels if storage != 'compressed' else memory.stored_frame_bytes < 2 * pixels


@pytest.mark.parametrize('storage', STORAGES)
def test_frames_of_a_save_that_nobody_refers_to_take_no_room(storage):
    buffer, smaller = filled(60, storage=storage), make(storage=storage, replay_buffer_size=10)
    smaller.load_state_dict(buffer.state_dict())
    memory, expected = smaller._memory, filled(10, start=50, storage=storage)
    assert balanced(memory) and memory.frames == 50
    assert memory.stored_frame_bytes < 1.2 * expected._memory.stored_frame_bytes


@pytest.mark.parametrize('seed', range(3))
def test_segments_of_compressed_frames_are_free_when_nothing_in_them_is_alive(seed):
    rng = np.random.default_rng(seed)
    frames, alive, number = CompressedFrames(64, mmap.PAGESIZE), [], 0

    def check():
        in_use = set(range(len(frames._used))) - set(frames._free)
        assert sum(frames._segments_of.values()) == len(in_use)
        assert frames._dead_bytes == sum(frames._used[s] - frames._live[s] for s in in_use)
        assert frames.stored_bytes == sum(frames._live) == frames._lengths_array.sum()
        # only what is being written to may hold nothing
        assert all(frames._live[s] for s in in_use - set(frames._open.values()))

    for _ in range(60):
        for _ in range(rng.integers(1, 90)):
            number += 1
            frames.put(number, memoryview(rng.integers(256, size=64, dtype=np.uint8).tobytes()))
            alive.append(number)
            if frames._used[frames._open[frames._codec]] > mmap.PAGESIZE - 64 and rng.random() < 0.5:
                frames.drop(alive)  # while it is full and the next one has not been begun
                alive = []
            check()
        gone = alive if rng.random() < 0.4 else [alive[i] for i in rng.permutation(len(alive))[: len(alive) // 2]]
        frames.drop(gone)
        alive = sorted(set(alive) - set(gone))
        check()
    frames.close()


@pytest.mark.parametrize('error', [DamagedFile('bad.npz is damaged'), ValueError('wrong'), MemoryError()], ids=repr)
def test_a_load_that_fails_gives_back_what_it_had_taken(error, tmp_path):
    buffer, state = filled(storage='memmap', folder=str(tmp_path)), filled(start=100).state_dict()

    class Failing(dict):
        """The frames are there, and what comes after them is not."""

        def __getitem__(self, name):
            if name == 'frames0.data':
                self.asked = True
            if name == 'dictionary0' and len(files_in(tmp_path)) == 2:
                raise error
            return super().__getitem__(name)

    arrays = Failing(state)
    with pytest.raises(type(error)) if isinstance(error, MemoryError) else pytest.raises(DamagedFile) as caught:
        buffer.load_state_dict(arrays)
    # also while somebody looks at the error, which holds on to all that there was
    assert caught.value is not None and len(files_in(tmp_path)) == 1
    assert all(is_exact(t) and t['id'] < 40 for t in buffer.sample(16, 0)) and balanced(buffer._memory)


# ---------------------------------------------------------------- frames that are held for a while


@pytest.mark.parametrize('way', ['by itself', 'save_data', 'state_dict', 'task buffer'])
def test_a_save_that_fails_lets_go_of_every_frame(way, monkeypatch):
    if way == 'task buffer':
        buffer = FrameBuffer(50)
        for i in range(40):
            buffer.push(transition(i))
    else:
        buffer = filled()
    memory, before = buffer._memory, frames_in(buffer._memory)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, 'No space left on device')

    with monkeypatch.context() as patch:
        if way == 'state_dict':
            patch.setattr(memory._store, 'codec_for_export', full)
        else:
            patch.setattr(array_file, 'write', full)
        if way == 'by itself':
            assert buffer.start_saving('buffer.npz', lambda: None)
            assert isinstance(buffer.wait_for_saving(), OSError)
        else:
            with pytest.raises(OSError, match='No space left'):
                buffer.state_dict() if way == 'state_dict' else buffer.save_data('buffer.npz')
    assert frames_in(memory) == before and balanced(memory)


@pytest.mark.parametrize('is_begun', [False, True])
def test_a_batch_that_was_prepared_and_is_not_wanted_is_let_go_once(is_begun):
    buffer = filled(60, prefetch=True)
    gate = threading.Event()
    if not is_begun:
        buffer._prefetcher.submit(gate.wait, 20)  # the thread has something else to do
    buffer.sample(32, 0)
    if is_begun:
        buffer._prefetched[2].result()
    buffer.sample(5, 0)
    gate.set()
    buffer._prefetched[2].result()
    assert balanced(buffer._memory)
    buffer.close()


def test_a_closed_buffer_that_somebody_holds_has_no_thread_and_no_batch():
    buffer = filled(60, prefetch=True)
    buffer.sample(32, 0)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith('replay-prefetch')]
    assert threads and buffer._prefetched is not None
    buffer.close()
    assert buffer._prefetched is None and not any(thread.is_alive() for thread in threads)


def test_a_buffer_that_is_dropped_saves_what_it_was_asked_to():
    buffer, other = filled(10, save_every_pushes=1000, save_path='buffer.npz'), make()
    del buffer
    other.load_data('buffer.npz')
    assert other.count() == 10


@pytest.mark.parametrize('lets_go_by', ['release', 'decode', 'an error in decode'])
@pytest.mark.parametrize('storage', STORAGES)
def test_what_is_held_for_a_draw_is_let_go_once(storage, lets_go_by, monkeypatch):
    buffer = filled(storage=storage)
    memory, before = buffer._memory, frames_in(buffer._memory)
    drawn = memory.select(memory.draw(16, replace=True))
    assert sum(frames_in(memory).values()) == sum(before.values()) + 16 * 8
    if lets_go_by == 'release':
        memory.release(drawn)
    elif lets_go_by == 'decode':
        memory.decode(drawn)
    else:
        monkeypatch.setattr(memory._store, 'gather', lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            memory.decode(drawn)
    assert frames_in(memory) == before


@pytest.mark.parametrize('storage', STORAGES)
def test_a_transition_that_is_replaced_lets_go_of_its_frames_once(storage):
    buffer, untouched = filled(20, storage=storage), filled(20, storage=storage)
    memory, expected = buffer._memory, untouched._memory
    for ticket in (3, 4, 3):  # neighbours, which share no frames, and one of them twice
        memory.replace(memory.find(ticket), transition(100 + ticket))
    assert balanced(memory) and memory.frames == expected.frames
    memory.remove(range(20))
    assert memory.frames == 0 and not frames_in(memory)


def test_strings_are_forgotten_with_the_last_transition_that_has_them():
    memory = ReplayMemory(10)

    def texts():
        return sorted(text for _, text in memory._strings.items())

    memory.push([transition(i, name='first') for i in range(3)])
    memory.push([transition(3, name='second')])
    assert texts() == ['first', 'second']
    memory.remove([0, 3])
    assert texts() == ['first']
    assert memory.rewrite(memory.find(1), dict(name='third'))
    assert texts() == ['first', 'third']
    assert memory.rewrite(memory.find(2), dict(name='third'))
    assert texts() == ['third']
    memory.remove([1])
    assert texts() == ['third']
    memory.remove([2])
    assert texts() == []


def test_loaded_strings_are_forgotten_with_the_last_transition_that_has_them():
    buffer, other = make(), make()
    buffer.push([transition(i, name='first') for i in range(3)], 0)
    other.load_state_dict(buffer.state_dict())
    other.remove(['agent_buffer_0', 'agent_buffer_1'])
    assert [t['name'] for t in other.sample(1, 0)] == ['first']
    other.remove(['agent_buffer_2'])
    assert not list(other._memory._strings.items())


# ---------------------------------------------------------------- the lock


def test_signals_wait_for_the_outermost_hold_of_the_lock_and_then_come():
    lock, heard, free = MemoryLock(), [], []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    handler = signal.getsignal(signal.SIGUSR1)
    try:
        for count in (1, 2):
            with lock:
                with lock:
                    signal.raise_signal(signal.SIGUSR1)
                    assert len(heard) == count - 1
                assert len(heard) == count - 1  # the outer one goes on
            assert len(heard) == count and signal.getsignal(signal.SIGUSR1) is handler
        # and other threads get it

        def take():
            with lock:
                free.append(True)

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        thread.join(5)
        assert free == [True]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_lock_that_can_not_hold_all_signals_back_holds_none(monkeypatch):
    numbers, real = (signal.SIGINT, signal.SIGUSR1), memory_lock._signal.signal
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    handlers = [signal.getsignal(number) for number in numbers]

    def interrupted(number, handler):
        if number == signal.SIGUSR1 and handler not in handlers:
            raise KeyboardInterrupt
        return real(number, handler)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(memory_lock._signal, 'signal', interrupted)
            with pytest.raises(KeyboardInterrupt), MemoryLock():
                pass
        assert [signal.getsignal(number) for number in numbers] == handlers
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


# ---------------------------------------------------------------- saved files


@pytest.mark.parametrize('what', ['a buffer', 'a small file'])
def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_is_before_that_is_told(what, tmp_path, monkeypatch):
    """A machine that loses its power after that has the new file, and one that loses it before that has the old one."""
    order = []

    def noting(name):
        real = getattr(os, name)

        def call(first, *args, **kwargs):
            path = os.readlink(f'/proc/self/fd/{first}') if isinstance(first, int) else os.fspath(first)
            size = os.path.getsize(path) if os.path.isfile(path) else None
            order.append((name, os.path.relpath(path, tmp_path).split('.')[-1], size))
            return real(first, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    buffer = filled()
    noting('fsync')
    noting('replace')
    if what == 'a buffer':
        buffer.save_data('saves')
    else:
        array_file.write_bytes(tmp_path / 'saves', b'content')
    size = os.path.getsize('saves')
    assert order == [('fsync', 'unfinished', size), ('replace', 'unfinished', size), ('fsync', '', None)], order


@pytest.mark.parametrize('fails', ['fsync', 'replace'])
def test_a_small_file_that_can_not_be_written_leaves_the_one_before_and_nothing_else(fails, tmp_path, monkeypatch):
    array_file.write_bytes(tmp_path / 'list.json', b'before')

    def failing(*args, **kwargs):
        raise OSError(errno.EIO, 'Input/output error')

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, failing)
        with pytest.raises(OSError, match='Input/output error'):
            array_file.write_bytes(tmp_path / 'list.json', b'after')
    assert os.listdir(tmp_path) == ['list.json'] and (tmp_path / 'list.json').read_bytes() == b'before'


def test_the_save_before_is_the_last_but_one():
    buffer, other = filled(10), make()
    for number in range(3):
        buffer.push(transition(10 + number), 0)
        buffer.save_data('buffer.npz')
    other.load_data('buffer.npz.previous')
    assert other.count() == 12


def test_a_save_and_a_load_leave_no_file_open(tmp_path):
    buffer, other = filled(10), make()
    before = footprint()
    for _ in range(3):
        buffer.save_data('buffer.npz')
        other.load_data('buffer.npz')
    assert not grown_since(before)
    with open('buffer.npz', 'r+b') as file:
        file.seek(200)
        file.write(bytes(100))
    os.unlink('buffer.npz.previous')
    with pytest.raises(DamagedFile) as caught:  # which holds on to all that there was
        other.load_data('buffer.npz')
    assert caught.value is not None and not open_files_in(tmp_path)


# ---------------------------------------------------------------- the environment


def test_a_closed_emulator_has_no_memory_though_somebody_holds_it():
    def closed():
        emulator = Emulator(0, 0.0, 108_000, False)
        for noop_frames in range(30, 0, -1):  # each leaves a state to begin from
            emulator.reset_game(noop_frames)
        emulator.close()
        return emulator

    held = [closed() for _ in range(4)]
    before = resident_bytes()
    held += [closed() for _ in range(12)]
    # 0.6 MB for the emulator, 0.2 MB for the states
    assert (resident_bytes() - before) / 12 < 170_000


def test_the_video_of_an_environments_next_life_is_completed_as_well(tmp_path, same_footprint):
    env = BreakoutEnv({})
    env.enable_save_replay(str(tmp_path))
    for lives in (1, 2):
        play(env, 5)
        env.close()
        assert len([path for path in tmp_path.iterdir() if path.name.endswith('-unfinished.mp4')]) == lives
        assert not children()


def test_the_video_of_a_game_that_is_given_up_is_completed_before_the_next(tmp_path, same_footprint):
    env = BreakoutEnv(dict(is_train=False))
    env.enable_save_replay(str(tmp_path))
    for games in range(3):
        env.reset()
        assert [path.name.endswith('-unfinished.mp4') for path in tmp_path.iterdir()] == [True] * games
        env.step(0)
        assert len(children()) == 1
    env.close()


def test_a_video_that_is_given_up_leaves_no_file_however_far_it_was(tmp_path):
    picture = np.zeros((210, 160, 3), np.uint8)
    with VideoFile(tmp_path / 'game.mp4', 15) as video:
        assert wait_until(lambda: video.show(picture) and list(tmp_path.iterdir()), 60)
    assert not list(tmp_path.iterdir()) and not children()


# ---------------------------------------------------------------- processes


def test_a_program_that_can_not_be_started_leaves_nothing_beside_its_error(tmp_path):
    before = footprint()
    with pytest.raises(HelperError) as caught:
        HelperProcess('helper', [str(tmp_path / 'nowhere')])
    assert 'could not be started' in str(caught.value) and not grown_since(before)


@pytest.mark.parametrize('program', ['import sys; sys.stdin.read()', 'import time; time.sleep(60)', 'exit(3)'])
def test_a_program_that_is_ended_leaves_nothing_whoever_holds_what(program):
    before = footprint()
    helper = HelperProcess('helper', [sys.executable, '-c', program])
    process = helper._process
    try:
        assert helper.close(2.0)
    except HelperError as error:
        caught = error
        assert 'killed' in str(caught) or 'exit code 3' in str(caught)
    assert process.returncode is not None and process.stdin.closed and process.stdout.closed
    assert not grown_since(before)


def test_a_fork_has_no_copy_of_what_a_program_is_fed_through():
    helper = HelperProcess('helper', [sys.executable, '-c', 'import sys; sys.stdin.read()'])
    process, messages = helper._process, helper._messages
    pid = os.fork()
    if pid == 0:
        os._exit(0 if process.stdin.closed and process.stdout.closed and messages.closed else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert not process.stdin.closed and helper.close(5.0)


def test_a_worker_that_can_not_be_started_leaves_nothing_beside_its_error(monkeypatch):
    manager = GroupEnvManager([partial(BreakoutEnv, {})], {})
    pipe, ends = manager._context.Pipe, []

    def no_more_processes():
        raise BlockingIOError('Resource temporarily unavailable')

    with monkeypatch.context() as patch:
        patch.setattr(manager._context, 'Pipe', lambda: ends.extend(pipe()) or tuple(ends))
        patch.setattr(os, 'fork', no_more_processes)
        with pytest.raises(BlockingIOError) as caught:
            manager.launch()
    assert caught.value is not None and [end.closed for end in ends] == [True, True]


def test_a_lost_worker_leaves_nothing_before_another_takes_its_place():
    manager = GroupEnvManager([partial(BreakoutEnv, {})] * 2, dict(worker_num=2, shared_memory=False))
    manager.launch()
    try:
        before = footprint()
        newest_child().kill()
        timesteps = manager.step({0: 0, 1: 0})
        assert sum(bool(timestep.info.get('abnormal')) for timestep in timesteps.values()) == 1
        now = footprint()
        assert now['children'] == before['children'] - 1
        # the pipe to it, and the two by which each tells of its end
        assert now['descriptors'] == before['descriptors'] - 3
    finally:
        manager.close()


def test_a_manager_that_was_closed_knows_of_no_loss_when_it_is_launched_again():
    manager = GroupEnvManager([partial(BreakoutEnv, {})] * 2, dict(worker_num=2))
    manager.launch()
    newest_child().kill()
    manager.reset({0: None})
    assert manager.step({0: 0})
    manager.close()
    manager.launch()
    try:
        for _ in range(2):
            assert not any(t.info.get('abnormal') for t in manager.step({0: 0, 1: 0}).values())
        assert [obs is not None for obs in manager.ready_obs.values()] == [True, True]
    finally:
        manager.close()


class Faulty(BreakoutEnv):
    """Fails once where a file says so."""

    def __init__(self, folder):
        self.folder = folder
        self.fail_if_told('init')
        super().__init__({})

    def reset(self):
        self.fail_if_told('reset')
        return super().reset()

    def fail_if_told(self, when):
        if (self.folder / when).exists():
            (self.folder / when).unlink()
            raise RuntimeError('planted')


@pytest.mark.parametrize('retry_type', ['reset', 'renew'])
def test_a_process_whose_environment_can_not_be_made_is_not_asked_again(retry_type, tmp_path, caplog):
    cfg = dict(worker_num=1, max_retry=2, retry_type=retry_type, retry_waiting_time=0.01)
    manager = GroupEnvManager([partial(Faulty, tmp_path)], cfg)
    manager.launch()
    try:
        first = newest_child()
        (tmp_path / 'init').touch()
        if retry_type == 'renew':  # it is made anew in the process that is there
            (tmp_path / 'reset').touch()
        else:
            first.kill()
            assert wait_until(lambda: not manager._workers[0].alive)
        with caplog.at_level(logging.INFO):
            manager.reset()
        assert caplog.text.count('a reset failed') == 1
        assert not any(tmp_path.iterdir()) and newest_child().pid != first.pid and len(children()) == 1
        assert manager.step({0: 0})[0].obs is not None
    finally:
        manager.close()


def test_a_launch_that_fails_leaves_no_process_though_nobody_closes(monkeypatch):
    manager, forks, fork = GroupEnvManager([partial(BreakoutEnv, {})] * 2, dict(worker_num=2)), [], os.fork

    def fail_the_second_time():
        forks.append(None)
        if len(forks) == 2:
            raise BlockingIOError('Resource temporarily unavailable')
        return fork()

    with monkeypatch.context() as patch:
        patch.setattr(os, 'fork', fail_the_second_time)
        with pytest.raises(BlockingIOError):
            manager.launch()
    assert len(forks) == 2 and not children() and manager.closed


def test_a_manager_that_is_dropped_ends_workers_that_do_not_listen(monkeypatch):
    monkeypatch.setattr('breakout_env.env_manager.manager.CLOSING_S', 0.5)
    manager = GroupEnvManager([partial(BreakoutEnv, {})], dict(worker_num=1))
    manager.launch()
    worker = newest_child()
    worker.suspend()
    try:
        del manager
        assert wait_until(lambda: not children())
    finally:
        if worker.is_running():
            worker.kill()


# ---------------------------------------------------------------- a run's files


def test_a_folder_that_is_taken_is_not_kept_open_by_the_error(tmp_path):
    hold = (
        'import sys; from breakout_env.run.lock import RunLock\n'
        'lock = RunLock(sys.argv[1]); print(1, flush=True); input()'
    )
    other = subprocess.Popen(
        [sys.executable, '-c', hold, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == '1\n'
    with pytest.raises(ValueError, match='trains in') as caught:
        RunLock(tmp_path)
    assert caught.value is not None and not open_files_in(tmp_path)
    other.communicate('')


def test_a_folder_is_free_when_it_is_released_though_somebody_holds_the_lock(tmp_path):
    lock = RunLock(tmp_path)
    assert len(open_files_in(tmp_path)) == 1
    lock.release()
    assert not open_files_in(tmp_path) and lock is not None


def test_tensorboards_file_is_closed_with_its_writer(tmp_path):
    writer = SummaryWriter(str(tmp_path))
    make_patient(writer)
    file = writer.file_writer.event_writer._ev_writer._py_recordio_writer._writer
    writer.add_scalar('loss', 1.0, 0)
    writer.close()
    assert isinstance(file, PatientFile) and not open_files_in(tmp_path)


# ---------------------------------------------------------------- what plays, and what is checked


class Opened(BreakoutEnv):
    """An environment that somebody still holds."""

    all = []

    def __init__(self, cfg):
        super().__init__(cfg)
        self.all.append(self)


@pytest.mark.parametrize('what', ['play', 'evaluate', 'export'])
def test_what_plays_games_is_closed_though_somebody_looks_at_the_error(what, monkeypatch, tmp_path):
    Opened.all.clear()
    agent = load_agent()

    def fail(*args):
        raise RuntimeError('planted')

    with pytest.raises(RuntimeError, match='planted') as caught:
        if what == 'evaluate':
            evaluate(agent, 'greedy', 1, 0, max_episode_frames=2000, on_step=fail)
        elif what == 'play':
            monkeypatch.setattr(play_module, 'BreakoutEnv', Opened)
            with VideoFile(tmp_path / 'game.mp4', 15) as screen:
                list(play_module.play(fail, screen, dict(is_train=False)))
        else:
            monkeypatch.setattr(export_module, 'BreakoutEnv', Opened)
            monkeypatch.setattr(agent, 'act', fail)
            export_module._observations(agent)
    assert caught.value is not None and not children()
    assert len(Opened.all) == (what != 'evaluate') and not any(hasattr(env, '_env') for env in Opened.all)


def test_a_window_goes_with_its_game_though_somebody_holds_it(display):
    before, picture = len(children()), np.zeros((210, 160, 3), np.uint8)
    screen = play_module.WindowScreen('game', 4, 1.0)
    with screen:
        assert screen.show(picture, '') and len(children()) == before + 1
    assert len(children()) == before and not screen.show(picture, '')


def test_a_window_that_can_not_be_opened_leaves_no_process_beside_its_error(display, monkeypatch):
    monkeypatch.setattr('breakout_env.rendering.window.OPEN_TIMEOUT_S', 1.0)
    before = len(children())
    display.send_signal(signal.SIGSTOP)
    with pytest.raises(HelperError, match='did not answer') as caught:
        play_module.WindowScreen('game', 4, 1.0)
    assert caught.value is not None and len(children()) == before


def test_a_picture_is_kept_no_longer_than_its_game(tmp_path):
    recorder, picture = GameRecorder(str(tmp_path), 'game', 4), np.zeros((210, 160, 3), np.uint8)
    recorder.begin(picture)
    recorder.end()
    recorder.write(picture)  # between two games, as the steps are that a reset plays
    recorder.close()
    assert not list(tmp_path.iterdir())


def test_an_environment_that_is_renewed_is_closed():
    Opened.all.clear()
    group = EnvGroup({0: partial(Opened, {})}, None, True, True)
    group.open()
    Opened.all[0].reset()
    group.renew(0)
    assert len(Opened.all) == 2 and not hasattr(Opened.all[0], '_env')
    group.close()


def test_a_worker_that_died_unseen_leaves_nothing_when_it_is_replaced():
    manager = GroupEnvManager([partial(BreakoutEnv, {})], dict(worker_num=1))
    manager.launch()
    try:
        worker = manager._workers[0]
        newest_child().kill()
        assert wait_until(lambda: not worker.alive)
        manager.reset()
        assert worker.lost and worker._connection.closed and manager._workers[0] is not worker
    finally:
        manager.close()


def test_a_check_of_the_doctors_has_its_own_end_of_the_pipe_alone():
    def pipes():
        names = [f'/proc/self/fd/{number}' for number in os.listdir('/proc/self/fd') if int(number) > 2]
        return sum(os.path.lexists(name) and os.readlink(name).startswith('pipe:') for name in names)

    before = pipes()
    (row,) = run_checks([Check('pipes', lambda: Finding('ok', str(pipes())))])
    assert row.found == str(before + 1) and pipes() == before


# ---------------------------------------------------------------- TorchRL's files


def torchrl_buffer(folder):
    pytest.importorskip('torchrl', reason="TorchRL is not installed (pip install 'breakout-env[torchrl]')")
    cfg = EasyDict(type='torchrl', replay_buffer_size=50, storage='memmap', folder=str(folder))
    buffer = create_buffer(cfg, tb_logger=None, exp_name='unused')
    buffer.push([transition(i) for i in range(20)], 0)
    return buffer


def test_a_save_by_torchrl_that_fails_leaves_the_one_before_and_nothing_else(tmp_path, monkeypatch):
    buffer = torchrl_buffer(tmp_path / 'files')
    buffer.save_data(str(tmp_path / 'saves' / 'buffer'))
    monkeypatch.setattr(buffer._buffer, 'dumps', lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        buffer.save_data(str(tmp_path / 'saves' / 'buffer'))
    assert os.listdir(tmp_path / 'saves') == ['buffer']


@pytest.mark.parametrize('can_be_loaded', [True, False])
def test_torchrls_files_go_when_others_are_loaded(can_be_loaded, tmp_path):
    buffer = torchrl_buffer(tmp_path / 'files')
    buffer.save_data(str(tmp_path / 'buffer'))
    if not can_be_loaded:
        description = tmp_path / 'buffer' / 'breakout_replay.json'
        description.write_text(description.read_text().replace('"count": 20', '"count": 19'))
    try:
        buffer.load_data(str(tmp_path / 'buffer'))
    except ValueError as error:
        assert not can_be_loaded and 'expected 19' in str(error)
    assert len(os.listdir(tmp_path / 'files')) == 1
