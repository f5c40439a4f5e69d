"""What ``TorchRLReplayBuffer`` makes of TorchRL's parts. Importing this file imports TorchRL: only the buffer does."""

import weakref
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import torch
from tensordict import TensorDict  # noqa: F401  (for who has this file)
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, SliceSampler, TensorDictReplayBuffer
from torchrl.data.replay_buffers import RandomSampler, Sampler


class WeaklyAttached(object):
    """
    Overview:
        Put before one of TorchRL's storages in the list of bases, it makes the storage refer weakly to the buffer it \
        serves. TorchRL's own refers to it for good: buffer and storage then hold each other, and the memory of a \
        buffer that nobody uses any more waits for Python's cyclic garbage collection, which knows nothing of how \
        large tensors are. This way it is given back with the last reference.
    """

    def attach(self, buffer: Any) -> None:
        """
        Overview:
            Tell the buffer of changes from now on.
        Arguments:
            - buffer (:obj:`Any`): The buffer.
        """
        super().attach(weakref.proxy(buffer))


class TensorStorage(WeaklyAttached, LazyTensorStorage):
    """
    Overview:
        TorchRL's storage in memory.
    """

    def release(self) -> None:
        """
        Overview:
            Nothing holds the memory but this object.
        """


class MemmapStorage(WeaklyAttached, LazyMemmapStorage):
    """
    Overview:
        TorchRL's storage in files.
    """

    def release(self) -> None:
        """
        Overview:
            Let go of the files. The TensorDict of a memory map is locked, and one that is locked caches views which \
            refer back to it: without this, disk and memory of removed files stay taken until garbage collection.
        """
        if self._storage is not None:
            self._storage.unlock_()


class ProportionalSampler(Sampler):
    """
    Overview:
        Prioritised sampling (Schaul et al. 2016, proportional variant) as a sampler for TorchRL's buffers. TorchRL's \
        own ``PrioritizedSampler`` lives in its C++ extension, which loads with the one torch it was built for: \
        torchrl 0.14 wants torch 2.13, and DI-engine stands in the way of that. Here it is a running sum over all \
        weights and a binary search, a few ms at 1M transitions, which is little beside an update of the network.
    Interfaces:
        ``sample``, ``extend``, ``add``, ``update_priority``, ``state_dict``, ``load_state_dict``, ``dumps``, ``loads``.
    """

    # A priority of 0 must not mean never again.
    EPS = 1e-5

    def __init__(self, capacity: int, alpha: float) -> None:
        """
        Overview:
            Begin with nothing.
        Arguments:
            - capacity (:obj:`int`): Transitions at most.
            - alpha (:obj:`float`): 0 for even sampling, 1 for sampling in proportion to the priority.
        """
        self._alpha = alpha
        self._capacity = capacity
        # Room for all of them is taken with the first, as the buffer refuses then what does not fit.
        self._weights = torch.zeros(0, dtype=torch.float64)
        self._largest = 1.0
        # (float) How far importance sampling weights make up for it, 0 to 1; may be changed at any time.
        self.beta = 1.0

    def sample(self, storage: Any, batch_size: int) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
        """
        Overview:
            Draw transitions, with replacement.
        Arguments:
            - storage (:obj:`Any`): TorchRL's storage.
            - batch_size (:obj:`int`): How many.
        Returns:
            - index, info (:obj:`Tuple`): Where they are; ``priority`` before the power of alpha, and ``IS``, the \
                weights (p / p_min) ** -beta.
        """
        weights = self._weights[: len(storage)]
        sums = weights.cumsum(0)
        drawn = torch.rand(batch_size, dtype=torch.float64, generator=self._rng) * sums[-1]
        index = torch.searchsorted(sums, drawn, right=True).clamp_max(len(weights) - 1)
        priority = weights[index] ** (1 / self._alpha) if self._alpha else torch.ones_like(drawn)
        return index, dict(priority=priority.float(), IS=((weights[index] / weights.min()) ** -self.beta).float())

    def extend(self, index: Any) -> None:
        """
        Overview:
            Give new transitions the largest priority there was, so that each is soon looked at.
        Arguments:
            - index (:obj:`Any`): Where they are.
        """
        self._take_room()
        self._weights[torch.as_tensor(index)] = self._largest**self._alpha

    add = extend

    def update_priority(self, index: torch.Tensor, priority: torch.Tensor, *, storage: Optional[Any] = None) -> None:
        """
        Overview:
            Set priorities.
        Arguments:
            - index (:obj:`torch.Tensor`): Of which transitions.
            - priority (:obj:`torch.Tensor`): Not negative.
            - storage: Not looked at.
        """
        priority = torch.as_tensor(priority, dtype=torch.float64) + self.EPS
        self._weights[index] = priority**self._alpha
        self._largest = max(self._largest, priority.max().item())

    def _take_room(self) -> None:
        if not len(self._weights):
            # a running sum of a million float32 would drift
            self._weights = torch.zeros(self._capacity, dtype=torch.float64)

    def _empty(self) -> None:
        self._weights.zero_()
        self._largest = 1.0

    def state_dict(self) -> Dict[str, Any]:
        """
        Overview:
            The weights, and the largest priority.
        """
        return dict(weights=self._weights.clone(), largest=self._largest)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """
        Overview:
            Take over what ``state_dict`` returned.
        """
        self._take_room()
        self._weights[: len(state_dict['weights'])] = state_dict['weights']
        self._largest = state_dict['largest']

    def dumps(self, path: Any) -> None:
        """
        Overview:
            Write it to a folder.
        """
        Path(path).mkdir(exist_ok=True)
        torch.save(self.state_dict(), Path(path) / 'weights.pt')

    def loads(self, path: Any) -> None:
        """
        Overview:
            Read what ``dumps`` wrote.
        """
        self.load_state_dict(torch.load(Path(path) / 'weights.pt', weights_only=True))


def make_buffer(options: Any, folder: Optional[str]) -> TensorDictReplayBuffer:
    """
    Overview:
        Put a buffer together.
    Arguments:
        - options (:obj:`TorchRLOptions`): What it shall be like.
        - folder (:obj:`Optional[str]`): Where a memmap storage has its files.
    Returns:
        - buffer (:obj:`TensorDictReplayBuffer`): The buffer, empty. It allocates when it gets its first transitions.
    """
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
            fragmented=True,  # a collector's environments take turns: the steps of an episode do not lie side by side
            strict_length=False,  # an episode may be shorter than a slice
            pad_output=True,
            truncated_key=None,
            init_key=None,
        )
    return TensorDictReplayBuffer(storage=storage, sampler=sampler)
