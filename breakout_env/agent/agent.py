"""A trained agent: a file in, actions out.

Beside its weights is its card, a JSON object, all of whose keys are optional:

- ``name`` (str), a short name; ``limits`` (str), what the agent cannot do, and what its figures do not show.
- ``env_steps``, ``updates``, ``seed`` (int), ``hours`` (float), ``commit``, ``config`` (str): the training.
- ``temperature`` (float), for the policy of an actor-critic: games are played with actions drawn from it, its logits
  divided by this; without it they are played with the most probable ones. An agent with Q values has none.
- ``return_scale`` (object), the units of a critic that learned normalised returns: ``policy/return_scale.py``.
- ``scores`` (object): for each protocol of ``evaluation.PROTOCOLS`` what ``evaluation.Report.summary`` gives.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from safetensors.torch import save
from scipy.special import softmax

from ..envs.options import BreakoutOptions
from ..policy.initial_weights import InitialWeights
from ..policy.return_scale import ScaleState
from ..utils.atomic_file import write_bytes
from ..utils.options import Between, Expected, validate
from .network import ENV_OPTIONS, Config, PlayingNetwork, build_network, network_config, network_of_run
from .weights_file import Weights, read_weights

PRETRAINED = Path(__file__).parent.parent / 'pretrained' / 'breakout_ppo.safetensors'
LONGEST_NAME = 60
# See above.
Card = Mapping[str, Any]
_OBJECT = TypeAdapter(dict[str, Any])
_Temperature = Annotated[float, Between(0.01, 100.0)] | None
_ReturnScale = Annotated[ScaleState, Expected('numbers `count`, `mean` and `variance`, as lean_ppo saves them')] | None


class Agent:
    """A network that plays Breakout: screens in, values of the actions out.

    Examples:
        >>> from breakout_env import BreakoutEnv
        >>> agent = load_agent()
        >>> env = BreakoutEnv({**agent.env_options, 'is_train': False})
        >>> env.seed(0)
        >>> agent.act(env.reset()[None]).shape
        (1,)
        >>> env.close()
    """

    def __init__(self, model: PlayingNetwork, card: Card, name: str, config: Config) -> None:
        """The network, its card, a short name for people, and the config of the network, by ``network_config``."""
        self.model, self.config = model, config
        self.card = dict(card)
        self.temperature: float | None = self.card.get('temperature')
        self._rng = np.random.default_rng(0)
        self.name = name
        self.device = next(model.parameters()).device
        # what the network's outputs are: `logits` of a policy, or `q_values`
        self.output_name = model.output_name
        self.frame_skip, self.frame_stack, self.screen_size = (config['env'][each] for each in ENV_OPTIONS[:3])
        self.action_count = BreakoutOptions(**config['env']).model_sizes['action_shape']

    @property
    def env_options(self) -> dict[str, Any]:
        """The options that an environment needs to fit the network."""
        return dict(self.config['env'], obs_dtype='uint8')

    def q_values(self, obs: np.ndarray) -> np.ndarray:
        """The discounted return that the agent expects of each action; of an actor-critic, such as one from
        ``lean_ppo``, the logits of its policy: ``output_name`` says which.

        Shapes:
            obs: :math:`(B, F, S, S)`, uint8, B batch size, F ``frame_stack``, S ``screen_size``.
            q_values: :math:`(B, A)`, float32, A number of actions.
        """
        expected = (self.frame_stack, self.screen_size, self.screen_size)
        if not isinstance(obs, np.ndarray) or obs.dtype != np.uint8 or obs.ndim != 4 or obs.shape[1:] != expected:
            found = f'{obs.dtype} {obs.shape}' if isinstance(obs, np.ndarray) else type(obs).__name__
            raise ValueError(f'the observations are {found}; expected a uint8 array (batch, {str(expected)[1:]}')
        pixels = torch.from_numpy(np.require(obs, requirements=['C', 'W']))
        with torch.inference_mode():
            return self.model(pixels.to(self.device))['logit'].cpu().numpy()

    def act(self, obs: np.ndarray, draws: np.ndarray | None = None) -> np.ndarray:
        """An action for each observation: that of the highest value or, where the card has a ``temperature``, one that
        is drawn from the policy.

        Shapes:
            obs: As in ``q_values``.
            draws: :math:`(B)`, uniform random numbers from 0 to 1, which choose; by default from a generator that
                begins anew with each ``load_agent``.
            actions: :math:`(B)`, their indices.
        """
        values = self.q_values(obs)
        if self.temperature is None:
            return values.argmax(axis=1)
        draws = self._rng.random(len(obs)) if draws is None else draws
        bounds = softmax(values.astype(np.float64) / self.temperature, axis=1).cumsum(axis=1)
        return (bounds[:, :-1] <= np.reshape(draws, (-1, 1))).sum(axis=1)


def choose_actions(agent: Agent, obs: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """``agent.act``, with ``draws`` if it is an agent that draws its actions: others need not know them."""
    return agent.act(obs) if getattr(agent, 'temperature', None) is None else agent.act(obs, draws)


def load_agent(path: str | Path | None = None, device: str = 'cpu') -> Agent:
    """Read an agent from a file. Nothing in the file is run: its network is built as ``network.py`` says.

    Arguments:
        path: A file that ``save_agent`` wrote, which holds all that is needed, or a checkpoint (``ckpt/*.pth.tar``) of
            a run, with the run's ``total_config.py`` in its folder or the one above; None for the agent that comes with
            the package.
        device: Where the network runs, such as ``'cpu'`` or ``'cuda'``.
    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds no agent.
    """
    path = os.fspath(PRETRAINED if path is None else path)
    weights, metadata, _ = read_weights(path)
    card: Card = {}
    config = network_of_run(path) if metadata is None else {}
    try:
        if metadata is not None:
            card, config = _json_object(metadata, 'card'), network_config(_json_object(metadata, 'config'))
        model = _checked_network(config, weights, card)
    except ValueError as error:
        raise ValueError(f'{path} holds no agent that can play: {error}') from None
    # terminals obey control characters, and the name comes from a file that anyone may have written
    name = ''.join(filter(str.isprintable, str(card.get('name') or Path(path).name.split('.')[0])))
    return Agent(model.to(device), card, name[:LONGEST_NAME], config)


def initial_weights(path: str | Path) -> InitialWeights:
    """Read what a training can begin with from an agent's file or a checkpoint: the weights that act, and the units of
    a critic that learned normalised returns. Raises as ``load_agent``.
    """
    weights, metadata, scale = read_weights(path)
    if metadata is not None:
        scale = _json_object(metadata, 'card').get('return_scale')
    return InitialWeights(os.fspath(path), weights, validate(f'{path}:', 'return_scale', scale, _ReturnScale))


def save_agent(
    path: str | Path,
    state_dict: Mapping[str, torch.Tensor],
    card: Card,
    config: Config,
) -> None:
    """Write an agent to a file, completely or not at all: weights in safetensors, with the card and the config as JSON
    in their metadata.

    Arguments:
        state_dict: The network's weights, such as ``model`` of a checkpoint; written in float16 where they are given
            so, else in float32.
        card: What is known about the agent; ``{}`` for nothing.
        config: The merged config of its run, or ``config`` of an agent with the same network; ``network_config`` says
            what is kept.
    Raises:
        ValueError: If ``load_agent`` could not play the network, or the card is not JSON.
    """
    weights = {name: tensor.detach().to('cpu', copy=True).contiguous() for name, tensor in state_dict.items()}
    weights = {name: tensor if tensor.dtype is torch.float16 else tensor.float() for name, tensor in weights.items()}
    kept = network_config(config)
    _checked_network(kept, weights, card)
    metadata = dict(card=json.dumps(card, allow_nan=False), config=json.dumps(kept))
    write_bytes(Path(path), save(weights, metadata))


def _json_object(metadata: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        return _OBJECT.validate_json(metadata[name])
    except KeyError:
        raise ValueError(f'it has no {name} in its metadata; expected one, as `breakout average` writes it') from None
    except ValidationError:
        raise ValueError(f'its {name} is not a JSON object') from None


def _checked_network(config: Config, weights: Weights, card: Card) -> PlayingNetwork:
    """The network of a file; a ValueError, too, if the card has a temperature that does not suit it."""
    temperature = validate('key of the card', 'temperature', card.get('temperature'), _Temperature)
    network = build_network(config, weights)
    if temperature is not None and network.output_name != 'logits':
        raise ValueError(
            f'its temperature is {temperature}, and its network gives Q values, not the logits of a policy; expected '
            'none, or the network of an actor-critic, such as pixel_actor_critic'
        )
    return network
