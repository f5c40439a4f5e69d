"""TorchRL's replay buffers behind DI-engine's buffer interface."""

import json
import logging
import math
import os
import shutil
import tempfile
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

import torch
from ding.utils import BUFFER_REGISTRY
from ding.worker.replay_buffer import IBuffer

from ...utils import run_registry
from ...utils.atomic_file import DamagedFile
from ...utils.memory_limits import free_disk_bytes, memory_room
from ..priority_weights import LARGEST_PRIORITY
from .columns import KeyPath, to_columns
from .options import TorchRLOptions
from .sampling import make_sampling
from .save_folder import MANIFEST, PREFETCHED, file_sizes, refuse_programs

_log = logging.getLogger(__name__)
# dtype and shape of each value of a transition, as lists: they are saved as JSON
Layout = Dict[KeyPath, List[Any]]

UNIQUE_ID = ('replay_unique_id',)


def _release_storage(storage: Any, folder: Optional[str], owner: int) -> None:
    if folder is None:
        return
    # A memory-mapped TensorDict is locked, and a locked one caches views that refer back to it: unless it is unlocked,
    # disk and memory of removed files stay occupied until a garbage collection.
    if storage._storage is not None:
        storage._storage.unlock_()
    if os.getpid() == owner:  # a forked child that ends must not remove its parent's files
        shutil.rmtree(folder, ignore_errors=True)


