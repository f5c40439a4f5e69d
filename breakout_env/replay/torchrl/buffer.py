"""TorchRL's replay memory behind DI-engine's buffer interface."""

import json
import math
import os
import pickle
import shutil
import tempfile
import weakref
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

import torch
from ding.utils import BUFFER_REGISTRY, lists_to_dicts
from ding.worker.replay_buffer import IBuffer

from ...utils.memory_limits import free_disk_bytes, memory_room
from .columns import to_columns, to_transitions
from .options import TorchRLOptions

UNIQUE_ID = ('replay_unique_id',)
MANIFEST = 'breakout_replay.json'
# Upstream behaviour worked around (TorchRL 0.14): what a buffer has prefetched is saved as a pickle, and unpickled from
# any folder that has one. Ours never prefetches, and earlier versions of us left the pickle of nothing there.
PREFETCHED = 'prefetch.pkl'
_NOTHING_PREFETCHED = pickle.dumps(dict(version=1, capacity=0, queue=()))


def _torchrl_parts() -> ModuleType:
    """The file that needs TorchRL, which few need: importing ``breakout_env`` must not."""
    try:
        from . import parts as torchrl_parts
    except ImportError as error:
        raise ImportError(
            f"the replay buffer of type 'torchrl' needs TorchRL, which can not be imported ({error}); "
            "pip install 'breakout-env[torchrl]'"
        ) from error
    return torchrl_parts


def _give_back(storage: Any, folder: Optional[str], owner: int) -> None:
    storage.release()
    if folder is not None and os.getpid() == owner:  # a forked child that ends must not remove its parent's files
        shutil.rmtree(folder, ignore_errors=True)


