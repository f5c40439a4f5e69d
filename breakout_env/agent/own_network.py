"""
Networks that their weights alone do not describe, such as one of the user's own: rebuilt as the run's config says.

``total_config.py`` beside a run's checkpoints is read as data, nothing in it is run. The network's class is DI-engine's
or this package's, or in a module of ``policy.model.import_names``, which has to be installed or on PYTHONPATH: a file
from elsewhere cannot bring code along.
"""

import ast
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

import torch
from ding.model import create_model
from easydict import EasyDict

from ..envs.options import BreakoutOptions
from ..run.config_checks import value_at
from ..run.paths import MERGED_CONFIG
from ..utils.options import shortened

# Screens in an observation, their width, and actions.
Sizes = Tuple[int, int, int]
# `agent.py` rebuilds these from their weights; a config without a type has its policy's own.
FROM_WEIGHTS = (None, 'dqn', 'pixel_dqn', 'pixel_actor_critic')


class RegisteredNetwork(torch.nn.Module):
    """A network from DI-engine's registry, with the interface of ``PixelDQN``."""

    def __init__(self, network: torch.nn.Module, takes_scaled: bool, arguments: Mapping[str, Any]) -> None:
        """The network, whether it takes pixels scaled to [0, 1], and further arguments of its ``forward``."""
        super().__init__()
        self.network, self._takes_scaled, self._arguments = network, takes_scaled, dict(arguments)

    def forward(self, pixels: torch.Tensor) -> Dict[str, torch.Tensor]:
        """
        Shapes:
            - pixels: :math:`(B, F, S, S)`, uint8.
            - logit: :math:`(B, A)`, the values or logits of A actions.
        """
        obs = pixels.float() / 255 if self._takes_scaled else pixels
        return dict(logit=self.network(obs, **self._arguments)['logit'].float())


def config_beside(path: Path) -> Tuple[Path, Optional[Dict[str, Any]]]:
    """The merged config of a file's run, and the file that it is in; None if there is none."""
    for folder in Path(os.path.abspath(path)).parents[:2]:
        try:
            text = (folder / MERGED_CONFIG).read_text('utf-8').replace('float("inf")', '1e999')
            return folder / MERGED_CONFIG, ast.literal_eval(text.partition('=')[2].strip())
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):  # none, or no data
            continue
    return path, None


def registered_network(
    file: Path, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> Tuple[RegisteredNetwork, Sizes]:
    """
    Overview:
        Build the network that the config of a run names, with these weights in it.
    Returns:
        - network (:obj:`RegisteredNetwork`): The network, which has been tried on an observation.
        - sizes (:obj:`Sizes`): What the evaluator's environments give and take.
    Raises:
        - ValueError: If it cannot be built, has other weights, or gives no value for each action.
    """
    model = config['policy']['model']
    what = f'its network is {model["type"]!r} of {file}'
    try:
        names = BreakoutOptions.model_fields.keys() | {'env_id', 'collector', 'evaluator'}
        env = {name: value for name, value in config['env'].items() if name in names}  # a subclass may have more
        options = BreakoutOptions.from_config({**env, 'is_train': False})
        network = create_model(EasyDict(model))
    except ModuleNotFoundError as error:
        raise ValueError(f'{what}, and there is {error}; expected it on PYTHONPATH (here: PYTHONPATH=.)') from None
    except Exception as error:  # the user's code
        raise ValueError(f'{what}, which cannot be built: {type(error).__name__}: {shortened(str(error))}') from None
    expected = {name: tensor.shape for name, tensor in network.state_dict().items() if not name.startswith('critic.')}
    if expected != {name: tensor.shape for name, tensor in weights.items()}:
        raise ValueError(f'{what}, which has other weights now')
    network.load_state_dict(dict(weights), strict=False)
    arguments = dict(mode='compute_actor') if value_at(config, 'policy.on_policy') else {}
    adapted = RegisteredNetwork(network.eval(), options.obs_dtype != 'uint8', arguments)
    sizes = options.model_sizes
    try:
        with torch.inference_mode():
            found: Any = tuple(adapted(torch.zeros(1, *sizes['obs_shape'], dtype=torch.uint8))['logit'].shape)
    except Exception as error:  # the user's code
        found = f'{type(error).__name__}: {shortened(str(error))}'
    if found != (1, sizes['action_shape']):
        raise ValueError(
            f'{what}, which gives {found}; expected a dict with `logit`, of shape (batch, {sizes["action_shape"]}). '
            '`ding -m eval` plays any network'
        )
    return adapted, (options.frame_stack, options.screen_size, sizes['action_shape'])
