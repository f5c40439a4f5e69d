"""
The faults that ``planted.py`` plants, one for each place that ``sites.py`` finds: a release left out, a flush to the
disk left out, a reference kept or dropped too often. Each names the tests that must find it.

The text that is changed occurs once in its function; what comes in its place is nothing (``pass``) unless said.
"""

from dataclasses import dataclass
from typing import List, Tuple


@dataclass(frozen=True)
class Plant:
    """
    Overview:
        A fault.
    """

    # (str) 'release', 'fsync' or 'reference'.
    kind: str
    # (str) The file, from the package's folder on.
    file: str
    # (str) The function that it is planted in, with its class.
    function: str
    # (str) The text that is changed; once in that function.
    old: str
    # (str) What comes in its place.
    new: str
    # (tuple) Tests that find it, the quickest first: files of tests/, and in them a name, with all its parameters.
    tests: Tuple[str, ...]
    # (bool) Whether it shows as a test that never ends.
    hangs: bool = False

    @property
    def name(self) -> str:
        """What is done to which function."""
        old = ' '.join(self.old.split())
        done = f'without `{old}`' if self.new == 'pass' else f'`{" ".join(self.new.split())}` for `{old}`'
        return f'{self.kind}: {self.file} {self.function}: {done}'


def release(file: str, function: str, old: str, *tests: str, new: str = 'pass', hangs: bool = False) -> Plant:
    """Something that is not let go of."""
    return Plant('release', file, function, old, new, tests, hangs)


def fsync(file: str, function: str, old: str, *tests: str, new: str = 'pass') -> Plant:
    """Something that is not on the disk when it is said to be."""
    return Plant('fsync', file, function, old, new, tests)


def reference(file: str, function: str, old: str, *tests: str, new: str = 'pass', hangs: bool = False) -> Plant:
    """A count that is one too high or one too low."""
    return Plant('reference', file, function, old, new, tests, hangs)


GIVEN_BACK = 'test_replay_buffer.py::test_memory_descriptors_and_threads_are_given_back'
NO_FRAME_BEHIND = 'test_replay_exactness.py::test_a_push_that_fails_half_way_leaves_no_frame_behind'
OUTLIVE = 'test_replay_exactness.py::test_compressed_frames_outlive_their_segments_and_dictionaries'
HELD_ONCE = 'test_releases.py::test_what_is_held_for_a_draw_is_let_go_once'
REPLACED = 'test_releases.py::test_a_transition_that_is_replaced_lets_go_of_its_frames_once'
UNDER_WAY = 'test_releases.py::test_memory_goes_at_once_though_a_save_under_way_holds_a_part_of_it'
FAILED_SAVE = 'test_releases.py::test_a_save_that_fails_lets_go_of_every_frame'
FAILED_LOAD = 'test_releases.py::test_a_load_that_fails_gives_back_what_it_had_taken'
NOT_WANTED = 'test_releases.py::test_a_batch_that_was_prepared_and_is_not_wanted_is_let_go_once'
EVICTED = 'test_releases.py::test_what_was_evicted_is_counted_no_more'
NO_FILE_OPEN = 'test_releases.py::test_a_save_and_a_load_leave_no_file_open'
THE_LOCK = 'test_releases.py::test_signals_wait_for_the_outermost_hold_of_the_lock_and_then_come'
SEGMENTS = 'test_releases.py::test_segments_of_compressed_frames_are_free_when_nothing_in_them_is_alive'
UNREFERRED = 'test_releases.py::test_frames_of_a_save_that_nobody_refers_to_take_no_room'
OF_THE_MOMENT = 'test_replay_saving.py::test_a_background_save_is_of_the_moment_it_began'
EMPTIED = 'test_replay_saving.py::test_a_background_save_is_whole_though_the_buffer_is_emptied'
LOADED = 'test_replay_saving.py::test_a_loaded_buffer_is_the_saved_one_and_goes_on_alike[ring-file-compressed]'
PREFETCHED = 'test_replay_buffer.py::test_what_is_prefetched_is_let_go'
ON_THE_DISK = 'test_releases.py::test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_is_before_that_is_told'
A_CALL_FAILS = 'test_replay_saving.py::test_whatever_call_of_the_system_fails_there_is_a_whole_save'
SLOTS = 'test_releases.py::test_strings_are_forgotten_with_the_last_transition_that_has_them'

# ---------------------------------------------------------------- the replay memory

