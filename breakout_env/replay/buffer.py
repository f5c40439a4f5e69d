"""The replay buffer of DI-engine's serial pipelines, type ``frame``."""

import logging
import math
import os
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from ding.utils import BUFFER_REGISTRY
from ding.worker.replay_buffer import IBuffer

from ..utils import run_registry
from ..utils.options import section
from .batch import Extras, FrameBatch
from .memory import ReplayMemory
from .options import ReplayOptions
from .prefetcher import Prefetcher
from .priority_weights import PriorityWeights
from .report import MemoryReporter, memory_report
from .selection import Selection
from .slices import SliceSampler
from .snapshot import snapshot
from .snapshot.background_saver import Autosave, BackgroundSaver

_log = logging.getLogger(__name__)
# What a sampled transition has besides what was pushed; when it is pushed again, these keys are left out.
_ADDED = frozenset(['replay_unique_id', 'replay_buffer_idx', 'use', 'staleness', 'IS', 'priority_IS', 'priority'])


def _insertion_id(replay_unique_id: str) -> int:
    return int(replay_unique_id.rsplit('_', 1)[1])


@BUFFER_REGISTRY.register('frame')
class FrameReplayBuffer(IBuffer):
    """
    Overview:
        Keeps transitions whose ``obs`` and ``next_obs`` are stacks of uint8 screens, each distinct screen once and \
        compressed: a million transitions of Breakout in about 0.27 GB (docs/memory.md), returned bit for bit.

        Samples uniformly until priorities arrive by ``update``, as DI-engine's advanced buffer does; from then on in \
        proportion to them. Sampling takes the same time whatever the size.

        With ``save_every_pushes`` or ``save_every_s`` it also saves itself when it is closed and when the interpreter \
        exits. SIGTERM ends a Python program without that, unless the program handles it, as ours do.
    Examples:
        >>> buffer = FrameReplayBuffer(dict(replay_buffer_size=1000))
        >>> stack = torch.zeros(4, 84, 84, dtype=torch.uint8)
        >>> buffer.push([dict(obs=stack, next_obs=stack, action=torch.tensor([i])) for i in range(8)])
        >>> batch = buffer.sample(8, cur_learner_iter=0)
        >>> len(batch), sorted(batch[0])[:3], batch.collated()['obs'].shape
        (8, ['IS', 'action', 'next_obs'], torch.Size([8, 4, 84, 84]))
        >>> buffer.close()
    """

    save_suffix = '.npz'  # of the names of saves in a run's folder

    config = dict(type='frame', **ReplayOptions().model_dump())

    def __init__(
        self,
        cfg: Mapping,
        tb_logger: Optional[Any] = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'buffer',
    ) -> None:
        """
        Arguments:
            - cfg (:obj:`Mapping`): ``policy.other.replay_buffer``; see ``ReplayOptions``.
            - tb_logger (:obj:`Optional[SummaryWriter]`): Where the curve of the memory goes; None for nowhere.
            - instance_name (:obj:`str`): Name in curves, and in the ids of transitions.
        Raises:
            - ValueError: If an option is not allowed, or the size does not fit into memory or on the disk.
        """
        cfg = section('the config of the replay buffer', cfg)
        options = self._options = ReplayOptions.from_config(cfg)
        self._instance_name = instance_name
        self._min_limit_ratio = (cfg.get('thruput_controller') or {}).get('sample_min_limit_ratio', 1)
        # None of these parts refers to the buffer: without a cycle, its memory is released with its last reference.
        memory = self._memory = ReplayMemory.from_options(options, exp_name)
        self._slices = None
        if options.slice_len is not None:
            self._slices = SliceSampler(memory, options.slice_len, options.slice_every)
        self._weights = PriorityWeights(options.alpha, options.beta, options.anneal_step)
        self._pinned = torch.cuda.is_available() if options.pin_memory is None else options.pin_memory
        # batches of storage 'device' are gathered asynchronously: a thread would have nothing to do
        in_a_thread = options.prefetch and options.storage != 'device'
        self._prefetcher = Prefetcher(memory, self._pinned) if in_a_thread else None
        self._reporter = MemoryReporter(memory, tb_logger, instance_name, options.report_every_s)
        self._saver = BackgroundSaver(memory, self._weights.state)
        path = options.save_path or os.path.join(exp_name, 'replay', f'{instance_name}.npz')
        self._autosave = Autosave(self._saver, path, options.save_every_pushes, options.save_every_s)
        # at `close`, with the last reference, or at the exit of the interpreter
        self._finalizer = weakref.finalize(self, _close, self._autosave, self._prefetcher, memory)
        run_registry.register(exp_name, instance_name, self)

    # ---------------------------------------------------------------- in

    def push(self, data: Union[Sequence[Mapping], Mapping], cur_collector_envstep: int = -1) -> None:
        """
        Overview:
            Store one transition or many. A full buffer evicts as many.
        Arguments:
            - data (:obj:`Union[Sequence[Mapping], Mapping]`): Dicts with stacks of uint8 screens under ``obs`` and \
                ``next_obs``, and tensors, arrays, numbers, strings, or dicts of these under other keys. The value of \
                ``priority`` is the transition's first priority.
            - cur_collector_envstep (:obj:`int`): Env steps so far, the x axis of the curves.
        Raises:
            - ValueError: If ``obs`` is no stack of uint8 screens; the message says which env option to set.
            - TypeError: If a value cannot be stored. Nothing of ``data`` is stored in either case.
            - OSError: If the disk of storage ``memmap`` is full.
        """
        transitions = [data] if isinstance(data, Mapping) else data
        given = [t.get('priority') for t in transitions]
        weights = [self._weights.weight(priority) for priority in given]
        if any(not _ADDED.isdisjoint(t) for t in transitions):
            transitions = [{k: v for k, v in t.items() if k not in _ADDED} for t in transitions]
        with self._memory.lock:
            if any(priority is not None for priority in given):
                self._refuse_with_slices('priorities')
                self._memory.track_priorities()
                highest = max(float(priority) for priority in given if priority is not None)
                self._weights.max_priority = max(self._weights.max_priority, highest)
            if self._slices is not None:
                transitions = self._slices.prepare(transitions)
            insertion_ids = self._memory.push(transitions, np.array(weights))
            if self._slices is not None:
                self._slices.pushed(transitions, insertion_ids)
        self._reporter.report(cur_collector_envstep)
        self._autosave.save_if_due()

    def update(self, info: Mapping) -> None:
        """
        Overview:
            Set priorities, as the learner's ``priority_info`` has them, passing over transitions that are gone. The \
            first call, or the first pushed transition with a priority, turns prioritised sampling on.
        Arguments:
            - info (:obj:`Mapping`): Lists of one length: ``replay_unique_id``, ``replay_buffer_idx``, ``priority``.
        Raises:
            - ValueError: If a priority is negative or not a number.
        """
        if 'priority' not in info:
            return
        self._refuse_with_slices('priorities')
        with self._memory.lock:
            priorities = [float(p) for p in info['priority']]
            weights = [self._weights.weight(p) for p in priorities]
            self._memory.track_priorities()
            rows, kept = [], []
            for name, guess, priority, weight in zip(
                info['replay_unique_id'], info['replay_buffer_idx'], priorities, weights
            ):
                row = self._memory.find(_insertion_id(name), -1 if guess is None else int(guess))
                if row >= 0:
                    rows.append(row)
                    kept.append(weight)
                    self._weights.max_priority = max(self._weights.max_priority, priority)
            if rows:
                self._memory.set_priorities(np.array(rows), np.array(kept))

    def remove(self, replay_unique_ids: Sequence[str]) -> int:
        """Remove transitions by the ``replay_unique_id`` of samples; returns how many of them were still there."""
        self._refuse_with_slices('removals')
        return self._memory.remove(map(_insertion_id, replay_unique_ids))

    def _refuse_with_slices(self, what: str) -> None:
        if self._slices is not None:
            raise ValueError(
                f'the replay buffer samples slices of whole episodes, uniformly (`slice_len`), and takes no {what}; '
                'expected policy.priority=False, and no middleware that removes transitions'
            )

    def clear(self) -> None:
        """Remove all transitions and release their memory."""
        self._saver.wait()  # the save under way needs them
        with self._memory.lock:
            self._cancel_prefetched()
            self._memory.clear()
            self._weights.max_priority = 1.0
            if self._slices is not None:
                self._slices.clear()

    # ---------------------------------------------------------------- out

    def sample(
        self, size: int, cur_learner_iter: int = 0, sample_range: Optional[slice] = None, replace: bool = False
    ) -> Union[FrameBatch, List[dict], None]:
        """
        Overview:
            Sample transitions. The batch reads like a list of dicts, and ``collated()`` returns it as tensors without \
            another copy.
        Arguments:
            - cur_learner_iter (:obj:`int`): Updates so far, for the staleness.
            - sample_range (:obj:`Optional[slice]`): Only among these, in the order of pushing: ``slice(-1000, None)`` \
                are the last thousand.
            - replace (:obj:`bool`): Whether one may occur twice. By priority that may happen in any case.
        Returns:
            - batch (:obj:`Union[FrameBatch, None]`): None if there are too few. Besides what was pushed, each has \
                ``replay_unique_id``, ``replay_buffer_idx``, ``use``, ``staleness``, ``priority``, and the \
                importance-sampling weight as ``IS`` and ``priority_IS`` (1 for all in uniform sampling). With \
                ``slice_len`` a list of slices, dicts of lists with a value for each step.
        """
        if size == 0:
            return []
        if sample_range is not None:
            self._refuse_with_slices('sample_range')
        request = (size, sample_range, replace)
        batch = None if self._prefetcher is None else self._prefetcher.take(request)
        if batch is None:
            with self._memory.lock:
                selected = self._select(*request, cur_learner_iter, acquire=False)
                batch = None if selected is None else self._memory.decode(*selected, self._pinned)
        if batch is not None and self._prefetcher is not None:
            with self._memory.lock:
                self._prefetcher.cancel()
                selected = self._select(*request, cur_learner_iter + 1, acquire=True)
                if selected is not None:
                    self._prefetcher.prepare(request, *selected)
        return batch if self._slices is None or batch is None else self._slices.cut(batch)

    def _select(
        self, size: int, sample_range: Optional[slice], replace: bool, cur_learner_iter: int, acquire: bool
    ) -> Optional[Tuple[Selection, Extras]]:
        """The transitions of a batch and what is added to each; None if there are too few."""
        memory = self._memory
        if self._slices is not None:
            return self._select_slices(self._slices, size, acquire)
        self._remove_stale(cur_learner_iter)
        there = memory.count if sample_range is None else len(range(memory.count)[sample_range])
        if there < size * self._min_limit_ratio and not (replace and there):
            _log.info('%d transitions are to be sampled, but there are %d; none are', size, there)
            return None
        if memory.has_priorities:
            rows = memory.sample_by_priority(size, sample_range)
            importance, priorities = self._weights.correct(*memory.priorities(rows))
        else:
            rows = memory.sample(size, replace, sample_range)
            importance = priorities = np.ones(size)
        sample_counts = memory.count_samples(rows, distinct=not (replace or memory.has_priorities))
        insertion_ids = memory.insertion_ids(rows)
        expired = []
        if self._options.max_use != math.inf:
            expired = [i for i, n in zip(insertion_ids, sample_counts.tolist()) if n >= self._options.max_use]
        selection = memory.select(rows, acquire or bool(expired))
        if expired:
            memory.remove(expired)
        collected = selection.integers('collect_iter')
        name = self._instance_name  # a pending batch must not refer to the buffer
        extras: Extras = dict(
            replay_unique_id=lambda: [f'{name}_{insertion_id}' for insertion_id in insertion_ids],
            replay_buffer_idx=rows,
            use=sample_counts,
            # -1 where the collector did not say, as in DI-engine's own
            staleness=np.full(size, -1) if collected is None else cur_learner_iter - collected,
            IS=importance,
            priority_IS=importance,
            priority=priorities,
        )
        return selection, extras

    def _select_slices(self, slices: SliceSampler, size: int, acquire: bool) -> Optional[Tuple[Selection, Extras]]:
        too_few = self._memory.count < max(size * self._min_limit_ratio, self._options.slice_len or 0)
        sampled = None if too_few else slices.sample(size)
        if sampled is None:
            _log.info('%d slices are to be sampled from %d steps; none are', size, self._memory.count)
            return None
        rows, padded = sampled
        return self._memory.select(rows, acquire), dict(padded=padded)

    def _remove_stale(self, cur_learner_iter: int) -> None:
        memory = self._memory
        while self._options.max_staleness != math.inf and memory.count:
            # later transitions were collected after more updates, so the first that is not stale is the last to look at
            row = memory.rows_at([0])
            collected = memory.column(('collect_iter',), row, None)[0]
            if not isinstance(collected, int) or cur_learner_iter - collected < self._options.max_staleness:
                break
            memory.remove(memory.insertion_ids(row))

    def _cancel_prefetched(self) -> None:
        if self._prefetcher is not None:
            self._prefetcher.cancel()

    # ---------------------------------------------------------------- saved and loaded

    def save_data(self, file_name: str) -> None:
        """
        Overview:
            Save everything to a file, completely or not at all; the previous file stays as ``<file_name>.previous``.
        Raises:
            - OSError: If it cannot be written.
        """
        snapshot.save(self._memory, file_name, self._weights.state())

    def load_data(self, file_name: str) -> None:
        """
        Overview:
            Load what ``save_data`` or the buffer itself saved, in place of the present content. If the file is \
            damaged, the previous one is loaded.
        Raises:
            - FileNotFoundError: If there is no such file.
            - DamagedFile: If neither can be loaded; the present content stays.
        """
        self._restore(lambda: snapshot.load(self._memory, file_name, _log.warning))

    def state_dict(self) -> Dict[str, Any]:
        """Everything as numpy arrays, with the frames compressed."""
        return snapshot.state_dict(self._memory, self._weights.state())

    def load_state_dict(self, _state_dict: Mapping[str, Any], deepcopy: bool = False) -> None:
        """Load what ``state_dict`` returned. The arrays are copied in any case."""
        self._restore(lambda: snapshot.restore(self._memory, _state_dict, 'the state dict'))

    def _restore(self, load: Callable[[], Mapping]) -> None:
        self._saver.wait()
        extra = load()
        with self._memory.lock:
            self._cancel_prefetched()
            self._weights.restore(extra)
            if self._slices is not None:
                self._slices.loaded()
            self._autosave.saved()

    def start_saving(self, file_name: str, then: Callable[[], None]) -> bool:
        """Save in the background, then call a function; False if a save is under way."""
        return self._saver.start(file_name, then)

    def wait_for_saving(self) -> Optional[Exception]:
        """Wait until no save is under way; the error of the last one."""
        self._saver.wait()
        return self._saver.error

    # ---------------------------------------------------------------- the rest of DI-engine's interface

    def count(self) -> int:
        """Transitions in it."""
        return self._memory.count

    @property
    def replay_buffer_size(self) -> int:
        """The most transitions it holds."""
        return self._options.replay_buffer_size

    @property
    def push_count(self) -> int:
        """Transitions ever pushed."""
        return self._memory.push_count

    @property
    def beta(self) -> float:
        """The exponent of the importance-sampling weights by now."""
        return self._weights.beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._weights.beta = beta

    def memory_report(self) -> Dict[str, float]:
        """What the buffer costs now; see ``report.memory_report``."""
        return memory_report(self._memory)

    def start(self) -> None:
        """Nothing to do; some of DI-engine's pipelines call it."""

    def close(self) -> None:
        """Save if options ask for it, then release everything. It may be called at any time, any number of times."""
        self._finalizer()


def _close(autosave: Autosave, prefetcher: Optional[Prefetcher], memory: ReplayMemory) -> None:
    autosave.close()
    if prefetcher is not None:
        prefetcher.close()
    memory.close()
