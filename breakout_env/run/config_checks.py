"""Check a merged config before anything is made of it: a folder, a process, a buffer.

Each part checks its own options: a class in one of DI-engine's registries (environment, env manager, policy, model,
buffer, collector, evaluator, learner hook) may have a classmethod ``check_config(cfg)``, which gets the whole merged
config and raises a ValueError. Ranges of DI-engine's own options, which DI-engine does not check, and names that nobody
knows are found here.
"""

import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from ding.utils import (
    BUFFER_REGISTRY,
    ENV_MANAGER_REGISTRY,
    ENV_REGISTRY,
    MODEL_REGISTRY,
    POLICY_REGISTRY,
    SERIAL_COLLECTOR_REGISTRY,
    SERIAL_EVALUATOR_REGISTRY,
)
from ding.worker.learner.learner_hook import hook_mapping
from easydict import EasyDict

from ..utils.imports import import_parts
from ..utils.options import Between, as_dict, describe, nearest, validate

EXAMPLE = 'as in breakout_dqn_config.py'
HOOKS = 'policy.learn.learner.hook'
# Where a merged config names its parts, and where they are registered.
PARTS = {
    'env': ENV_REGISTRY,
    'env.manager': ENV_MANAGER_REGISTRY,
    'policy.model': MODEL_REGISTRY,  # before the policy, which may build it
    'policy': POLICY_REGISTRY,
    'policy.collect.collector': SERIAL_COLLECTOR_REGISTRY,
    'policy.eval.evaluator': SERIAL_EVALUATOR_REGISTRY,
    'policy.other.replay_buffer': BUFFER_REGISTRY,
}
_Count = Annotated[int, Between(1)]
_Share = Annotated[float, Between(0.0, 1.0)]
# DI-engine's options that recipes set, none of which it checks.
RANGES: dict[str, Any] = {
    'env.collector_env_num': Annotated[int, Between(1, 4096)],
    'env.evaluator_env_num': Annotated[int, Between(1, 4096)],
    'env.n_evaluator_episode': _Count,
    'env.stop_value': Annotated[float, Between(-math.inf)],
    'policy.discount_factor': _Share,
    'policy.nstep': _Count,
    'policy.burnin_step': Annotated[int, Between(0)],
    'policy.learn_unroll_len': _Count,
    'policy.random_collect_size': Annotated[int, Between(0)],
    'policy.learn.update_per_collect': _Count,
    'policy.learn.batch_size': _Count,
    'policy.learn.learning_rate': Annotated[float, Between(0.0, 10.0, above=True)],
    'policy.learn.target_update_freq': _Count | None,  # None: by target_theta
    'policy.learn.target_theta': _Share,
    'policy.learn.target_update_theta': _Share,
    'policy.collect.n_sample': _Count | None,
    'policy.collect.env_num': Annotated[int, Between(1, 4096)],
    'policy.eval.env_num': Annotated[int, Between(1, 4096)],
    'policy.eval.evaluator.eval_freq': _Count,
    'policy.other.eps.start': _Share,
    'policy.other.eps.end': _Share,
    'policy.other.eps.decay': Annotated[int, Between(1, from_float=True)],
    f'{HOOKS}.log_show_after_iter': _Count,
    f'{HOOKS}.save_ckpt_after_iter': _Count,
}
# Options that DI-engine or a policy of its reads without a default.
_WITHOUT_DEFAULT = {'policy.random_collect_size', 'policy.collect.n_sample', 'policy.learn.resume_training'}
_WITHOUT_DEFAULT |= {'policy.collect.n_episode', 'policy.load_path', 'policy.learn.ignore_done'}


def check_config(cfg: EasyDict) -> None:
    """Check a merged config.

    Raises:
        ValueError: If a value is not allowed; the message names the option, the value and what is allowed.
    """
    _check_ranges(cfg)
    parts = {path: as_dict(path, value_at(cfg, path)) for path in PARTS}
    for path, part in parts.items():
        import_parts(f'{path}.import_names', part.get('import_names'))
    for path, part in parts.items():
        if 'type' in part:  # a policy's own model has none
            _check_part(path, part['type'], PARTS[path], cfg)
    for name, hook in as_dict(HOOKS, value_at(cfg, HOOKS)).items():
        if isinstance(hook, Mapping):
            _check_part(f'{HOOKS}.{name}', hook.get('type'), hook_mapping, hook.get('ext_args', {}))


def _check_ranges(cfg: EasyDict) -> None:
    for path, type_ in RANGES.items():
        parent, _, name = path.rpartition('.')
        values = value_at(cfg, parent)
        if isinstance(values, Mapping) and name in values:
            validate('config option', path, values[name], type_)


def _check_part(path: str, type_: object, registry: Mapping[str, type], of: object) -> None:
    """Call the class's ``check_config`` with ``of``: the whole config, or the ``ext_args`` of a hook."""
    if not isinstance(type_, str) or type_ not in registry:
        raise ValueError(f'{path}.type is {describe(type_)}; {nearest(type_, registry.keys())}')
    check = getattr(registry[type_], 'check_config', None)
    if check is not None:
        check(of)


def unknown_names(given: Mapping, known_options: Mapping, model: str | None) -> list[str]:
    """A message for each name in ``given`` that neither DI-engine nor a part reads, with the nearest one that is known.
    Environments of other projects and arguments of hooks are skipped.

    Arguments:
        known_options: The merged config of the same parts without ``given``.
        model: The registered name of the model.
    """
    known = {'policy', 'policy.model', *paths(known_options), *_WITHOUT_DEFAULT}
    arguments = _arguments(dict(MODEL_REGISTRY).get(model))
    known |= {f'policy.model.{name}' for name in (*arguments, 'type', 'import_names')}
    hints = []
    for path in paths(given):
        parent, _, name = path.rpartition('.')
        if path in known or path.split('.')[0] == 'env' or parent.startswith(f'{HOOKS}.'):
            continue
        if parent == HOOKS and isinstance(value_at(given, path), Mapping):  # a hook, whose name is free
            continue
        if parent and parent not in known:  # below an unknown section, the section is named
            continue
        if parent == 'policy.model' and not arguments:
            continue
        siblings = [each.rpartition('.')[2] for each in known if each.rpartition('.')[0] == parent]
        hints.append(f'{path} is unknown; {nearest(name, siblings) if siblings else f"{parent} has no options"}')
    return hints


def _arguments(model: object) -> list[str]:
    """The names of a model's arguments, as far as its constructors declare them; none if one of them takes any."""
    names: list[str] = []
    for base in getattr(model, '__mro__', ()):
        if '__init__' not in vars(base):
            continue
        parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
        names += [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            return names
    return []


def paths(values: Mapping, where: str = '') -> Iterator[str]:
    """The names of all options and sections, with dots between them."""
    for name, value in values.items():
        yield f'{where}{name}'
        if isinstance(value, Mapping):
            yield from paths(value, f'{where}{name}.')


def value_at(values: Any, path: str) -> Any:
    """The value at a path; None if there is none."""
    for name in path.split('.') if path else ():
        values = values.get(name) if isinstance(values, Mapping) else None
    return values
