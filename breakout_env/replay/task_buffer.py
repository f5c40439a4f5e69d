"""``ReplayMemory`` as a ``ding.data.Buffer``, for DI-engine's task pipelines."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from ding.data.buffer import Buffer, BufferedData, apply_middleware
from ding.data.buffer.middleware import PriorityExperienceReplay
from ditk import logging

from .memory import ReplayMemory
from .options import TaskBufferOptions
from .saved_arrays import read_arrays, write_arrays
from .snapshot import restore, snapshot


class TaskFrameBuffer(Buffer):
    """DI-engine's ``DequeBuffer``, with each distinct screen kept once and compressed. It works with ``data_pusher``,
    ``OffPolicyLearner``, ``offpolicy_data_fetcher``, and the middleware ``PriorityExperienceReplay``,
    ``use_time_check``, ``staleness_check``, ``sample_range_view``, ``clone_object``.

    .. note::
        A sample is a copy: writing into it does not change the buffer; ``update`` does. ``delete`` takes time in
        proportion to what is stored: new transitions replace old ones without it.

    Examples:
        >>> buffer, stack = TaskFrameBuffer(size=100), np.zeros((4, 84, 84), np.uint8)
        >>> pushed = buffer.push(dict(obs=stack, next_obs=stack, action=1), meta=dict(env=0))
        >>> (item,) = buffer.sample(1)
        >>> item.index == pushed.index, item.data['obs'].shape, item.meta
        (True, (4, 84, 84), {'env': 0})
        >>> buffer.close()
    """

    def __init__(self, size: int, exp_name: str = 'default_experiment', **options: str) -> None:
        """
        Arguments:
            size: The most transitions it holds.
            exp_name: Folder of the experiment, below which storage ``memmap`` keeps its file.
            options: See ``FrameStorageOptions``.
        """
        checked = TaskBufferOptions.from_arguments(size, options)
        super().__init__(checked.size)
        self._memory = ReplayMemory.from_options(checked.size, checked, exp_name)
        self._metas: dict[int, dict] = {}  # by slot; most transitions have none
        self._lock = threading.Lock()  # a task may run its parts in threads

    def use(self, func: Callable) -> 'TaskFrameBuffer':
        """Add middleware. Raises ValueError if it needs the oldest transition to be evicted, and any is evicted."""
        if isinstance(func, PriorityExperienceReplay) and self._memory.eviction == 'random':
            raise ValueError("PriorityExperienceReplay assumes that the oldest are evicted; expected eviction='fifo'")
        return super().use(func)

    @apply_middleware('push')
    def push(self, data: Mapping, meta: dict | None = None) -> BufferedData:
        """Store one transition, see ``FrameReplayBuffer.push``, and its meta, a dict of numbers and strings."""
        meta = {} if meta is None else meta
        with self._lock:
            (slot,) = self._memory.push([data])
            self._set_meta(slot, meta)
            return BufferedData(data=data, index=f'{self._memory.next_id - 1:x}', meta=meta)

    def _set_meta(self, slot: int, meta: dict) -> None:
        if meta:
            self._metas[slot] = meta
        else:
            self._metas.pop(slot, None)

    @apply_middleware('sample')
    def sample(
        self,
        size: int | None = None,
        indices: list[str] | None = None,
        replace: bool = False,
        sample_range: slice | None = None,
        ignore_insufficient: bool = False,
        groupby: str | None = None,
        unroll_len: int | None = None,
    ) -> list[BufferedData]:
        """Sample transitions, or fetch some by index.

        Arguments:
            sample_range: Only among these, in the order of pushing.
            groupby: None; DI-engine's ``DequeBuffer`` samples groups.
            unroll_len: None, too.
            others: As DI-engine's.
        Raises:
            ValueError: If there are too few, or an argument is not allowed.
        """
        if groupby is not None or unroll_len is not None:
            message = (
                f'sample: groupby is {groupby!r} and unroll_len is {unroll_len!r}; expected None for both: '
                "DI-engine's DequeBuffer samples groups"
            )
            logging.error(message)  # DI-engine's data fetcher takes any ValueError for a lack of transitions
            raise ValueError(message)
        size = size or len(indices or ())
        if not size or (indices and size != len(indices)):
            raise ValueError(f'sample: size is {size}; expected one, or as many as there are indices')
        with self._lock:
            try:
                if indices:
                    return self._fetch([self._slot(index) for index in indices])
                among = self._memory.order()[sample_range] if sample_range else None
                count = self.count() if among is None else len(among)
                ranks = self._memory.random.choice(count, size, replace, shuffle=False)
                return self._fetch(self._memory.nth(ranks) if among is None else among[ranks])
            except (KeyError, ValueError) as error:
                if not ignore_insufficient:
                    raise ValueError(f'there are less than {size} records in buffer({self.count()})') from error
                logging.warning('sample of %s is ignored: %s', size, error)
                return []

    def _fetch(self, at: Sequence[int] | np.ndarray) -> list[BufferedData]:
        slots = np.asarray(at, np.int64)
        fetched = zip(slots.tolist(), self._memory.ids(slots).tolist(), self._memory.fetch(slots))
        return [BufferedData(data, f'{number:x}', dict(self._metas.get(slot, {}))) for slot, number, data in fetched]

    def _slot(self, index: str) -> int:
        """Where the transition with an index is. Raises KeyError if there is none."""
        try:
            return self._memory.find(int(index, 16))
        except (TypeError, ValueError, KeyError):
            raise KeyError(f'no transition has the index {index}') from None

    @apply_middleware('update')
    def update(self, index: str, data: None = None, meta: dict | None = None) -> bool:
        """Replace the meta of a transition; returns whether it is there. Raises ValueError for other data."""
        if data is not None:
            raise ValueError('update: data is given; expected None, as transitions that are stored do not change')
        with self._lock, contextlib.suppress(KeyError):
            slot = self._slot(index)
            if meta is not None:
                self._set_meta(slot, meta)
            return True
        return False

    @apply_middleware('delete')
    def delete(self, indices: str | Iterable[str]) -> None:
        """Remove transitions by index; an index that is not there is passed over."""
        gone = []
        with self._lock:
            for index in [indices] if isinstance(indices, str) else indices:
                with contextlib.suppress(KeyError):
                    gone.append(self._slot(index))
            kept = self._memory.delete(gone)
            self._set_metas([self._metas.get(slot, {}) for slot in kept.tolist()])

    def _set_metas(self, metas: list[dict]) -> None:
        self._metas.clear()  # copies of this buffer share it
        self._metas.update({slot: meta for slot, meta in enumerate(metas) if meta})

    @apply_middleware('clear')
    def clear(self) -> None:
        """Remove all transitions and release their memory."""
        with self._lock:
            self._memory.clear()
            self._metas.clear()

    def count(self) -> int:
        """Transitions in it."""
        return self._memory.count

    def memory_report(self) -> dict[str, float]:
        """What the buffer costs now, without the metas, which are Python dicts; see ``ReplayMemory.report``."""
        with self._lock:
            return self._memory.report()

    def get(self, idx: int) -> BufferedData:
        """The transition at a position in the order of pushing. Raises IndexError if there is none."""
        with self._lock:
            return self._fetch(self._memory.order()[[range(self.count())[idx]]])[0]

    def get_by_index(self, index: str) -> BufferedData:
        """The transition with an index. Raises KeyError if there is none."""
        with self._lock:
            return self._fetch([self._slot(index)])[0]

    def __iter__(self) -> Iterator[BufferedData]:
        with self._lock:
            insertion_ids = self._memory.ids(self._memory.order()).tolist()
        for insertion_id in insertion_ids:
            with contextlib.suppress(KeyError):  # it was evicted meanwhile
                yield self.get_by_index(f'{insertion_id:x}')

    @property
    def storage(self) -> 'TaskFrameBuffer':
        """What middleware iterates over to see all transitions: the buffer itself."""
        return self

    def save_data(self, file_name: str) -> None:
        """Save everything to a file; see ``FrameReplayBuffer.save_data``. Metas are saved as JSON, or a ValueError."""
        with self._lock:
            metas = [self._metas.get(slot, {}) for slot in range(self.count())] if self._metas else []
            write_arrays(file_name, snapshot(self._memory, dict(metas=metas)))

    def load_data(self, file_name: str) -> None:
        """Load what ``save_data`` saved; see ``FrameReplayBuffer.load_data``."""
        with self._lock, read_arrays(file_name) as arrays:
            more, order = restore(self._memory, arrays, file_name)
            metas = more.get('metas')
            self._set_metas([metas[slot] for slot in order.tolist()] if metas else [])

    def close(self) -> None:
        """Release memory and file. It may be called at any time, any number of times."""
        with self._lock:
            self._memory.close()

    def __copy__(self) -> 'TaskFrameBuffer':
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__, _middleware=[])
        return copied
