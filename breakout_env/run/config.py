"""The config of a run: DI-engine's defaults, the values of a config file, and what the command line changes.

A config is a Python program: reading one runs it, as with all of DI-engine's commands, so its author must be trusted;
agents, checkpoints and buffers are data. It is run once and compiled twice: without its policy, to learn which names
are known, and as it is; a third time if the command line changes options. config_checks.py checks the result.
"""

import contextlib
import copy
import logging
import os
import pprint
import re
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

from ding.config import compile_config, read_config
from ding.config import config as ding_config
from ding.config.utils import save_config_formatted
from ding.utils import BUFFER_REGISTRY, SERIAL_COLLECTOR_REGISTRY
from easydict import EasyDict

from ..replay.rollout_buffer import RolloutBuffer
from ..replay.serial_base import SerialBuffer
from ..utils.atomic_file import write_bytes
from ..utils.imports import import_parts
from ..utils.options import ConfigError, as_dict, shortened
from .budget import Budget
from .config_checks import EXAMPLE, check_config, unknown_names, value_at
from .folder import folder_below_here, new_folder
from .paths import MERGED_CONFIG

_log = logging.getLogger(__name__)
# DI-engine's own evaluator forgets the best score when a run is resumed.
_DING_EVALUATOR = 'interaction'
_EXPECTED = f'expected a .py file with main_config and create_config, {EXAMPLE}'
# What to give instead of an option that DI-engine replaces.
_REPLACED = {
    'seed': '--seed',
    'policy.eval.evaluator.n_episode': 'env.n_evaluator_episode',
    'policy.eval.evaluator.stop_value': 'env.stop_value',
}


class ConfigFile(NamedTuple):
    """What a config file declares, before DI-engine's defaults."""

    main: EasyDict
    create: EasyDict
    path: str


