"""The same memory behind ``ding.data.Buffer``, for DI-engine's task pipelines."""

import random
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Union

import numpy as np
from ding.data.buffer import Buffer, BufferedData, apply_middleware
from ditk import logging

from .memory import ReplayMemory
from .options import ReplayOptions, expect_defaults
from .snapshot import snapshot

# The key under which a transition's meta information is stored with it.
_META = '__meta__'
_OPTIONS = ('replay_buffer_size', 'storage', 'eviction', 'folder', 'device')


class FrameBuffer(Buffer):
    """
    Overview:
        DI-engine's ``DequeBuffer``, with each distinct screen kept once and compressed. It works with \
        ``data_pusher``, ``OffPolicyLearner``, ``offpolicy_data_fetcher``, and the middleware \
        ``PriorityExperienceReplay``, ``use_time_check``, ``staleness_check``, ``sample_range_view``, ``clone_object``.

        .. note::
            A sample is a copy: writing into it does not change the buffer; ``update`` does.
    Examples:
        >>> buffer, stack = FrameBuffer(size=100), np.zeros((4, 84, 84), np.uint8)
        >>> pushed = buffer.push(dict(obs=stack, next_obs=stack, action=1), meta=dict(env=0))
        >>> (item,) = buffer.sample(1)
        >>> item.index == pushed.index, item.data['obs'].shape, item.meta
        (True, (4, 84, 84), {'env': 0})
        >>> buffer.close()
    """

    def __init__(self, size: int, exp_name: str = 'default_experiment', **options: Any) -> None:
        """
        Arguments:
            - size (:obj:`int`): The most transitions it holds.
            - exp_name (:obj:`str`): Folder of the experiment, below which storage ``memmap`` keeps its file.
            - options (:obj:`Any`): ``storage``, ``eviction``, ``folder``, ``device`` of ``ReplayOptions``. Others \
                would have no effect: in a task pipeline priorities, expiry and the like are middleware.
        Raises:
            - ValueError: If an option is not allowed, or the size does not fit.
        """
        checked = ReplayOptions.from_config(dict(options, replay_buffer_size=size))
        expect_defaults(
            checked,
            [name for name in ReplayOptions.model_fields if name not in _OPTIONS],
            "for FrameBuffer: it has no effect in a task pipeline, where DI-engine's middleware does such things",
        )
        super().__init__(checked.replay_buffer_size)
        self._memory = ReplayMemory.from_options(checked, exp_name)

    @apply_middleware('push')
    def push(self, data: Mapping, meta: Optional[dict] = None) -> BufferedData:
        """Store one transition as of ``FrameReplayBuffer.push``, and numbers and strings that belong to it."""
        meta = {} if meta is None else meta
        (insertion_id,) = self._memory.push([{**data, _META: meta}])
        return BufferedData(data=data, index=_index(insertion_id), meta=meta)

    @apply_middleware('sample')
    def sample(
        self,
        size: Optional[int] = None,
        indices: Optional[List[str]] = None,
        replace: bool = False,
        sample_range: Optional[slice] = None,
        ignore_insufficient: bool = False,
        groupby: Optional[str] = None,
        unroll_len: Optional[int] = None,
    ) -> Union[List[BufferedData], List[List[BufferedData]]]:
        """
        Overview:
            Sample transitions, or groups of them, or fetch some by index.
        Arguments:
            - size (:obj:`Optional[int]`): How many; may be left out with ``indices``.
            - indices (:obj:`Optional[List[str]]`): Fetch these, in this order.
            - replace (:obj:`bool`): Whether one may be sampled twice.
            - sample_range (:obj:`Optional[slice]`): Only among these, in the order of pushing.
            - ignore_insufficient (:obj:`bool`): Whether to return nothing instead of raising.
            - groupby (:obj:`Optional[str]`): Sample groups of transitions that have the same value here in their meta.
            - unroll_len (:obj:`Optional[int]`): From each group as many in a row; shorter groups are left out.
        Raises:
            - ValueError: If there are too few, or the arguments contradict each other.
        """
        if not size and not indices:
            raise ValueError('sample: expected size or indices')
        if size and indices and size != len(indices):
            raise ValueError(f'sample: size is {size}, but there are {len(indices)} indices')
        if (indices and groupby) or (unroll_len and not groupby):
            raise ValueError('sample: groupby does not go with indices, and unroll_len goes with groupby only')
        with self._memory.lock:
            try:
                if indices:
                    return self._fetch(np.array([self._row(index) for index in indices]))
                assert size is not None
                if groupby:
                    return self._sample_groups(size, groupby, replace, sample_range, unroll_len)
                return self._fetch(self._memory.sample(size, replace, sample_range))
            except (KeyError, ValueError) as error:
                if not ignore_insufficient:
                    raise ValueError(f'there are less than {size} records/groups in buffer({self.count()})') from error
                logging.warning('sample of %s is ignored: %s', size, error)
                return []

    def _sample_groups(
        self, size: int, groupby: str, replace: bool, sample_range: Optional[slice], unroll_len: Optional[int]
    ) -> List[List[BufferedData]]:
        rows = self._memory.rows()[sample_range or slice(None)]
        groups: Dict[Any, List[int]] = {}
        for row, value in zip(rows.tolist(), self._memory.column((_META, groupby), rows, None)):
            groups.setdefault(value, []).append(row)
        names = [name for name, members in groups.items() if len(members) >= (unroll_len or 1)]
        chosen = random.choices(names, k=size) if replace and names else random.sample(names, k=size)
        sampled = []
        for name in chosen:
            members = groups[name]
            if unroll_len:
                start = random.randrange(len(members) - unroll_len + 1)
                members = members[start : start + unroll_len]
            sampled.append(self._fetch(np.array(members)))
        return sampled

    def _fetch(self, rows: np.ndarray) -> List[BufferedData]:
        if not len(rows):
            return []
        fetched = zip(self._memory.insertion_ids(rows), self._memory.fetch(rows))
        return [BufferedData(data, _index(insertion_id), data.pop(_META)) for insertion_id, data in fetched]

    def _row(self, index: str) -> int:
        row = self._memory.find(int(index, 16))
        if row < 0:
            raise KeyError(f'no transition has the index {index}')
        return row

    @apply_middleware('update')
    def update(self, index: str, data: Optional[Mapping] = None, meta: Optional[dict] = None) -> bool:
        """Replace the data, the meta, or both of one transition; whether it was still there."""
        with self._memory.lock:
            row = self._memory.find(int(index, 16))
            if row < 0:
                return False
            if data is None and meta is not None and self._memory.update(row, {_META: meta}):
                return True
            old = self._fetch(np.array([row]))[0]
            self._memory.replace(row, {**(data or old.data), _META: old.meta if meta is None else meta})
            return True

    @apply_middleware('delete')
    def delete(self, indices: Union[str, Iterable[str]]) -> None:
        """Remove transitions by index; those that are gone are passed over."""
        indices = [indices] if isinstance(indices, str) else indices
        self._memory.remove(int(index, 16) for index in indices)

    @apply_middleware('clear')
    def clear(self) -> None:
        """Remove all transitions and release their memory."""
        self._memory.clear()

    def count(self) -> int:
        """Transitions in it."""
        return self._memory.count

    def get(self, idx: int) -> BufferedData:
        """The transition at a position in the order of pushing. Raises IndexError if there is none."""
        with self._memory.lock:
            rows = self._memory.rows_at([range(self.count())[idx]])
            return self._fetch(rows)[0]

    def get_by_index(self, index: str) -> BufferedData:
        """The transition with an index. Raises KeyError if it is gone."""
        with self._memory.lock:
            return self._fetch(np.array([self._row(index)]))[0]

    def __iter__(self) -> Iterator[BufferedData]:
        for insertion_id in self._memory.insertion_ids(self._memory.rows()):
            with self._memory.lock:
                row = self._memory.find(insertion_id)
                item = self._fetch(np.array([row]))[0] if row >= 0 else None
            if item is not None:
                yield item

    @property
    def storage(self) -> 'FrameBuffer':
        """What middleware iterates over to see all transitions: the buffer itself."""
        return self

    def save_data(self, file_name: str) -> None:
        """Save everything to a file; see ``FrameReplayBuffer.save_data``."""
        snapshot.save(self._memory, file_name, {})

    def load_data(self, file_name: str) -> None:
        """Load what ``save_data`` saved; see ``FrameReplayBuffer.load_data``."""
        snapshot.load(self._memory, file_name, logging.warning)

    def close(self) -> None:
        """Release memory and file. It may be called at any time, any number of times."""
        self._memory.close()

    def __copy__(self) -> 'FrameBuffer':
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__, _middleware=[])
        return copied


def _index(insertion_id: int) -> str:
    return f'{insertion_id:x}'