@BUFFER_REGISTRY.register('torchrl')
class TorchRLReplayBuffer(IBuffer):
    """
    Overview:
        A ``TensorDictReplayBuffer`` of TorchRL's for DI-engine's pipelines, chosen by \
        ``create_config.replay_buffer=dict(type='torchrl', import_names=['breakout_env'])``; what its options in \
        ``policy.other.replay_buffer`` mean is told in ``TorchRLOptions``. All transitions have the same keys, shapes \
        and dtypes, those of the first.

        .. note::
            Memory is taken once, at the first push, and given back by ``close`` or with the last reference to the \
            buffer, at once and without garbage collection. ``clear`` empties the buffer and keeps its memory.
    Interfaces:
        ``default_config``, ``push``, ``sample``, ``update``, ``clear``, ``count``, ``save_data``, ``load_data``, \
        ``state_dict``, ``load_state_dict``, ``close``.
    Properties:
        ``nbytes``.
    """

    config = dict(type='torchrl', **asdict(TorchRLOptions()))

    def __init__(
        self,
        cfg: Mapping,
        tb_logger: Optional[Any] = None,
        exp_name: Optional[str] = 'default_experiment',
        instance_name: Optional[str] = 'buffer',
    ) -> None:
        """
        Overview:
            Check the options; nothing is allocated yet.
        Arguments:
            - cfg (:obj:`Mapping`): ``policy.other.replay_buffer``.
            - tb_logger, instance_name: Not used; DI-engine passes them.
            - exp_name (:obj:`Optional[str]`): Folder of the experiment.
        Raises:
            - ImportError: If TorchRL is not installed.
            - ValueError: If an option is not allowed; the message names it.
        """
        self._options = TorchRLOptions.from_config(cfg)
        self._parts = _torchrl_parts()
        self._home = os.path.abspath(self._options.folder or os.path.join(exp_name, 'replay'))
        self._open()

    def _open(self) -> None:
        folder = None
        if self._options.storage == 'memmap':
            os.makedirs(self._home, exist_ok=True)
            folder = tempfile.mkdtemp(prefix='torchrl-', dir=self._home)
        self._folder = folder
        self._buffer = self._parts.make_buffer(self._options, folder)
        # runs with the last reference to this object, and at the latest when the program ends
        self._give_back = weakref.finalize(self, _give_back, self._buffer.storage, folder, os.getpid())
        self._layout: Optional[Dict[tuple, list]] = None  # path: [dtype, shape] of each value of a transition
        self._pushed = 0  # transitions since the beginning; the next one's unique id
        self._samples = 0  # since the beginning, for beta
        # Each process counts episodes from 0; those that come after ``load_data`` must not meet the stored ones' ids.
        self._first_episode = 0

    @property
    def nbytes(self) -> int:
        """
        Overview:
            Bytes that the transitions take, in memory or in files, once there is room for all of them.
        """
        return sum(_bytes_of(kind) for kind in (self._layout or {}).values()) * self._options.replay_buffer_size

    def close(self) -> None:
        """
        Overview:
            Give memory and files back. May be called at any time, any number of times; the buffer is of no use then.
        """
        if self._buffer is not None:
            self._buffer, self._layout = None, None
            self._give_back()

    def clear(self) -> None:
        """
        Overview:
            Forget all transitions. Their memory stays for those that come.
        """
        if self._buffer is not None:
            self._buffer.empty()

    def count(self) -> int:
        """
        Overview:
            Transitions in the buffer.
        """
        return 0 if self._buffer is None else len(self._buffer)

    def push(self, data: Union[List[Any], Any], cur_collector_envstep: int) -> None:
        """
        Overview:
            Take in transitions.
        Arguments:
            - data (:obj:`Union[List[Any], Any]`): One transition or a list: dicts of tensors, numbers and dicts.
            - cur_collector_envstep (:obj:`int`): Not used.
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
        if self._options.sampler == 'slice':
            missing = [key for key in ('episode_id', 'step_id', 'reward') if (key,) not in columns]
            if missing:
                raise ValueError(
                    f"the replay buffer's sampler is 'slice', but its transitions lack {', '.join(missing)}; choose "
                    "the collector that adds ids: create_config.collector=dict(type='sample_with_ids', "
                    "import_names=['breakout_env'])"
                )
            columns['episode_id',] = columns['episode_id',] + self._first_episode
        is_first = self._layout is None
        self._check_layout({path: [str(c.dtype), list(c.shape[1:])] for path, c in columns.items()})
        self._buffer.extend(self._parts.TensorDict(columns, batch_size=[count]))
        self._pushed += count
        if is_first:
            self._reserve_disk()

    def _check_layout(self, layout: Dict[tuple, list]) -> None:
        if self._layout is None:
            self._check_room(sum(map(_bytes_of, layout.values())))
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
        """TorchRL's files are sparse: have the file system set their blocks aside."""
        for path in Path(self._folder).rglob('*.memmap') if self._folder else ():
            with open(path, 'r+b') as file:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)

    def sample(self, batch_size: int, cur_learner_iter: int) -> Optional[List[Dict[str, Any]]]:
        """
        Overview:
            Draw transitions or slices, with replacement.
        Arguments:
            - batch_size (:obj:`int`): How many.
            - cur_learner_iter (:obj:`int`): Not used.
        Returns:
            - batch (:obj:`Optional[List[Dict[str, Any]]]`): None if there are too few. Transitions come with \
                ``replay_unique_id``, ``replay_buffer_idx`` and ``IS``, and with ``priority`` if they have one. A \
                slice is a dict of lists, a value a step, as DI-engine's R2D2 takes it; ``null`` tells of steps that \
                are none, behind the end of a short episode.
        """
        if self.count() < max(batch_size, self._options.slice_len or 1):
            return None
        if self._options.sampler == 'slice':
            return self._sample_slices(batch_size)
        if self._options.sampler == 'prioritized':
            anneal = self._options.anneal_step
            done = min(1.0, self._samples / anneal) if anneal else 0.0
            self._buffer.sampler.beta = self._options.beta + (1 - self._options.beta) * done
            self._samples += 1
        data = self._buffer.sample(batch_size)
        columns = {path: data[path] for path in self._layout}
        columns['IS',] = data.get('IS', torch.ones(batch_size))
        if 'priority' in data.keys():
            columns['priority',] = data['priority']
        batch = to_transitions(columns)
        for transition, index in zip(batch, data['index'].tolist()):
            transition['replay_buffer_idx'] = index
        return batch

    def _sample_slices(self, batch_size: int) -> List[Dict[str, Any]]:
        length = self._options.slice_len
        data = self._buffer.sample(batch_size * length)
        columns = {path: data[path] for path in self._layout}
        # TorchRL fills short slices up with copies of their last step
        filled = ~data['collector', 'mask']
        columns['reward',][filled] = 0
        columns['null',] = filled | columns.get(('null',), filled)
        steps = to_transitions(columns)
        return [lists_to_dicts(steps[i : i + length], recursive=True) for i in range(0, len(steps), length)]

    def update(self, info: Dict[str, list]) -> None:
        """
        Overview:
            Set the priorities that the learner found. A transition that was overwritten since it was sampled is left \
            alone.
        Arguments:
            - info (:obj:`Dict[str, list]`): ``replay_unique_id``, ``replay_buffer_idx``, ``priority``.
        Raises:
            - ValueError: If the sampler has no use for priorities, or one is negative or no number.
        """
        if self._options.sampler != 'prioritized':
            raise ValueError(
                f'the policy hands out priorities, but the replay buffer option `sampler` is '
                f"{self._options.sampler!r}; expected sampler='prioritized', or policy.priority=False"
            )
        index, unique_id = (torch.as_tensor(info[key]) for key in ('replay_buffer_idx', 'replay_unique_id'))
        priority = torch.as_tensor(info['priority'], dtype=torch.float64)
        if not (priority >= 0).all() or priority.isinf().any():
            raise ValueError(f'priorities are {priority.tolist()}; expected numbers from 0, which a sound loss gives')
        still_there = self._buffer.storage[:][UNIQUE_ID][index] == unique_id
        if still_there.any():
            self._buffer.update_priority(index[still_there], priority[still_there])

    def state_dict(self) -> Dict[str, Any]:
        """
        Overview:
            All there is, copied, in memory; for large buffers there is ``save_data``.
        Returns:
            - state_dict (:obj:`Dict[str, Any]`): What ``load_state_dict`` takes.
        """
        columns, priorities = {}, None
        if self.count():
            data = self._buffer.storage[:]
            oldest_first = data[UNIQUE_ID].argsort()
            columns = {path: data[path][oldest_first] for path in self._layout}
            if self._options.sampler == 'prioritized':
                priorities = self._buffer.sampler.state_dict()
                priorities['weights'] = priorities['weights'][oldest_first]
        return dict(self._description(), columns=columns, priorities=priorities)

    def load_state_dict(self, _state_dict: Dict[str, Any]) -> None:
        """
        Overview:
            Become the buffer that ``state_dict`` was called on.
        Arguments:
            - _state_dict (:obj:`Dict[str, Any]`): What it returned.
        Raises:
            - ValueError: If that buffer had another size or sampler, or there is no room for it.
        """

        def load() -> None:
            columns = _state_dict['columns']
            self._buffer.extend(self._parts.TensorDict(columns, batch_size=[_state_dict['count']]))
            if _state_dict['priorities'] is not None:
                self._buffer.sampler.load_state_dict(_state_dict['priorities'])

        self._take_over(_state_dict, 'the state', load)

    def save_data(self, file_name: str) -> None:
        """
        Overview:
            Write all there is to a folder, with TorchRL's ``dumps``. At the end it takes the place of what an earlier \
            call wrote there; the disk must hold both for a moment. The folder is as large as ``nbytes``, however few \
            transitions there are.
        Arguments:
            - file_name (:obj:`str`): The folder.
        Raises:
            - ValueError: If there is something by that name that ``save_data`` did not write.
        """
        target = Path(file_name).absolute()
        if target.exists() and not (target / MANIFEST).is_file():
            raise ValueError(f'{target} exists and is no folder of a replay buffer; expected another name')
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f'{target.name}.', dir=target.parent))
        try:
            if self.count():
                self._buffer.dumps(fresh)
                (fresh / PREFETCHED).unlink(missing_ok=True)  # a pickle, of nothing: we do not prefetch
            description = dict(self._description(), files=_sizes(fresh))
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
            Become the buffer that ``save_data`` was called on, with TorchRL's ``loads``. That would unpickle what it \
            finds, and so run what is in it: a folder with anything but numbers and JSON in it is refused.
        Arguments:
            - file_name (:obj:`str`): The folder.
        Raises:
            - ValueError: If there is no such folder, it is damaged, or does not fit this buffer.
        """
        folder = Path(file_name).absolute()
        try:
            description = json.loads((folder / MANIFEST).read_text())
            expected = description['files']
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f'{folder} can not be read ({error!r}); expected a folder that save_data wrote') from error
        _refuse_programs(folder)
        found = _sizes(folder)
        for name, size in expected.items():
            if found.get(name) != size:  # TorchRL would enlarge a file that is too short, and go on with zeros
                raise ValueError(
                    f'{folder} is damaged: {name} has {found.get(name, "no")} bytes; expected the {size} that '
                    'save_data wrote'
                )
        self._take_over(description, str(folder), lambda: self._buffer.loads(folder))

    def _description(self) -> Dict[str, Any]:
        return dict(
            replay_buffer_size=self._options.replay_buffer_size,
            sampler=self._options.sampler,
            layout=[[list(path), kind] for path, kind in (self._layout or {}).items()],
            count=self.count(),
            pushed=self._pushed,
            samples=self._samples,
        )

    def _take_over(self, description: Mapping, source: str, load: Callable[[], None]) -> None:
        """Check that a saved buffer fits, make room, load it. On an error the buffer is as it was, or empty."""
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
                if self._options.sampler == 'slice':
                    self._first_episode = self._buffer.storage[:]['episode_id'].max().item() + 1
            self._pushed, self._samples = int(description['pushed']), int(description['samples'])
        except Exception as error:  # whatever TorchRL meets in files that are not what it wrote
            self.close()
            self._open()
            raise ValueError(f'{source} can not be loaded ({error}); the replay buffer is empty now') from error


def _refuse_programs(folder: Path) -> None:
    for path in sorted(folder.rglob('*')):
        is_data = path.is_dir() or path.suffix in ('.json', '.memmap') or path.name == 'weights.pt'
        if path.is_symlink() or not (is_data or (path.name == PREFETCHED and path.read_bytes() == _NOTHING_PREFETCHED)):
            raise ValueError(
                f'{folder} holds {path.relative_to(folder)}, which save_data did not write and loading may run; '
                'expected numbers and JSON only'
            )


def _bytes_of(kind: List[Any]) -> int:
    dtype, shape = kind
    return getattr(torch, dtype.split('.')[1]).itemsize * math.prod(shape)


def _sizes(folder: Path) -> Dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob('*'))
        if path.is_file() and path.name != MANIFEST
    }