REPLAY: List[Plant] = [
    # references to frames
    reference(
        'replay/frame_index.py',
        'FrameIndex.take',
        'references[frame] += 1',
        NO_FRAME_BEHIND,
        new='references[frame] += 2',
    ),
    reference(
        'replay/frame_index.py',
        'FrameIndex.take',
        'references[frame] += 1',
        EVICTED,
        new='references[frame] = 1',
    ),
    reference(
        'replay/frame_index.py',
        'FrameIndex.drop',
        'references[frame] - 1',
        EVICTED,
        new='references[frame]',
    ),
    reference(
        'replay/frame_index.py',
        'FrameIndex.drop',
        'references[frame] - 1',
        EVICTED,
        new='references[frame] - (2 if references[frame] > 1 else 1)',
    ),
    reference('replay/frame_index.py', 'FrameIndex.drop', 'self._forget(frame)', NO_FRAME_BEHIND),
    reference(
        'replay/frame_index.py',
        'FrameIndex.set_references',
        'self._forget(frame)',
        UNREFERRED,
    ),
    reference(
        'replay/frame_index.py',
        'FrameIndex.set_references',
        'self._arrays[3][: self._end] = counts',
        LOADED,
        new='self._arrays[3][: self._end] = counts + 1',
    ),
    reference(
        'replay/frame_index.py',
        'FrameIndex.set_references',
        'self._arrays[3][: self._end] = counts',
        LOADED,
        new='self._arrays[3][: self._end] = np.minimum(counts, 1)',
    ),
    reference('replay/frame_index.py', 'FrameIndex.cancel', 'self._forget(frame)', NO_FRAME_BEHIND),
    reference('replay/frame_store.py', 'FrameStore.add', 'index.cancel(frame)', NO_FRAME_BEHIND),
    reference(
        'replay/frame_store.py',
        'FrameStore.add',
        'index.take(frames)\n                    self.release(frames)',
        NO_FRAME_BEHIND,
        new='index.take(frames)',
    ),
    reference(
        'replay/frame_store.py',
        'FrameStore.add',
        'index.take(frames)\n                    self.release(frames)',
        NO_FRAME_BEHIND,
        new='self.release(frames)',
    ),
    reference(
        'replay/frame_store.py',
        'FrameStore.add',
        'index.take(frames)\n        return frames',
        EVICTED,
        new='index.take(frames)\n        index.take(frames[:1])\n        return frames',
    ),
    reference(
        'replay/frame_store.py',
        'FrameStore.add',
        'index.take(frames)\n        return frames',
        EVICTED,
        new='index.take(frames[1:])\n        return frames',
    ),
    reference('replay/frame_store.py', 'FrameStore.hold', 'self._index.take(frames)', OF_THE_MOMENT),
    reference(
        'replay/frame_store.py',
        'FrameStore.release',
        'self._index.drop(frames)',
        NO_FRAME_BEHIND,
        new='self._index.drop(list(frames)[1:])',
    ),
    reference(
        'replay/frame_store.py',
        'FrameStore.release',
        'self._index.drop(frames)',
        EVICTED,
        LOADED,
        new='self._index.drop([*frames, *frames])',
    ),
    reference(
        'replay/frame_store.py',
        'FrameStore.release',
        'self._storage.drop(gone)',
        OUTLIVE,
        'test_replay_buffer.py::test_what_is_removed_gives_its_memory_back_at_once',
    ),
    reference(
        'replay/frame_store.py',
        'FrameStore.set_references',
        'self._index.set_references(references)',
        LOADED,
        new='self._index.set_references(references + 1)',
    ),
    reference(
        'replay/frame_store.py',
        'FrameStore.set_references',
        'self._storage.drop(gone)',
        UNREFERRED,
    ),
    reference('replay/replay_memory.py', 'ReplayMemory._frames_of', 'self._store.release(frames)', NO_FRAME_BEHIND),
    reference(
        'replay/replay_memory.py',
        'ReplayMemory._frames_of',
        'self._store.release(frames)',
        NO_FRAME_BEHIND,
        new='self._store.release([*frames, *frames])',
    ),
    reference(
        'replay/replay_memory.py',
        'ReplayMemory._remove_row',
        'self._store.release(frames)',
        EVICTED,
        'test_replay_buffer.py::test_what_is_removed_gives_its_memory_back_at_once',
    ),
    reference(
        'replay/replay_memory.py',
        'ReplayMemory._remove_row',
        'self._store.release(frames)',
        OF_THE_MOMENT,
        new='self._store.release(frames[1:])',
    ),
    reference(
        'replay/replay_memory.py',
        'ReplayMemory._remove_row',
        'self._store.release(frames)',
        OF_THE_MOMENT,
        new='self._store.release([*frames, *frames[:1]])',
    ),
    reference('replay/replay_memory.py', 'ReplayMemory.replace', 'self._store.release(old)', REPLACED),
    reference(
        'replay/replay_memory.py',
        'ReplayMemory.replace',
        'self._store.release(old)',
        REPLACED,
        new='self._store.release([*old, *old[:1]])',
    ),
    reference(
        'replay/replay_memory.py',
        'ReplayMemory.select',
        'self._store.hold(frames.ravel().tolist())',
        'test_replay_buffer.py::test_a_prefetched_batch_is_exact_whatever_happens_to_its_transitions',
    ),
    reference(
        'replay/replay_memory.py',
        'ReplayMemory.select',
        'self._store.hold(frames.ravel().tolist())',
        HELD_ONCE,
        new='self._store.hold(2 * frames.ravel().tolist())',
    ),
    reference(
        'replay/replay_memory.py', 'ReplayMemory.release', 'self._store.release(frames.ravel().tolist())', HELD_ONCE
    ),
    reference(
        'replay/replay_memory.py',
        'ReplayMemory.release',
        'self._store.release(frames.ravel().tolist())',
        HELD_ONCE,
        new='self._store.release(2 * frames.ravel().tolist())',
    ),
    reference('replay/replay_memory.py', 'ReplayMemory.decode', 'self.release(drawn)', HELD_ONCE),
    reference(
        'replay/memory_image.py', 'MemoryImage.__init__', 'memory._store.hold(self._held.tolist())', OF_THE_MOMENT
    ),
    reference(
        'replay/memory_image.py',
        'MemoryImage.__init__',
        'memory._store.hold(self._held.tolist())',
        OF_THE_MOMENT,
        new='memory._store.hold(2 * self._held.tolist())',
    ),
    reference('replay/memory_image.py', 'MemoryImage.arrays', 'self._store.release(chunk.tolist())', OF_THE_MOMENT),
    reference(
        'replay/memory_image.py',
        'MemoryImage.arrays',
        'self._store.release(chunk.tolist())',
        OF_THE_MOMENT,
        new='self._store.release(2 * chunk.tolist())',
    ),
    reference(
        'replay/memory_image.py',
        'MemoryImage.close',
        'self._store.release(self._held.tolist())',
        FAILED_SAVE,
    ),
    reference(
        'replay/memory_image.py',
        '_fill_frames',
        'references += np.bincount(schema.frames[rows].ravel(), minlength=len(references))',
        LOADED,
        new='references = np.bincount(schema.frames[rows].ravel(), minlength=len(references)) + 1',
    ),
    reference('replay/memory_image.py', '_fill_frames', 'store.set_references(references)', LOADED),
    reference(
        'replay/frame_replay_buffer.py',
        'FrameReplayBuffer._drop_prefetched',
        'self._memory.release(drawn)',
        NOT_WANTED,
    ),
    reference(
        'replay/frame_replay_buffer.py',
        'FrameReplayBuffer._drop_prefetched',
        'if future.cancel():',
        NOT_WANTED,
        new='if True:',
    ),
    # what lives where frames are kept
    reference(
        'replay/raw_frames.py',
        'UncompressedFrames.drop',
        'self._frames -= len(list(frames))',
        EVICTED,
    ),
    reference('replay/raw_frames.py', 'RawFrames.put', 'self._frames += 1', EVICTED),
    reference('replay/device_frames.py', 'DeviceFrames.put', 'self._frames += 1', EVICTED),
    reference('replay/compressed_frames.py', 'CompressedFrames.drop', 'self._live_bytes -= length', SEGMENTS),
    reference('replay/compressed_frames.py', 'CompressedFrames.drop', 'self._dead_bytes += length', SEGMENTS),
    reference('replay/compressed_frames.py', 'CompressedFrames.drop', 'self._live[segment] -= length', SEGMENTS),
    reference('replay/compressed_frames.py', 'CompressedFrames.drop', 'self._release(segment)', OUTLIVE),
    reference('replay/compressed_frames.py', 'CompressedFrames._append', 'self._live[segment] += length', SEGMENTS),
    reference('replay/compressed_frames.py', 'CompressedFrames._append', 'self._live_bytes += length', SEGMENTS),
    reference('replay/compressed_frames.py', 'CompressedFrames._new_segment', 'self._release(full)', SEGMENTS),
    reference(
        'replay/compressed_frames.py',
        'CompressedFrames._new_segment',
        'self._segments_of.get(codec, 0) + 1',
        SEGMENTS,
        new='1',
    ),
    reference('replay/compressed_frames.py', 'CompressedFrames._release', 'self._segments_of[codec] -= 1', SEGMENTS),
    reference(
        'replay/compressed_frames.py', 'CompressedFrames._release', 'self._dead_bytes -= self._used[segment]', SEGMENTS
    ),
    release(
        'replay/compressed_frames.py',
        'CompressedFrames._release',
        'self._memory.give_back(segment * self._segment_bytes, self._segment_bytes)',
        'test_replay_buffer.py::test_what_is_removed_gives_its_memory_back_at_once',
    ),
    reference('replay/compressed_frames.py', 'CompressedFrames._clean', 'self._live_bytes -= length', SEGMENTS),
    reference('replay/compressed_frames.py', 'CompressedFrames._clean', 'self._dead_bytes += length', SEGMENTS),
    reference('replay/compressed_frames.py', 'CompressedFrames._clean', 'self._release(segment)', OUTLIVE),
    reference(
        'replay/compressed_frames.py', 'CompressedFrames._look_for_a_better_dictionary', 'self.drop([frame])', OUTLIVE
    ),
    # strings, and the lock
    reference(
        'replay/transition_schema.py', 'StringTable.add', 'self._uses[number] += 1', SLOTS, new='self._uses[number] = 1'
    ),
    reference(
        'replay/transition_schema.py',
        'StringTable.add',
        'self._uses[number] += 1',
        SLOTS,
        new='self._uses[number] += 2',
    ),
    reference('replay/transition_schema.py', 'StringTable.release', 'self._uses[number] -= 1', SLOTS),
    reference(
        'replay/transition_schema.py',
        'StringTable.restore',
        'self._uses[number] += 1',
        'test_releases.py::test_loaded_strings_are_forgotten_with_the_last_transition_that_has_them',
        new='self._uses[number] = 1',
    ),
    reference('replay/transition_schema.py', 'TransitionSchema.rewrite', 'strings.release(int(column[row]))', SLOTS),
    reference('replay/transition_schema.py', 'TransitionSchema.clear', 'strings.release(int(column[row]))', SLOTS),
    reference(
        'replay/memory_lock.py',
        'MemoryLock.__enter__',
        'self._depth += 1',
        THE_LOCK,
    ),
    reference(
        'replay/memory_lock.py',
        'MemoryLock.__exit__',
        'self._depth -= 1',
        THE_LOCK,
    ),
    release(
        'replay/memory_lock.py',
        'MemoryLock.__exit__',
        'self._lock.release()',
        THE_LOCK,
    ),
    release(
        'replay/memory_lock.py',
        'MemoryLock.__exit__',
        'self._let_go()',
        THE_LOCK,
    ),
    release(
        'replay/memory_lock.py',
        'MemoryLock._hold_back',
        'self._let_go()',
        'test_releases.py::test_a_lock_that_can_not_hold_all_signals_back_holds_none',
    ),
    # memory, files, threads
    release('replay/growing_memory.py', 'GrowingMemory.reserve', 'self.view.release()', GIVEN_BACK),
    release('replay/growing_memory.py', 'GrowingMemory.close', 'self.view.release()', GIVEN_BACK),
    release(
        'replay/growing_memory.py',
        'GrowingMemory.close',
        'self._map.close()',
        UNDER_WAY,
    ),
    release(
        'replay/growing_memory.py',
        'GrowingMemory.close',
        'self._file.close()',
        UNDER_WAY,
    ),
    release(
        'replay/raw_frames.py',
        'RawFrames.close',
        'self._memory.close()',
        UNDER_WAY,
    ),
    release(
        'replay/compressed_frames.py',
        'CompressedFrames.close',
        'self._memory.close()',
        UNDER_WAY,
    ),
    release(
        'replay/device_frames.py',
        'DeviceFrames.close',
        'self._chunks = []',
        UNDER_WAY,
    ),
    release(
        'replay/device_frames.py',
        'DeviceFrames.close',
        "self._staging, self._staging_view = np.empty((0, self._frame_bytes), np.uint8), memoryview(b'')",
        UNDER_WAY,
    ),
    release(
        'replay/frame_store.py',
        'FrameStore.close',
        'self._storage.close()',
        UNDER_WAY,
    ),
    release(
        'replay/replay_memory.py',
        'ReplayMemory.close',
        'self._store.close()',
        UNDER_WAY,
    ),
    release('replay/replay_memory.py', 'ReplayMemory.close', 'self._reset()', GIVEN_BACK),
    release(
        'replay/replay_memory.py',
        'ReplayMemory.clear',
        'self.close()',
        UNDER_WAY,
    ),
    release(
        'replay/replay_memory.py',
        'ReplayMemory.become',
        'self.close()',
        UNDER_WAY,
    ),
    release(
        'replay/memory_image.py',
        'restore',
        'except (DamagedFile, DoesNotFit):\n        fresh.close()',
        FAILED_LOAD,
        new='except (DamagedFile, DoesNotFit):',
    ),
    release(
        'replay/memory_image.py',
        'restore',
        'as error:\n        fresh.close()',
        FAILED_LOAD,
        new='as error:',
    ),
    release(
        'replay/memory_image.py',
        'restore',
        'is full\n        fresh.close()',
        FAILED_LOAD,
        new='is full',
    ),
    release(
        'replay/background_saver.py',
        'BackgroundSaver.start.work',
        'image.close()',
        FAILED_SAVE,
    ),
    release(
        'replay/background_saver.py',
        'BackgroundSaver.wait',
        'self._thread.join()',
        'test_replay_saving.py::test_it_saves_itself_every_so_many_pushes',
        OF_THE_MOMENT,
    ),
    release(
        'replay/frame_replay_buffer.py',
        'FrameReplayBuffer.save_data',
        'image.close()',
        FAILED_SAVE,
    ),
    release(
        'replay/frame_replay_buffer.py',
        'FrameReplayBuffer.state_dict',
        'image.close()',
        FAILED_SAVE,
    ),
    release('replay/frame_replay_buffer.py', 'FrameReplayBuffer.clear', 'self._drop_prefetched()', PREFETCHED),
    release('replay/frame_replay_buffer.py', 'FrameReplayBuffer._restore', 'self._drop_prefetched()', PREFETCHED),
    release(
        'replay/frame_replay_buffer.py',
        'FrameReplayBuffer.close',
        'self._drop_prefetched()',
        'test_releases.py::test_a_closed_buffer_that_somebody_holds_has_no_thread_and_no_batch',
    ),
    release(
        'replay/frame_replay_buffer.py',
        'FrameReplayBuffer.close',
        'self._prefetcher.shutdown(wait=True)',
        'test_releases.py::test_a_closed_buffer_that_somebody_holds_has_no_thread_and_no_batch',
    ),
    release('replay/frame_replay_buffer.py', 'FrameReplayBuffer.close', 'self._memory.close()', GIVEN_BACK),
    release(
        'replay/frame_replay_buffer.py',
        'FrameReplayBuffer.__del__',
        'self.close()',
        'test_releases.py::test_a_buffer_that_is_dropped_saves_what_it_was_asked_to',
    ),
    release(
        'replay/frame_buffer.py',
        'FrameBuffer.save_data',
        'image.close()',
        FAILED_SAVE,
    ),
    release(
        'replay/frame_buffer.py',
        'FrameBuffer.close',
        'self._memory.close()',
        'test_replay_buffer.py::test_the_task_buffer_saves_loads_and_closes',
    ),
    # files
    release(
        'replay/array_file.py',
        'write',
        '_remove_leftovers(path)',
        'test_replay_saving.py::test_what_a_killed_save_left_behind_is_removed_by_the_next',
    ),
    release(
        'replay/array_file.py',
        'write',
        'os.unlink(previous(path))',
        'test_releases.py::test_the_save_before_is_the_last_but_one',
    ),
    release('replay/array_file.py', 'write', 'os.unlink(unfinished)', A_CALL_FAILS),
    release(
        'replay/array_file.py',
        'write_bytes',
        'unfinished.unlink()',
        'test_releases.py::test_a_small_file_that_can_not_be_written_leaves_the_one_before_and_nothing_else',
    ),
    release(
        'replay/array_file.py',
        '_remove_leftovers',
        'os.unlink(leftover)',
        'test_replay_saving.py::test_what_a_killed_save_left_behind_is_removed_by_the_next',
    ),
    release(
        'replay/array_file.py',
        '_flush_folder',
        'os.close(descriptor)',
        NO_FILE_OPEN,
    ),
    release(
        'replay/array_file.py',
        'SavedArrays.close',
        'self._archive.close()',
        NO_FILE_OPEN,
    ),
    release(
        'replay/array_file.py',
        'read_newest',
        'contextlib.closing(SavedArrays(candidate))',
        NO_FILE_OPEN,
        new='contextlib.nullcontext(SavedArrays(candidate))',
    ),
    fsync('replay/array_file.py', 'write', 'os.fsync(file.fileno())', ON_THE_DISK),
    fsync('replay/array_file.py', 'write', '_flush_folder(os.path.dirname(path))', ON_THE_DISK),
    fsync('replay/array_file.py', 'write_bytes', 'os.fsync(file.fileno())', ON_THE_DISK),
    fsync('replay/array_file.py', 'write_bytes', '_flush_folder(str(path.parent))', ON_THE_DISK),
    fsync('replay/array_file.py', '_flush_folder', 'os.fsync(descriptor)', ON_THE_DISK),
    # TorchRL's
    release(
        'replay/torchrl_buffer.py',
        '_give_back',
        'storage.release()',
        'test_torchrl.py::test_memory_and_files_are_given_back_at_once',
    ),
    release(
        'replay/torchrl_buffer.py',
        '_give_back',
        'shutil.rmtree(folder, ignore_errors=True)',
        'test_torchrl.py::test_memory_and_files_are_given_back_at_once',
    ),
    release(
        'replay/torchrl_buffer.py',
        'TorchRLReplayBuffer.close',
        'self._give_back()',
        'test_torchrl.py::test_memory_and_files_are_given_back_at_once',
    ),
    release(
        'replay/torchrl_buffer.py',
        'TorchRLReplayBuffer._open',
        'weakref.finalize(self, _give_back, self._buffer.storage, folder, os.getpid())',
        'test_torchrl.py::test_memory_and_files_are_given_back_at_once',
        new='lambda *parts: None',
    ),
    release(
        'replay/torchrl_buffer.py',
        'TorchRLReplayBuffer.save_data',
        'shutil.rmtree(old, ignore_errors=True)',
        'test_torchrl.py::test_a_saved_buffer_goes_on_where_it_was',
    ),
    release(
        'replay/torchrl_buffer.py',
        'TorchRLReplayBuffer.save_data',
        'finally:\n            shutil.rmtree(fresh, ignore_errors=True)',
        'test_releases.py::test_a_save_by_torchrl_that_fails_leaves_the_one_before_and_nothing_else',
        new='finally:\n            pass',
    ),
    release(
        'replay/torchrl_buffer.py',
        'TorchRLReplayBuffer._take_over',
        'self.close()\n        self._open()\n        try:',
        'test_releases.py::test_torchrls_files_go_when_others_are_loaded',
        new='self._open()\n        try:',
    ),
    release(
        'replay/torchrl_buffer.py',
        'TorchRLReplayBuffer._take_over',
        'self.close()\n            self._open()',
        'test_releases.py::test_torchrls_files_go_when_others_are_loaded',
        new='self._open()',
    ),
    release(
        'replay/torchrl_parts.py',
        'MemmapStorage.release',
        'self._storage.unlock_()',
        'test_torchrl.py::test_memory_and_files_are_given_back_at_once',
    ),
]

