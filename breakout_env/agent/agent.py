"""A trained agent: a file in, actions out."""

import json
import logging
import math
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import numpy as np
import torch
from safetensors.torch import save

from ..policy.pixel_models import PixelDQN
from ..utils.atomic_file import write_bytes
from .weights_file import Weights, read_json_object, read_weights

logger = logging.getLogger(__name__)
PRETRAINED = Path(__file__).parent.parent / 'pretrained' / 'breakout_dqn.safetensors'
# Kernels and strides of DI-engine's ConvEncoder, which are those of Mnih et al. 2015; its DQN knows no others.
KERNELS, STRIDES = (8, 4, 3), (4, 2, 1)
# Breakout's own actions, and all of the joystick's
ACTION_COUNTS = (4, 18)


class Agent(object):
    """
    Overview:
        A DQN that plays Breakout: screens in, values of the actions out.
    Interfaces:
        ``q_values``, ``act``.
    Properties:
        ``env_options``.
    """

    def __init__(self, model: PixelDQN, card: Mapping[str, Any], name: str, screen_size: int) -> None:
        """
        Arguments:
            - model (:obj:`PixelDQN`): The network; it is put into its evaluation mode.
            - card (:obj:`Mapping[str, Any]`): What is known about it, as ``agent_card`` says; ``{}`` for nothing.
            - name (:obj:`str`): A short name for people.
            - screen_size (:obj:`int`): Width and height of the screens it was trained on.
        """
        self.model = model.eval()
        self.card = dict(card)
        self.name = name
        first = model.encoder.main[0].weight
        self.device = first.device
        self.frame_stack = int(first.shape[1])
        self.screen_size = screen_size
        self.action_count = int(_last_layer(model.state_dict()).shape[0])

    @property
    def env_options(self) -> Dict[str, Any]:
        """
        Overview:
            The options that an environment needs to fit the network.
        """
        return dict(
            frame_stack=self.frame_stack,
            screen_size=self.screen_size,
            full_action_space=self.action_count == max(ACTION_COUNTS),
            obs_dtype='uint8',
        )

    def q_values(self, obs: np.ndarray) -> np.ndarray:
        """
        Overview:
            What the agent expects to win by each action.
        Arguments:
            - obs (:obj:`np.ndarray`): Observations, uint8.
        Returns:
            - q_values (:obj:`np.ndarray`): Discounted returns, float32.
        Raises:
            - ValueError: If the observations are of another shape or type.
        Shapes:
            - obs (:obj:`np.ndarray`): :math:`(B, F, S, S)`, B batch size, F ``frame_stack``, S ``screen_size``.
            - q_values (:obj:`np.ndarray`): :math:`(B, A)`, A number of actions.
        """
        expected = (self.frame_stack, self.screen_size, self.screen_size)
        if not isinstance(obs, np.ndarray) or obs.dtype != np.uint8 or obs.ndim != 4 or obs.shape[1:] != expected:
            found = f'{obs.dtype} {obs.shape}' if isinstance(obs, np.ndarray) else type(obs).__name__
            raise ValueError(f'the observations are {found}; expected a uint8 array (batch, {str(expected)[1:]}')
        pixels = torch.from_numpy(np.require(obs, requirements=['C', 'W']))
        with torch.inference_mode():
            return self.model(pixels.to(self.device))['logit'].cpu().numpy()

    def act(self, obs: np.ndarray) -> np.ndarray:
        """
        Overview:
            The action with the highest value, for each observation.
        Arguments:
            - obs (:obj:`np.ndarray`): As in ``q_values``.
        Returns:
            - actions (:obj:`np.ndarray`): Indices, int64.
        Shapes:
            - actions (:obj:`np.ndarray`): :math:`(B, )`.
        """
        return self.q_values(obs).argmax(axis=1)


def load_agent(path: Optional[str] = None, device: str = 'cpu') -> Agent:
    """
    Overview:
        Read an agent from a file. The network is rebuilt from the names and shapes of its weights; no config is \
        needed, and nothing in the file is run. What the weights do not tell is taken to be the default: ReLU as the \
        activation, and, for a checkpoint, the smallest screen that the network fits, which is 84 for Nature's.
    Arguments:
        - path (:obj:`Optional[str]`): A checkpoint (``ckpt/*.pth.tar``) of DI-engine's ``dqn`` or ours, or a file \
            that ``save_agent`` wrote; None for the agent that comes with the package.
        - device (:obj:`str`): Where the network is to run, such as ``'cpu'`` or ``'cuda'``.
    Returns:
        - agent (:obj:`Agent`): The agent.
    Raises:
        - OSError: If the file can not be read.
        - ValueError: If it is no agent, or the device is not there.
    """
    path = os.fspath(PRETRAINED if path is None else path)
    if torch.device(device).type == 'cuda' and not torch.cuda.is_available():
        raise ValueError(f'the device is {device!r}, but PyTorch finds no GPU here; expected cpu')
    weights, metadata = read_weights(path)
    try:
        card = read_json_object(metadata.get('card', '{}'), 'its card')
        screen_size = _screen_size(weights, metadata.get('screen_size'))
        model = _network(weights, screen_size)
    except ValueError as error:
        raise ValueError(f'{path} holds no agent that can play: {error}') from None
    name = card.get('name') or Path(path).name.split('.')[0]
    # a name is printed on terminals, which obey what is not printable
    name = ''.join(character for character in str(name) if character.isprintable())[:60]
    return Agent(model.to(device), card, name, screen_size)


