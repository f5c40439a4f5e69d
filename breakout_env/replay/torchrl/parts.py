"""The parts of TorchRL that ``TorchRLReplayBuffer`` is made of. Only the buffer imports this file: it needs TorchRL."""

import weakref
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import torch
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, SliceSampler, TensorDictReplayBuffer
from torchrl.data.replay_buffers import RandomSampler, Sampler

from .options import TorchRLOptions

__all__ = ['MemmapStorage', 'ProportionalSampler', 'TensorDict', 'TensorStorage', 'make_buffer']


class WeaklyAttached(object):
    """
    A mixin that makes a TorchRL storage refer weakly to its buffer. TorchRL's own reference is strong: buffer and
    storage form a cycle, and the memory of an unused buffer waits for Python's cyclic garbage collector, which
    does not know how large tensors are. With a weak reference the last user's reference frees it.
    """

    def attach(self, buffer: Any) -> None:
        super().attach(weakref.proxy(buffer))  # type: ignore[misc]  # of the storage that this is mixed into


class TensorStorage(WeaklyAttached, LazyTensorStorage):
    """TorchRL's storage in memory."""


class MemmapStorage(WeaklyAttached, LazyMemmapStorage):
    """TorchRL's storage in files."""


class ProportionalSampler(Sampler):
    """
    Proportional prioritized sampling (Schaul et al. 2016, section 3.3) as a sampler of TorchRL's buffers.
    TorchRL's own ``PrioritizedSampler`` needs its C++ extension, which only loads with the torch version it was
    built for: torchrl 0.14 wants torch 2.13, which DI-engine's requirements rule out. This one takes a cumulative
    sum over all weights and a binary search: a few ms at 1M transitions, little beside an update of the network.
    """

    # Added to each priority, so that no transition is excluded for good.
    EPS = 1e-5

    def __init__(self, capacity: int, alpha: float) -> None:
        self._alpha = alpha
        self._capacity = capacity
        # allocated with the first transitions: only then does the buffer check that they fit
        self._weights = torch.zeros(0, dtype=torch.float64)
        self._largest = 1.0
        # (float) How much importance sampling weights correct for the sampling, 0 to 1; may be changed at any time.
        self.beta = 1.0

    def sample(self, storage: Any, batch_size: int) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
        """Positions of transitions, their ``priority``, and the importance weights ``IS``, (p / p_min) ** -beta."""
        weights = self._weights[: len(storage)]
        sums = weights.cumsum(0)
        points = torch.rand(batch_size, dtype=torch.float64, generator=self._rng) * sums[-1]
        index = torch.searchsorted(sums, points, right=True).clamp_max(len(weights) - 1)
        priority = weights[index] ** (1 / self._alpha) if self._alpha else torch.ones_like(points)
        return index, dict(priority=priority.float(), IS=((weights[index] / weights.min()) ** -self.beta).float())

    def extend(self, index: Any) -> None:
        """New transitions get the largest priority so far, so that each is soon sampled."""
        self._allocate()
        self._weights[torch.as_tensor(index)] = self._largest**self._alpha

    add = extend

    def update_priority(self, index: torch.Tensor, priority: torch.Tensor, *, storage: Optional[Any] = None) -> None:
        priority = torch.as_tensor(priority, dtype=torch.float64) + self.EPS
        self._weights[index] = priority**self._alpha
        self._largest = max(self._largest, priority.max().item())

    def _allocate(self) -> None:
        if not len(self._weights):  # in float64: a cumulative sum of a million float32 would drift
            self._weights = torch.zeros(self._capacity, dtype=torch.float64)

    def _empty(self) -> None:
        self._weights.zero_()
        self._largest = 1.0

    def state_dict(self) -> Dict[str, Any]:
        return dict(weights=self._weights.clone(), largest=self._largest)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._allocate()
        self._weights[: len(state_dict['weights'])] = state_dict['weights']
        self._largest = state_dict['largest']

    def dumps(self, path: Any) -> None:
        Path(path).mkdir(exist_ok=True)
        torch.save(self.state_dict(), Path(path) / 'weights.pt')

    def loads(self, path: Any) -> None:
        self.load_state_dict(torch.load(Path(path) / 'weights.pt', weights_only=True))


def make_buffer(options: TorchRLOptions, folder: Optional[str]) -> TensorDictReplayBuffer:
    """An empty buffer, which allocates with its first transitions; ``folder`` is for the files of a memmap storage."""
    size = options.replay_buffer_size
    storage = TensorStorage(size) if options.storage == 'tensor' else MemmapStorage(size, scratch_dir=folder)
    if options.sampler == 'uniform':
        sampler = RandomSampler()
    elif options.sampler == 'prioritized':
        sampler = ProportionalSampler(size, options.alpha)
    else:
        sampler = SliceSampler(
            slice_len=options.slice_len,
            traj_key='episode_id',
            step_key='step_id',
            fragmented=True,  # a collector's environments take turns: the steps of an episode are not adjacent
            strict_length=False,  # an episode may be shorter than a slice
            pad_output=True,
            truncated_key=None,
            init_key=None,
        )
    return TensorDictReplayBuffer(storage=storage, sampler=sampler)
