"""Networks that play the mirror image of a screen as the mirror image of how they play the screen."""

from typing import Callable, List, Tuple

import torch
from torch.nn import Conv2d, Linear, Parameter

from .pixel_models import PixelActorCritic

# NOOP, FIRE, RIGHT and LEFT of ALE's minimal set.
MIRRORED_ACTIONS = [0, 1, 3, 2]


class Mirror(object):
    """
    Overview:
        Keeps a network's weights among those that commute with the mirror: each layer has its features in pairs, one \
        of the pair is for screens what the other one is for their mirror images (Cohen and Welling 2016, "Group \
        Equivariant Convolutional Networks"). Breakout is symmetric, so that a game teaches as much as two. The \
        weights are ordinary ones, half of them free; an update costs the same, as their gradients are averaged over \
        each pair, which is the gradient of the free ones.
    Arguments:
        - model (:obj:`PixelActorCritic`): With 4 actions and an even number of features in each layer.
    Raises:
        - ValueError: If the network is another one, or its convolutions do not end at the edge of the screen.
    Examples:
        >>> model = PixelActorCritic([4, 84, 84], 4, head='paper')
        >>> Mirror(model).begin()
        >>> x = torch.rand(1, 4, 84, 84)
        >>> there, back = model.forward_scaled(x)['logit'], model.forward_scaled(x.flip(3))['logit']
        >>> torch.allclose(there, back[:, MIRRORED_ACTIONS], atol=1e-5)
        True
    """

    def __init__(self, model: PixelActorCritic) -> None:
        self._model = model
        # Each weight and bias with the places of the values that take part for its own in the mirrored network.
        self._pairs: List[Tuple[Parameter, torch.Tensor]] = []
        layers = [layer for layer in model.modules() if isinstance(layer, (Conv2d, Linear))]
        covered = {id(parameter) for layer in layers for parameter in layer.parameters()}
        even = all(layer.weight.shape[0] % 2 == 0 for layer in layers if layer is not model.critic)
        actions = layers[-2].weight.shape[0] if isinstance(model, PixelActorCritic) else 0
        if actions != len(MIRRORED_ACTIONS) or not even or any(id(p) not in covered for p in model.parameters()):
            raise ValueError(
                f'policy option `learn.mirror` is True (bool) for {type(model).__name__} with {actions} actions; expected '
                'pixel_actor_critic with 4 actions, even sizes in encoder_hidden_size_list, and no layer_norm'
            )
        screens = [layer for layer in layers if isinstance(layer, Conv2d)]
        shape = self._output_shape(screens[-1])
        for layer in layers:
            for parameter in layer.parameters():
                places = torch.arange(parameter.numel()).view(parameter.shape)
                if layer is layers[-2]:
                    places = places[MIRRORED_ACTIONS]
                elif layer is not model.critic:
                    places = places.roll(len(places) // 2, 0)
                if isinstance(layer, Conv2d) and places.ndim > 1:
                    places = places.flip(3) if layer is screens[0] else places.flip(3).roll(places.shape[1] // 2, 1)
                elif places.ndim > 1 and layer is layers[len(screens)]:  # on the flattened output of the convolutions
                    places = places.unflatten(1, shape).roll(shape[0] // 2, 1).flip(3)
                elif places.ndim > 1:
                    places = places.roll(places.shape[1] // 2, 1)
                self._pairs.append((parameter, places.flatten().to(parameter.device)))

    def begin(self) -> None:
        """Give the network weights that commute with the mirror, of the scale that they have."""
        self._average(lambda parameter: parameter.data, 2**0.5)

    def project(self) -> None:
        """The same for loaded weights; those that commute already stay as they are."""
        self._average(lambda parameter: parameter.data)

    def average_gradients(self) -> None:
        """Between a backward pass and the optimizer's step."""
        self._average(lambda parameter: parameter.grad)

    def _average(self, values_of: Callable[[Parameter], torch.Tensor], divisor: float = 2.0) -> None:
        for parameter, places in self._pairs:
            values = values_of(parameter)
            flat = values.flatten()
            values.copy_(((flat + flat[places]) / divisor).view(values.shape))

    def _output_shape(self, layer: Conv2d) -> torch.Size:
        shapes: List[torch.Size] = []
        hook = layer.register_forward_hook(lambda *call: shapes.append(call[-1].shape[1:]))
        with torch.no_grad():
            self._model.encoder(torch.zeros(1, *self._model.encoder.obs_shape, device=layer.weight.device))
        hook.remove()
        return shapes[0]