# ---------------------------------------------------------------- the environment

CUT_SHORT = 'test_recording.py::test_close_completes_a_game_cut_short'
FAILING_RELEASE = 'test_close.py::test_one_failing_release_does_not_keep_the_others_from_theirs'
HELD_EMULATOR = 'test_releases.py::test_a_closed_emulator_has_no_memory_though_somebody_holds_it'
ENDED = 'test_releases.py::test_a_program_that_is_ended_leaves_nothing_whoever_holds_what'
FORKED = 'test_releases.py::test_a_fork_has_no_copy_of_what_a_program_is_fed_through'
STUCK = 'test_recording.py::test_a_stuck_encoder_can_not_hang_close'
FAILED_RESET = 'test_close.py::test_a_failed_reset_leaves_nothing_open_and_the_next_one_works'
GIVEN_UP = 'test_releases.py::test_a_video_that_is_given_up_leaves_no_file_however_far_it_was'
INTERRUPTED = 'test_play.py::test_an_interrupted_recording_leaves_nothing'
FULL_DISK = 'test_play.py::test_a_full_disk_is_a_sentence_and_leaves_nothing'
WINDOWS = 'test_window.py::test_a_window_opens_and_goes_twenty_times_over'

ENVIRONMENT: List[Plant] = [
    release(
        'env.py',
        'BreakoutEnv.__init__',
        'weakref.finalize(self, self._resources.close)',
        'test_close.py::test_garbage_collection_closes',
    ),
    release('env.py', 'BreakoutEnv.reset', 'self.close()', FAILED_RESET),
    release(
        'env.py',
        'BreakoutEnv.step',
        'self.close()',
        'test_close.py::test_a_failed_step_closes_and_the_next_reset_works',
    ),
    release(
        'env.py',
        'BreakoutEnv.step',
        'self._recorder.end(self._game_points)',
        'test_recording.py::test_a_whole_game_becomes_a_video_that_a_browser_plays',
    ),
    release(
        'env.py',
        'BreakoutEnv.close',
        'self._recorder = self._window = self._watch = None',
        'test_releases.py::test_the_video_of_an_environments_next_life_is_completed_as_well',
    ),
    release('env.py', 'BreakoutEnv.close', "self.__dict__.pop('_env', None)", FAILED_RESET),
    release('env.py', 'BreakoutEnv.close', 'self._resources.close()', CUT_SHORT),
    release('env.py', 'BreakoutEnv._start_game', "self._own('emulator', self._env)", FAILING_RELEASE),
    release('env.py', 'BreakoutEnv._start_game', "self._own('window', self._window)", WINDOWS),
    release('env.py', 'BreakoutEnv._start_game', "self._own('recorder', self._recorder)", CUT_SHORT),
    release(
        'env.py',
        'BreakoutEnv._start_game',
        'self._recorder.end()',
        'test_releases.py::test_the_video_of_a_game_that_is_given_up_is_completed_before_the_next',
    ),
    release('env.py', 'BreakoutEnv._own', 'self._resources.callback(_close_one, id(self), name, resource)', CUT_SHORT),
    release('env.py', '_close_one', 'resource.close()', CUT_SHORT),
    release('emulator.py', 'Emulator.close', 'self._before_last_noop.clear()', HELD_EMULATOR),
    release('emulator.py', 'Emulator.close', 'self._ale = None', HELD_EMULATOR),
    release(
        'recording.py',
        'GameRecorder.write',
        "self._finish('given-up')",
        'test_recording.py::test_a_stuck_encoder_is_given_up_and_the_game_goes_on',
    ),
    release(
        'recording.py',
        'GameRecorder.end',
        'self._first_picture = None',
        'test_releases.py::test_a_picture_is_kept_no_longer_than_its_game',
    ),
    release(
        'recording.py',
        'GameRecorder.end',
        "self._finish('unfinished' if score is None else f'score{score}')",
        CUT_SHORT,
    ),
    release('recording.py', 'GameRecorder.close', 'self.end()', CUT_SHORT),
    release(
        'recording.py',
        'GameRecorder._open',
        "os.close(os.open(f'{stem}.part.mp4', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))",
        'test_close.py::test_one_failing_release_does_not_keep_the_others_from_theirs',
        new="os.open(f'{stem}.part.mp4', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)",
    ),
    release(
        'recording.py', 'GameRecorder._finish', 'if not encoder.close(CLOSE_TIMEOUT_S):', CUT_SHORT, new='if False:'
    ),
    release(
        'helper_process.py',
        'HelperProcess.__init__',
        'self._messages.close()',
        'test_releases.py::test_a_program_that_can_not_be_started_leaves_nothing_beside_its_error',
    ),
    release('helper_process.py', 'HelperProcess.close', 'process.stdin.close()', ENDED),
    release('helper_process.py', 'HelperProcess.close', 'process.stdout.close()', ENDED),
    release('helper_process.py', 'HelperProcess.close', 'process.wait(timeout_s)', CUT_SHORT, new='process.poll()'),
    release('helper_process.py', 'HelperProcess.close', 'process.kill()', ENDED, hangs=True),
    release('helper_process.py', 'HelperProcess.close', 'process.wait()', ENDED),
    release('helper_process.py', 'HelperProcess.close', 'self._messages.close()', ENDED),
    release('helper_process.py', 'HelperProcess._forget', 'process.stdin.close()', FORKED),
    release('helper_process.py', 'HelperProcess._forget', 'process.stdout.close()', FORKED),
    release('helper_process.py', 'HelperProcess._forget', 'self._messages.close()', FORKED),
    release('helper_process.py', '_forget_all', 'helper._forget()', FORKED),
    release('helper_process.py', '<module>', 'os.register_at_fork(after_in_child=_forget_all)', FORKED),
    release(
        'video_file.py',
        'VideoFile.finish',
        'encoder.close(CLOSE_TIMEOUT_S)',
        'test_play.py::test_an_agents_games_become_one_video',
    ),
    release('video_file.py', 'VideoFile.finish', 'self._remove_part()', FULL_DISK),
    release('video_file.py', 'VideoFile.close', 'encoder.close(0)', INTERRUPTED),
    release('video_file.py', 'VideoFile.close', 'self._remove_part()', GIVEN_UP),
    release('video_file.py', 'VideoFile.__exit__', 'self.close()', GIVEN_UP),
    release('video_file.py', 'VideoFile._remove_part', 'os.remove(self._part)', GIVEN_UP),
    release(
        'window.py',
        'GameWindow.__init__',
        'as e:\n            self.close()',
        'test_releases.py::test_a_window_that_can_not_be_opened_leaves_no_process_beside_its_error',
        new='as e:',
    ),
    release(
        'window.py',
        'GameWindow.__init__',
        'knows of the process yet\n            self.close()',
        'test_window.py::test_an_interrupt_while_the_window_opens_leaves_no_process',
        new='knows of the process yet',
    ),
    release(
        'window.py',
        'GameWindow.show',
        'self.close()',
        'test_window.py::test_a_window_that_its_user_closes_is_given_up',
        'test_window.py::test_a_stopped_x_server_can_not_hang_the_game_or_close',
    ),
    release(
        'window.py',
        'GameWindow.present',
        'process.close(CLOSE_TIMEOUT_S)',
        'test_play.py::test_a_window_that_its_user_closes_ends_the_game_without_an_error',
        'test_play.py::test_a_stopped_window_process_ends_the_game_with_a_sentence',
    ),
    release('window.py', 'GameWindow.close', 'process.close(CLOSE_TIMEOUT_S)', WINDOWS),
]

