"""
A trained agent: a file in, actions out.

Beside its weights is its card, a JSON object, all of whose keys are optional:

- ``name`` (str), a short name; ``limits`` (str), what the agent cannot do, and what its figures do not show.
- ``env_steps``, ``updates``, ``seed`` (int), ``hours`` (float), ``commit``, ``config`` (str): the training.
- ``temperature`` (float), for the policy of an actor-critic: games are played with actions drawn from it, its logits
  divided by this; without it they are played with the most probable ones.
- ``scores`` (object): for each protocol of ``evaluation.PROTOCOLS`` what ``evaluation.Report.summary`` gives.
"""

import json
import logging
import math
import os
from pathlib import Path
from typing import Annotated, Any, Dict, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import save
from scipy.special import softmax

from ..policy.pixel_models import PixelDQN
from ..run.config_checks import value_at
from ..utils.atomic_file import write_bytes
from ..utils.options import Between, checked, shortened
from .own_network import FROM_WEIGHTS, Sizes, config_beside, registered_network
from .weights_file import Weights, read_weights, without_critic

logger = logging.getLogger(__name__)
PRETRAINED = Path(__file__).parent.parent / 'pretrained' / 'breakout_ppo.safetensors'
# Kernels and strides of DI-engine's ConvEncoder, which are those of Mnih et al. 2015; its DQN supports no others.
KERNELS, STRIDES = (8, 4, 3), (4, 2, 1)
# Breakout's own actions, and all of the joystick's.
ACTION_COUNTS = (4, 18)
FRAME_SKIP = 4
SMALLEST_SCREEN, NATURE_SCREEN_SIZE, LARGEST_SCREEN = 36, 84, 1024
# The linear layer after the convolutions, where a ReLU follows it (the model option `head`).
PAPER_LAYER = 'encoder.mid.0.weight'
LONGEST_NAME = 60
_CARD = TypeAdapter(Dict[str, Any])
_Temperature = Optional[Annotated[float, Between(0.01, 100.0)]]


class Agent(object):
    """
    Overview:
        A network that plays Breakout: screens in, values of the actions out.
    Examples:
        >>> from breakout_env import BreakoutEnv
        >>> agent = load_agent()
        >>> env = BreakoutEnv({**agent.env_options, 'is_train': False})
        >>> env.seed(0)
        >>> agent.act(env.reset()[None]).shape
        (1,)
        >>> env.close()
    """

    def __init__(self, model: torch.nn.Module, card: Mapping[str, Any], name: str, sizes: Sizes) -> None:
        """
        The network, which is put into evaluation mode, its card, a short name for people, and how
        many screens it looks at, how wide they are, and how many actions it knows.
        """
        self.model = model.eval()
        self.card = dict(card)
        self.temperature: Optional[float] = self.card.get('temperature')
        self._rng = np.random.default_rng(0)
        self.name = name
        self.device = next(model.parameters()).device
        self.frame_stack, self.screen_size, self.action_count = sizes

    @property
    def env_options(self) -> Dict[str, Any]:
        """The options that an environment needs to fit the network."""
        return dict(
            frame_stack=self.frame_stack,
            screen_size=self.screen_size,
            full_action_space=self.action_count == max(ACTION_COUNTS),
            obs_dtype='uint8',
        )

    def q_values(self, obs: np.ndarray) -> np.ndarray:
        """
        Overview:
            The discounted return that the agent expects of each action; of an agent from ``lean_ppo`` the logits of \
            its policy.
        Raises:
            - ValueError: If the observations have another shape or type.
        Shapes:
            - obs (:obj:`np.ndarray`): :math:`(B, F, S, S)`, uint8, B batch size, F ``frame_stack``, S ``screen_size``.
            - q_values (:obj:`np.ndarray`): :math:`(B, A)`, float32, A number of actions.
        """
        expected = (self.frame_stack, self.screen_size, self.screen_size)
        if not isinstance(obs, np.ndarray) or obs.dtype != np.uint8 or obs.ndim != 4 or obs.shape[1:] != expected:
            found = f'{obs.dtype} {obs.shape}' if isinstance(obs, np.ndarray) else type(obs).__name__
            raise ValueError(f'the observations are {found}; expected a uint8 array (batch, {str(expected)[1:]}')
        pixels = torch.from_numpy(np.require(obs, requirements=['C', 'W']))
        with torch.inference_mode():
            return self.model(pixels.to(self.device))['logit'].cpu().numpy()

    def act(self, obs: np.ndarray, draws: Optional[np.ndarray] = None) -> np.ndarray:
        """
        Overview:
            An action for each observation: that of the highest value or, where the card has a ``temperature``, one \
            that is drawn from the policy.
        Shapes:
            - obs (:obj:`np.ndarray`): As in ``q_values``.
            - draws (:obj:`Optional[np.ndarray]`): :math:`(B)`, uniform random numbers from 0 to 1, which choose; by \
                default from a generator that begins anew with each ``load_agent``.
            - actions (:obj:`np.ndarray`): :math:`(B)`, their indices.
        """
        values = self.q_values(obs)
        if self.temperature is None:
            return values.argmax(axis=1)
        draws = self._rng.random(len(obs)) if draws is None else draws
        bounds = softmax(values.astype(np.float64) / self.temperature, axis=1).cumsum(axis=1)
        return (bounds[:, :-1] <= np.reshape(draws, (-1, 1))).sum(axis=1)


