"""The replay buffer of DI-engine's serial pipelines, type ``frame``."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from ding.utils import BUFFER_REGISTRY
from tensorboardX import SummaryWriter

from .batch import FrameBatch
from .memory import ReplayMemory
from .options import ReplayOptions
from .priorities import Priorities
from .saved_arrays import Arrays
from .serial_base import SerialBuffer
from .snapshot import restore, snapshot

_log = logging.getLogger(__name__)
_REPORT_EVERY_S = 30.0  # between two points of the memory's curve
# What a sampled transition has besides what was pushed; when it is pushed again, these keys are left out.
_ADDED = frozenset(['replay_unique_id', 'replay_buffer_idx', 'IS', 'priority'])


@BUFFER_REGISTRY.register('frame')
class FrameReplayBuffer(SerialBuffer):
    """Keeps transitions whose ``obs`` and ``next_obs`` are stacks of uint8 screens, each distinct screen once and
    compressed: a million transitions of Breakout in about 0.29 GB (docs/memory.md), returned bit for bit. All
    transitions have the structure of the first: its keys, types and shapes.

    Samples uniformly until priorities arrive by ``update`` or with a pushed transition; from then on in proportion to
    ``priority ** alpha``. Sampling takes the same time whatever the size.

    Examples:
        >>> buffer = FrameReplayBuffer(dict(replay_buffer_size=1000))
        >>> stack = torch.zeros(4, 84, 84, dtype=torch.uint8)
        >>> buffer.push([dict(obs=stack, next_obs=stack, action=torch.tensor([i])) for i in range(8)])
        >>> batch = buffer.sample(8, cur_learner_iter=0)
        >>> len(batch), sorted(batch[0])[:3], batch.collated()['obs'].shape
        (8, ['IS', 'action', 'next_obs'], torch.Size([8, 4, 84, 84]))
        >>> buffer.close()
    """

    takes_only_uint8 = True  # see ``envs/pixel_check.py``
    options_type = ReplayOptions
    _options: ReplayOptions
    config = dict(type='frame', **ReplayOptions().model_dump())

    def __init__(
        self,
        cfg: Mapping,
        tb_logger: SummaryWriter | None = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'buffer',
    ) -> None:
        """
        Arguments:
            cfg: ``policy.other.replay_buffer``; see ``ReplayOptions``.
            tb_logger: Where the curve of the memory goes; None for nowhere.
            instance_name: Name in curves.
        Raises:
            ValueError: If an option is not allowed, or the size does not fit into memory or on the disk.
        """
        options = self._options = ReplayOptions.from_config(cfg)
        self.memory = ReplayMemory.from_options(options.replay_buffer_size, options, exp_name)
        self._priorities: Priorities | None = None  # until the first ones arrive
        if options.pin_memory and not torch.cuda.is_available():
            raise ValueError('replay buffer option `pin_memory` is True (bool); expected None or False without a GPU')
        self._tb_logger = tb_logger
        self._name = instance_name
        self._reported_at_s = -math.inf
        self._open(exp_name, self.memory.close)

    def push(self, data: Sequence[Mapping] | Mapping, cur_collector_envstep: int = -1) -> None:
        """Store one transition or many. A full buffer evicts as many.

        Arguments:
            data: Dicts with stacks of uint8 screens under ``obs`` and ``next_obs``, and tensors, arrays, numbers, or
                dicts of these under other keys. The value of ``priority``, a TD error's absolute value, is the
                transition's first priority; without one it has the highest priority so far.
            cur_collector_envstep: Env steps so far, the x axis of the curves.
        Raises:
            ValueError, TypeError: If a transition cannot be stored, or has another structure than the first.
            OSError: If the disk of storage ``memmap`` is full.
            ClosedBuffer: If the buffer is closed. After any of these errors nothing of ``data`` is stored.
        """
        self._prefetcher.wait()
        transitions = [data] if isinstance(data, Mapping) else data
        given = [transition.get('priority') for transition in transitions]
        # checked first, and set last
        priorities = self._priorities
        if priorities is None and any(priority is not None for priority in given):
            priorities = self._start_priorities()
        weights = None if priorities is None else priorities.weights(given)
        slots = self.memory.push([_as_pushed(transition) for transition in transitions])
        if priorities is not None and weights is not None:
            priorities.set(np.array(slots), weights)
            self._priorities = priorities
        now = time.monotonic()
        if self._tb_logger is not None and now - self._reported_at_s >= _REPORT_EVERY_S:
            self._reported_at_s = now
            for name, value in self.memory_report().items():
                self._tb_logger.add_scalar(f'{self._name}_memory/{name}', value, max(0, cur_collector_envstep))

    def _start_priorities(self) -> Priorities:
        """Priorities in which the transitions that are there have the weight 1."""
        priorities, count = Priorities(self.memory.capacity, self._options), self.memory.count
        priorities.set(np.arange(count), np.ones(count))
        return priorities

    def update(self, info: Mapping) -> None:
        """Set priorities, the absolute values of TD errors, as the learner's ``priority_info`` has them; transitions
        that are gone are passed over. The first call turns prioritised sampling on. Raises ValueError if a priority is
        negative or not a number.
        """
        if 'priority' in info:
            self._prefetcher.wait()
            priorities = self._priorities or self._start_priorities()
            priorities.update(info, self.memory.ids())
            self._priorities = priorities

    def clear(self) -> None:
        """Remove all transitions and release their memory."""
        self._prefetcher.drop()
        self.memory.clear()
        if self._priorities is not None:
            self._priorities.clear()

    def sample(self, size: int, cur_learner_iter: int = 0) -> FrameBatch | list[dict] | None:
        """Sample transitions. The batch reads like a list of dicts, and ``collated()`` returns it as tensors without
        another copy. A transition may occur twice only if samples follow priorities.

        Returns:
            None if there are too few. Besides what was pushed, each has ``replay_unique_id``, ``replay_buffer_idx``,
            ``priority``, and the importance-sampling weight ``IS`` (1 for all in uniform sampling).
        """
        if size == 0:
            return []
        # Pinning initializes CUDA, which a training on the CPU does not need.
        pinned = torch.cuda.is_initialized() if self._options.pin_memory is None else self._options.pin_memory
        # without a reference to self, which the prefetch thread would keep alive
        return self._prefetcher.batch(size, partial(_sample, self.memory, self._priorities, size, pinned))

    def _snapshot(self) -> Arrays:
        priorities = self._priorities
        if priorities is not None:
            yield 'priorities', priorities.stored_weights(self.count())
        yield from snapshot(self.memory, {} if priorities is None else priorities.numbers())

    def _restore(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        numbers, order = restore(self.memory, arrays, name)
        self._priorities = None
        if 'priorities' in arrays:
            self._priorities = Priorities(self.memory.capacity, self._options)
            self._priorities.restore(numbers, arrays['priorities'][order])

    def count(self) -> int:
        """Transitions in it."""
        return self.memory.count

    @property
    def push_count(self) -> int:
        """Transitions ever pushed."""
        return self.memory.next_id

    def memory_report(self) -> dict[str, float]:
        """What the buffer costs now; see ``ReplayMemory.report``."""
        return self.memory.report()


def _sample(memory: ReplayMemory, priorities: Priorities | None, size: int, pinned: bool) -> FrameBatch | list | None:
    """A batch, uniform without priorities; None if there are too few transitions."""
    if memory.count < size:
        _log.info('%d transitions are to be sampled, but there are %d; none are', size, memory.count)
        return None
    if priorities is None:
        slots = memory.nth(memory.random.choice(memory.count, size, replace=False, shuffle=False))
        importance = values = np.ones(size)
    else:
        slots, values, importance = priorities.sample(memory.random.random(size))
    added = dict(replay_unique_id=memory.ids(slots), replay_buffer_idx=slots)
    return memory.fetch(slots, dict(added, IS=importance, priority=values), pinned)


def _as_pushed(transition: Mapping) -> Mapping:
    if _ADDED.isdisjoint(transition):
        return transition
    return {key: value for key, value in transition.items() if key not in _ADDED}
