"""DI-engine's networks on pixel values 0..255."""

import inspect
from abc import ABCMeta
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

import torch
from ding.model import C51DQN, DQN, DRQN, QRDQN, VAC, RainbowDQN
from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY
from pydantic import AfterValidator, BeforeValidator

from ..envs.pixel_check import PIXEL_FORMAT_HINT
from ..utils.options import Between, Expected, Options, validate

# Channels of the three convolutions and width of the linear layer after them (Mnih et al. 2015, Methods); DI-engine's
# ConvEncoder has the paper's kernel sizes and strides.
NATURE_ENCODER = (32, 64, 64, 512)
# DI-engine's Q-learning policies put these sizes into every ``policy.model`` that names none (``DQNPolicy.config``). A
# bottleneck of 64 after 128 channels suits no screen.
POLICY_DEFAULT_ENCODER = (128, 128, 64)
# The gain that preserves the scale of values through a layer and a ReLU (He et al. 2015).
_RELU_GAIN = 2**0.5


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _check_encoder(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if len(sizes) < 3 or set(sizes[3:-1]) - {sizes[2]}:
        raise ValueError('ConvEncoder builds three convolutions, blocks with the channels of the third, and a layer')
    return sizes


# First and last row, first and last column of the part of a screen that a network looks at.
Window = tuple[tuple[int, int], tuple[int, int]]
_FEWEST_PIXELS = 36  # for three strided convolutions
_Count = Annotated[int, Between(1)]
_Pixels = Annotated[int, Between(_FEWEST_PIXELS)]
_Range = Annotated[
    tuple[int, int] | None,
    BeforeValidator(_as_tuple),
    Expected('None or the first and the last index that the network looks at, such as [12, 79]'),
]


class PixelModelOptions(Options):
    """The checked sizes of a network on screens, from ``cfg.policy.model``."""

    _owner = 'model option'

    obs_shape: Annotated[
        tuple[_Count, _Pixels, _Pixels],
        BeforeValidator(_as_tuple),
        Expected('three whole numbers: frames, height and width (from 36 pixels)'),
    ]
    """(list) Shape of an observation, such as [4, 84, 84]."""
    action_shape: _Count
    """(int) Number of actions."""
    encoder_hidden_size_list: Annotated[
        tuple[_Count, ...],
        BeforeValidator(lambda sizes: NATURE_ENCODER if sizes is None else _as_tuple(sizes)),
        AfterValidator(_check_encoder),
        Expected(
            'a list of whole numbers: channels of three convolutions, perhaps of more blocks with as many channels as '
            'the third, then the width of the linear layer'
        ),
    ] = NATURE_ENCODER
    """(list) Channels of the convolutions, then the width of the linear layer."""
    rows: _Range = None
    """(list | None) First and last row of the screen that the network looks at; None for all. In 84x84 pixels only \
    the score is above row 12, and rows 79 to 83 never change."""
    columns: _Range = None
    """(list | None) First and last column likewise. In 84x84 pixels the walls are outside columns 4 to 79."""
    head: Literal['ding', 'paper'] = 'ding'
    """(str) Of `pixel_dqn` and `pixel_actor_critic`: ``paper`` for a ReLU after the linear layer and outputs that are \
    linear on it (Mnih et al. 2015), for dueling networks with a linear layer for each stream (Wang et al. 2016); \
    ``ding`` for DI-engine's, with no ReLU after the linear layer and another hidden layer before the outputs."""

    @property
    def window(self) -> Window:
        """The part of a screen that the network looks at."""
        _, height, width = self.obs_shape
        return self.rows or (0, height - 1), self.columns or (0, width - 1)

    @classmethod
    def read(cls, cfg: object) -> 'PixelModelOptions':
        """As the base's; also raises ValueError for ``rows`` and ``columns`` off the screen, or too few."""
        options = super().read(cfg)
        for name, size, (first, last) in zip(('rows', 'columns'), options.obs_shape[1:], options.window):
            if first < 0 or last >= size or last - first + 1 < _FEWEST_PIXELS:
                found = f'model option `{name}` is {[first, last]} (list)'
                raise ValueError(f'{found}; expected at least {_FEWEST_PIXELS} of a screen that has {size}, from 0 on')
        return options


class _MadeFromConfig(ABCMeta):  # not `type`: a network may have an abstract base
    """Makes a network of the arguments in ``policy.model``, whoever asks for it. Drops the encoder that DI-engine
    inserts there: a network with custom layers need not have such an argument.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        sizes = kwargs.get('encoder_hidden_size_list')
        if isinstance(sizes, (list, tuple)) and tuple(sizes) == POLICY_DEFAULT_ENCODER:
            del kwargs['encoder_hidden_size_list']
        return super().__call__(*args, **kwargs)


class PixelInput(torch.nn.Module, metaclass=_MadeFromConfig):
    """A mixin for DI-engine's template models and for networks with custom layers (docs/own_network.md). They take
    pixel values 0..255, uint8 or floating, and scale them to [0, 1] on the network's device: DI-engine's collector
    passes uint8, its evaluator the same pixels as float32. Checkpoints are the template's. The encoder's weights begin
    orthogonal (Saxe et al. 2014), which preserves the differences between screens. PyTorch's default weights shrink
    them at each layer, and DQN may learn one value for all states (docs/training.md).

    Examples:
        >>> model = PixelDQN([4, 84, 84], 4)
        >>> pixels = torch.randint(0, 256, (1, 4, 84, 84), dtype=torch.uint8)
        >>> torch.equal(model(pixels)['logit'], model(pixels.float())['logit'])
        True
    """

    # ``envs/pixel_check.py`` reads it.
    scales_pixels = True
    # Arguments of the template that have to be the width of the encoder.
    _head_sizes: tuple[str, ...] = ()
    _pixels_checked = False
    # The part of a screen that the network looks at; None for all of it.
    window: Window | None = None
    screen_width: int

    def __init__(
        self,
        obs_shape: Sequence[int] | None = None,
        action_shape: int | None = None,
        encoder_hidden_size_list: Sequence[int] | None = NATURE_ENCODER,
        *,
        orthogonal: bool = True,
        rows: Sequence[int] | None = None,
        columns: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        """
        Arguments:
            obs_shape, action_shape, encoder_hidden_size_list, rows, columns: As in ``PixelModelOptions``. A network
                with custom layers names none of them. For the encoder, None and, as a keyword, [128, 128, 64] stand for
                the default: DI-engine's policies insert the latter into configs.
            orthogonal: Whether the encoder's weights begin orthogonal, else as PyTorch's.
            kwargs: The template's other arguments.
        """
        if obs_shape is None:
            super().__init__(**kwargs)
            return
        given = dict(obs_shape=obs_shape, action_shape=action_shape, rows=rows, columns=columns)
        options = PixelModelOptions.read(dict(given, encoder_hidden_size_list=encoder_hidden_size_list))
        sizes = list(options.encoder_hidden_size_list)
        kwargs = {**dict.fromkeys(self._head_sizes, sizes[-1]), **kwargs}
        cropped_shape = (options.obs_shape[0], *(last - first + 1 for first, last in options.window))
        super().__init__(cropped_shape, options.action_shape, encoder_hidden_size_list=sizes, **kwargs)
        self.window, self.screen_width = options.window, options.obs_shape[2]
        for name in ('rows', 'columns'):
            if getattr(options, name) is not None:
                # floating as all tensors of an agent's file
                self.register_buffer(name, torch.tensor(getattr(options, name), dtype=torch.float32))
        self.register_load_state_dict_post_hook(_check_loaded_ranges)
        for module in self.modules():
            # nothing else reads the inputs of these ReLUs; overwriting them saves a twentieth of an update on a CPU
            if isinstance(module, torch.nn.ReLU):
                module.inplace = True
            elif isinstance(module, torch.nn.Flatten):
                module.register_forward_pre_hook(_keep_layout)
        if orthogonal:
            _begin_orthogonal(module for name, module in self.named_modules() if 'encoder' in name)

    @classmethod
    def check_config(cls, cfg: Mapping) -> None:
        """Build the network of a merged config, also for the policy's ``check_network``. Raises ValueError."""
        given = {name: value for name, value in cfg['policy']['model'].items() if name not in ('type', 'import_names')}
        try:
            network = cls(**given)
        except TypeError as error:  # an argument that is missing, or unknown
            if cls.__module__ != __name__ and inspect.trace()[-1].filename == inspect.getfile(cls):
                raise  # from the code of a custom network
            raise ValueError(f'policy.model: {error}') from error
        check_network = getattr(dict(POLICY_REGISTRY).get(cfg['policy'].get('type')), 'check_network', None)
        if check_network is not None:
            check_network(cfg, network)

    def forward(self, x: torch.Tensor | Mapping, *args: Any, **kwargs: Any) -> Any:
        """The template's ``forward`` on scaled pixels; a recurrent one takes a dict with ``obs``. Raises ValueError if
        the first floating input that is not all black is scaled already.

        Shapes:
            x: :math:`(B, F, S, S)`, B batch size, F frames, S pixels; :math:`(T, B, F, S, S)` for T recurrent steps.
        """
        if isinstance(x, Mapping):
            return super().forward({**x, 'obs': self.scaled(x['obs'])}, *args, **kwargs)
        return self.forward_scaled(self.scaled(x), *args, **kwargs)

    def forward_scaled(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """``forward`` on the result of ``scaled``, so that networks can share it."""
        return super().forward(x, *args, **kwargs)

    def scaled(self, pixels: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Crop screens and scale them to [0, 1], as float32 or ``out``'s type. Raises as ``forward``."""
        if not self._pixels_checked and pixels.is_floating_point():
            brightest = pixels.max().item()
            if 0 < brightest <= 1:
                raise ValueError(
                    f'{type(self).__name__} expects pixel values 0..255, but the brightest pixel of its first input '
                    f'is {brightest:g}. {PIXEL_FORMAT_HINT}'
                )
            self._pixels_checked = brightest > 1
        cropped = self.crop(pixels)
        return cropped.float() / 255 if out is None else out.copy_(cropped).div_(255)

    def crop(self, pixels: torch.Tensor) -> torch.Tensor:
        """The part of screens that the network looks at."""
        if self.window is None:
            return pixels
        (top, bottom), (left, right) = self.window
        return pixels[..., top : bottom + 1, left : right + 1]


def _keep_layout(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
    """Give the gradient of channels-last features their layout, which flattening loses. The backward pass of a ReLU
    between two layouts takes ten times as long: 1% of an update on a CPU with bfloat16, 5% in float32.
    """
    (features,) = inputs
    if features.requires_grad and features.is_contiguous(memory_format=torch.channels_last):
        features.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))


@MODEL_REGISTRY.register('pixel_dqn')
class PixelDQN(PixelInput, DQN):
    """DI-engine's ``DQN`` on pixel values 0..255, for its policy ``dqn`` and for ``lean_dqn``."""

    encoder: Any
    head: Any

    def __init__(
        self, *args: Any, dueling: bool = True, head: str = 'ding', orthogonal: bool = True, **kwargs: Any
    ) -> None:
        """As ``PixelInput``. ``dueling``: the value of a state and the advantages of actions have separate heads;
        ``head``: as in ``PixelModelOptions``.
        """
        validate('model option', 'head', head, PixelModelOptions.model_fields['head'].annotation)
        if head == 'paper' and (layers := kwargs.setdefault('head_layer_num', 0)):
            raise ValueError(f"model option `head_layer_num` is {layers}; expected 0 with head='paper'")
        super().__init__(*args, orthogonal=orthogonal, dueling=dueling, **kwargs)
        self._has_streams = head == 'paper' and dueling
        if head == 'paper':
            layer = self.encoder.mid
            if self._has_streams:  # both streams' layers in one
                layer = torch.nn.Linear(layer.in_features, 2 * layer.out_features)
                if orthogonal:
                    for stream in layer.weight.data.chunk(2):
                        torch.nn.init.orthogonal_(stream, _RELU_GAIN)
                    torch.nn.init.zeros_(layer.bias)
            self.encoder.mid = torch.nn.Sequential(layer, torch.nn.ReLU(inplace=True))

    def forward_scaled(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """As the base's. The head computes in float32: bfloat16 cannot tell the values of close actions apart."""
        features, device_type = self.encoder(x), x.device.type
        if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
            with torch.autocast(device_type, enabled=False):
                return self._heads(features.float())
        return self._heads(features.float())

    def _heads(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
        if not self._has_streams:
            return self.head(features)
        of_advantages, of_value = features.chunk(2, dim=1)
        advantages = self.head.A(of_advantages)
        return dict(logit=advantages - advantages.mean(dim=-1, keepdim=True) + self.head.V(of_value))


@MODEL_REGISTRY.register('pixel_actor_critic')
class PixelActorCritic(PixelDQN):
    """For the policy ``lean_ppo``: a ``PixelDQN`` whose head gives the logits of a policy, and a linear layer beside it
    for the value of the observation. Without that layer the weights fit a DQN, which then plays the policy's most
    probable actions. All weights begin orthogonal, the last ones of the policy small (Andrychowicz et al. 2021, "What
    Matters for On-Policy Deep Actor-Critic Methods?").

    Examples:
        >>> sorted(PixelActorCritic([4, 84, 84], 4)(torch.zeros(1, 4, 84, 84)))
        ['logit', 'value']
    """

    def __init__(self, *args: Any, orthogonal: bool = True, **kwargs: Any) -> None:
        """As ``PixelDQN`` without dueling."""
        super().__init__(*args, dueling=False, orthogonal=False, **kwargs)
        layers = list(self.modules())
        self.critic = torch.nn.Linear(cast(int, self.encoder.output_size), 1)
        if orthogonal:
            _begin_orthogonal(layers)
            _begin_orthogonal([[*self.head.modules()][-1]], 0.01)
            _begin_orthogonal([self.critic], 1.0)

    def _heads(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(logit=self.head(features)['logit'], value=self.critic(features).squeeze(1))


def _check_loaded_ranges(model: PixelInput, incompatible_keys: object) -> None:
    """Refuse weights that were trained on other rows: their shapes are the same, so nothing else shows it."""
    assert model.window is not None, 'the hook is registered with a window'
    for name, places in zip(('rows', 'columns'), model.window):
        buffer, expected = getattr(model, name, None), list(places)
        if buffer is not None and (loaded := buffer.tolist()) != expected:
            buffer.copy_(torch.tensor(expected))
            raise ValueError(f'the weights are for {name} {loaded} of the screen; expected {expected}, option `{name}`')


def _begin_orthogonal(layers: Iterable[torch.nn.Module], gain: float = _RELU_GAIN) -> None:
    """Orthogonal weights and zero biases."""
    for layer in layers:
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
            torch.nn.init.orthogonal_(layer.weight, gain)
            if layer.bias is not None:
                torch.nn.init.zeros_(layer.bias)


@MODEL_REGISTRY.register('pixel_rainbowdqn')
class PixelRainbowDQN(PixelInput, RainbowDQN):
    """DI-engine's ``RainbowDQN`` on pixel values 0..255, for its policy ``rainbow``."""


@MODEL_REGISTRY.register('pixel_c51dqn')
class PixelC51DQN(PixelInput, C51DQN):
    """DI-engine's ``C51DQN`` on pixel values 0..255, for its policy ``c51``."""


@MODEL_REGISTRY.register('pixel_qrdqn')
class PixelQRDQN(PixelInput, QRDQN):
    """DI-engine's ``QRDQN`` on pixel values 0..255, for its policy ``qrdqn``."""


@MODEL_REGISTRY.register('pixel_drqn')
class PixelDRQN(PixelInput, DRQN):
    """DI-engine's recurrent ``DRQN`` on pixel values 0..255, for its policy ``r2d2`` and for ``r2d2_slices``."""


@MODEL_REGISTRY.register('pixel_vac')
class PixelVAC(PixelInput, VAC):
    """DI-engine's ``VAC``, actor and critic, on pixel values 0..255, for its policies ``ppo`` and ``a2c``."""

    _head_sizes = ('actor_head_hidden_size', 'critic_head_hidden_size')  # VAC's default of 64 suits its own encoder
