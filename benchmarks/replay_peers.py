"""
The replay buffers that benchmarks/bench_replay.py measures, each behind the same three calls.

Each is set up as its own documentation says it is smallest, and fed with what it is made for: transitions with 3-step
returns where it takes dicts, single steps of 8 environments where it takes those.
"""

import os
import random
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import torch

BATCH = 32


class Contestant(ABC):
    """
    Overview:
        A buffer to be measured.
    Interfaces:
        ``add``, ``collated``, ``listed``, ``close``.
    Properties:
        ``feed``: 'transitions' or 'steps'; ``lists``: whether it has a list form; ``needs``; ``disk_bytes``.
    """

    feed = 'transitions'
    lists = False
    needs = ''  # a package that may be missing

    def __init__(self, size: int, folder: str) -> None:
        self.size = size
        self.folder = folder

    @property
    def disk_bytes(self) -> int:
        """Bytes in files."""
        return 0

    @abstractmethod
    def add(self, items: List[Any]) -> None:
        """Take a collection of 32 transitions, or one step of 8 environments."""

    @abstractmethod
    def collated(self) -> Tuple[torch.Tensor, ...]:
        """A batch of 32 as tensors, the first of them screens."""

    def listed(self) -> List[dict]:
        """A batch of 32 as a list of dicts, where it has that form."""
        return list(self.collated())

    def close(self) -> None:  # noqa: B027
        """Give back what it holds; most have nothing to do for that."""


class DequeOfLists(Contestant):
    """The way it is first written: a deque of [state, action, reward, next_state, done], and random.sample."""

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        self._memory: deque = deque(maxlen=size)

    def add(self, items: List[dict]) -> None:
        for t in items:
            self._memory.append([t['obs'].numpy(), t['action'], t['reward'], t['next_obs'].numpy(), t['done']])

    def collated(self) -> Tuple[torch.Tensor, ...]:
        batch = random.sample(self._memory, BATCH)
        obs, action, reward, next_obs, done = zip(*batch)
        return (
            torch.from_numpy(np.stack(obs)),
            torch.from_numpy(np.stack(next_obs)),
            torch.stack(action),
            torch.stack(reward),
            torch.tensor(done),
        )


class InDIEngine(Contestant):
    """DI-engine's serial buffers, ours among them, by their types."""

    lists = True
    type = 'advanced'
    options: Dict[str, Any] = {}

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        from ding.utils import BUFFER_REGISTRY
        from tensorboardX import SummaryWriter

        import breakout_env  # noqa: F401

        cfg = BUFFER_REGISTRY.get(self.type).default_config()
        cfg.update(replay_buffer_size=size, **self.options)
        kwargs = dict(exp_name=folder)
        if self.type != 'frame':
            kwargs['tb_logger'] = SummaryWriter(os.path.join(folder, 'log'))
        self.buffer = BUFFER_REGISTRY.build(self.type, cfg, **kwargs)

    def add(self, items: List[dict]) -> None:
        self.buffer.push(items, 0)

    def collated(self) -> Tuple[torch.Tensor, ...]:
        from ding.utils.data import default_collate

        batch = default_collate(self.buffer.sample(BATCH, 0))
        return batch['obs'], batch['next_obs'], batch['action'], batch['reward'], batch['done']

    def listed(self) -> List[dict]:
        return list(self.buffer.sample(BATCH, 0))

    def close(self) -> None:
        self.buffer.close()


class Naive(InDIEngine):
    """DI-engine's naive buffer."""

    type = 'naive'


class AdvancedFloat32(InDIEngine):
    """DI-engine's default: the advanced buffer, and float32 observations as its own Atari environment returns them."""

    def add(self, items: List[dict]) -> None:
        # screens that are shared between transitions of a piece stay shared, as they are in the collector
        made: Dict[int, torch.Tensor] = {}
        for t in items:
            for key in ('obs', 'next_obs'):
                made.setdefault(id(t[key]), t[key].float().div_(255))
        self.buffer.push([dict(t, obs=made[id(t['obs'])], next_obs=made[id(t['next_obs'])]) for t in items], 0)