@BUFFER_REGISTRY.register('torchrl')
class TorchRLReplayBuffer(IBuffer):
    """
    Overview:
        TorchRL's ``TensorDictReplayBuffer`` in DI-engine's pipelines, chosen by \
        ``create_config.replay_buffer=dict(type='torchrl', import_names=['breakout_env'])`` and configured in \
        ``policy.other.replay_buffer`` by ``TorchRLOptions``. All transitions have the keys, shapes and dtypes of the \
        first.

        .. note::
            The first push allocates all memory. ``close`` or the end of the last reference to the buffer releases \
            it, at once and without garbage collection. ``clear`` empties the buffer and keeps its memory. TorchRL's \
            storages have no holes, so there is no removal of single transitions (``remove``); new ones replace the \
            oldest.

        With the learner hook ``resume`` it is saved and resumed with its run. Training waits while it is saved.
    Raises:
        - ImportError: If TorchRL is not installed.
        - ValueError: If an option is not allowed; the message names it.
    Examples:
        >>> TorchRLReplayBuffer.default_config().storage
        'tensor'
    """

    # of the names of saves in a run's folder
    save_suffix = '.torchrl'

    config = dict(type='torchrl', **TorchRLOptions().model_dump())

    def __init__(
        self,
        cfg: Mapping,
        tb_logger: Optional[Any] = None,
        exp_name: Optional[str] = 'default_experiment',
        instance_name: str = 'buffer',
    ) -> None:
        self._options = TorchRLOptions.from_config(cfg)
        try:
            from . import parts  # not at the top: TorchRL is optional, importing ``breakout_env`` must not need it
        except ImportError as error:
            raise ImportError(
                f"the replay buffer of type 'torchrl' needs TorchRL, which cannot be imported ({error}); "
                "pip install 'torchrl>=0.14,<0.15'"
            ) from error
        self._parts = parts
        self._home = os.path.abspath(self._options.folder or os.path.join(exp_name or '', 'replay'))
        self._pending: Optional[Tuple[int, 'Future[Any]']] = None  # the next batch, and the size that was guessed
        self._save_error: Optional[Exception] = None
        self._open()
        run_registry.register(exp_name or '', instance_name, self)

    def _open(self) -> None:
        self._folder: Optional[str] = None
        if self._options.storage == 'memmap':
            os.makedirs(self._home, exist_ok=True)
            self._folder = tempfile.mkdtemp(prefix='torchrl-', dir=self._home)
        self._buffer = self._parts.make_buffer(self._options, self._folder)
        self._executor = ThreadPoolExecutor(1, 'replay-prefetch') if self._options.prefetch else None
        if self._executor is not None:  # else what the thread and others draw would depend on who comes first
            seed = int(torch.randint(2**31, ()))
            self._buffer.set_rng(torch.Generator().manual_seed(seed))
        # runs with the last reference to this object, and at the latest when the program ends
        self._release = weakref.finalize(self, _release_storage, self._buffer.storage, self._folder, os.getpid())
        self._sampling = make_sampling(self._options)
        self._layout: Optional[Layout] = None  # known from the first push on
        self._pushed = 0  # transitions since the beginning: the next one's unique id

    @property
    def nbytes(self) -> int:
        """Bytes of memory or files that are allocated for transitions."""
        return _transition_bytes(self._layout or {}) * self._options.replay_buffer_size

    def close(self) -> None:
        """Release memory and files. The buffer cannot be used any more; further calls do nothing."""
        self._wait_for_batch()
        self._pending = None
        if self._buffer is not None:
            if self._executor is not None:
                self._executor.shutdown()
            self._buffer, self._layout = None, None
            self._release()

    def _wait_for_batch(self) -> None:
        """The thread reads the storage: wait for it before that changes."""
        if self._pending is not None:
            self._pending[1].exception()

    def clear(self) -> None:
        """Forget all transitions; their memory is kept for new ones."""
        self._wait_for_batch()
        self._pending = None
        if self._buffer is not None:
            self._buffer.empty()

    def count(self) -> int:
        """Transitions in the buffer."""
        return 0 if self._buffer is None else len(self._buffer)

    def push(self, data: Union[List[Any], Any], cur_collector_envstep: int) -> None:
        """
        Overview:
            Store one transition or a list: dicts of tensors, numbers and dicts.
        Raises:
            - ValueError: If there is no room for ``replay_buffer_size`` of them, or they differ from earlier ones.
            - TypeError: If a value is neither tensor nor number.
            - RuntimeError: If the buffer is closed.
        """
        if self._buffer is None:
            raise RuntimeError('the replay buffer is closed; expected no more transitions')
        transitions = data if isinstance(data, list) else [data]
        if not transitions:
            return
        columns = to_columns(transitions[-self._options.replay_buffer_size :])
        count = len(next(iter(columns.values())))
        columns[UNIQUE_ID] = torch.arange(self._pushed, self._pushed + count)
        self._sampling.prepare(columns)
        self._wait_for_batch()
        is_first = self._layout is None
        self._check_layout({path: [str(c.dtype), list(c.shape[1:])] for path, c in columns.items()})
        self._buffer.extend(self._parts.TensorDict(columns, batch_size=[count]))
        self._pushed += count
        if is_first:
            self._reserve_disk()

    def _check_layout(self, layout: Layout) -> None:
        if self._layout is None:
            self._check_room(_transition_bytes(layout))
            self._layout = layout
        elif layout != self._layout:
            differing = sorted(
                '.'.join(path) for path in {**layout, **self._layout} if layout.get(path) != self._layout.get(path)
            )
            raise ValueError(
                f'transitions differ from those in the replay buffer in {", ".join(differing)}; expected the same '
                'keys, shapes and dtypes'
            )

    def _check_room(self, transition_bytes: int) -> None:
        """Refuse now what would end in an out-of-memory kill, or in SIGBUS on a full disk, hours later."""
        if self._folder is None:
            memory = memory_room()
            place, room, advice = memory.whose, memory.free_bytes, "storage='memmap', which keeps them in files"
        else:
            place, room, advice = f'the disk of {self._home}', free_disk_bytes(self._home), 'another `folder`'
        size = self._options.replay_buffer_size
        if size * transition_bytes > room:
            raise ValueError(
                f'replay buffer option `replay_buffer_size` is {size}; at {transition_bytes} bytes a transition that '
                f'is {size * transition_bytes / 1e9:.1f} GB, and {room / 1e9:.1f} GB of {place} are free. Expected at '
                f'most {room // transition_bytes}, or {advice}'
            )

    def _reserve_disk(self) -> None:
        """TorchRL's files are sparse: have the file system allocate their blocks."""
        for path in Path(self._folder).rglob('*.memmap') if self._folder else ():
            with open(path, 'r+b') as file:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)

    def sample(self, batch_size: int, cur_learner_iter: int) -> Optional[List[Dict[str, Any]]]:
        """
        Overview:
            Sample transitions or slices, with replacement.
        Returns:
            - batch (:obj:`Optional[List[Dict[str, Any]]]`): None if there are too few. Transitions come with \
                ``replay_unique_id``, ``replay_buffer_idx`` and ``IS``, and with ``priority`` if they have one. A \
                slice is a dict of lists with a value for each step, the form that DI-engine's R2D2 expects; ``null`` \
                marks the padding behind the end of a short episode.
        """
        if self._layout is None or self.count() < max(batch_size, self._options.slice_len or 1):
            return None
        pending, self._pending = self._pending, None
        guessed = None if pending is None else pending[1].result()
        arguments = (self._buffer, self._layout, batch_size)
        batch = guessed if pending and pending[0] == batch_size else self._sampling.sample(*arguments)
        if self._executor is not None:
            self._pending = batch_size, self._executor.submit(self._sampling.sample, *arguments)
        return batch

    def update(self, info: Dict[str, list]) -> None:
        """
        Overview:
            Set the priorities that the learner found. Transitions that have been overwritten since are skipped.
        Raises:
            - ValueError: If the sampler does not use priorities, or one is negative, infinite or NaN.
        """
        if self._options.sampler != 'prioritized':
            raise ValueError(
                f'the policy returns priorities, but the replay buffer option `sampler` is '
                f"{self._options.sampler!r}; expected sampler='prioritized', or policy.priority=False. There are no "
                "prioritized slices: TorchRL's sampler for them needs the steps of an episode side by side, which "
                'several environments do not give, and an extension that does not load with this torch'
            )
        self._wait_for_batch()
        index, unique_id = (torch.as_tensor(info[key]) for key in ('replay_buffer_idx', 'replay_unique_id'))
        priority = torch.as_tensor(info['priority'], dtype=torch.float64)
        if not ((priority >= 0) & (priority <= LARGEST_PRIORITY)).all():
            raise ValueError(f'priorities are {priority.tolist()}; expected finite numbers from 0, in float32')
        is_stored = self._buffer.storage[:][UNIQUE_ID][index] == unique_id
        if is_stored.any():
            self._buffer.update_priority(index[is_stored], priority[is_stored])

    def remove(self, replay_unique_ids: Any) -> int:
        """Not possible: TorchRL's storages have no holes. Raises NotImplementedError."""
        raise NotImplementedError(
            "a replay buffer of type 'torchrl' cannot remove single transitions, as TorchRL's storages have no holes; "
            "expected the type 'frame', or `clear`"
        )

    @property
    def push_count(self) -> int:
        """Transitions ever pushed."""
        return self._pushed

    def memory_report(self) -> Dict[str, float]:
        """What the buffer costs: ``transitions``, ``bytes`` of memory, ``file_bytes`` on the disk."""
        in_files = self.nbytes if self._options.storage == 'memmap' else 0
        return dict(transitions=self.count(), bytes=self.nbytes - in_files, file_bytes=in_files)

    def start_saving(self, file_name: str, then: Callable[[], None]) -> bool:
        """Save, then call a function; True. It returns when both are done; a failure is logged."""
        self._save_error = None
        try:
            self.save_data(file_name)
            then()
        except (OSError, RuntimeError, ValueError) as error:  # no failure of a save may end the training
            self._save_error = error
            _log.warning('the replay buffer was not saved to %s: %s. The save before it is kept', file_name, error)
        return True

    def wait_for_saving(self) -> Optional[Exception]:
        """The error of the last save; there is none to wait for."""
        return self._save_error

    def state_dict(self) -> Dict[str, Any]:
        """A copy of everything, in memory; for large buffers there is ``save_data``."""
        columns, priorities = {}, None
        if self._layout and self.count():
            data = self._buffer.storage[:]
            oldest_first = data[UNIQUE_ID].argsort()
            columns = {path: data[path][oldest_first] for path in self._layout}
            priorities = self._buffer.sampler.state_dict()
            if 'weights' in priorities:
                priorities['weights'] = priorities['weights'][oldest_first]
        return dict(self._description(), columns=columns, priorities=priorities)

    def load_state_dict(self, _state_dict: Dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned; a ValueError says what does not fit."""

        def load() -> None:
            columns = _state_dict['columns']
            self._buffer.extend(self._parts.TensorDict(columns, batch_size=[_state_dict['count']]))
            if _state_dict['priorities']:
                self._buffer.sampler.load_state_dict(_state_dict['priorities'])

        self._restore(_state_dict, 'the state', load)

    def save_data(self, file_name: str) -> None:
        """
        Overview:
            Write everything to a folder, with TorchRL's ``dumps``. A complete folder replaces what an earlier call \
            wrote there; the disk must have room for both. It takes ``nbytes``, however few transitions there are.
        Raises:
            - ValueError: If something of that name exists which ``save_data`` did not write.
        """
        target = Path(file_name).absolute()
        if target.exists() and not (target / MANIFEST).is_file():
            raise ValueError(f'{target} exists and is no folder of a replay buffer; expected another name')
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f'{target.name}.', dir=target.parent))
        try:
            if self.count():
                self._buffer.dumps(fresh)
                (fresh / PREFETCHED).unlink(missing_ok=True)
            description = dict(self._description(), files=file_sizes(fresh))
            (fresh / MANIFEST).write_text(json.dumps(description))
            old = fresh.with_name(f'{fresh.name}.old')
            if target.exists():
                target.rename(old)
            fresh.rename(target)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def load_data(self, file_name: str) -> None:
        """
        Overview:
            Restore what ``save_data`` wrote, with TorchRL's ``loads``. That unpickles what it finds, which may run \
            any program: a folder with anything but numbers and JSON in it is refused.
        Raises:
            - DamagedFile: If there is no such folder, or it is damaged.
            - ValueError: If it does not fit this buffer.
        """
        folder = Path(file_name).absolute()
        try:
            description = json.loads((folder / MANIFEST).read_text())
            expected = description['files']
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedFile(f'{folder} cannot be read ({error!r}); expected a folder that save_data wrote') from error
        refuse_programs(folder)
        found = file_sizes(folder)
        for name, size in expected.items():
            if found.get(name) != size:  # TorchRL would fill a file that is too short with zeros
                raise DamagedFile(
                    f'{folder} is damaged: {name} has {found.get(name, "no")} bytes; expected the {size} that '
                    'save_data wrote'
                )
        self._restore(description, str(folder), lambda: self._buffer.loads(folder))

    def _description(self) -> Dict[str, Any]:
        return dict(
            replay_buffer_size=self._options.replay_buffer_size,
            sampler=self._options.sampler,
            layout=[[list(path), kind] for path, kind in (self._layout or {}).items()],
            count=self.count(),
            pushed=self._pushed,
            samples=self._sampling.sample_count,
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
        self._open()
        try:
            if description['count']:
                self._check_layout({tuple(path): kind for path, kind in description['layout']})
                load()
                self._reserve_disk()
                if self.count() != description['count']:
                    raise ValueError(f'it holds {self.count()} transitions; expected {description["count"]}')
                self._sampling.after_loading(self._buffer.storage)
            self._pushed, self._sampling.sample_count = int(description['pushed']), int(description['samples'])
        except Exception as error:  # damaged files make TorchRL fail in any way
            self.close()
            self._open()
            raise DamagedFile(f'{source} cannot be loaded ({error}); the replay buffer is empty now') from error


def _transition_bytes(layout: Layout) -> int:
    return sum(getattr(torch, dtype.split('.')[1]).itemsize * math.prod(shape) for dtype, shape in layout.values())
