"""The replay buffer of DI-engine's serial pipelines, type ``frame``."""

import atexit
import copy
import logging
import math
import os
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from ding.utils import BUFFER_REGISTRY
from ding.worker.replay_buffer import IBuffer
from easydict import EasyDict

from ..utils import run_registry
from ..utils.memory_limits import memory_room, resident_bytes
from ..utils.options import section
from ..utils.signals import exit_in_order
from .batch import Extras, FrameBatch
from .memory import Drawn, ReplayMemory
from .options import ReplayOptions
from .room import check_room
from .snapshot import array_file
from .snapshot.background_saver import BackgroundSaver
from .snapshot.snapshot import MemoryImage, restore

_log = logging.getLogger(__name__)
# Added to a priority, so that none is 0 (DI-engine's advanced buffer and Schaul et al. 2016 do so).
_EPSILON = 1e-5
_USUAL_FRAME_BYTES = 84 * 84
# What a sampled transition carries besides what was pushed; pushed again, these keys are passed over.
_ADDED = frozenset(['replay_unique_id', 'replay_buffer_idx', 'use', 'staleness', 'IS', 'priority_IS', 'priority'])


@BUFFER_REGISTRY.register('frame')
class FrameReplayBuffer(IBuffer):
    """
    Overview:
        Keeps transitions whose ``obs`` and ``next_obs`` are stacks of uint8 screens, each distinct screen once and \
        compressed: a million transitions of Breakout in a quarter of a gigabyte, given back bit for bit.

        Samples uniformly until priorities arrive by ``update``, as DI-engine's advanced buffer does; from then on in \
        proportion to them. A sample takes the same time whatever the size.
    Interfaces:
        ``push``, ``sample``, ``update``, ``remove``, ``clear``, ``count``, ``save_data``, ``load_data``, \
        ``state_dict``, ``load_state_dict``, ``memory_report``, ``start``, ``close``, ``default_config``.
    Properties:
        ``replay_buffer_size``, ``push_count``, ``beta``.
    """

    config = dict(type='frame', **ReplayOptions().model_dump())

    def __init__(
        self,
        cfg: Mapping,
        tb_logger: Optional['SummaryWriter'] = None,  # noqa: F821
        exp_name: str = 'default_experiment',
        instance_name: str = 'buffer',
    ) -> None:
        """
        Arguments:
            - cfg (:obj:`Mapping`): ``policy.other.replay_buffer``; see ``ReplayOptions``.
            - tb_logger (:obj:`Optional[SummaryWriter]`): Where the curve of the memory goes; None for nowhere.
            - exp_name (:obj:`str`): Folder of the experiment.
            - instance_name (:obj:`str`): Name in curves, and in the ids of transitions.
        Raises:
            - ValueError: If an option is not allowed, or the size can not fit into memory or on the disk.
        """
        cfg = section('the config of the replay buffer', cfg)
        self._options = ReplayOptions.from_config(cfg)
        self._instance_name = instance_name
        self._tb_logger = tb_logger
        controller = cfg.get('thruput_controller') or {}
        self._min_limit_ratio = controller.get('sample_min_limit_ratio', 1)
        folder = os.path.join(exp_name, 'replay')
        self._folder = self._options.folder or folder
        self._save_path = self._options.save_path or os.path.join(folder, f'{instance_name}.npz')
        check_room(self._options, _USUAL_FRAME_BYTES, self._folder)
        options, folder = self._options, self._folder  # the memory must not refer to us: without a cycle, we go at once
        # seeded by DI-engine's set_pkg_seed, which the pipelines call before they build a buffer
        self._memory = ReplayMemory(
            self._options.replay_buffer_size,
            self._options.storage,
            self._options.eviction,
            self._folder if self._options.storage == 'memmap' else None,
            int(np.random.randint(2**31)),
            lambda frame_bytes: check_room(options, frame_bytes, folder),
            self._options.device,
        )
        self._beta = self._options.beta
        self._max_priority = 1.0
        pin_memory = self._options.pin_memory
        self._pinned = torch.cuda.is_available() if pin_memory is None else pin_memory
        # on a device nothing is decoded, and it gathers while Python goes on: a thread would have nothing to do
        in_a_thread = self._options.prefetch and self._options.storage != 'device'
        self._prefetcher = ThreadPoolExecutor(1, 'replay-prefetch') if in_a_thread else None
        self._prefetched: Optional[Tuple[tuple, Drawn, Future]] = None
        self._saver = BackgroundSaver()
        self._saved_at_push, self._saved_at_s = 0, time.monotonic()
        self._reported_at_s = -math.inf
        self._warned_at_s = -math.inf
        self._closed = False
        if self._options.save_every_pushes or self._options.save_every_s:
            exit_in_order()
            atexit.register(_save_at_exit, weakref.ref(self))
        run_registry.register(exp_name, instance_name, self)

    @classmethod
    def default_config(cls) -> EasyDict:
        """All options with their defaults."""
        cfg = EasyDict(copy.deepcopy(cls.config))
        cfg.cfg_type = f'{cls.__name__}Dict'
        return cfg

    # ---------------------------------------------------------------- in

    def push(self, data: Union[Sequence[Mapping], Mapping], cur_collector_envstep: int = -1) -> None:
        """
        Overview:
            Store one transition or many. A full buffer evicts as many.
        Arguments:
            - data (:obj:`Union[Sequence[Mapping], Mapping]`): Dicts with stacks of uint8 screens under ``obs`` and \
                ``next_obs``, and tensors, arrays, numbers, strings, or dicts of these under any other keys. A key \
                ``priority`` is what it is first drawn in proportion to.
            - cur_collector_envstep (:obj:`int`): Env steps so far, the x axis of the curves.
        Raises:
            - ValueError: If ``obs`` is no stack of uint8 screens; the message says which env option to set.
            - TypeError: If a value can not be stored. Nothing of ``data`` is stored in either case.
            - OSError: If the disk of storage 'memmap' is full.
        """
        transitions = [data] if isinstance(data, Mapping) else data
        given = [t.get('priority') for t in transitions]
        priorities = [self._weight(priority) for priority in given]
        if any(not _ADDED.isdisjoint(t) for t in transitions):
            transitions = [{k: v for k, v in t.items() if k not in _ADDED} for t in transitions]
        with self._memory.lock:
            if any(priority is not None for priority in given):
                self._memory.track_priorities()
            self._memory.push(transitions, np.array(priorities))
        self._report(cur_collector_envstep)
        self._save_if_due()

    def _weight(self, priority: Optional[float]) -> float:
        if priority is None:
            return self._max_priority**self._options.alpha
        priority = float(priority)
        if not 0 <= priority < math.inf:
            raise ValueError(f'a priority is {priority}; expected a number from 0')
        return max((priority + _EPSILON) ** self._options.alpha, 1e-30)

    def update(self, info: Mapping) -> None:
        """
        Overview:
            Set priorities, as the learner's ``priority_info`` has them. Transitions that are gone are passed over. \
            The first call, or the first pushed transition that has a priority, turns prioritised sampling on.
        Arguments:
            - info (:obj:`Mapping`): Lists of one length: ``replay_unique_id``, ``replay_buffer_idx``, ``priority``.
        Raises:
            - ValueError: If a priority is negative or not a number.
        """
        if 'priority' not in info:
            return
        with self._memory.lock:
            priorities = [float(p) for p in info['priority']]
            weights = [self._weight(p) for p in priorities]
            self._memory.track_priorities()
            rows, kept = [], []
            for name, guess, priority, weight in zip(
                info['replay_unique_id'], info['replay_buffer_idx'], priorities, weights
            ):
                row = self._memory.find(int(name.rsplit('_', 1)[1]), -1 if guess is None else int(guess))
                if row >= 0:
                    rows.append(row)
                    kept.append(weight)
                    self._max_priority = max(self._max_priority, priority)
            if rows:
                self._memory.set_priorities(np.array(rows), np.array(kept))

    def remove(self, replay_unique_ids: Sequence[str]) -> int:
        """
        Overview:
            Remove transitions by their ids, wherever they are by now.
        Arguments:
            - replay_unique_ids (:obj:`Sequence[str]`): What sampled transitions carry under ``replay_unique_id``.
        Returns:
            - removed (:obj:`int`): How many were there still.
        """
        return self._memory.remove(int(name.rsplit('_', 1)[1]) for name in replay_unique_ids)

    def clear(self) -> None:
        """Forget all transitions and give their memory back."""
        self._saver.wait()  # it is to be a whole save
        with self._memory.lock:
            self._drop_prefetched()
            self._memory.clear()
            self._max_priority = 1.0

    # ---------------------------------------------------------------- out

    def sample(
        self, size: int, cur_learner_iter: int = 0, sample_range: Optional[slice] = None, replace: bool = False
    ) -> Union[FrameBatch, List[dict], None]:
        """
        Overview:
            Draw transitions. What comes back reads like a list of dicts, and ``collated()`` gives it as tensors \
            without another copy.
        Arguments:
            - size (:obj:`int`): How many.
            - cur_learner_iter (:obj:`int`): Updates so far, for the staleness.
            - sample_range (:obj:`Optional[slice]`): Only among these, in the order of pushing: ``slice(-1000, None)`` \
                are the last thousand.
            - replace (:obj:`bool`): Whether one may be drawn twice. By priority that can happen in any case.
        Returns:
            - batch (:obj:`Union[FrameBatch, None]`): None if there are not enough. Besides what was pushed each has \
                ``replay_unique_id``, ``replay_buffer_idx``, ``use``, ``staleness``, ``priority``, and the \
                importance-sampling weight as ``IS`` and ``priority_IS`` (1 for all in uniform sampling).
        """
        if size == 0:
            return []
        request = (size, sample_range, replace)
        if self._prefetcher is None:
            return self._sample_now(request, cur_learner_iter)
        ready = None
        with self._memory.lock:
            if self._prefetched is not None and self._prefetched[0] == request:
                ready, self._prefetched = self._prefetched[2], None
        batch = ready.result() if ready is not None else self._sample_now(request, cur_learner_iter)
        if batch is not None:
            with self._memory.lock:
                self._drop_prefetched()
                drawn = self._draw(request, cur_learner_iter + 1, hold=True)
                if drawn is not None:
                    future = self._prefetcher.submit(self._memory.decode, *drawn, self._pinned, in_one_go=True)
                    self._prefetched = (request, drawn[0], future)
        return batch

    def _sample_now(self, request: tuple, cur_learner_iter: int) -> Optional[FrameBatch]:
        with self._memory.lock:
            drawn = self._draw(request, cur_learner_iter, hold=False)
            return None if drawn is None else self._memory.decode(*drawn, self._pinned)

    def _draw(self, request: tuple, cur_learner_iter: int, hold: bool) -> Optional[Tuple[Drawn, Extras]]:
        """Who is in the batch, and what is added to each; None if there are not enough."""
        size, sample_range, replace = request
        memory = self._memory
        self._remove_stale(cur_learner_iter)
        there = memory.count if sample_range is None else len(range(memory.count)[sample_range])
        enough = there >= size * self._min_limit_ratio or (replace and there > 0)
        if not enough:
            _log.info('%d transitions are to be sampled, but there are %d; none are', size, there)
            return None
        if memory.has_priorities:
            rows = memory.draw_by_priority(size, sample_range)
            weights, total, smallest = memory.priorities(rows)
            importance = (weights / smallest) ** -self._beta
            priorities = weights ** (1 / self._options.alpha) if self._options.alpha else np.ones(size)
            if self._options.anneal_step:
                rise = (1 - self._options.beta) / self._options.anneal_step
                self._beta = min(1.0, self._beta + rise)
        else:
            rows = memory.draw(size, replace, sample_range)
            importance = priorities = np.ones(size)
        uses = memory.count_uses(rows, distinct=not (replace or memory.has_priorities))
        tickets = memory.tickets_of(rows)
        worn = uses >= self._options.max_use if self._options.max_use != math.inf else None
        wears_out = worn is not None and bool(worn.any())
        drawn = memory.select(rows, hold or wears_out)
        if wears_out:
            memory.remove([ticket for ticket, is_worn in zip(tickets, worn) if is_worn])
        collected = drawn.numbers('collect_iter')
        name = self._instance_name  # a batch must not refer to the buffer that waits with it
        added: Extras = dict(
            replay_unique_id=lambda: [f'{name}_{ticket}' for ticket in tickets],
            replay_buffer_idx=rows,
            use=uses,
            # -1 where the collector did not say, as in DI-engine's own
            staleness=np.full(size, -1) if collected is None else cur_learner_iter - collected,
            IS=importance,
            priority_IS=importance,
            priority=priorities,
        )
        return drawn, added

    def _remove_stale(self, cur_learner_iter: int) -> None:
        memory = self._memory
        while self._options.max_staleness != math.inf and memory.count:
            # the oldest first; collecting goes on with the updates, so the first that is fresh enough ends it
            row = memory.oldest()
            collected = memory.column(('collect_iter',), row, None)[0]
            if not isinstance(collected, int) or cur_learner_iter - collected < self._options.max_staleness:
                break
            memory.remove(memory.tickets_of(row))

    def _drop_prefetched(self) -> None:
        if self._prefetched is not None:
            _, drawn, future = self._prefetched
            self._prefetched = None
            if future.cancel():  # else it has been decoded, or is being, and lets go by itself
                self._memory.release(drawn)

    # ---------------------------------------------------------------- saved and loaded

    def save_data(self, file_name: str) -> None:
        """
        Overview:
            Save everything to a file, whole or not at all; the file before it is kept as ``<file_name>.previous``.
        Raises:
            - OSError: If it can not be written.
        """
        image = self.image()
        try:
            array_file.write(file_name, image.arrays())
        finally:
            image.close()

    def load_data(self, file_name: str) -> None:
        """
        Overview:
            Load what ``save_data`` or the buffer itself saved, in place of what is there; the save before it where \
            the file is damaged.
        Raises:
            - FileNotFoundError: If there is no such file.
            - array_file.DamagedFile: If neither can be used; what was there is there still.
        """
        array_file.read_newest(file_name, lambda arrays: self._restore(arrays, file_name), _log.warning)

    def image(self) -> MemoryImage:
        """The buffer as it is now, to be written later; see ``MemoryImage``."""
        return MemoryImage(self._memory, self._more())

    def start_saving(self, file_name: str, then: Any) -> bool:
        """Save in the background, and do something when the file is there; False if a save is under way."""
        return self._saver.start(file_name, self._memory, self._more(), then)

    def wait_for_saving(self) -> Optional[Exception]:
        """Until no save is under way; what went wrong with the last."""
        self._saver.wait()
        return self._saver.error

    def _more(self) -> Dict[str, float]:
        return dict(beta=self._beta, max_priority=self._max_priority)

    def _restore(self, arrays: Mapping, name: str) -> None:
        self._saver.wait()
        more = restore(self._memory, arrays, name)
        with self._memory.lock:
            self._drop_prefetched()
            self._beta = float(more.get('beta', self._beta))
            self._max_priority = float(more.get('max_priority', self._max_priority))
            self._saved_at_push = self._memory.push_count

    def state_dict(self) -> Dict[str, Any]:
        """Everything as numpy arrays, compressed as it is."""
        image = self.image()
        try:
            return dict(image.arrays())
        finally:
            image.close()

    def load_state_dict(self, _state_dict: Mapping[str, Any], deepcopy: bool = False) -> None:
        """Take over what ``state_dict`` gave. The arrays are copied in any case."""
        self._restore(_state_dict, 'the state dict')

    def _save_if_due(self) -> None:
        options = self._options
        pushed = self._memory.push_count - self._saved_at_push
        due = 0 < options.save_every_pushes <= pushed
        due = due or 0 < options.save_every_s <= time.monotonic() - self._saved_at_s
        if due and pushed and self.start_saving(self._save_path, lambda: None):
            self._saved_at_push, self._saved_at_s = self._memory.push_count, time.monotonic()

    # ---------------------------------------------------------------- what it costs

    def memory_report(self) -> Dict[str, float]:
        """
        Overview:
            What the buffer costs now.
        Returns:
            - report (:obj:`Dict[str, float]`): ``transitions``; ``bytes`` of memory in use, everything counted; \
                ``device_bytes`` on the device of storage 'device'; ``file_bytes`` on the disk; \
                ``bytes_per_transition``; ``distinct_frames``; ``frames_per_transition``; ``bytes_per_frame`` as \
                stored; ``compression_ratio``, the size of all stacks as they are over the size of what is stored; \
                ``resident_bytes`` of the whole process, and ``free_bytes`` that it may still take.
        """
        memory = self._memory
        with memory.lock:
            count, frames = memory.count, memory.frames
            in_memory, on_device, in_file = memory.nbytes, memory.device_bytes, memory.file_bytes
            total = in_memory + on_device + in_file
            unpacked = memory.frame_references * memory.frame_bytes
            return dict(
                transitions=count,
                bytes=in_memory,
                device_bytes=on_device,
                file_bytes=in_file,
                bytes_per_transition=total / max(1, count),
                distinct_frames=frames,
                frames_per_transition=frames / max(1, count),
                bytes_per_frame=memory.stored_frame_bytes / max(1, frames),
                compression_ratio=unpacked / max(1, total),
                resident_bytes=resident_bytes(),
                free_bytes=memory_room().free_bytes,
            )

    def _report(self, envstep: int) -> None:
        now = time.monotonic()
        if now - self._reported_at_s < self._options.report_every_s:
            return
        self._reported_at_s = now
        room = memory_room()
        short_bytes = max(room.limit_bytes // 20, 200_000_000)
        if room.free_bytes < short_bytes and now - self._warned_at_s > 600:
            self._warned_at_s = now
            _log.warning(
                'memory runs short: %.2f GB are left of the %.2f GB that %s allows, and the replay buffer holds %d of '
                '%d transitions in %.2f GB. A smaller replay_buffer_size would keep the run from being killed',
                room.free_bytes / 1e9,
                room.limit_bytes / 1e9,
                room.whose,
                self.count(),
                self._options.replay_buffer_size,
                self._memory.nbytes / 1e9,
            )
        if self._tb_logger is not None:
            for name, value in self.memory_report().items():
                self._tb_logger.add_scalar(f'{self._instance_name}_memory/{name}', value, max(0, envstep))

    # ---------------------------------------------------------------- the rest of DI-engine's interface

    def count(self) -> int:
        """Transitions in it."""
        return self._memory.count

    @property
    def replay_buffer_size(self) -> int:
        """Transitions it holds at most."""
        return self._options.replay_buffer_size

    @property
    def push_count(self) -> int:
        """Transitions ever pushed."""
        return self._memory.push_count

    @property
    def beta(self) -> float:
        """How much the bias of prioritised sampling is corrected by now."""
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._beta = beta

    def start(self) -> None:
        """Nothing has to be started; some of DI-engine's pipelines call it."""

    def close(self) -> None:
        """Save if that was asked for, then give everything back. It can be called at any time, any number of times."""
        if getattr(self, '_closed', True):  # True if the constructor failed
            return
        self._closed = True
        self._save_at_the_end()
        with self._memory.lock:
            self._drop_prefetched()
        if self._prefetcher is not None:
            self._prefetcher.shutdown(wait=True)
        self._memory.close()

    def _save_at_the_end(self) -> None:
        self._saver.wait()
        asked = self._options.save_every_pushes or self._options.save_every_s
        if asked and (self._memory.push_count > self._saved_at_push or self._saver.error is not None):
            try:
                self.save_data(self._save_path)
                self._saved_at_push = self._memory.push_count
            except OSError as error:  # the disk is full: then the save before it has to do
                _log.warning('the replay buffer was not saved to %s: %s', self._save_path, error)

    def __del__(self) -> None:
        self.close()


def _save_at_exit(buffer: 'weakref.ref[FrameReplayBuffer]') -> None:
    living = buffer()
    if living is not None and not living._closed:
        living._save_at_the_end()
