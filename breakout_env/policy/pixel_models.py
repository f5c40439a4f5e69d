"""DI-engine's networks, fed with pixels."""

import numbers
from typing import Any, List, Mapping, Optional, Sequence, Union

import torch
from ding.model import C51DQN, DQN, DRQN, QRDQN, VAC, RainbowDQN
from ding.utils import MODEL_REGISTRY

from ..envs.pixel_check import PAIRS
from ..utils import option_checks

# Channels of the three convolutions and width of the layer behind them (Mnih et al. 2015, Methods); kernel sizes and
# strides are those of DI-engine's ConvEncoder, which are the paper's, too.
NATURE_ENCODER = (32, 64, 64, 512)
# What DI-engine's Q-learning policies merge into every model config that names no sizes (``DQNPolicy.config``), so that
# a model never sees that none was named. A bottleneck of 64 behind 128 channels is nothing to ask for on a screen.
POLICY_DEFAULT_ENCODER = (128, 128, 64)


# Far beyond what any network for screens has; the least that the strides of three convolutions leave something of.
_FRAMES, _PIXELS = option_checks.whole_number(1, 256), option_checks.whole_number(36, 1024)
# Of one network; an update holds several times as much.
_LARGEST_BYTES = 2_000_000_000
_ACTIONS, _WIDTH = option_checks.whole_number(1, 10_000), option_checks.whole_number(1, 16_384)


def check_shapes(obs_shape: Any, action_shape: Any, encoder_hidden_size_list: Any = None) -> None:
    """
    Overview:
        See that a network on screens can be built, before it is.
    Arguments:
        - obs_shape, action_shape, encoder_hidden_size_list (:obj:`Any`): As in ``PixelInput``; None for the last \
            stands for its default.
    Raises:
        - ValueError: If one of them is none that will do.
    """

    def obs(value: Any) -> None:
        if not isinstance(value, (list, tuple)) or len(value) != 3:
            raise ValueError('three whole numbers: frames, height, width')
        _FRAMES(value[0]), _PIXELS(value[1]), _PIXELS(value[2])

    def actions(value: Any) -> None:
        many = isinstance(value, (list, tuple)) and len(value) > 0
        for each in value if many else [value]:
            _ACTIONS(each)

    def sizes(value: Any) -> None:
        if not isinstance(value, (list, tuple)) or not value:
            raise ValueError('a list of whole numbers: channels of the convolutions, then the width behind')
        for each in value:
            _WIDTH(each)
        # DI-engine's ConvEncoder: three convolutions, blocks on as many channels as the third has, the layer behind
        if len(value) < 3 or set(value[3:-1]) - {value[2]}:
            raise ValueError(
                'channels of three convolutions, perhaps of more blocks on as many channels as the third, then the '
                'width behind'
            )

    option_checks.checked('model option', 'obs_shape', obs_shape, obs)
    option_checks.checked('model option', 'action_shape', action_shape, actions)
    if encoder_hidden_size_list is not None:
        option_checks.checked('model option', 'encoder_hidden_size_list', encoder_hidden_size_list, sizes)
    sizes_list = NATURE_ENCODER if encoder_hidden_size_list is None else encoder_hidden_size_list
    channels, width = sizes_list[-2], sizes_list[-1]
    weights = obs_shape[1] * obs_shape[2] // 128 * channels * width + 9 * len(sizes_list) * max(sizes_list[:-1]) ** 2
    if weights * 4 > _LARGEST_BYTES:
        raise ValueError(
            f'model options `obs_shape` ({list(obs_shape)}) and `encoder_hidden_size_list` ({list(sizes_list)}) make a '
            f'network of about {weights * 4 / 1e9:.0f} GB; expected at most {_LARGEST_BYTES / 1e9:.0f} GB'
        )


def _sizes_built(encoder_hidden_size_list: Optional[Sequence[int]]) -> List[int]:
    is_unnamed = encoder_hidden_size_list is None or tuple(encoder_hidden_size_list) == POLICY_DEFAULT_ENCODER
    return list(NATURE_ENCODER if is_unnamed else encoder_hidden_size_list)