# ---------------------------------------------------------------- the env manager

LOST_ALONE = 'test_env_manager.py::test_a_lost_worker_costs_its_own_environments_alone'
LOST_WORKER = 'test_releases.py::test_a_lost_worker_leaves_nothing_before_another_takes_its_place'
NO_WORKER = 'test_releases.py::test_a_worker_that_can_not_be_started_leaves_nothing_beside_its_error'
CLOSES_ENVS = 'test_env_manager.py::test_close_closes_the_environments_also_beside_another_manager'
LOST_IN_RESET = 'test_env_manager.py::test_a_worker_lost_in_a_reset_is_replaced'
NOT_ASKED_AGAIN = 'test_releases.py::test_a_process_whose_environment_can_not_be_made_is_not_asked_again'
AGAIN = 'test_releases.py::test_a_manager_that_was_closed_knows_of_no_loss_when_it_is_launched_again'
STOPPED_WORKER = 'test_env_manager.py::test_close_gives_everything_back[with a worker stopped]'

MANAGER: List[Plant] = [
    release(
        'env_manager/group.py',
        'EnvGroup.renew',
        'self._of(env_id, self._envs.pop(env_id).close)',
        'test_releases.py::test_an_environment_that_is_renewed_is_closed',
    ),
    release('env_manager/group.py', 'EnvGroup.close', 'self._envs.pop(env_id).close()', CLOSES_ENVS),
    release('env_manager/group.py', 'run_group', 'group.close()', CLOSES_ENVS),
    release(
        'env_manager/manager.py',
        'GroupEnvManager.__init__',
        'weakref.finalize(self, _end, self._workers, self._owner_pid)',
        'test_releases.py::test_a_manager_that_is_dropped_ends_workers_that_do_not_listen',
    ),
    release(
        'env_manager/manager.py',
        'GroupEnvManager._create_state',
        'self.close()',
        'test_releases.py::test_a_launch_that_fails_leaves_no_process_though_nobody_closes',
    ),
    release('env_manager/manager.py', 'GroupEnvManager.close', '_end(self._workers, self._owner_pid)', CLOSES_ENVS),
    release(
        'env_manager/manager.py',
        'GroupEnvManager._retry_reset',
        'self.close()',
        'test_env_manager.py::test_a_reset_that_fails_for_good_closes',
    ),
    release(
        'env_manager/manager.py',
        'GroupEnvManager._try_reset',
        'if not worker.alive:\n                    self._lose(worker)',
        'test_env_manager.py::test_a_worker_killed_while_nobody_steps_is_brought_back_by_reset',
        'test_releases.py::test_a_worker_that_died_unseen_leaves_nothing_when_it_is_replaced',
        new='if not worker.alive:',
    ),
    release(
        'env_manager/manager.py',
        'GroupEnvManager._try_reset',
        'self._lose(self._workers[index])',
        NOT_ASKED_AGAIN,
    ),
    release(
        'env_manager/manager.py',
        'GroupEnvManager._try_reset',
        'as above\n                self._lose(worker)',
        LOST_IN_RESET,
        new='as above',
    ),
    release(
        'env_manager/manager.py',
        'GroupEnvManager._renew',
        'self._lose(worker)',
        NOT_ASKED_AGAIN,
    ),
    release(
        'env_manager/manager.py',
        'GroupEnvManager._step',
        'self.close()',
        'test_env_manager.py::test_an_error_in_a_step_is_raised_with_the_environments_traceback',
    ),
    release('env_manager/manager.py', 'GroupEnvManager._lose', 'worker.end()', LOST_WORKER),
    release('env_manager/manager.py', 'GroupEnvManager._lose_step', 'self._lose(worker)', LOST_WORKER, LOST_ALONE),
    release('env_manager/manager.py', '_end', 'worker.end(deadline)', CLOSES_ENVS),
    release('env_manager/manager.py', '_end', 'workers.clear()', AGAIN),
    release('env_manager/worker.py', 'GroupWorker.__init__', 'self._connection.close()', NO_WORKER),
    release('env_manager/worker.py', 'GroupWorker.__init__', 'theirs.close()', NO_WORKER),
    release('env_manager/worker.py', 'GroupWorker.end', 'self._connection.close()', LOST_WORKER),
    release(
        'env_manager/worker.py',
        'GroupWorker.end',
        'self._process.join(max(deadline - time.monotonic(), 0.0))',
        CLOSES_ENVS,
    ),
    release('env_manager/worker.py', 'GroupWorker.end', 'self._process.kill()', STOPPED_WORKER, hangs=True),
    release('env_manager/worker.py', 'GroupWorker.end', 'self._process.join()', STOPPED_WORKER),
    release('env_manager/worker.py', 'GroupWorker.end', 'self._process.close()', LOST_WORKER),
]

