"""TorchRL's replay buffers behind DI-engine's interface, type ``torchrl``.

TorchRL stores, samples and writes. Here transitions are converted (``torchrl_columns.py``), what TorchRL would find out
too late is checked, priorities are kept, and memory and files are released at once. Batches are prefetched here,
because TorchRL pickles the ones that it prefetches into saves (compat/torchrl_saves.py).
"""

import contextlib
import copy
import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ding.utils import BUFFER_REGISTRY, lists_to_dicts

from ..compat import torchrl_storages
from ..compat.torchrl_saves import read_description, write_buffer
from ..utils.atomic_file import DamagedFile
from ..utils.memory_limits import disk_room, memory_room
from .memory import ClosedBuffer
from .options import FOLDER, TorchRLOptions
from .priorities import Priorities
from .serial_base import SerialBuffer
from .size_check import DoesNotFit, expect_room
from .structure import KeyPath
from .torchrl_columns import Layout, expect_ids, expect_layout, flatten, nested, transition_bytes

UNIQUE_ID = ('replay_unique_id',)


@BUFFER_REGISTRY.register('torchrl')
class TorchRLReplayBuffer(SerialBuffer):
    """TorchRL's ``TensorDictReplayBuffer`` in DI-engine's pipelines, chosen by
    ``create_config.replay_buffer=dict(type='torchrl', import_names=['breakout_env'])`` and configured in
    ``policy.other.replay_buffer`` by ``TorchRLOptions``. All transitions have the keys, shapes and dtypes of the first.

    .. note::
        The first push allocates all memory. ``close`` or the end of the last reference to the buffer releases
        it, at once and without garbage collection. ``clear`` empties the buffer and keeps its memory.

    With the learner hook ``resume`` it is saved and resumed with its run. Training waits while it is saved.

    Raises:
        ImportError: If TorchRL is not installed.
        ValueError: If an option is not allowed; the message names it.
    """

    save_suffix = '.torchrl'
    options_type = TorchRLOptions
    config = dict(type='torchrl', **TorchRLOptions().model_dump())

    def __init__(
        self, cfg: Mapping, tb_logger: Any = None, exp_name: str = 'default_experiment', instance_name: str = 'buffer'
    ) -> None:
        self._options = TorchRLOptions.from_config(cfg)
        self._home = os.path.abspath(self._options.folder or os.path.join(exp_name, FOLDER))
        self._exp_name = exp_name
        self._make()

    def _make(self) -> None:
        """Make TorchRL's buffer, empty: it allocates with its first transitions."""
        try:  # imported here because TorchRL is optional and takes seconds to import
            from torchrl.data import LazyMemmapStorage, LazyTensorStorage, SliceSampler, TensorDictReplayBuffer
            from torchrl.data.replay_buffers import RandomSampler
        except ImportError as error:
            raise ImportError(
                f"the replay buffer of type 'torchrl' needs TorchRL, which cannot be imported ({error}); "
                "pip install 'torchrl>=0.14,<0.15'"
            ) from error
        options, size = self._options, self._options.replay_buffer_size
        sampler: Any = RandomSampler()
        # not TorchRL's PrioritizedSampler: its extension does not load with the torch that DI-engine requires
        self._priorities = Priorities(size, options) if options.sampler == 'prioritized' else None
        if options.sampler == 'slice':
            # A collector's environments take turns, so the steps of an episode are not adjacent (`fragmented`), and an
            # episode may be shorter than a slice (`strict_length`).
            keys = dict(traj_key='episode_id', step_key='step_id', truncated_key=None, init_key=None)
            cut = dict(slice_len=options.slice_len, fragmented=True, strict_length=False, pad_output=True)
            sampler = SliceSampler(**keys, **cut)
        self._folder: str | None = None
        storage = LazyTensorStorage(size)
        if options.storage == 'memmap':
            os.makedirs(self._home, exist_ok=True)
            self._folder = tempfile.mkdtemp(prefix='torchrl-', dir=self._home)
            storage = LazyMemmapStorage(size, scratch_dir=self._folder)
        self._buffer: Any = TensorDictReplayBuffer(storage=storage, sampler=sampler)
        self._random: torch.Generator | None = None
        if options.prefetch:  # else the numbers that the thread draws would depend on its speed
            self._random = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
            self._buffer.set_rng(self._random)
        self._layout: Layout = {}  # known from the first push on
        self._pushed = 0  # transitions since the beginning: the next one's unique id
        self._first_episode = 0  # added to episode ids, as a collector counts from 0 in each process
        torchrl_storages.attach_weakly(self._buffer)
        self._open(self._exp_name, partial(torchrl_storages.release, storage, self._folder))

    def close(self) -> None:
        """Release memory and files. The buffer cannot be used any more; further calls do nothing."""
        super().close()
        self._buffer, self._layout = None, {}

    @property
    def push_count(self) -> int:
        """Transitions ever pushed."""
        return self._pushed

    def memory_report(self) -> dict[str, float]:
        """What the buffer costs: ``transitions``, ``bytes`` of memory, ``file_bytes`` on the disk."""
        nbytes = transition_bytes(self._layout) * self._options.replay_buffer_size
        in_files = nbytes if self._folder else 0
        return dict(transitions=self.count(), bytes=nbytes - in_files, file_bytes=in_files)

    def count(self) -> int:
        """Transitions in the buffer."""
        return 0 if self._buffer is None else len(self._buffer)

    def clear(self) -> None:
        """Forget all transitions; their memory is kept for new ones."""
        self._prefetcher.drop()
        if self._buffer is not None:
            self._buffer.empty()
        if self._priorities is not None:
            self._priorities.clear()

    def push(self, data: Sequence[Mapping] | Mapping, cur_collector_envstep: int) -> None:
        """Store one transition or many: dicts of tensors, numbers and dicts.

        Raises:
            ValueError: If there is no room for ``replay_buffer_size`` of them, or they differ from earlier ones.
            TypeError: If a value is neither tensor nor number.
            ClosedBuffer: If the buffer is closed.
        """
        from tensordict import TensorDict

        if self._buffer is None:
            raise ClosedBuffer
        transitions = [data] if isinstance(data, Mapping) else list(data)
        kept = transitions[-self._options.replay_buffer_size :]
        first = self._pushed + len(transitions) - len(kept)  # those before would be replaced at once
        if not kept:
            return
        weights = None
        if self._priorities is not None:
            weights = self._priorities.weights([transition.get('priority') for transition in kept])
            kept = [{key: value for key, value in transition.items() if key != 'priority'} for transition in kept]
        rows = [flatten(transition) for transition in kept]
        for unique_id, row in enumerate(rows, first):
            row[UNIQUE_ID] = torch.tensor(unique_id)
            if self._options.sampler == 'slice':
                expect_ids(row)
                row['episode_id',] = row['episode_id',] + self._first_episode
        layout = expect_layout(rows, self._layout)
        self._prefetcher.wait()  # its thread reads the storage
        columns = {path: torch.stack([row[path] for row in rows]) for path in layout}
        with self._allocating(layout):
            index = self._buffer.extend(TensorDict(columns, batch_size=[len(rows)]))
        self._pushed = first + len(rows)
        if self._priorities is not None and weights is not None:
            self._priorities.set(index.numpy(), weights)

    @contextlib.contextmanager
    def _allocating(self, layout: Layout) -> Iterator[None]:
        """Use it around TorchRL's allocation. It refuses a size that would end in an out-of-memory kill, or in SIGBUS
        on a full disk, hours later. TorchRL's files are sparse, so it has the file system allocate their blocks.
        """
        if self._layout:
            yield
            return
        room, instead = memory_room(), ", or storage='memmap', which keeps them in files"
        if self._folder is not None:
            room, instead = disk_room(self._home), ', or another `folder`'
        expect_room(self._options.replay_buffer_size, transition_bytes(layout), room, instead)
        yield
        self._layout = layout
        for path in Path(self._folder).rglob('*.memmap') if self._folder else ():
            with open(path, 'r+b') as file:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)

    def sample(self, batch_size: int, cur_learner_iter: int) -> list[dict[str, Any]] | None:
        """Sample transitions or slices, with replacement.

        Returns:
            None if there are too few. Transitions come with ``replay_unique_id``, ``replay_buffer_idx`` and ``IS``, and
            with ``priority`` if they have one. A slice is a dict of lists with a value for each step, the form that
            DI-engine's R2D2 expects; ``null`` marks the padding behind the end of a short episode.
        """
        if self.count() < max(batch_size, self._options.slice_len or 1):
            return None
        # without a reference to self, which the prefetch thread would keep alive
        parts = self._buffer, self._priorities, self._random, list(self._layout)
        sample = partial(_sample, *parts, batch_size, self._options.slice_len)
        batch = self._prefetcher.take(batch_size) or sample()
        if self._options.prefetch:
            self._prefetcher.prepare(batch_size, sample)
        return batch

    def update(self, info: dict[str, list]) -> None:
        """Set the priorities that the learner found. Transitions that have been overwritten since are skipped.

        Raises:
            ValueError: If the sampler does not use priorities, or one is negative, infinite or NaN.
        """
        if self._priorities is None:
            raise ValueError(
                f'the policy returns priorities, but the replay buffer option `sampler` is '
                f"{self._options.sampler!r}; expected sampler='prioritized', or policy.priority=False. There are no "
                "prioritized slices: TorchRL's sampler for them needs the steps of an episode side by side, which "
                'several environments do not give, and an extension that does not load with this torch'
            )
        if 'priority' not in info:
            return
        self._prefetcher.wait()
        weights = self._priorities.weights(info['priority'])
        slots, unique_ids = (np.array(info[key], np.int64) for key in ('replay_buffer_idx', 'replay_unique_id'))
        is_there = (0 <= slots) & (slots < self.count())
        if is_there.any():
            stored = self._buffer.storage[:][UNIQUE_ID].numpy()
            is_there[is_there] = stored[slots[is_there]] == unique_ids[is_there]
        self._priorities.set(slots[is_there], weights[is_there])

    def start_saving(self, file_name: str, then: Callable[[], None]) -> bool:
        """Save, then call a function. It returns when both are done, as TorchRL takes no snapshots."""
        started = super().start_saving(file_name, then)
        self.wait_for_saving()
        return started

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything, in memory; for large buffers there is ``save_data``."""
        self._prefetcher.wait()
        return dict(self._description(), buffer=copy.deepcopy(self._buffer.state_dict()) if self.count() else None)

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned; a ValueError says what does not fit."""
        self._restore(_state_dict, 'the state', lambda: self._buffer.load_state_dict(_state_dict['buffer']))

    def _begin_save(self) -> Callable[[str], None]:
        return self.save_data

    def save_data(self, file_name: str) -> None:
        """Write everything to a folder, with TorchRL's ``dumps``. A complete folder replaces what an earlier call wrote
        there; the disk must have room for both, each as large as ``memory_report`` says.

        Raises:
            ValueError: If something with that name exists that ``save_data`` did not write.
            OSError: If the disk has no room: TorchRL maps its files, and a full disk would end the process.
        """
        report, room = self.memory_report(), disk_room(file_name).free_bytes
        needed = report['bytes'] + report['file_bytes']
        if self.count() and needed > room:
            raise OSError(
                errno.ENOSPC, f'a save takes {needed / 1e9:.2f} GB, and there are {room / 1e9:.2f} GB', file_name
            )
        self._prefetcher.wait()  # else the saved random numbers would depend on how fast its thread is
        write_buffer(Path(file_name).absolute(), self._buffer if self.count() else None, self._description())

    def load_data(self, file_name: str) -> None:
        """Restore what ``save_data`` wrote, with TorchRL's ``loads``.

        Raises:
            DamagedFile: If there is no such folder, or it is damaged.
            ValueError: If it does not fit this buffer, or holds anything but numbers and JSON.
        """
        folder = Path(file_name).absolute()
        self._restore(read_description(folder), str(folder), lambda: self._buffer.loads(folder))

    def _description(self) -> dict[str, Any]:
        return dict(
            replay_buffer_size=self._options.replay_buffer_size,
            sampler=self._options.sampler,
            layout=[[list(path), kind] for path, kind in self._layout.items()],
            count=self.count(),
            pushed=self._pushed,
            priorities=None if self._priorities is None else self._priorities.numbers(),
            weights=None if self._priorities is None else self._priorities.stored_weights(self.count()).tolist(),
        )

    def _restore(self, description: Mapping, source: str, load: Callable[[], None]) -> None:
        """Check that a saved buffer fits, and load it. After an error the buffer is as it was, or empty."""
        for name in ('replay_buffer_size', 'sampler'):
            if description.get(name) != getattr(self._options, name):
                raise ValueError(
                    f'replay buffer option `{name}` is {getattr(self._options, name)!r}, but {source} was saved with '
                    f'{description.get(name)!r}; expected the same'
                )
        self.close()
        self._make()
        try:
            if description['count']:
                with self._allocating({tuple(path): kind for path, kind in description['layout']}):
                    load()
                if self.count() != description['count']:
                    raise ValueError(f'it holds {self.count()} transitions; expected {description["count"]}')
                if self._options.sampler == 'slice':
                    self._first_episode = int(self._buffer.storage[:]['episode_id'].max()) + 1
            if self._priorities is not None:
                weights = np.array(description['weights'], np.float32)
                if weights.shape != (self.count(),):
                    raise ValueError(f'it holds {weights.size} priorities; expected {self.count()}')
                self._priorities.restore(description['priorities'], weights)
            self._pushed = int(description['pushed'])
        except Exception as error:  # damaged files make TorchRL fail in any way
            self.close()
            self._make()
            if isinstance(error, DoesNotFit):
                raise
            raise DamagedFile(f'{source} cannot be loaded ({error}); the replay buffer is empty now') from error


def _sample(
    buffer: Any,
    priorities: Priorities | None,
    random: torch.Generator | None,
    paths: list[KeyPath],
    batch_size: int,
    slice_len: int | None,
) -> list[dict[str, Any]]:
    importance = torch.ones(batch_size)
    if priorities is None:
        data = buffer.sample(batch_size * (slice_len or 1))
    else:
        chosen = priorities.sample(torch.rand(batch_size, dtype=torch.float64, generator=random).numpy())
        data, importance = buffer[torch.from_numpy(chosen.slots)], torch.from_numpy(chosen.importance).float()
    columns = {path: data[path] for path in paths}
    if slice_len is not None:
        padded = ~data['collector', 'mask']  # TorchRL pads short slices with copies of their last step
        columns['reward',][padded] = 0
        columns['null',] = padded | columns.get(('null',), padded)
        steps = nested(columns)
        return [lists_to_dicts(steps[i : i + slice_len], recursive=True) for i in range(0, len(steps), slice_len)]
    columns['IS',] = importance
    if priorities is not None:
        columns['priority',] = torch.from_numpy(chosen.priorities).float()
    batch = nested(columns)
    for transition, index in zip(batch, data['index'].tolist()):
        transition['replay_buffer_idx'] = index
    return batch
