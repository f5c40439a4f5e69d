"""TorchRL's replay buffers behind DI-engine's interface, type ``torchrl``.

TorchRL stores and samples. Here transitions become columns, what TorchRL would find out too
late is checked, priorities are kept, and memory and files are released at once. Saves are written here, because TorchRL
unpickles what it finds in a save, and batches are prefetched here, because it pickles them into saves.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ding.utils import BUFFER_REGISTRY, lists_to_dicts

from ..compat import torchrl_storages
from ..utils.atomic_file import DamagedFile
from ..utils.memory_limits import disk_room, memory_room
from .memory import ClosedBuffer
from .options import FOLDER, TorchRLOptions
from .priorities import Priorities
from .saved_arrays import Arrays, describe, read_description
from .serial_base import SerialBuffer
from .size_check import expect_room
from .structure import Field, KeyPath, Structure, Transition, fields_from, fields_of, look_up, nested, numpy_of

FORMAT = 'replay buffer of TorchRL'
_CHUNK_TRANSITIONS = 1024  # are read and written at a time


@BUFFER_REGISTRY.register('torchrl')
class TorchRLReplayBuffer(SerialBuffer):
    """TorchRL's ``TensorDictReplayBuffer`` in DI-engine's pipelines, chosen by
    ``create_config.replay_buffer=dict(type='torchrl', import_names=['breakout_env'])`` and configured in
    ``policy.other.replay_buffer`` by ``TorchRLOptions``. All transitions have the keys, shapes and dtypes of the first.

    .. note::
        The first push allocates all memory. ``close`` or the end of the last reference to the buffer releases
        it, at once and without garbage collection. ``clear`` empties the buffer and keeps its memory.

    With the learner hook ``resume`` it is saved and resumed with its run.

    Raises:
        ImportError: If TorchRL is not installed.
        ValueError: If an option is not allowed; the message names it.
    """

    options_type = TorchRLOptions
    _options: TorchRLOptions
    config = dict(type='torchrl', **TorchRLOptions().model_dump())

    def __init__(
        self,
        cfg: Mapping,
        tb_logger: object = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'buffer',
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
        # not TorchRL's PrioritizedSampler: its extension does not load with the torch that DI-engine requires
        self._priorities = Priorities(size, options) if options.sampler == 'prioritized' else None
        if options.sampler == 'slice':
            # A collector's environments take turns, so the steps of an episode are not adjacent (`fragmented`), and an
            # episode may be shorter than a slice (`strict_length`).
            keys = dict(traj_key='episode_id', step_key='step_id', truncated_key=None, init_key=None)
            cut = dict(slice_len=options.slice_len, fragmented=True, strict_length=False, pad_output=True)
            sampler = SliceSampler(**keys, **cut)
        else:
            sampler = RandomSampler()
        self._folder: str | None = None
        storage = LazyTensorStorage(size)
        if options.storage == 'memmap':
            os.makedirs(self._home, exist_ok=True)
            self._folder = tempfile.mkdtemp(prefix='torchrl-', dir=self._home)
            storage = LazyMemmapStorage(size, scratch_dir=self._folder)
        self.buffer: Any = TensorDictReplayBuffer(storage=storage, sampler=sampler)
        self._random: torch.Generator | None = None
        if options.prefetch:  # else the numbers that the thread draws would depend on its speed
            self._random = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
            self.buffer.set_rng(self._random)
        self._structure: Structure | None = None  # known from the first push on
        self._transition_bytes = 0
        self._ids = np.full(size, -1)  # of the transition in each slot; ids are never reused
        self._pushed = 0  # transitions since the beginning: the next one's id
        self._first_episode = 0  # added to episode ids, as a collector counts from 0 in each process
        torchrl_storages.attach_weakly(self.buffer)
        self._open(self._exp_name, partial(torchrl_storages.release, storage, self._folder))

    def close(self) -> None:
        """Release memory and files. The buffer cannot be used any more; further calls do nothing."""
        super().close()
        self.buffer, self._transition_bytes = None, 0

    @property
    def _fields(self) -> Sequence[Field]:
        return self._structure.fields if self._structure else ()

    @property
    def push_count(self) -> int:
        """Transitions ever pushed."""
        return self._pushed

    def memory_report(self) -> dict[str, float]:
        """What the buffer costs: ``transitions``, ``bytes`` of memory, ``file_bytes`` on the disk."""
        nbytes = self._transition_bytes * self._options.replay_buffer_size
        in_files = nbytes if self._folder else 0
        return dict(transitions=self.count(), bytes=nbytes - in_files, file_bytes=in_files)

    def count(self) -> int:
        """Transitions in the buffer."""
        return 0 if self.buffer is None else len(self.buffer)

    def clear(self) -> None:
        """Forget all transitions; their memory is kept for new ones."""
        self._prefetcher.drop()
        if self.buffer is not None:
            self.buffer.empty()
        if self._priorities is not None:
            self._priorities.clear()

    def push(self, data: Sequence[Mapping] | Mapping, cur_collector_envstep: int = -1) -> None:
        """Store one transition or many: dicts of tensors, numbers and dicts.

        Raises:
            ValueError: If there is no room for ``replay_buffer_size`` of them, or they differ from earlier ones.
            TypeError: If a value is neither tensor nor number.
            ClosedBuffer: If the buffer is closed.
        """
        if self.buffer is None:
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
        structure = self._structure or Structure(fields_of(kept[0]))
        if self._options.sampler == 'slice':
            _expect_ids(kept[0])
        for transition in kept:
            structure.expect(transition)
        columns = {}
        for path, *_ in structure.fields:
            columns[path] = torch.stack([torch.as_tensor(look_up(transition, path)) for transition in kept])
        if self._options.sampler == 'slice':
            columns['episode_id',] += self._first_episode
        self._prefetcher.wait()  # its thread reads the storage
        slots = self._extend(structure, columns)
        self._pushed = first + len(kept)
        self._ids[slots] = np.arange(first, self._pushed)
        if self._priorities is not None and weights is not None:
            self._priorities.set(slots, weights)

    def _extend(self, structure: Structure, columns: Mapping[KeyPath, torch.Tensor]) -> np.ndarray:
        """Hand columns to TorchRL; returns their slots. The first call allocates: it refuses a size that would end in
        an out-of-memory kill, or in SIGBUS on a full disk, hours later.
        """
        from tensordict import TensorDict

        count = len(next(iter(columns.values())))
        transition_bytes = sum(column.nbytes for column in columns.values()) // count
        if self._structure is None:
            room, instead = memory_room(), ", or storage='memmap', which keeps them in files"
            if self._folder is not None:
                room, instead = disk_room(self._home), ', or another `folder`'
            expect_room(self._options.replay_buffer_size, transition_bytes, room, instead)
        slots = self.buffer.extend(TensorDict(columns, batch_size=[count]))
        if self._structure is None and self._folder is not None:  # TorchRL's files are sparse
            for path in Path(self._folder).rglob('*.memmap'):
                with open(path, 'r+b') as file:
                    os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        self._structure, self._transition_bytes = structure, transition_bytes
        return slots.numpy()

    def sample(self, batch_size: int, cur_learner_iter: int = 0) -> list[Transition] | None:
        """Sample transitions or slices, with replacement.

        Returns:
            None if there are too few. Transitions come with ``replay_unique_id``, ``replay_buffer_idx`` and ``IS``, and
            with ``priority`` if they have one. A slice is a dict of lists with a value for each step, the form that
            DI-engine's R2D2 expects; ``null`` marks the padding behind the end of a short episode.
        """
        if self.count() < max(batch_size, self._options.slice_len or 1):
            return None
        # without a reference to self, which the prefetch thread would keep alive
        parts = self.buffer, [field.path for field in self._fields]
        if self._options.slice_len is not None:
            sample = partial(_sample_slices, *parts, batch_size, self._options.slice_len)
        else:
            sample = partial(_sample_transitions, *parts, batch_size, self._ids, self._priorities, self._random)
        return self._prefetcher.batch(batch_size, sample)

    def update(self, info: Mapping[str, Sequence]) -> None:
        """Set the priorities that the learner found; transitions that are gone are passed over."""
        if self._priorities is None:
            raise ValueError(
                f'the policy returns priorities, but the replay buffer option `sampler` is '
                f"{self._options.sampler!r}; expected sampler='prioritized', or policy.priority=False"
            )
        if 'priority' in info:
            self._prefetcher.wait()
            self._priorities.update(info, self._ids[: self.count()])

    def _snapshot(self) -> Arrays:
        count, priorities = self.count(), self._priorities
        yield describe(
            FORMAT,
            dict(
                replay_buffer_size=self._options.replay_buffer_size,
                sampler=self._options.sampler,
                fields=self._fields,
                count=count,
                pushed=self._pushed,
                writer=self.buffer.writer.state_dict() if count else None,
                priorities=None if priorities is None else priorities.numbers(),
            ),
        )
        yield 'ids', self._ids[:count]
        if priorities is not None:
            yield 'weights', priorities.stored_weights(count)
        if self._random is not None:
            yield 'random', self._random.get_state().numpy()
        for start in range(0, count, _CHUNK_TRANSITIONS):
            for i, field in enumerate(self._fields):
                column = self.buffer.storage[:][field.path][start : start + _CHUNK_TRANSITIONS]
                yield f'column{i}_{start}', numpy_of(column)

    def _restore(self, arrays: Mapping[str, np.ndarray], name: str) -> None:
        saved = read_description(FORMAT, arrays, name)
        for option in ('replay_buffer_size', 'sampler'):
            if saved[option] != getattr(self._options, option):
                raise DamagedFile(
                    f'replay buffer option `{option}` is {getattr(self._options, option)!r}, but {name} was saved with '
                    f'{saved[option]!r}; expected the same'
                )
        starts = range(0, saved['count'], _CHUNK_TRANSITIONS)
        expected = {f'column{i}_{start}' for start in starts for i in range(len(saved['fields']))}
        if not {'ids', *expected} <= set(arrays):
            raise DamagedFile(f'{name} is damaged: arrays are missing')
        self.close()
        self._make()
        structure = Structure(fields_from(saved['fields']))
        for start in starts:
            columns = {}
            for i, field in enumerate(structure.fields):
                columns[field.path] = field.tensor(arrays[f'column{i}_{start}'])
            self._extend(structure, columns)
        if saved['count']:
            self.buffer.writer.load_state_dict(saved['writer'])
        if self._options.sampler == 'slice' and saved['count']:
            self._first_episode = int(self.buffer.storage[:]['episode_id'].max()) + 1
        if self._priorities is not None:
            self._priorities.restore(saved['priorities'], arrays['weights'])
        if self._random is not None and 'random' in arrays:
            self._random.set_state(torch.from_numpy(arrays['random']))
        self._ids[: saved['count']] = arrays['ids']
        self._pushed = saved['pushed']


def _expect_ids(transition: Mapping) -> None:
    """Refuse transitions without the keys that slices of episodes need."""
    missing = [key for key in ('episode_id', 'step_id', 'reward') if key not in transition]
    if missing:
        raise ValueError(
            f"the replay buffer samples slices (sampler='slice'), but its transitions lack {', '.join(missing)}; "
            "choose the collector that adds ids: create_config.collector=dict(type='sample_with_ids', "
            "import_names=['breakout_env'])"
        )


def _sample_transitions(
    buffer: Any,
    paths: Sequence[KeyPath],
    size: int,
    ids: np.ndarray,
    priorities: Priorities | None,
    random: torch.Generator | None,
) -> list[Transition]:
    importance = torch.ones(size)
    if priorities is None:
        data = buffer.sample(size)
    else:
        chosen = priorities.sample(torch.rand(size, dtype=torch.float64, generator=random).numpy())
        data, importance = buffer[torch.from_numpy(chosen.slots)], torch.from_numpy(chosen.importance).float()
    columns = {path: data[path] for path in paths}
    columns['IS',] = importance
    columns['replay_unique_id',] = torch.from_numpy(ids[data['index'].numpy()])
    if priorities is not None:
        columns['priority',] = torch.from_numpy(chosen.priorities).float()
    indices = (('replay_buffer_idx',), data['index'].tolist())
    return nested([indices, *((path, column.unbind(0)) for path, column in columns.items())], size)


def _sample_slices(buffer: Any, paths: Sequence[KeyPath], size: int, length: int) -> list[Transition]:
    data = buffer.sample(size * length)
    columns = {path: data[path] for path in paths}
    padded = ~data['collector', 'mask']  # TorchRL pads short slices with copies of their last step
    columns['reward',][padded] = 0
    columns['null',] = padded | columns.get(('null',), padded)
    steps = nested([(path, column.unbind(0)) for path, column in columns.items()], len(padded))
    return [lists_to_dicts(steps[i : i + length], recursive=True) for i in range(0, len(steps), length)]
