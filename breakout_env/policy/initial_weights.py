"""The weights that a training begins with, in place of random ones."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from ding.policy import Policy

from ..utils.options import ConfigError
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
        self._check_sizes(state['model'])
        changed: dict[str, object] = {name: self.weights for name in ('model', 'target_model') if name in state}
        if 'return_scale' in state and self.return_scale is not None:
            changed['return_scale'] = self.return_scale
        kept = {name: value for name, value in state.items() if name != EMA_KEY}  # the average begins at the weights
        try:
            policy.load_state_dict({**kept, **changed})
        except ValueError as error:  # other rows of the screen, or not equivariant
            raise ConfigError(f'{self.path} does not fit the config: {error}') from None

    def _check_sizes(self, model: Mapping[str, torch.Tensor]) -> None:
        found, expected = ({name: tuple(each.shape) for name, each in of.items()} for of in (self.weights, model))
        for name in sorted({*found, *expected}):
            if found.get(name) != expected.get(name):
                raise ConfigError(
                    f'{self.path} has a network with layers of {_layers(found)}, where {name} is '
                    f'{found.get(name, "missing")}; expected that of the config, with layers of {_layers(expected)}, '
                    f'where it is {expected.get(name, "missing")}'
                )


def _layers(shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    """The outputs of each layer, by the names of the layers: safetensors keeps no other order."""
    return [shape[0] for name, shape in sorted(shapes.items()) if name.endswith('weight') and shape]
