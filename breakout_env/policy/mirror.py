"""Left-right equivariant networks: a mirrored screen gives mirrored action probabilities and the same value."""

from collections.abc import Sequence

import torch
from torch.nn import Conv2d, Linear

from .pixel_models import PixelActorCritic

# NOOP, FIRE, RIGHT and LEFT of ALE's minimal set.
MIRRORED_ACTIONS = [0, 1, 3, 2]
_MIRROR_IS_ON = 'policy option `learn.mirror` is True (bool)'


class Mirror:
    """Keeps a network's weights equivariant: each layer has its features in pairs, and one feature of a pair sees in a
    screen what the other sees in its mirror image (Cohen and Welling 2016, "Group Equivariant Convolutional Networks").
    Breakout is symmetric, so a game teaches as much as two. The weights are ordinary ones, half of them free. An update
    takes the same time: it averages the gradients over each pair, which gives the gradient of the free weights.

    Arguments:
        model: With 4 actions and an even number of features in each layer.
    Raises:
        ValueError: If the network is of another kind, or the mirror does not map its screens onto themselves.

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
        device = next(model.parameters()).device
        # Each weight and bias with its rows and columns (outputs and inputs) in the mirrored network.
        self._permutations: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        layers = [layer for layer in model.modules() if isinstance(layer, (Conv2d, Linear))]
        convolutions = [layer for layer in layers if isinstance(layer, Conv2d)]
        self._check(layers)
        width = self._last_width(convolutions)
        for layer in layers:
            rows = torch.arange(len(layer.weight), device=device)
            if layer is layers[-2]:
                rows = rows[MIRRORED_ACTIONS]
            elif layer is not model.critic:
                rows = _exchanged(rows)
            inputs = torch.arange(layer.weight[0].numel(), device=device)
            if isinstance(layer, Conv2d):
                inputs = inputs.view(layer.weight.shape[1:]).flip(2)
            elif layer is layers[len(convolutions)]:  # on the flattened output of the convolutions
                inputs = inputs.view(convolutions[-1].out_channels, -1, width).flip(2)
            if layer is not convolutions[0]:
                inputs = _exchanged(inputs)
            self._permutations.append((layer.weight, rows, inputs.flatten()))
            if layer.bias is not None:
                self._permutations.append((layer.bias, rows, torch.arange(1, device=device)))

    def _check(self, layers: Sequence[Conv2d | Linear]) -> None:
        sizes = [len(layer.weight) for layer in layers]
        of_layers = {id(parameter) for layer in layers for parameter in layer.parameters()}
        is_known = isinstance(self._model, PixelActorCritic) and of_layers == set(map(id, self._model.parameters()))
        if not is_known or sizes[-2] != len(MIRRORED_ACTIONS) or any(size % 2 for size in sizes[:-1]):
            raise ValueError(
                f'{_MIRROR_IS_ON} for {type(self._model).__name__} with layers of {sizes}; expected pixel_actor_critic '
                'with even sizes in encoder_hidden_size_list and 4 actions'
            )

    def _last_width(self, convolutions: Sequence[Conv2d]) -> int:
        """The columns of the last convolution's output. Raises ValueError if columns are left out on one side only."""
        assert self._model.window is not None, 'a PixelActorCritic looks at screens'
        left, right = self._model.window[1]
        width = right - left + 1
        is_one_sided = left != self._model.screen_width - 1 - right
        for layer in convolutions:
            steps, rest = divmod(width + 2 * int(layer.padding[1]) - layer.kernel_size[1], layer.stride[1])
            width = steps + 1
            is_one_sided = is_one_sided or rest > 0
        if is_one_sided:
            raise ValueError(
                f'{_MIRROR_IS_ON} for columns {[left, right]} of {self._model.screen_width}; expected as many left out '
                'on the left as on the right, and a number of which each convolution reads the last, such as 84 or 76'
            )
        return width

    def begin(self) -> None:
        """Make the weights equivariant, and keep their scale."""
        for weight, rows, columns in self._permutations:
            weight.data.add_(_mirrored(weight.data, rows, columns)).div_(2**0.5)

    def check(self) -> None:
        """Raise ValueError if loaded weights are not equivariant: updates would keep them asymmetric."""
        for weight, rows, columns in self._permutations:
            if not torch.allclose(weight, _mirrored(weight, rows, columns), rtol=1e-3, atol=1e-5):
                raise ValueError(
                    'the loaded weights come from a training without the policy option `learn.mirror`, which is True '
                    '(bool); expected policy.learn.mirror=False to train them'
                )

    def average_gradients(self) -> None:
        """Average the gradients of each pair; call between backward and step."""
        for weight, rows, columns in self._permutations:
            assert weight.grad is not None, 'a backward pass leaves gradients of all weights'
            weight.grad.add_(_mirrored(weight.grad, rows, columns)).div_(2)


def _mirrored(values: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    return values.reshape(len(values), -1).index_select(0, rows).index_select(1, columns).view(values.shape)


def _exchanged(features: torch.Tensor) -> torch.Tensor:
    """Swap the two halves of the features, or channels."""
    return features.roll(len(features) // 2, 0)