def read_config_file(path: str) -> ConfigFile:
    """Run a config file, as DI-engine's ``read_config``; a ConfigError if it fails or does not declare a config.
    What it names in ``import_names`` may be beside it, too.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.append(folder)  # last: no file beside a config hides an installed module
    try:
        found = read_config(path)
    except Exception as error:  # a config is a program, which fails in any way
        if isinstance(error, OSError) and error.filename == os.path.abspath(path):  # DI-engine copies it
            raise
        # DI-engine runs a copy, which it has removed by now
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename.endswith('.py')]
        lines = [each.lineno for each in frames if not os.path.exists(each.filename)]
        problem = f'fails in line {lines[-1]}' if lines else 'is not a config'
        raise ConfigError(f'{path} {problem}: {type(error).__name__}: {error}; {_EXPECTED}') from None
    try:
        defaults = dict(env={}, policy={}, exp_name='default_experiment')  # as DI-engine calls it
        main = EasyDict({**defaults, **as_dict('main_config', found[0])})
        create = EasyDict(as_dict('create_config', found[1]))
        for name in ('env', 'env_manager', 'policy'):
            if not isinstance(value_at(create, f'{name}.type'), str):
                raise ValueError(f'create_config.{name} has no `type`')
        for name, part in create.items():
            if isinstance(part, dict):
                import_parts(f'create_config.{name}.import_names', part.get('import_names'))
    except ValueError as error:
        raise ConfigError(f'{path} is not a config: {error}; {_EXPECTED}') from None
    return ConfigFile(main, create, path)


def merged_config(
    config: str | ConfigFile,
    seed: int,
    budget: Budget,
    resume: str | None = None,
    changes: Mapping[str, object] = {},
) -> EasyDict:
    """The config of a run: DI-engine's defaults, then the file's values, then the changes. Where the file names no hook
    `progress` or `resume` and no evaluator, they are added, so that the run can be resumed. Makes the run's folder;
    ``save_config`` writes the config into it.

    Raises:
        ConfigError: If the config is wrong, all env steps would go into random play, the budget is in games that
            the collector does not count, or a change names no option.
    """
    file = read_config_file(config) if isinstance(config, str) else config
    cfg = checked_config(file, seed, changes)
    collector = cfg.policy.collect.collector.type
    if 'update_per_collect' not in cfg.policy.learn:
        raise ConfigError(
            f'{file.path}: the policy {file.create.policy.type!r} has no `update_per_collect`, as on-policy ones '
            'of DI-engine; expected `ding -m serial_onpolicy` for it, or another policy, such as lean_ppo'
        )
    if budget.episodes is not None and not hasattr(SERIAL_COLLECTOR_REGISTRY[collector], 'games'):
        raise ConfigError(
            f'--episodes is {budget.episodes}, and the collector {collector!r} counts no full games; expected '
            'one whose class has `games`, such as `nstep`, in create_config.collector'
        )
    random_steps = cfg.policy.get('random_collect_size', 0)
    if budget.env_steps is not None and budget.env_steps <= random_steps:
        raise ConfigError(
            f'--env-steps is {budget.env_steps}; expected more than the {random_steps} steps of random play that '
            f'policy.random_collect_size in {file.path} asks for before the first update'
        )
    learn = cfg.policy.learn
    hooks: dict[Any, Any] = {hook.get('type'): hook for hook in learn.learner.hook.values() if isinstance(hook, dict)}
    for name in ('progress', 'resume'):
        if name not in hooks:
            hooks[name] = learn.learner.hook[name] = EasyDict(type=name, name=name, position='before_run')
    limits = dict(max_env_step=budget.env_steps, max_hours=budget.hours)
    limits.update(max_updates=budget.updates, max_games=budget.episodes)
    # without a terminal, our pipelines print lines in place of DI-engine's tables
    given = hooks['progress'].get('ext_args') or {}
    hooks['progress'].ext_args = EasyDict({'print_every_s': 10.0, **given, **limits})
    if not issubclass(BUFFER_REGISTRY[buffer := cfg.policy.other.replay_buffer.type], (SerialBuffer, RolloutBuffer)):
        _log.warning('The buffer %r is not saved with the run: a resumed run begins with an empty one.', buffer)
    if resume is None:
        cfg.exp_name = folder_below_here(cfg.exp_name)
    else:
        cfg.exp_name = os.path.relpath(resume)  # DI-engine takes all names as below the current folder
        learn.resume_training = True
    if learn.get('resume_training', False):
        os.makedirs(cfg.exp_name, exist_ok=True)
    else:
        cfg.exp_name = new_folder(cfg.exp_name)
    return cfg


def collects_rollouts(cfg: EasyDict) -> bool:
    """Whether the policy of a merged config learns from whole rollouts, not from transitions."""
    return getattr(SERIAL_COLLECTOR_REGISTRY[cfg.policy.collect.collector.type], 'collects_rollouts', False)


def save_config(cfg: EasyDict) -> None:
    """The files that DI-engine's ``compile_config`` saves. Not before a run is restored: one that may not be resumed
    keeps its own. DI-engine's formatter, yapf 0.29, needs lib2to3, which the Python 3.12 of Debian and Ubuntu has in a
    separate package.
    """
    with contextlib.suppress(UnicodeError):  # it takes what git prints of changed files for UTF-8
        ding_config.save_project_state(cfg.exp_name)
    text = re.sub(r'(?<=: )inf(?=[,}])', 'float("inf")', pprint.pformat(cfg, sort_dicts=False, width=120))
    write_bytes(os.path.join(cfg.exp_name, MERGED_CONFIG), f'exp_config = {text}\n'.encode())
    save_config_formatted(cfg, os.path.join(cfg.exp_name, f'formatted_{MERGED_CONFIG}'))


def checked_config(config: str | ConfigFile, seed: int, changes: Mapping[str, object] = {}) -> EasyDict:
    """As ``merged_config``, for a process that trains nothing: without a folder, a budget and a run to resume."""
    file = read_config_file(config) if isinstance(config, str) else config
    main, create = copy.deepcopy(file.main), copy.deepcopy(file.create)
    # The name ends in _command because the serial pipelines drive a policy by a commander, which sets epsilon.
    create.policy.type += '_command'
    if create.get('evaluator', {}).get('type', _DING_EVALUATOR) == _DING_EVALUATOR:
        create.evaluator = EasyDict(type='resumable', import_names=['breakout_env'])
    # what the same parts have if the file says nothing about the policy
    defaults = _compiled(file.path, EasyDict(exp_name=main.exp_name, env=main.env, policy={}), create, seed)
    for hint in unknown_names(main, defaults, value_at(main, 'policy.model.type')):
        _log.warning('%s: %s', file.path, hint)
    merged = _compiled(file.path, main, create, seed)
    if changes:
        for path, value in changes.items():
            _change(main, merged, path, value)
        merged = _compiled(file.path, main, create, seed)
    try:
        check_config(merged)
    except ValueError as error:
        raise ConfigError(f'{file.path}: {error}') from None
    learn = merged.policy.learn
    if learn.get('target_update_freq', 0) is None:
        learn.pop('target_update_freq')  # DI-engine asks only whether it is there
    elif learn.get('target_update_freq') and value_at(main, 'policy.learn.target_theta') is not None:
        raise ConfigError(
            f'{file.path}: policy.learn.target_theta has no effect beside target_update_freq; expected '
            'policy.learn.target_update_freq=None'
        )
    return merged


def _compiled(path: str, main: EasyDict, create: EasyDict, seed: int) -> EasyDict:
    """DI-engine's ``compile_config``; it copies both."""
    try:
        return compile_config(main, seed=seed, auto=True, create_cfg=create, save_cfg=False)
    except Exception as error:
        raise ConfigError(
            f'{path} cannot be merged with the defaults of DI-engine ({type(error).__name__}: {error}); expected parts '
            f'that are registered, and their sections, {EXAMPLE}'
        ) from None


def _change(main: EasyDict, merged: EasyDict, path: str, value: object) -> None:
    """Set an option, as ``'policy.learn.learning_rate'``; ``merged`` supplies the current value and the known names."""
    *sections, name = path.split('.')
    if path in _REPLACED:
        raise ConfigError(f'--set {path}={value} has no effect; expected {_REPLACED[path]}')
    given: dict[str, object] = {name: value}
    for part in reversed(sections):
        given = {part: given}
    for hint in unknown_names(given, merged, value_at(merged, 'policy.model.type')):
        raise ConfigError(hint)
    before = value_at(merged, path)
    if isinstance(before, dict) and not isinstance(value, dict):
        raise ConfigError(f'{path} is a section of the config; expected one of its options: {", ".join(before)}')
    if not _is_like(before, value):
        raise ConfigError(f'{path} is {shortened(value)}; expected a value like {before!r}, the one it replaces')
    for part in sections:
        main = main.setdefault(part, EasyDict())
    main[name] = value


def _is_like(before: object, value: object) -> bool:
    """Whether a value can replace another, as far as its type tells: DI-engine checks few of them."""
    if isinstance(before, bool):
        return isinstance(value, bool)
    if isinstance(before, (int, float)):
        return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and value == value)
    return True
