"""The network of an agent, built as a config says: the config in the agent's file, or the merged config of the run that
a checkpoint belongs to.

Configs are read as data: nothing in them is run. The network's class is DI-engine's, this package's, or in a module
that ``policy.model.import_names`` names, which has to be installed or on PYTHONPATH: a file cannot bring code along.
"""

import ast
import contextlib
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY
from easydict import EasyDict

from ..envs.env import BreakoutEnv
from ..envs.options import BreakoutOptions
from ..envs.pixel_check import check_pixels, fill_in_sizes
from ..policy.initial_weights import shape_difference
from ..run.paths import MERGED_CONFIG
from ..utils.imports import import_parts
from ..utils.options import as_dict, describe, shortened
from .weights_file import Weights

# A merged config of a run, or the part of one that an agent's file keeps.
Config = Mapping[str, Any]

# The options of ``env`` that make a network's screens and actions.
ENV_OPTIONS = ('frame_skip', 'frame_stack', 'screen_size', 'full_action_space', 'obs_dtype')


class PlayingNetwork(torch.nn.Module):
    """A network from DI-engine's registry that takes uint8 pixels, whatever it was trained on."""

    def __init__(self, network: torch.nn.Module, config: Config) -> None:
        """Put a network into evaluation mode and pass an observation through it; a ValueError if it does not give a
        number for each action. ``config`` is that of ``network_config``.
        """
        super().__init__()
        self.network = network
        self.eval()
        on_policy, self._takes_scaled = config['policy']['on_policy'], config['env']['obs_dtype'] != 'uint8'
        self._arguments = dict(mode='compute_actor') if on_policy else {}
        sizes = BreakoutOptions(**config['env']).model_sizes
        outputs: Mapping = {}
        try:
            with torch.inference_mode(), warnings.catch_warnings():
                warnings.simplefilter('ignore')  # about an observation that the network then refuses
                outputs = self._outputs(torch.zeros(1, *sizes['obs_shape'], dtype=torch.uint8))
                found: Any = tuple(outputs['logit'].shape)
        except Exception as error:  # the user's code
            found = f'{type(error).__name__}: {shortened(str(error))}'
        if found != (1, sizes['action_shape']):
            raise ValueError(
                f'gives {found}; expected a dict with `logit`, of shape (batch, {sizes["action_shape"]}). '
                '`ding -m eval` plays any network'
            )
        # What the numbers are: the logits of a policy, beside which a critic gives a value, or Q values.
        self.output_name = 'logits' if on_policy or 'value' in outputs else 'q_values'

    def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        """``logit``, the logits or Q values of the actions, for uint8 pixels."""
        return dict(logit=self._outputs(pixels)['logit'].float())

    def _outputs(self, pixels: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return self.network(pixels.float() / 255 if self._takes_scaled else pixels, **self._arguments)


def network_of_run(checkpoint: str | Path) -> Config:
    """``network_config`` of the run that a checkpoint belongs to, as its merged config says, which is in the folder of
    the checkpoint or the one above. A link belongs to the run of its target. Raises ValueError if there is no config,
    if it is not data, or if this package cannot play the network.
    """
    places = dict.fromkeys([os.path.realpath(checkpoint), os.path.abspath(checkpoint)])
    files = [folder / MERGED_CONFIG for place in places for folder in Path(place).parents[:2]]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise ValueError(
            f"{checkpoint} is a checkpoint without its run's {MERGED_CONFIG}, which says what network it is; expected "
            'that file in the same folder or the one above. Copy it there, or make an agent that needs no other file: '
            'breakout average RUN -o FILE'
        )
    try:
        text = file.read_text('utf-8').replace('float("inf")', '1e999')
        config = as_dict('exp_config', ast.literal_eval(text.partition('=')[2].strip()))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        reason = f'{type(error).__name__}: {shortened(str(error))}'
        raise ValueError(
            f'{file} cannot be read as data ({reason}); expected `exp_config = {{...}}`, as a training writes it'
        ) from None
    try:
        return network_config(config)
    except ValueError as error:
        raise ValueError(f'{checkpoint} holds no agent that can play, by {file}: {error}') from None


def network_config(config: Config) -> Config:
    """The part of a merged config that an agent's file keeps: ``env`` with ``ENV_OPTIONS``, as an evaluator has them,
    and ``policy`` with ``on_policy`` and a ``model`` whose type and sizes are filled in. Raises ValueError if this
    package cannot play the network, as far as that is known without building it.
    """
    env, policy = as_dict('env', config.get('env')), as_dict('policy', config.get('policy'))
    if 'burnin_step' in policy:
        raise ValueError(
            'its network is recurrent (policy.burnin_step) and needs the hidden state of its game; expected one that '
            'acts on an observation alone. `ding -m eval` plays any network'
        )
    known = BreakoutOptions.model_fields.keys() | {'env_id'}  # the environment may be a subclass that has more
    parts = env, as_dict('env.evaluator', env.get('evaluator'))
    given, of_evaluator = ({name: part[name] for name in part if name in known} for part in parts)
    options = BreakoutOptions.from_config({**given, 'evaluator': of_evaluator, 'is_train': False})
    model = as_dict('policy.model', policy.get('model'))
    if wrong := [name for name in model if not isinstance(name, str) or hasattr(EasyDict, name)]:
        raise ValueError(f'policy.model has an option {describe(wrong[0])}; expected the name of an option')
    if 'type' not in model:
        model.update(_default_model(policy.get('type')))
    import_parts('policy.model.import_names', model.get('import_names'))
    if not isinstance(model['type'], str) or model['type'] not in MODEL_REGISTRY:
        raise ValueError(
            f'its network is {describe(model["type"])}, which no module of policy.model.import_names registers'
        )
    fitted = EasyDict(
        env={name: getattr(options, name) for name in ENV_OPTIONS},
        policy=dict(type=policy.get('type'), model=model, other={}),
    )
    env = BreakoutEnv(fitted.env)  # opens nothing
    fill_in_sizes(fitted.policy, env)
    check_pixels(fitted.policy, 'evaluator', env)
    on_policy = bool(policy.get('on_policy', False))
    return dict(env=dict(fitted.env), policy=dict(on_policy=on_policy, model=dict(fitted.policy.model)))


def _default_model(policy: object) -> dict[str, object]:
    """The model of a policy whose config names none."""
    if not isinstance(policy, str) or policy not in POLICY_REGISTRY:
        raise ValueError(
            f'policy.model has no `type`, and policy.type is {describe(policy)}; expected a registered one'
        )
    cls = POLICY_REGISTRY[policy]
    name, modules = cls.default_model(cls.__new__(cls))
    return dict(type=name, import_names=modules)


def build_network(config: Config, weights: Weights) -> PlayingNetwork:
    """Build the network of a ``network_config`` with these weights in it. No random numbers are used up. Raises
    ValueError if it cannot be built, has other weights, or gives no number for each action.
    """
    arguments = dict(config['policy']['model'])
    name, _ = arguments.pop('type'), arguments.pop('import_names', None)
    what = f'its network is {describe(name)}, which'

    def built() -> torch.nn.Module:
        return MODEL_REGISTRY[name](**EasyDict(arguments))  # `create_model` prints a hint beside an error

    with torch.random.fork_rng(devices=[]):
        claimed = None
        with contextlib.suppress(Exception), torch.device('meta'):  # a constructor that reads values cannot run there
            claimed = built()
        if claimed is not None:  # the sizes that a file claims have taken no memory yet
            _check_weights(what, claimed, weights)
        try:
            network = built()
        except Exception as error:  # the user's code, or arguments that it does not take
            raise ValueError(f'{what} cannot be built: {type(error).__name__}: {shortened(str(error))}') from None
        _check_weights(what, network, weights)
        network.load_state_dict(dict(weights))
        try:
            return PlayingNetwork(network, config)
        except ValueError as error:
            raise ValueError(f'{what} {error}') from None


def _check_weights(what: str, network: torch.nn.Module, weights: Weights) -> None:
    if wrong := shape_difference(weights, network.state_dict()):
        raise ValueError(f'{what} has other weights: {wrong}')
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise ValueError(f'its weight {name} holds infinities or NaN')
