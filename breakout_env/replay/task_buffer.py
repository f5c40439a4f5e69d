"""The same memory behind ``ding.data.Buffer``, for DI-engine's task pipelines."""

import os
import random
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Union

import numpy as np
from ding.data.buffer import Buffer, BufferedData, apply_middleware
from ditk import logging

from .memory import ReplayMemory
from .options import ReplayOptions
from .room import check_room
from .snapshot import array_file
from .snapshot.snapshot import MemoryImage, restore

# Under this key a transition's meta information travels with it.
_META = '__meta__'


class FrameBuffer(Buffer):
    """
    Overview:
        What DI-engine's ``DequeBuffer`` offers, with each distinct screen kept once and compressed. It goes where \
        that one goes: ``data_pusher``, ``OffPolicyLearner``, ``offpolicy_data_fetcher``, and the middleware \
        ``PriorityExperienceReplay``, ``use_time_check``, ``staleness_check``, ``sample_range_view``, ``clone_object``.

        A sample is a copy: what is written into it stays out of the buffer, unless ``update`` puts it there.
    Interfaces:
        ``push``, ``sample``, ``update``, ``delete``, ``get``, ``get_by_index``, ``clear``, ``count``, ``save_data``, \
        ``load_data``, ``close``.
    Properties:
        ``storage``.
    """

    def __init__(self, size: int, exp_name: str = 'default_experiment', **options: Any) -> None:
        """
        Arguments:
            - size (:obj:`int`): Transitions it holds at most.
            - exp_name (:obj:`str`): Folder of the experiment, below which storage 'memmap' keeps its file.
            - options (:obj:`Any`): ``storage``, ``eviction``, ``folder``, ``device`` of ``ReplayOptions``.
        Raises:
            - ValueError: If an option is not allowed, or the size can not fit.
        """
        checked = ReplayOptions.from_config(dict(options, replay_buffer_size=size))
        super().__init__(checked.replay_buffer_size)
        folder = checked.folder or os.path.join(exp_name, 'replay')
        check_room(checked, 84 * 84, folder)
        self._memory = ReplayMemory(
            checked.replay_buffer_size,
            checked.storage,
            checked.eviction,
            folder if checked.storage == 'memmap' else None,
            int(np.random.randint(2**31)),
            lambda frame_bytes: check_room(checked, frame_bytes, folder),
            checked.device,
        )

    @apply_middleware('push')
    def push(self, data: Mapping, meta: Optional[dict] = None) -> BufferedData:
        """
        Overview:
            Store one transition.
        Arguments:
            - data (:obj:`Mapping`): See ``FrameReplayBuffer.push``.
            - meta (:obj:`Optional[dict]`): Numbers and strings that belong to it: priority, env, ...
        Returns:
            - buffered_data (:obj:`BufferedData`): With the index to find it by.
        """
        meta = {} if meta is None else meta
        ticket = self._memory.push([{**data, _META: meta}])[0]
        return BufferedData(data=data, index=_index(ticket), meta=meta)

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
            Draw transitions, or groups of them, or fetch some by index.
        Arguments:
            - size (:obj:`Optional[int]`): How many; may be left out with ``indices``.
            - indices (:obj:`Optional[List[str]]`): Fetch these, in this order.
            - replace (:obj:`bool`): Whether one may be drawn twice.
            - sample_range (:obj:`Optional[slice]`): Only among these, in the order of pushing.
            - ignore_insufficient (:obj:`bool`): Whether to return fewer, or none, instead of raising.
            - groupby (:obj:`Optional[str]`): Draw groups of transitions that have the same value here in their meta.
            - unroll_len (:obj:`Optional[int]`): From each group as many in a row; shorter groups are left out.
        Raises:
            - ValueError: If there are not enough, or the arguments do not go together.
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
                if groupby:
                    return self._sample_groups(size, groupby, replace, sample_range, unroll_len)
                return self._fetch(self._memory.draw(size, replace, sample_range))
            except (KeyError, ValueError) as error:
                if not ignore_insufficient:
                    raise ValueError(f'there are less than {size} records/groups in buffer({self.count()})') from error
                logging.warning('sample of %s is ignored: %s', size, error)
                return []

    def _sample_groups(
        self, size: int, groupby: str, replace: bool, sample_range: Optional[slice], unroll_len: Optional[int]
    ) -> List[List[BufferedData]]:
        rows = self._memory.rows()
        rows = rows[sample_range] if sample_range is not None else rows
        groups: Dict[Any, List[int]] = {}
        for row, value in zip(rows.tolist(), self._memory.column((_META, groupby), rows, None)):
            groups.setdefault(value, []).append(row)
        names = [name for name, members in groups.items() if len(members) >= (unroll_len or 1)]
        chosen = random.choices(names, k=size) if replace and names else random.sample(names, k=size)
        drawn = []
        for name in chosen:
            members = groups[name]
            if unroll_len:
                start = random.randrange(len(members) - unroll_len + 1)
                members = members[start : start + unroll_len]
            drawn.append(self._fetch(np.array(members)))
        return drawn

    def _fetch(self, rows: np.ndarray) -> List[BufferedData]:
        if not len(rows):
            return []
        buffered = []
        for ticket, data in zip(self._memory.tickets_of(rows), self._memory.fetch(rows)):
            meta = data.pop(_META)
            buffered.append(BufferedData(data=data, index=_index(ticket), meta=meta))
        return buffered

    def _row(self, index: str) -> int:
        row = self._memory.find(int(index, 16))
        if row < 0:
            raise KeyError(f'no transition has the index {index}')
        return row

    @apply_middleware('update')
    def update(self, index: str, data: Optional[Mapping] = None, meta: Optional[dict] = None) -> bool:
        """
        Overview:
            Replace the data, the meta, or both of one transition.
        Returns:
            - success (:obj:`bool`): False if it is gone.
        """
        with self._memory.lock:
            row = self._memory.find(int(index, 16))
            if row < 0:
                return False
            if data is None and meta is not None and self._memory.rewrite(row, {_META: meta}):
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
        """Forget all transitions and give their memory back."""
        self._memory.clear()

    def count(self) -> int:
        """Transitions in it."""
        return self._memory.count

    def get(self, idx: int) -> BufferedData:
        """
        Overview:
            The transition at a position in the order of pushing.
        Raises:
            - IndexError: If there is none.
        """
        with self._memory.lock:
            rows = self._memory.rows_at([range(self.count())[idx]])
            return self._fetch(rows)[0]

    def get_by_index(self, index: str) -> BufferedData:
        """
        Overview:
            The transition with an index.
        Raises:
            - KeyError: If it is gone.
        """
        with self._memory.lock:
            return self._fetch(np.array([self._row(index)]))[0]

    def __iter__(self) -> Iterator[BufferedData]:
        for ticket in self._memory.tickets_of(self._memory.rows()):
            with self._memory.lock:
                row = self._memory.find(ticket)
                item = self._fetch(np.array([row]))[0] if row >= 0 else None
            if item is not None:
                yield item

    @property
    def storage(self) -> 'FrameBuffer':
        """What middleware that looks through a buffer iterates over: the buffer itself."""
        return self

    def save_data(self, file_name: str) -> None:
        """Save everything to a file, whole or not at all."""
        image = MemoryImage(self._memory, {})
        try:
            array_file.write(file_name, image.arrays())
        finally:
            image.close()

    def load_data(self, file_name: str) -> None:
        """
        Overview:
            Load what ``save_data`` saved, in place of what is there.
        Raises:
            - FileNotFoundError: If there is no such file.
            - array_file.DamagedFile: If neither it nor the one before it can be used; what was there is there still.
        """
        array_file.read_newest(
            file_name, lambda arrays: restore(self._memory, arrays, file_name) and None, logging.warning
        )

    def close(self) -> None:
        """Give memory and file back. It can be called at any time, any number of times."""
        self._memory.close()

    def __copy__(self) -> 'FrameBuffer':
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__, _middleware=[])
        return copied


def _index(ticket: int) -> str:
    return f'{ticket:x}'
