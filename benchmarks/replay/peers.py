"""Replay buffers of this project and of others, each behind the same three calls.

Each is set up as its own documentation says it is smallest, and fed with what it is made for: transitions with 3-step
returns where it takes dicts, single steps of 8 environments where it takes those.
"""

import os
import random
import tempfile
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

BATCH = 32
COLUMNS = ('obs', 'next_obs', 'action', 'reward', 'done')


class Contestant(ABC):
    """A buffer to be measured."""

    feed = 'transitions'  # or 'steps'
    obs_dtype = 'uint8'
    buffer: Any

    def __init__(self, size: int, folder: str) -> None:
        self.size = size
        self.folder = folder

    @property
    def disk_bytes(self) -> int:
        """Bytes in files."""
        return 0

    def prepare(self, items: list[Any]) -> Any:
        """Convert items into the form that the library's environments give; this is not timed."""
        return items

    @abstractmethod
    def add(self, items: Any) -> None:
        """Take a collection of 32 transitions, or one step of 8 environments, as ``prepare`` returned it."""

    @abstractmethod
    def collated(self) -> tuple[torch.Tensor, ...]:
        """A batch of 32 as tensors, the first of them screens."""

    def close(self) -> None:  # noqa: B027
        """Release what it holds; most need nothing for that."""


class Nothing(Contestant):
    """Keeps nothing: what it seems to take is the error of the measurement."""

    def add(self, items: list[dict]) -> None:
        pass

    def collated(self) -> tuple[torch.Tensor, ...]:
        return ()


class InDIEngine(Contestant):
    """DI-engine's serial buffers, with the one of this project among them, by their types."""

    type = 'advanced'
    options: dict[str, Any] = {}

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        from ding.utils import BUFFER_REGISTRY
        from tensorboardX import SummaryWriter

        import breakout_env  # noqa: F401

        cfg = BUFFER_REGISTRY.get(self.type).default_config()
        cfg.update(replay_buffer_size=size, **self.options)
        logs = dict(exp_name=folder, tb_logger=SummaryWriter(os.path.join(folder, 'log')))
        self.buffer = BUFFER_REGISTRY.build(self.type, cfg, **logs)

    def add(self, items: list[dict]) -> None:
        self.buffer.push(items, 0)

    def collated(self) -> tuple[torch.Tensor, ...]:
        from ding.utils.data import default_collate

        batch = default_collate(self.buffer.sample(BATCH, 0))
        return tuple(batch[key] for key in COLUMNS)

    def close(self) -> None:
        self.buffer.close()


class AdvancedFloat32(InDIEngine):
    """DI-engine's default: the advanced buffer, and float32 observations as its own Atari environment returns them."""

    obs_dtype = 'float32'


class Frame(InDIEngine):
    """The buffer of this project."""

    type = 'frame'

    def collated(self) -> tuple[torch.Tensor, ...]:
        batch = self.buffer.sample(BATCH, 0).collated()
        return tuple(batch[key] for key in COLUMNS)

    @property
    def disk_bytes(self) -> int:
        return self.buffer.memory_report()['file_bytes']


class FramePrioritised(Frame):
    """With priorities."""

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        self.buffer.update(dict(priority=[], replay_unique_id=[], replay_buffer_idx=[]))  # the first turns them on


class FrameRing(Frame):
    """Uncompressed in memory."""

    options = dict(storage='ring')


class FrameMemmap(Frame):
    """Uncompressed on the disk."""

    options = dict(storage='memmap')