class Frame(InDIEngine):
    """Ours."""

    type = 'frame'

    def collated(self) -> Tuple[torch.Tensor, ...]:
        batch = self.buffer.sample(BATCH, 0).collated()
        return batch['obs'], batch['next_obs'], batch['action'], batch['reward'], batch['done']

    @property
    def disk_bytes(self) -> int:
        return self.buffer.memory_report()['file_bytes']


class FramePrioritised(Frame):
    """Ours, with priorities."""

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        self.buffer.update(dict(priority=[], replay_unique_id=[], replay_buffer_idx=[]))  # the first turns them on


class FrameRing(Frame):
    """Ours, uncompressed in memory."""

    options = dict(storage='ring')


class FrameMemmap(Frame):
    """Ours, uncompressed on the disk."""

    options = dict(storage='memmap')


class DIEngineDeque(Contestant):
    """DI-engine's ``DequeBuffer`` of the task pipelines."""

    lists = True

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        from ding.data import DequeBuffer

        self._buffer = DequeBuffer(size=size)

    def add(self, items: List[dict]) -> None:
        for transition in items:
            self._buffer.push(transition)

    def collated(self) -> Tuple[torch.Tensor, ...]:
        from ding.utils.data import default_collate

        batch = default_collate(self.listed())
        return batch['obs'], batch['next_obs'], batch['action'], batch['reward'], batch['done']

    def listed(self) -> List[dict]:
        return [item.data for item in self._buffer.sample(BATCH)]


class StableBaselines3(Contestant):
    """Stable-Baselines3's ``ReplayBuffer`` with ``optimize_memory_usage``; 1-step, as it has no n-step with that."""

    feed = 'steps'

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        from gymnasium import spaces
        from stable_baselines3.common.buffers import ReplayBuffer

        self._buffer = ReplayBuffer(
            size,
            spaces.Box(0, 255, (4, 84, 84), np.uint8),
            spaces.Discrete(4),
            device='cpu',
            n_envs=8,
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )

    def add(self, items: List[tuple]) -> None:
        obs, action, reward, next_obs, done, _ = (np.stack(column) for column in zip(*items))
        self._buffer.add(obs, next_obs, action, reward, done, [{}] * len(items))

    def collated(self) -> Tuple[torch.Tensor, ...]:
        batch = self._buffer.sample(BATCH)
        return batch.observations, batch.next_observations, batch.actions, batch.rewards, batch.dones


class Tianshou(Contestant):
    """Tianshou's ``VectorReplayBuffer``, one screen a transition; stacks are put together when sampled."""

    feed = 'steps'
    needs = 'tianshou'  # there is none for Python 3.10

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        from tianshou.data import VectorReplayBuffer

        self._buffer = VectorReplayBuffer(size, 8, stack_num=4, ignore_obs_next=True, save_only_last_obs=True)

    def add(self, items: List[tuple]) -> None:
        from tianshou.data import Batch

        obs, action, reward, next_obs, done, _ = (np.stack(column) for column in zip(*items))
        self._buffer.add(
            Batch(obs=obs, act=action, rew=reward, terminated=done, truncated=done & False, obs_next=next_obs, info={})
        )

    def collated(self) -> Tuple[torch.Tensor, ...]:
        index = self._buffer.sample_indices(BATCH)
        last = index
        for _ in range(2):  # the third step after, or the end of the episode
            last = self._buffer.next(last)
        obs, next_obs = self._buffer.get(index, 'obs'), self._buffer.get(self._buffer.next(last), 'obs')
        return tuple(
            torch.from_numpy(np.ascontiguousarray(a))
            for a in (obs, next_obs, self._buffer.act[index], self._buffer.rew[index], self._buffer.terminated[last])
        )


