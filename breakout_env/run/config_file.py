"""
A config file as it is found, and a sentence where it can not be trained from.

A config is a Python program: reading one runs it, as with all of DI-engine's commands. So it is to come from people one
trusts; agents, checkpoints and buffers need not. What is checked here is what our parts and pipelines read; DI-engine's
other options are DI-engine's to check.
"""

from typing import Any, Dict, Mapping, Tuple

import click
from ding.config import compile_config, read_config
from easydict import EasyDict

from ..env_manager.options import read_options as read_manager_options
from ..envs.env import BreakoutEnv
from ..envs.pixel_check import SCALING_MODELS
from ..policy.lean_dqn import OPTION_CHECKS as LEAN_DQN_CHECKS
from ..policy.pixel_models import check_shapes
from ..replay.options import ReplayOptions
from ..replay.torchrl.options import TorchRLOptions
from ..utils import option_checks
from .progress import check_options as check_progress_options
from .saver import check_options as check_resume_options

EXAMPLE = 'as in breakout_dqn_config.py'
# What a config has to say about its parts, in create_config.
_PARTS = ('env', 'env_manager', 'policy')
# What the pipelines of entry/ read themselves, below `policy`; of what DI-engine defaults to None, one may, too.
PIPELINE_OPTIONS: Dict[str, option_checks.Check] = {
    'cuda': option_checks.true_or_false,
    'priority': option_checks.true_or_false,
    'random_collect_size': option_checks.whole_number(0, 10**12),
    'learn.update_per_collect': option_checks.whole_number(1, 10**6),
    'learn.batch_size': option_checks.whole_number(1, 10**6),
    'learn.resume_training': option_checks.true_or_false,
    'collect.n_sample': option_checks.whole_number(1, 10**7, or_none=True),
}
_HOOK_OPTIONS = dict(progress=check_progress_options, resume=check_resume_options)


def read_config_file(path: str) -> Tuple[EasyDict, EasyDict]:
    """
    Overview:
        As DI-engine's ``read_config``.
    Arguments:
        - path (:obj:`str`): The file; it is run.
    Returns:
        - main_config, create_config (:obj:`Tuple[EasyDict, EasyDict]`): What it declares.
    Raises:
        - click.ClickException: If it fails, or does not declare these with what each has to have.
    """
    try:
        found = read_config(path)
    except Exception as error:  # a config is a program: it can fail in any way, and that is the user's to mend
        reason = f'{type(error).__name__}: {error}'[:500]
        raise click.ClickException(
            f'{path} is no config: {reason}; expected a .py file with main_config and create_config, {EXAMPLE}'
        ) from None
    try:
        main, create = (_plain(name, value) for name, value in zip(('main_config', 'create_config'), found))
        for name in ('env', 'policy'):
            option_checks.section(f'main_config.{name}', main.setdefault(name, {}))
        for name in _PARTS:
            part = option_checks.section(f'create_config.{name}', create.get(name))
            if not isinstance(part.get('type'), str):
                raise ValueError(
                    f'create_config.{name} is {option_checks.shown(part)}; expected a dict with its `type`, {EXAMPLE}'
                )
    except ValueError as error:
        raise click.ClickException(f'{path} is no config: {error}') from None
    return EasyDict(main), EasyDict(create)


def merge(path: str, cfg: EasyDict, create_cfg: EasyDict, **options: Any) -> EasyDict:
    """
    Overview:
        As DI-engine's ``compile_config``.
    Arguments:
        - path (:obj:`str`): The file that they are from.
        - cfg, create_cfg (:obj:`EasyDict`): From ``read_config_file``.
        - options (:obj:`Any`): As the original's.
    Raises:
        - click.ClickException: If they do not go together with DI-engine's defaults.
    """
    try:
        return compile_config(cfg, auto=True, create_cfg=create_cfg, **options)
    except OSError:  # the disk
        raise
    except Exception as error:
        raise click.ClickException(
            f'{path} can not be merged with the defaults of DI-engine ({type(error).__name__}: '
            f'{option_checks.shortened(str(error))}); expected parts that are registered, and their sections, {EXAMPLE}'
        ) from None


