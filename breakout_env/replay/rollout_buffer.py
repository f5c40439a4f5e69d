"""A buffer of one rollout, for on-policy learning in DI-engine's off-policy pipeline."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from ding.utils import BUFFER_REGISTRY
from easydict import EasyDict


@BUFFER_REGISTRY.register('rollout')
class RolloutBuffer:
    """Keeps the newest rollout and gives it out in random minibatches, reshuffled each epoch. The policy ``lean_ppo``
    learns from it under ``ding -m serial`` and in our programs.

    Examples:
        >>> Samples = NamedTuple('Samples', [('obs', torch.Tensor)])
        >>> buffer = RolloutBuffer()
        >>> buffer.push(Samples(torch.arange(6)))
        >>> batches = [buffer.sample(2).obs for _ in range(3)]
        >>> torch.cat(batches).sort().values
        tensor([0, 1, 2, 3, 4, 5])
    """

    config = dict(type='rollout', replay_buffer_size=1)

    @classmethod
    def default_config(cls) -> EasyDict:
        """The defaults, as DI-engine's ``compile_config`` asks for them."""
        return EasyDict(cls.config, cfg_type='RolloutBufferDict')

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Check in a merged config that a rollout has a minibatch; a ValueError if not, as nothing would be learned."""
        rollout, batch = cfg['policy']['collect'].get('n_sample'), cfg['policy']['learn']['batch_size']
        if rollout is not None and batch > rollout:
            raise ValueError(
                f'policy.learn.batch_size is {batch}; expected at most policy.collect.n_sample ({rollout}), the steps '
                'of a rollout'
            )

    def __init__(self, cfg: Mapping | None = None, tb_logger: object = None, exp_name: str = '') -> None:
        self._rollout: Any = None
        # A separate generator, because a collector in another thread draws from the global one meanwhile.
        self._random = torch.Generator()
        self._order = torch.empty(0, dtype=torch.int64)

    def push(self, data: NamedTuple, cur_collector_envstep: int = 0) -> None:
        """Replace the rollout by a newer one: tensors of one length."""
        self._rollout = data
        self._random.manual_seed(int(torch.randint(2**62, ())))
        self._order = self._order[:0]

    def sample(self, size: int, cur_learner_iter: int = 0) -> Any:
        """The next minibatch, of the rollout's type; None if the rollout has fewer transitions."""
        if self.count() < size:
            return None
        if len(self._order) < size:
            # to the rollout's device once an epoch, as each upload of indices would wait for a GPU
            device = self._rollout[0].device
            self._order = torch.randperm(self.count(), generator=self._random).to(device)
        chosen, self._order = self._order[:size], self._order[size:]
        # indexing would copy screens byte by byte
        return self._rollout._make(tensor.index_select(0, chosen) for tensor in self._rollout)

    def count(self) -> int:
        """Transitions of the rollout."""
        return len(self._rollout[0]) if self._rollout else 0

    def update(self, info: Mapping) -> None:
        """Ignore priorities."""

    def clear(self) -> None:
        """Forget the rollout."""
        self._rollout = None

    def close(self) -> None:
        """Nothing to release."""