# ---------------------------------------------------------------- watching, playing, judging

TERMINAL_BACK = 'test_play.py::test_a_terminal_is_given_back_as_it_was'
IN_THE_TERMINAL = 'test_play.py::test_an_agent_is_watched_in_the_terminal_until_ctrl_c'
SUSPENDED = 'test_play.py::test_a_terminal_is_given_back_at_sigterm_and_while_suspended'

PLAYING: List[Plant] = [
    release(
        'play.py',
        'WindowScreen.close',
        'self._window.close()',
        'test_releases.py::test_a_window_goes_with_its_game_though_somebody_holds_it',
    ),
    release(
        'play.py',
        'WindowScreen.__exit__',
        'self.close()',
        'test_releases.py::test_a_window_goes_with_its_game_though_somebody_holds_it',
    ),
    release(
        'play.py',
        'play',
        'env.close()',
        'test_releases.py::test_what_plays_games_is_closed_though_somebody_looks_at_the_error',
    ),
    release('play.py', 'open_screen', 'with opened:', TERMINAL_BACK, IN_THE_TERMINAL, new='if True:'),
    release(
        'play.py',
        'record',
        'with VideoFile(path, FRAMES_PER_SECOND / AGENT_FRAME_SKIP * speed, max_seconds, overwrite) as video:',
        INTERRUPTED,
        new='for video in [VideoFile(path, FRAMES_PER_SECOND / AGENT_FRAME_SKIP * speed, max_seconds, overwrite)]:',
    ),
    release(
        'terminal_screen.py',
        'TerminalScreen.__init__',
        'self.close()',
        'test_play.py::test_a_terminal_that_can_not_be_taken_whole_is_given_back',
    ),
    release('terminal_screen.py', 'TerminalScreen.close', 'self._give_back()', TERMINAL_BACK),
    release('terminal_screen.py', 'TerminalScreen.close', 'signal.signal(signal.SIGTSTP, before)', TERMINAL_BACK),
    release('terminal_screen.py', 'TerminalScreen.__exit__', 'self.close()', TERMINAL_BACK, IN_THE_TERMINAL),
    release('terminal_screen.py', 'TerminalScreen._suspend', 'self._give_back()', SUSPENDED),
    release(
        'evaluation.py',
        '_Games.play',
        'self._env.close()',
        'test_releases.py::test_what_plays_games_is_closed_though_somebody_looks_at_the_error',
    ),
    release(
        'export.py',
        '_observations',
        'env.close()',
        'test_releases.py::test_what_plays_games_is_closed_though_somebody_looks_at_the_error',
    ),
]