def check_config(path: str, merged: EasyDict) -> None:
    """
    Overview:
        Look at all that is ours, before anything is made of it: a folder, a process, a buffer.
    Arguments:
        - path (:obj:`str`): The file that it is from.
        - merged (:obj:`EasyDict`): The config, with DI-engine's defaults.
    Raises:
        - click.UsageError: With the option, what was found and what is expected.
    """
    try:
        _check_types(merged)
        _check_pipeline(merged)
        _check_env(merged)
        _check_replay(merged.policy.other)
        model = option_checks.section('policy.model', merged.policy.get('model'))
        if model.get('type') in SCALING_MODELS:
            check_shapes(model.get('obs_shape'), model.get('action_shape'), model.get('encoder_hidden_size_list'))
    except ValueError as error:
        raise click.UsageError(f'{path}: {error}') from None


def _check_types(section: Mapping, where: str = '') -> None:
    """Every part is chosen by a string, and found in modules that strings name."""
    for name, value in section.items():
        if name == 'type' and not isinstance(value, str):
            raise ValueError(f'{where}type is {option_checks.shown(value)}; expected the name of a part')
        if name == 'import_names' and not (
            isinstance(value, list) and all(isinstance(module, str) and module for module in value)
        ):
            raise ValueError(f'{where}import_names is {option_checks.shown(value)}; expected a list of modules')
        if isinstance(value, Mapping):
            _check_types(value, f'{where}{name}.')


def _check_pipeline(merged: EasyDict) -> None:
    policy = merged.policy
    for name in ('learn', 'learn.learner', 'learn.learner.hook', 'collect', 'eval', 'other'):
        section = policy
        for part in name.split('.'):
            section = section.get(part)
            if section is None:  # where DI-engine has a default, it is there
                raise ValueError(f'policy.{name} is None; expected a dict of options, or none of it')
        option_checks.section(f'policy.{name}', section)
    for path, check in PIPELINE_OPTIONS.items():
        section, _, name = path.rpartition('.')
        values = policy[section] if section else policy
        if name in values:
            option_checks.checked('config option', f'policy.{path}', values[name], check)
    if policy.type.startswith('lean_dqn'):
        for name, check in LEAN_DQN_CHECKS.items():
            option_checks.checked('config option', f'policy.learn.{name}', policy.learn[name], check)
    for name, hook in option_checks.section('policy.learn.learner.hook', policy.learn.learner.hook).items():
        if isinstance(hook, Mapping) and hook.get('type') in _HOOK_OPTIONS:
            _HOOK_OPTIONS[hook['type']](hook.get('ext_args', {}))
        elif name in _HOOK_OPTIONS and hook is not None:
            raise ValueError(
                f'policy.learn.learner.hook.{name} is {option_checks.shown(hook)}; expected a dict with its `type`, '
                f'{EXAMPLE}'
            )


def _check_env(merged: EasyDict) -> None:
    if merged.env.get('type') == 'breakout':
        BreakoutEnv.create_collector_env_cfg(merged.env)
        BreakoutEnv.create_evaluator_env_cfg(merged.env)
    manager = option_checks.section('env.manager', merged.env.get('manager'))
    if manager.get('type') in ('breakout', 'breakout_v2'):
        read_manager_options(manager)


def _check_replay(other: Mapping) -> None:
    replay = option_checks.section('policy.other.replay_buffer', other.get('replay_buffer'))
    if replay.get('type') == 'frame':
        ReplayOptions.from_config(replay)
    elif replay.get('type') == 'torchrl':
        TorchRLOptions.from_config(replay)


def _plain(name: str, value: Any) -> Dict[str, Any]:
    """A dict of dicts; its names are such that an ``EasyDict`` of it still works."""
    found = option_checks.section(name, value)
    for key, inner in found.items():
        if not isinstance(key, str) or not key.isidentifier() or hasattr(EasyDict, key):
            raise ValueError(f'{name} has an option {option_checks.shown(key)}; expected the name of an option')
        if isinstance(inner, Mapping):
            found[key] = _plain(f'{name}.{key}', inner)
    return found