class StableBaselines3(Contestant):
    """Stable-Baselines3's ``ReplayBuffer`` with ``optimize_memory_usage``; 1-step, as it has no n-step with that."""

    feed = 'steps'

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        from gymnasium import spaces
        from stable_baselines3.common.buffers import ReplayBuffer

        self.buffer = ReplayBuffer(
            size,
            spaces.Box(0, 255, (4, 84, 84), np.uint8),
            spaces.Discrete(4),
            device='cpu',
            n_envs=8,
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )

    def prepare(self, items: list[tuple]) -> tuple:
        obs, action, reward, next_obs, done = (np.stack(column) for column in zip(*items))
        return obs, next_obs, action, reward, done, [{}] * len(items)

    def add(self, items: tuple) -> None:
        self.buffer.add(*items)

    def collated(self) -> tuple[torch.Tensor, ...]:
        batch = self.buffer.sample(BATCH)
        return batch.observations, batch.next_observations, batch.actions, batch.rewards, batch.dones


class DopamineElements(Contestant):
    """The idea of Dopamine's JAX replay: each transition an element with both stacks compressed by snappy, in a dict by
    key. Written anew from its description, and with less around the bytes than Dopamine has: a lower bound.
    """

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        import snappy

        self._snappy = snappy
        self._elements: dict[int, tuple] = {}
        self._next = 0

    def add(self, items: list[dict]) -> None:
        for t in items:
            obs, next_obs = (self._snappy.compress(t[key].numpy().tobytes()) for key in ('obs', 'next_obs'))
            self._elements[self._next] = (obs, next_obs, t['action'].numpy(), t['reward'].numpy(), t['done'])
            self._elements.pop(self._next - self.size, None)
            self._next += 1

    def collated(self) -> tuple[torch.Tensor, ...]:
        first = self._next - len(self._elements)
        elements = [self._elements[first + random.randrange(len(self._elements))] for _ in range(BATCH)]
        obs, next_obs, *others = zip(*elements)
        stacks = ([np.frombuffer(self._snappy.decompress(c), np.uint8) for c in column] for column in (obs, next_obs))
        screens = (torch.from_numpy(np.stack(raw).reshape(-1, 4, 84, 84)) for raw in stacks)
        return (*screens, *(torch.from_numpy(np.stack(column)) for column in others))


class TorchRL(Contestant):
    """TorchRL's ``TensorDictReplayBuffer`` with ``LazyMemmapStorage``."""

    def __init__(self, size: int, folder: str) -> None:
        super().__init__(size, folder)
        from torchrl.data import LazyMemmapStorage, TensorDictReplayBuffer

        os.makedirs(folder)
        self._scratch = tempfile.TemporaryDirectory(dir=folder)
        storage = LazyMemmapStorage(size, scratch_dir=self._scratch.name)
        self.buffer = TensorDictReplayBuffer(storage=storage, batch_size=BATCH)

    def prepare(self, items: list[dict]) -> Any:
        from tensordict import TensorDict

        columns = {key: torch.stack([torch.as_tensor(t[key]) for t in items]) for key in COLUMNS}
        return TensorDict(columns, batch_size=[len(items)])

    def add(self, items: Any) -> None:
        self.buffer.extend(items)

    def collated(self) -> tuple[torch.Tensor, ...]:
        batch = self.buffer.sample()
        return tuple(batch[key] for key in COLUMNS)

    @property
    def disk_bytes(self) -> int:
        files = (os.path.join(top, name) for top, _, names in os.walk(self._scratch.name) for name in names)
        return sum(os.stat(file).st_blocks * 512 for file in files)

    def close(self) -> None:
        self._scratch.cleanup()


NOTHING = 'nothing'
OURS = ('compressed', 'compressed, prioritised', 'ring', 'memmap')
CONTESTANTS: dict[str, type[Contestant]] = {
    NOTHING: Nothing,
    'compressed': Frame,
    'compressed, prioritised': FramePrioritised,
    'ring': FrameRing,
    'memmap': FrameMemmap,
    'snappy elements, as in Dopamine': DopamineElements,
    'Stable-Baselines3, optimized': StableBaselines3,
    "DI-engine's advanced, uint8": InDIEngine,
    "DI-engine's advanced, float32": AdvancedFloat32,
    'TorchRL, memmap': TorchRL,
}
