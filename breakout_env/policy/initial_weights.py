"""The weights that a training begins with, in place of random ones."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from ding.policy import Policy

from ..utils.options import ConfigError, shortened
from .learner import EMA_KEY, State
from .return_scale import ScaleState


class InitialWeights(NamedTuple):
    """What a file gives a new training: its optimizer, schedules and counts begin anew. DI-engine's hook
    ``load_ckpt_before_run`` differs: it loads the optimizer and the counts, too, from a checkpoint only.
    """

    path: str
    weights: Mapping[str, torch.Tensor]
    # ``ReturnScale.state`` where the critic learned normalised returns: without it, its values have other units.
    return_scale: ScaleState | None

    def load(self, policy: Policy.learn_function) -> None:
        """Load into the network, the target network and the averaged weights. A ConfigError if they do not fit."""
        state: State = policy.state_dict()
        if wrong := shape_difference(self.weights, state['model']):
            raise ConfigError(f'{self.path} has other weights than the network of the config: {wrong}')
        changed: dict[str, object] = {name: self.weights for name in ('model', 'target_model') if name in state}
        if 'return_scale' in state and self.return_scale is not None:
            changed['return_scale'] = self.return_scale
        kept = {name: value for name, value in state.items() if name != EMA_KEY}  # the average begins at the weights
        try:
            policy.load_state_dict({**kept, **changed})
        except ValueError as error:  # other rows of the screen, or not equivariant
            raise ConfigError(f'{self.path} does not fit the config: {error}') from None


def shape_difference(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> str | None:
    """The first weight that has another shape than expected, in words; None if there is none."""
    for name in sorted({*found, *expected}):
        shape, other = (tuple(each[name].shape) if name in each else 'missing' for each in (found, expected))
        if shape != other:
            return f'{shortened(name)} is {shape}; expected {other}'
    return None