# ---------------------------------------------------------------- runs

RUNS: List[Plant] = [
    release(
        'run_lock.py',
        'RunLock.__init__',
        'self._file.close()',
        'test_releases.py::test_a_folder_that_is_taken_is_not_kept_open_by_the_error',
    ),
    release(
        'run_lock.py',
        'RunLock.release',
        'self._file.close()',
        'test_releases.py::test_a_folder_is_free_when_it_is_released_though_somebody_holds_the_lock',
    ),
    release(
        'run_log.py',
        'RunLogWriter.write',
        'os.close(file)',
        'test_run_log.py::test_nothing_stays_open_between_two_lines',
    ),
    release(
        'patient_file.py',
        'PatientFile.close',
        'self._file.close()',
        'test_releases.py::test_tensorboards_file_is_closed_with_its_writer',
    ),
    release(
        'progress.py',
        'RunProgress.look',
        'self._looking.release()',
        'test_progress.py::test_a_row_has_the_loss_of_the_newest_update_whoever_gives_the_turn',
        'test_progress.py::test_the_line_of_a_resumed_run_has_the_speed_of_this_process_and_the_time_left',
    ),
    release(
        'quiet_import.py',
        'quiet_import',
        'finally:\n        held_back.release()',
        'test_command.py::test_the_import_is_quiet_and_warnings_after_it_are_seen',
        new='finally:',
    ),
    release(
        'quiet_import.py',
        'quiet_import',
        'sys.stderr.write(held_back.release())',
        'test_command.py::test_an_import_that_fails_shows_what_was_written_meanwhile',
    ),
    release(
        'resume.py',
        'ResumeHook.__call__',
        'engine.run_lock.release()',
        'test_resume.py::test_a_run_that_has_ended_or_can_not_go_on_does_not_hold_its_folder',
    ),
    release(
        'resume.py',
        'ResumeHook.__call__',
        "engine.register_hook(CallHook('resume_unlock', 300, engine.run_lock.release, 'after_run'))",
        'test_resume.py::test_a_run_that_has_ended_or_can_not_go_on_does_not_hold_its_folder',
    ),
    release(
        'resume.py',
        'RunSaver.after_run',
        'self._leave()',
        'test_resume.py::test_a_finished_run_listens_to_signals_no_more',
    ),
    release(
        'resume.py',
        'RunSaver._leave',
        'signal.signal(number, handler)',
        'test_resume.py::test_a_finished_run_listens_to_signals_no_more',
    ),
    release(
        'resume.py',
        'RunSaver._list_pair',
        "self._tidy({name for p in kept for name in (p['checkpoint'], p['buffer'])})",
        'test_resume.py::test_two_saves_are_kept_and_nothing_else',
    ),
    release('resume.py', 'RunSaver._tidy', 'path.unlink()', 'test_resume.py::test_two_saves_are_kept_and_nothing_else'),
    release(
        'doctor.py',
        '_run_apart',
        'os.close(reader)\n            os.setsid()',
        'test_releases.py::test_a_check_of_the_doctors_has_its_own_end_of_the_pipe_alone',
        new='os.setsid()',
    ),
    release(
        'doctor.py', '_run_apart', 'os.close(writer)', 'test_doctor.py::test_a_check_that_crashes_its_process_is_a_row'
    ),
    release(
        'doctor.py',
        '_run_apart',
        'os.close(reader)\n        _end(pid)',
        'test_doctor.py::test_a_check_that_raises_is_a_row',
        new='_end(pid)',
    ),
    release(
        'doctor.py',
        '_run_apart',
        'os.close(reader)\n        _end(pid)',
        'test_doctor.py::test_a_check_that_raises_is_a_row',
        new='os.close(reader)',
    ),
    release(
        'doctor.py',
        '_end',
        'kill(pid, signal.SIGKILL)',
        'test_doctor.py::test_a_check_that_hangs_is_cut_off_with_its_children',
    ),
    release(
        'doctor.py',
        '_end',
        'not os.waitpid(pid, os.WNOHANG)[0]',
        'test_doctor.py::test_a_check_that_raises_is_a_row',
        new='False',
    ),
    release(
        'cli/train_command.py',
        '_one_after_the_other.stop',
        'run.terminate()',
        'test_progress.py::test_a_scheduler_that_stops_several_seeds_stops_the_run_of_the_one_that_is_trained',
        hangs=True,
    ),
    release(
        'data_parallel.py',
        'Ranks.__exit__',
        'dist.destroy_process_group()',
        'test_data_parallel.py::test_one_process_alone_learns_what_the_main_entry_learns',
    ),
]

