"""How ``TorchRLReplayBuffer`` samples: transitions, prioritized transitions, or slices of episodes."""

from typing import Any, Dict, Iterable, List

import torch

from ..slices import cut, expect_ids
from .columns import Columns, KeyPath, to_transitions
from .options import TorchRLOptions

Batch = List[Dict[str, Any]]


class TransitionSampling(object):
    """Single transitions, uniformly or by priority. Then beta rises to 1 (Schaul et al. 2016, section 3.4)."""

    def __init__(self, options: TorchRLOptions) -> None:
        self._options = options
        self.sample_count = 0  # batches so far, for the annealing of beta

    def prepare(self, columns: Columns) -> None:
        """Check new transitions, and change what has to be changed before they are stored; here nothing."""

    def after_loading(self, storage: Any) -> None:
        """Take notice of stored transitions that come from an earlier process; here nothing."""

    def sample(self, buffer: Any, paths: Iterable[KeyPath], batch_size: int) -> Batch:
        """Sample from TorchRL's buffer the values at these paths."""
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


class SliceSampling(TransitionSampling):
    """Slices of ``slice_len`` consecutive steps of one episode."""

    def __init__(self, options: TorchRLOptions) -> None:
        super().__init__(options)
        # Each process counts episodes from 0; new ones must not share ids with those loaded from an earlier process.
        self._first_episode = 0

    def prepare(self, columns: Columns) -> None:
        expect_ids([path[0] for path in columns])
        columns['episode_id',] = columns['episode_id',] + self._first_episode

    def after_loading(self, storage: Any) -> None:
        self._first_episode = storage[:]['episode_id'].max().item() + 1

    def sample(self, buffer: Any, paths: Iterable[KeyPath], batch_size: int) -> Batch:
        length = self._options.slice_len or 0
        data = buffer.sample(batch_size * length)
        columns = {path: data[path] for path in paths}
        # TorchRL pads short slices with copies of their last step
        padded = ~data['collector', 'mask']
        columns['reward',][padded] = 0
        columns['null',] = padded | columns.get(('null',), padded)
        return cut(to_transitions(columns), length)


def make_sampling(options: TorchRLOptions) -> TransitionSampling:
    """The way to sample that the options ask for."""
    return (TransitionSampling if options.slice_len is None else SliceSampling)(options)
