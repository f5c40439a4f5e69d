"""How ``TorchRLReplayBuffer`` samples: transitions, prioritized transitions, or slices of episodes."""

from typing import Any, Dict, Iterable, List, Protocol

import torch
from ding.utils import lists_to_dicts

from .columns import Columns, KeyPath, to_transitions
from .options import TorchRLOptions

Batch = List[Dict[str, Any]]


class Sampling(Protocol):
    """What the buffer asks of a way to sample."""

    sample_count: int
    """Batches so far, for the annealing of beta."""

    def prepare(self, columns: Columns) -> None:
        """Check new transitions, and change what has to be changed before they are stored."""

    def after_loading(self, storage: Any) -> None:
        """Take notice of stored transitions that come from an earlier process."""

    def sample(self, buffer: Any, paths: Iterable[KeyPath], batch_size: int) -> Batch:
        """Sample from TorchRL's buffer the values at these paths."""


class TransitionSampling(object):
    """Single transitions, uniformly or by priority. Then beta rises to 1 (Schaul et al. 2016, section 3.4)."""

    def __init__(self, options: TorchRLOptions) -> None:
        self._options = options
        self.sample_count = 0

    def prepare(self, columns: Columns) -> None:
        pass  # any transition will do

    def after_loading(self, storage: Any) -> None:
        pass  # transitions do not refer to each other

    def sample(self, buffer: Any, paths: Iterable[KeyPath], batch_size: int) -> Batch:
        if self._options.sampler == 'prioritized':
            beta, anneal_step = self._options.beta, self._options.anneal_step
            progress = min(1.0, self.sample_count / anneal_step) if anneal_step else 0.0
            buffer.sampler.beta = beta + (1 - beta) * progress
            self.sample_count += 1
        data = buffer.sample(batch_size)
        columns = {path: data[path] for path in paths}
        columns['IS',] = data.get('IS', torch.ones(batch_size))
        if 'priority' in data.keys():
            columns['priority',] = data['priority']
        batch = to_transitions(columns)
        for transition, index in zip(batch, data['index'].tolist()):
            transition['replay_buffer_idx'] = index
        return batch


class SliceSampling(object):
    """Slices of ``slice_len`` consecutive steps of one episode."""

    def __init__(self, slice_len: int) -> None:
        self._slice_len = slice_len
        self.sample_count = 0
        # Each process counts episodes from 0; new ones must not share ids with those loaded from an earlier process.
        self._first_episode = 0

    def prepare(self, columns: Columns) -> None:
        missing = [key for key in ('episode_id', 'step_id', 'reward') if (key,) not in columns]
        if missing:
            raise ValueError(
                f"the replay buffer's sampler is 'slice', but its transitions lack {', '.join(missing)}; choose "
                "the collector that adds ids: create_config.collector=dict(type='sample_with_ids', "
                "import_names=['breakout_env'])"
            )
        columns['episode_id',] = columns['episode_id',] + self._first_episode

    def after_loading(self, storage: Any) -> None:
        self._first_episode = storage[:]['episode_id'].max().item() + 1

    def sample(self, buffer: Any, paths: Iterable[KeyPath], batch_size: int) -> Batch:
        length = self._slice_len
        data = buffer.sample(batch_size * length)
        columns = {path: data[path] for path in paths}
        # TorchRL pads short slices with copies of their last step
        padded = ~data['collector', 'mask']
        columns['reward',][padded] = 0
        columns['null',] = padded | columns.get(('null',), padded)
        steps = to_transitions(columns)
        return [lists_to_dicts(steps[i : i + length], recursive=True) for i in range(0, len(steps), length)]


def make_sampling(options: TorchRLOptions) -> Sampling:
    """The way to sample that the options ask for."""
    return TransitionSampling(options) if options.slice_len is None else SliceSampling(options.slice_len)