def save_agent(
    path: str, state_dict: Mapping[str, torch.Tensor], card: Mapping[str, Any], screen_size: Optional[int] = None
) -> None:
    """
    Overview:
        Write an agent to a file, whole or not at all: weights in safetensors, the card as JSON in its metadata.
    Arguments:
        - path (:obj:`str`): Where to.
        - state_dict (:obj:`Mapping[str, torch.Tensor]`): The network's weights, such as ``model`` of a checkpoint.
        - card (:obj:`Mapping[str, Any]`): What is known about the agent, as ``agent_card`` says; ``{}`` for nothing.
        - screen_size (:obj:`Optional[int]`): Of the screens it was trained on; None for the smallest that fits.
    Raises:
        - OSError: If it can not be written.
        - ValueError: If the weights are not those of a DQN on screens, or the card is no JSON.
    """
    weights = {name: tensor.detach().to('cpu', torch.float32).contiguous() for name, tensor in state_dict.items()}
    size = _screen_size(weights, None if screen_size is None else str(screen_size))
    _network(weights, size)
    metadata = dict(card=json.dumps(card, allow_nan=False), screen_size=str(size))
    write_bytes(path, save(weights, metadata))


def _last_layer(weights: Weights) -> torch.Tensor:
    for name in ('head.A.1.0.weight', 'head.Q.1.0.weight'):  # dueling, plain
        if name in weights:
            return weights[name]
    raise ValueError(_not_a_dqn(weights))


def _not_a_dqn(weights: Weights) -> str:
    return (
        f"its network is not DI-engine's DQN on screens, such as `dqn` or `pixel_dqn`; found {len(weights)} weights "
        f'such as {", ".join(repr(name[:40]) for name in sorted(weights)[:3])}'
    )


def _screen_size(weights: Weights, stated: Optional[str]) -> int:
    """The size that is stated, where the network fits it, or the smallest that it fits."""
    convolution, dense = weights.get('encoder.main.4.weight'), weights.get('encoder.mid.weight')
    if convolution is None or dense is None or dense.ndim != 2 or not convolution.shape[0]:
        raise ValueError(_not_a_dqn(weights))
    side = math.isqrt(dense.shape[1] // convolution.shape[0])
    for kernel, stride in zip(reversed(KERNELS), reversed(STRIDES)):
        side = (side - 1) * stride + kernel
    # a convolution leaves what is less than its stride at the edge unread
    fitting = range(side, side + math.prod(STRIDES))
    if stated is None:
        if side != 84:
            logger.warning(
                'the network fits screens of %d to %d pixels; %d is assumed. If it was trained on another size, '
                'say so to breakout_env.agent.agent.save_agent(screen_size=...)',
                fitting[0],
                fitting[-1],
                side,
            )
        return side
    if not (stated.isascii() and stated.isdigit() and len(stated) < 5 and int(stated) in fitting):
        raise ValueError(
            f'screen_size is {stated[:20]!r}; expected {fitting[0]} to {fitting[-1]}, which its weights fit'
        )
    return int(stated)


def _network(weights: Weights, screen_size: int) -> PixelDQN:
    """The network that has these weights, with them in it."""
    outputs = _last_layer(weights)
    head = 'head.A.0.' if 'head.A.1.0.weight' in weights else 'head.Q.0.'
    if outputs.ndim != 2 or outputs.shape[0] not in ACTION_COUNTS:
        raise ValueError(
            f'its network has {outputs.shape[0] if outputs.ndim else 0} outputs; expected 4, one for each action of '
            'Breakout, or 18 with the full action space. Distributional networks have more, and are no DQNs'
        )
    try:
        convolutions = [weights[f'encoder.main.{index}.weight'] for index in (0, 2, 4)]
        residual_blocks = {name.split('.')[2] for name in weights if name.startswith('encoder.main.')} - set('024')
        sizes = [convolution.shape[0] for convolution in convolutions]
        with torch.device('meta'):  # no memory for what a file claims, and no random numbers drawn
            model = PixelDQN(
                [convolutions[0].shape[1], screen_size, screen_size],
                outputs.shape[0],
                encoder_hidden_size_list=sizes + sizes[-1:] * len(residual_blocks) + [outputs.shape[1]],
                dueling=head == 'head.A.0.',
                head_layer_num=sum(name.startswith(head) and name.endswith('.weight') for name in weights),
            )
    except (LookupError, RuntimeError):  # a weight is missing, or of a shape that no such network has
        raise ValueError(_not_a_dqn(weights)) from None
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if expected != {name: tuple(tensor.shape) for name, tensor in weights.items()}:
        raise ValueError(_not_a_dqn(weights))
    broken = [name for name, tensor in weights.items() if not tensor.isfinite().all()]
    if broken:
        raise ValueError(f'its weights are not all numbers: {broken[0]} holds infinities or NaN')
    # memory of its own: safetensors and checkpoints may lend theirs
    model.load_state_dict({name: tensor.detach().float().clone() for name, tensor in weights.items()}, assign=True)
    return model