class DopamineElements(Contestant):
    """
    Dopamine's way since its JAX replay: each transition an element with both stacks compressed by snappy, in a dict by
    key. Written anew from its description, as Dopamine itself brings JAX and TensorFlow; the same snappy is used.
    """

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        import snappy

        self._snappy = snappy
        self._elements: Dict[int, tuple] = {}
        self._next = 0

    def add(self, items: List[dict]) -> None:
        compress = self._snappy.compress
        for t in items:
            obs, next_obs = (compress(t[key].numpy().tobytes()) for key in ('obs', 'next_obs'))
            self._elements[self._next] = (obs, t['action'].numpy(), t['reward'].numpy(), next_obs, t['done'])
            self._next += 1
            if len(self._elements) > self.size:
                del self._elements[self._next - 1 - self.size]

    def collated(self) -> Tuple[torch.Tensor, ...]:
        first = self._next - len(self._elements)
        elements = [self._elements[first + random.randrange(len(self._elements))] for _ in range(BATCH)]
        obs, action, reward, next_obs, done = zip(*elements)
        stacks = []
        for column in (obs, next_obs):
            raw = [np.frombuffer(self._snappy.decompress(c), np.uint8).reshape(4, 84, 84) for c in column]
            stacks.append(torch.from_numpy(np.stack(raw)))
        return (*stacks, *(torch.from_numpy(np.stack(column)) for column in (action, reward)), torch.tensor(done))


class TorchRL(Contestant):
    """TorchRL's ``TensorDictReplayBuffer`` with ``LazyMemmapStorage``."""

    memmap = True

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        from torchrl.data import LazyMemmapStorage, LazyTensorStorage, TensorDictReplayBuffer

        os.makedirs(folder)
        self._scratch = tempfile.TemporaryDirectory(dir=folder)
        storage = LazyMemmapStorage(size, scratch_dir=self._scratch.name) if self.memmap else LazyTensorStorage(size)
        self._buffer = TensorDictReplayBuffer(storage=storage, batch_size=BATCH)

    def add(self, items: List[dict]) -> None:
        from tensordict import TensorDict

        keys = ('obs', 'next_obs', 'action', 'reward')
        columns = {key: torch.stack([t[key] for t in items]) for key in keys}
        columns['done'] = torch.tensor([t['done'] for t in items])
        self._buffer.extend(TensorDict(columns, batch_size=[len(items)]))

    def collated(self) -> Tuple[torch.Tensor, ...]:
        batch = self._buffer.sample()
        return tuple(batch[key] for key in ('obs', 'next_obs', 'action', 'reward', 'done'))

    @property
    def disk_bytes(self) -> int:
        files = (os.path.join(top, name) for top, _, names in os.walk(self._scratch.name) for name in names)
        return sum(os.stat(file).st_blocks * 512 for file in files)

    def close(self) -> None:
        self._scratch.cleanup()


class TorchRLTensor(TorchRL):
    """TorchRL's ``TensorDictReplayBuffer`` with ``LazyTensorStorage``."""

    memmap = False


OURS = ('compressed', 'compressed, prioritised', 'ring', 'memmap')
CONTESTANTS: Dict[str, Callable[[int, str], Contestant]] = {
    'compressed': Frame,
    'compressed, prioritised': FramePrioritised,
    'ring': FrameRing,
    'memmap': FrameMemmap,
    'Tianshou, one screen each': Tianshou,
    "Dopamine's snappy elements": DopamineElements,
    'Stable-Baselines3, optimized': StableBaselines3,
    'deque of lists': DequeOfLists,
    "DI-engine's DequeBuffer": DIEngineDeque,
    "DI-engine's naive, uint8": Naive,
    "DI-engine's advanced, uint8": InDIEngine,
    "DI-engine's advanced, float32": AdvancedFloat32,
    'TorchRL, memmap': TorchRL,
    'TorchRL, tensors': TorchRLTensor,
}