# ---------------------------------------------------------------- processes of a distributed run

IMPATIENT = 'test_distributed.py::test_an_impatient_user_ends_everybody'
STARTED_AGAIN = 'test_distributed.py::test_a_process_that_is_killed_is_started_again'
NOT_ENDING = 'test_distributed.py::test_who_does_not_end_with_the_run_is_killed'
MEMBERS = 'test_distributed.py::test_no_more_play_lies_ready_than_a_piece_for_each_collector_and_two'

DISTRIBUTED: List[Plant] = [
    release(
        'distributed/launcher.py',
        'Launcher.run',
        'at_the_end.callback(self._end_all)',
        'test_distributed.py::test_an_error_of_the_learner_is_the_end_and_its_exit_code_the_runs',
        NOT_ENDING,
    ),
    release('distributed/launcher.py', 'Launcher._kill_all', 'child.kill()', IMPATIENT),
    release('distributed/launcher.py', 'Launcher._end_all', 'child.stop(_END_S)', NOT_ENDING),
    release('distributed/launcher.py', 'Launcher._end_all', 'child.kill()', NOT_ENDING),
    release(
        'distributed/launcher.py',
        '_Child.look',
        'self._process.kill()',
        'test_distributed.py::test_a_learner_that_does_not_stop_in_its_time_is_killed',
    ),
    release('distributed/launcher.py', '_Child.stop', 'self._process.terminate()', STARTED_AGAIN),
    release(
        'distributed/launcher.py', '_Child.kill', 'os.killpg(self._process.pid, signal.SIGKILL)', NOT_ENDING, IMPATIENT
    ),
    release('distributed/members.py', 'Members.close', 'self._closing.set()', MEMBERS, hangs=True),
    release(
        'distributed/node.py',
        'Node.leave',
        'self._closing.set()',
        'test_distributed.py::test_each_env_step_counts_once_over_a_queue_that_loses_and_repeats_messages',
        hangs=True,
    ),
]