def act(agent: Any, obs: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """``agent.act``, with ``draws`` if it is an agent that draws its actions: others need not know them."""
    return agent.act(obs) if getattr(agent, 'temperature', None) is None else agent.act(obs, draws)


def load_agent(path: Union[str, Path, None] = None, device: str = 'cpu') -> Agent:
    """
    Overview:
        Read an agent from a file. A DQN is rebuilt from the names and shapes of its weights: this needs no \
        config and runs nothing from the file. Two properties leave no trace in the weights: the activation is \
        assumed to be ReLU, and a checkpoint's screen size is the one in its run's ``total_config.py`` or, without \
        that, the smallest that fits, which is 84 for Nature's network. \
        Another network, such as one of the user's own, is rebuilt by ``own_network.py``.
    Arguments:
        - path (:obj:`Union[str, Path, None]`): A checkpoint (``ckpt/*.pth.tar``) of a run, or a file that \
            ``save_agent`` wrote; None for the agent that comes with the package.
        - device (:obj:`str`): Where the network runs, such as ``'cpu'`` or ``'cuda'``.
    Raises:
        - OSError: If the file cannot be read.
        - ValueError: If it holds no agent, or the device is missing.
    """
    path = os.fspath(PRETRAINED if path is None else path)
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise ValueError(f'the device is {device!r}; expected cpu or cuda') from None
    if kind == 'cuda' and not torch.cuda.is_available():
        raise ValueError(f'the device is {device!r}, but PyTorch finds no GPU here; expected cpu')
    weights, metadata = read_weights(path)
    try:
        card = _CARD.validate_json(metadata.get('card', '{}'))
        checked('key of the card', 'temperature', card.get('temperature'), _Temperature)
        model, sizes = _rebuilt(Path(path), weights, metadata.get('screen_size'))
    except ValidationError:
        raise ValueError(f'{path} holds no agent that can play: its card is not a JSON object') from None
    except ValueError as error:
        raise ValueError(f'{path} holds no agent that can play: {error}') from None
    # terminals obey control characters, and the name comes from a file that anyone may have written
    name = ''.join(filter(str.isprintable, str(card.get('name') or Path(path).name.split('.')[0])))
    return Agent(model.to(device), card, name[:LONGEST_NAME], sizes)


def save_agent(
    path: Union[str, Path],
    state_dict: Mapping[str, torch.Tensor],
    card: Mapping[str, Any],
    screen_size: Optional[int] = None,
) -> None:
    """
    Overview:
        Write an agent to a file, completely or not at all: weights in safetensors, the card as JSON in its metadata.
    Arguments:
        - state_dict (:obj:`Mapping[str, torch.Tensor]`): The network's weights, such as ``model`` of a checkpoint; \
            written in float16 where they are given so, else in float32.
        - card (:obj:`Mapping[str, Any]`): What is known about the agent; ``{}`` for nothing.
        - screen_size (:obj:`Optional[int]`): Of the screens it was trained on; None for the smallest that fits.
    Raises:
        - OSError: If the file cannot be written.
        - ValueError: If ``load_agent`` could not rebuild the network, or the card is not JSON.
    """
    chosen = without_critic(state_dict)
    weights = {name: tensor.detach().to('cpu', copy=True).contiguous() for name, tensor in chosen.items()}
    weights = {name: tensor if tensor.dtype is torch.float16 else tensor.float() for name, tensor in weights.items()}
    _, (_, size, _) = _rebuilt(Path(path), weights, screen_size)
    metadata = dict(card=json.dumps(card, allow_nan=False), screen_size=str(size))
    write_bytes(Path(path), save(weights, metadata))


def _rebuilt(path: Path, weights: Weights, screen_size: Union[str, int, None]) -> Tuple[torch.nn.Module, Sizes]:
    """The network of a file, with these weights, and its sizes."""
    file, config = config_beside(path)
    if config is not None and value_at(config, 'policy.model.type') not in FROM_WEIGHTS:
        return registered_network(file, config, weights)
    if (frame_skip := value_at(config, 'env.frame_skip')) not in (None, FRAME_SKIP):
        logger.warning('the run of %s has frame_skip %s; it is played with %d', path, shortened(frame_skip), FRAME_SKIP)
    screen_size = screen_size or value_at(config, 'env.screen_size')
    try:
        return _network(weights, None if screen_size is None else str(screen_size))
    except (LookupError, ZeroDivisionError, RuntimeError) as error:  # a weight is missing, or has no such shape
        some = ', '.join(repr(name[:40]) for name in sorted(weights)[:3])
        raise ValueError(
            "its network is not DI-engine's DQN on screens, such as `dqn` or `pixel_dqn`, and no total_config.py of "
            f'its run, which names another, is beside it; found {len(weights)} weights such as {some}'
        ) from error


def _network(weights: Weights, screen_size: Optional[str]) -> Tuple[PixelDQN, Sizes]:
    """The network that these weights belong to, with the weights in it, and its sizes; errors as ``_rebuilt``."""
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    dueling, layer_norm = 'head.A.1.0.weight' in shapes, 'encoder.main.1.0.weight' in shapes
    head = 'head.A.' if dueling else 'head.Q.'
    head_weights = sum(name.startswith(f'{head}0.') and name.endswith('.weight') for name in shapes)
    action_count, width = shapes[f'{head}1.0.weight'][0], shapes[f'{head}1.0.weight'][1]
    if action_count not in ACTION_COUNTS:
        raise ValueError(
            f'its network has {action_count} outputs; expected 4, one for each action of Breakout, or 18 with the full '
            'action space (distributional networks have more and are not supported)'
        )
    convolutions = [shapes[f'encoder.main.{index}.weight'] for index in (0, 2, 4)]
    frame_stack, channels = convolutions[0][1], [shape[0] for shape in convolutions]
    residual_blocks = {name.split('.')[2] for name in shapes if name.startswith('encoder.main.')} - set('012345')
    ranges = {name: weights[name].flatten().long().tolist() for name in ('rows', 'columns') if name in weights}
    area = (shapes.get('encoder.mid.weight') or shapes[PAPER_LAYER])[1] // channels[-1]
    size = _screen_size(area, [ranges.get('rows'), ranges.get('columns')], screen_size)
    # on the meta device, building takes no memory for the sizes that a file claims, and no random numbers
    with torch.device('meta'):
        model = PixelDQN(
            [frame_stack, size, size],
            action_count,
            encoder_hidden_size_list=channels + channels[-1:] * len(residual_blocks) + [width],
            dueling=dueling,
            head='paper' if PAPER_LAYER in shapes else 'ding',
            head_layer_num=head_weights // 2 if layer_norm else head_weights,
            layer_norm=layer_norm,
            **ranges,
        )
    if shapes != {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}:
        raise LookupError('a weight that it has or lacks')
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise ValueError(f'its weight {name} holds infinities or NaN')
    # copies, as safetensors and checkpoints may share memory with other tensors
    model.load_state_dict({name: tensor.detach().float().clone() for name, tensor in weights.items()}, assign=True)
    return model, (frame_stack, size, action_count)


def _screen_size(area: int, ranges: Sequence[Optional[Sequence[int]]], stated: Optional[str]) -> int:
    """
    The stated size if convolutions make so large an area of it; without one, 84 if that fits, else the smallest size
    that does. ``ranges`` are the rows and columns that the network looks at, first and last, None for all.
    """
    beyond = max([SMALLEST_SCREEN, *(1 + seen[-1] for seen in ranges if seen is not None)])
    # several sizes fit, as a convolution does not read the last pixels of a row if they are fewer than its stride
    sizes = range(beyond, LARGEST_SCREEN + 1)
    fitting = [size for size in sizes if math.prod(_side(size, seen) for seen in ranges) == area]
    smallest, largest = fitting[0], fitting[-1]
    if stated is not None:
        if stated not in map(str, fitting):
            raise ValueError(f'screen_size is {stated[:20]!r}; expected {smallest} to {largest}, to fit its weights')
        return int(stated)
    if NATURE_SCREEN_SIZE in fitting:
        return NATURE_SCREEN_SIZE
    logger.warning(
        'the network fits screens of %d to %d pixels; %d is assumed. If it was trained on another size, '
        'save it with breakout_env.agent.save_agent(screen_size=...)',
        smallest,
        largest,
        smallest,
    )
    return smallest


def _side(screen_size: int, seen: Optional[Sequence[int]]) -> int:
    """What the convolutions make of a side of the screen, or of the range of it that the network looks at."""
    length = screen_size if seen is None else seen[-1] - seen[0] + 1
    for kernel, stride in zip(KERNELS, STRIDES):
        length = max(0, (length - kernel) // stride + 1)
    return length