class PixelInput(torch.nn.Module):
    """
    Overview:
        Put before one of DI-engine's template models in the list of bases, it makes the model take pixel values \
        0..255, uint8 or floating, and scale them to [0, 1] itself, on whatever device they are; the encoder is \
        Nature's by default. It always divides by 255 and never goes by the dtype: DI-engine's collector hands over \
        uint8, its evaluator the same pixels as float32, and both must see the same numbers. It adds no parameters: \
        checkpoints stay those of the template.
    Interfaces:
        ``__init__``, ``forward``, ``forward_scaled``, ``scaled``.
    """

    _pixels_checked = False

    def __init__(
        self,
        obs_shape: Sequence[int],
        action_shape: int,
        encoder_hidden_size_list: Optional[Sequence[int]] = NATURE_ENCODER,
        **kwargs: Any,
    ) -> None:
        """
        Overview:
            Build the template's network.
        Arguments:
            - obs_shape (:obj:`Sequence[int]`): Shape of an observation, such as [4, 84, 84].
            - action_shape (:obj:`int`): Number of actions.
            - encoder_hidden_size_list (:obj:`Sequence[int]`): Channels of the convolutions, then the width behind. \
                None and [128, 128, 64] stand for the default, too: DI-engine's policies put the latter where none is \
                named. For these very sizes take DI-engine's own model, with ``obs_dtype='float32'``.
            - kwargs (:obj:`Any`): The template's other arguments.
        Raises:
            - ValueError: If a shape or size is none that will do.
        """
        check_shapes(obs_shape, action_shape, encoder_hidden_size_list)
        sizes = _sizes_built(encoder_hidden_size_list)
        if isinstance(action_shape, numbers.Integral):
            action_shape = int(action_shape)  # the templates take NumPy's, as `action_space.n` is one, for a list
        super().__init__(obs_shape, action_shape, encoder_hidden_size_list=sizes, **kwargs)
        for module in self.modules():
            # In these templates a ReLU follows a convolution or a linear layer, and nothing else reads what that gave:
            # it may be written over, which saves a twentieth of an update on a CPU.
            if isinstance(module, torch.nn.ReLU):
                module.inplace = True

    def forward(self, x: Union[torch.Tensor, Mapping], *args: Any, **kwargs: Any) -> Any:
        """
        Overview:
            Scale the pixels and pass them on.
        Arguments:
            - x (:obj:`Union[torch.Tensor, Mapping]`): Pixel values 0..255, uint8 or floating; or, for a recurrent \
                template, a dict that holds them under ``obs``.
            - args, kwargs (:obj:`Any`): What the template's ``forward`` takes besides.
        Returns:
            - outputs (:obj:`Any`): What the template's ``forward`` returns.
        Raises:
            - ValueError: If the first floating input that is not all black turns out to be scaled already.
        Shapes:
            - x (:obj:`torch.Tensor`): :math:`(B, F, S, S)`, B batch size, F frames, S pixels; a recurrent template \
                learns from :math:`(T, B, F, S, S)`, T steps.
        """
        if isinstance(x, Mapping):
            return super().forward({**x, 'obs': self.scaled(x['obs'])}, *args, **kwargs)
        return super().forward(self.scaled(x), *args, **kwargs)

    def forward_scaled(self, x: torch.Tensor) -> Any:
        """
        Overview:
            ``forward`` for what ``scaled`` gave: several networks that see the same screens scale them once.
        """
        return super().forward(x)

    def scaled(self, pixels: torch.Tensor, out: Optional[torch.Tensor] = None) -> torch.Tensor:
        """
        Overview:
            Pixel values 0..255 in [0, 1].
        Arguments:
            - pixels (:obj:`torch.Tensor`): Pixel values, uint8 or floating.
            - out (:obj:`Optional[torch.Tensor]`): Where to put them, of the same shape and a floating type; bfloat16 \
                holds the values 0..255 exactly, too. None for a new float32 tensor.
        Raises:
            - ValueError: As ``forward``.
        """
        if not self._pixels_checked and pixels.is_floating_point():
            brightest = pixels.max().item()
            if 0 < brightest <= 1:
                raise ValueError(
                    f'{type(self).__name__} expects pixel values 0..255, but the brightest pixel of its first input '
                    f'is {brightest:g}. {PAIRS}'
                )
            self._pixels_checked = brightest > 1
        return pixels.float() / 255 if out is None else out.copy_(pixels).div_(255)


@MODEL_REGISTRY.register('pixel_dqn')
class PixelDQN(PixelInput, DQN):
    """
    Overview:
        DI-engine's ``DQN`` on pixel values 0..255, for its policy ``dqn``.
    """


@MODEL_REGISTRY.register('pixel_rainbowdqn')
class PixelRainbowDQN(PixelInput, RainbowDQN):
    """
    Overview:
        DI-engine's ``RainbowDQN`` on pixel values 0..255, for its policy ``rainbow``.
    """


@MODEL_REGISTRY.register('pixel_c51dqn')
class PixelC51DQN(PixelInput, C51DQN):
    """
    Overview:
        DI-engine's ``C51DQN`` on pixel values 0..255, for its policy ``c51``.
    """


@MODEL_REGISTRY.register('pixel_qrdqn')
class PixelQRDQN(PixelInput, QRDQN):
    """
    Overview:
        DI-engine's ``QRDQN`` on pixel values 0..255, for its policy ``qrdqn``.
    """


@MODEL_REGISTRY.register('pixel_drqn')
class PixelDRQN(PixelInput, DRQN):
    """
    Overview:
        DI-engine's ``DRQN``, recurrent, on pixel values 0..255, for its policy ``r2d2`` and for ``r2d2_slices``.
    """


@MODEL_REGISTRY.register('pixel_vac')
class PixelVAC(PixelInput, VAC):
    """
    Overview:
        DI-engine's ``VAC``, actor and critic, on pixel values 0..255, for its policies ``ppo`` and ``a2c``.
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        action_shape: int,
        encoder_hidden_size_list: Optional[Sequence[int]] = NATURE_ENCODER,
        **kwargs: Any,
    ) -> None:
        """
        Overview:
            Build the template's network, with heads that fit the encoder unless told otherwise.
        Arguments:
            - obs_shape, action_shape, encoder_hidden_size_list, kwargs: As in ``PixelInput``.
        """
        check_shapes(obs_shape, action_shape, encoder_hidden_size_list)
        sizes = _sizes_built(encoder_hidden_size_list)
        # VAC's own default of 64 suits its default encoder only
        head_sizes = dict.fromkeys(('actor_head_hidden_size', 'critic_head_hidden_size'), sizes[-1])
        super().__init__(obs_shape, action_shape, sizes, **{**head_sizes, **kwargs})