STOPS: List[Plant] = [
    release(
        'progress.py',
        'RunProgress.close',
        'self._line.close()',
        'test_progress.py::test_the_line_of_a_resumed_run_has_the_speed_of_this_process_and_the_time_left',
    ),
    release(
        'replay/torchrl_buffer.py',
        'TorchRLReplayBuffer.save_data',
        '(fresh / PREFETCHED).unlink(missing_ok=True)',
        'test_hostile_files.py::test_a_folder_of_torchrls_is_loaded_without_a_pickle',
    ),
    release(
        'signals.py',
        '_be_a_child',
        'ended, status = os.waitpid(-1, os.WNOHANG)',
        'test_clean_ends.py::test_a_container_that_is_stopped_while_its_program_is_imported_ends_at_once',
        new='ended = 0',
        hangs=True,
    ),
]

PLANTS: List[Plant] = [*REPLAY, *ENVIRONMENT, *MANAGER, *PLAYING, *RUNS, *DISTRIBUTED, *STOPS]

_ENDS = 'the process ends right after it, and with it all that it has started'
# Places without a fault, by file, function and text: leaving them out changes nothing that lasts, for the reason given.
NOT_PLANTED = {
    ('doctor_checks.py', 'rom', 'emulator.close()'): _ENDS,
    ('doctor_checks.py', 'window', 'window.close()'): _ENDS,
    ('doctor_checks.py', 'worker', 'manager.close()'): _ENDS,
    ('distributed/collector_node.py', 'CollectorNode.close', 'self._collector.close()'): _ENDS,
    ('distributed/evaluator_node.py', 'EvaluatorNode.close', 'self._evaluator.close()'): _ENDS,
    ('distributed/launcher.py', '_Child.kill', 'self._process.wait()'): _ENDS,
    ('distributed/launcher.py', '_Child.hurry', 'self._process.terminate()'): 'SIGKILL follows within a second',
    ('distributed/collectors.py', 'Collectors.close', 'self._ready.clear()'): 'pieces of play that go with their owner',
    ('distributed/members.py', 'Members.close', 'self._ticker.join()'): 'the thread ends by itself within a second',
    ('distributed/node.py', 'Node.leave', 'self._greeter.join()'): 'the thread ends by itself within a second',
    ('env_manager/manager.py', 'GroupEnvManager.close', 'self._lost.clear()'): 'the next launch does it again',
    ('env_manager/manager.py', 'GroupEnvManager.close', 'self._untold.clear()'): 'the next launch does it again',
    ('env_manager/group.py', 'run_group', 'others.close()'): 'second to the look for the owner, once a second',
    ('replay/frame_replay_buffer.py', 'FrameReplayBuffer.sample', 'self._drop_prefetched()'): (
        'what is not dropped is decoded in vain, and lets go by itself then'
    ),
    ('replay/replay_memory.py', 'ReplayMemory.close', 'self._store = None'): 'the next line does it again',
    (
        'signals.py',
        '_end_now',
        'worker.kill()',
    ): 'workers are asked before, and the system kills them with their parent',
    ('signals.py', 'leave_terminal', 'os.close(nowhere)'): 'one descriptor of a process that has lost its terminal',
}
