"""The config of a run: DI-engine's defaults, the file's values, and what the command line changes."""

import os
from typing import Any, Mapping, Optional, Tuple

import click
from easydict import EasyDict

from ..utils import option_checks
from .budget import Budget
from .config_file import check_config, merge, read_config_file
from .folder import folder_below_here, new_folder


def merged_config(
    config: str, seed: int, budget: Budget, resume: Optional[str] = None, changes: Mapping[str, Any] = {}
) -> EasyDict:
    """
    Overview:
        DI-engine's defaults, then the config's values, then the changes.
    Arguments:
        - config, seed, budget, resume, changes: As in ``train``.
    Returns:
        - cfg (:obj:`EasyDict`): What all parts are built from.
    Raises:
        - click.ClickException: If the config will not do, all env steps would go into random play, a change names \
            nothing that is there, or the config has no hook to resume with.
    """
    cfg, create_cfg = _changed_config(config, changes)
    check_config(config, merge(config, cfg, create_cfg, save_cfg=False))
    random_steps = cfg.policy.get('random_collect_size', 0)
    if budget.env_steps is not None and budget.env_steps <= random_steps:
        raise click.UsageError(
            f'--env-step is {budget.env_steps}; expected more than the {random_steps} steps of random play that '
            f'policy.random_collect_size in {config} asks for before the first update'
        )
    learn = cfg.policy.setdefault('learn', EasyDict())
    hooks = learn.setdefault('learner', EasyDict()).setdefault('hook', EasyDict())
    named = {hook.get('type'): hook for hook in hooks.values() if isinstance(hook, dict)}
    if 'progress' not in named:
        named['progress'] = hooks.progress = EasyDict(type='progress', name='progress', position='before_run')
    told = dict(max_env_step=budget.env_steps, max_hours=budget.hours)
    named['progress'].ext_args = EasyDict({**(named['progress'].get('ext_args') or {}), **told})
    if resume is not None:
        if 'resume' not in named:
            raise click.UsageError(
                f'--resume: {config} has no hook that could; expected one of type `resume` in '
                'policy.learn.learner.hook, as in breakout_dqn_config.py'
            )
        cfg.exp_name = os.path.relpath(resume)  # DI-engine takes all names as below the current folder
        learn.resume_training = True
    else:
        cfg.exp_name = folder_below_here(cfg.exp_name)
    if not learn.get('resume_training', False):
        cfg.exp_name = new_folder(cfg.exp_name)
    return merge(config, cfg, create_cfg, seed=seed, save_cfg=True, renew_dir=False)


def config_of_node(config: str, seed: int, changes: Mapping[str, Any] = {}) -> EasyDict:
    """
    Overview:
        The same for a process that serves a learner: it has no folder, and no end of its own.
    Arguments:
        - config, seed, changes: As in ``train``.
    Returns:
        - cfg (:obj:`EasyDict`): What all parts are built from.
    Raises:
        - click.ClickException: If the config will not do, or a change names nothing that is there.
    """
    cfg, create_cfg = _changed_config(config, changes)
    merged = merge(config, cfg, create_cfg, seed=seed, save_cfg=False)
    check_config(config, merged)
    return merged


def _changed_config(config: str, changes: Mapping[str, Any]) -> Tuple[EasyDict, EasyDict]:
    cfg, create_cfg = read_config_file(config)
    cfg.setdefault('exp_name', 'default_experiment')  # DI-engine's own default
    merged = merge(config, cfg, create_cfg, save_cfg=False)
    for path, value in changes.items():
        change(cfg, merged, path, value)
    # The name ends in _command because the serial pipelines drive a policy by a commander, which sets epsilon.
    create_cfg.policy.type += '_command'
    return cfg, create_cfg


def change(cfg: EasyDict, merged: EasyDict, path: str, value: Any) -> None:
    """
    Overview:
        Set one value of a config.
    Arguments:
        - cfg (:obj:`EasyDict`): The config.
        - merged (:obj:`EasyDict`): DI-engine's defaults with the config's values.
        - path (:obj:`str`): Where, such as ``'policy.learn.learning_rate'``.
        - value (:obj:`Any`): What it is to be.
    Raises:
        - click.UsageError: If the section is not there, or the value can not take the place of the one that is.
    """
    *sections, name = path.split('.')
    for i, section in enumerate(sections):
        if not isinstance(merged.get(section), dict):
            there = ', '.join(key for key, value in merged.items() if isinstance(value, dict))
            raise click.UsageError(
                f'{path}: there is no section {".".join(sections[: i + 1])} in the config; expected one of {there}'
            )
        merged, cfg = merged[section], cfg.setdefault(section, EasyDict())
    before = merged.get(name)
    is_a_hook = path.startswith('policy.learn.learner.hook.')  # which None takes away
    if isinstance(before, dict) and not isinstance(value, dict) and not (value is None and is_a_hook):
        raise click.UsageError(f'{path} is a section of the config; expected one of its options: {", ".join(before)}')
    if not _is_like(before, value) or hasattr(EasyDict, name):
        raise click.UsageError(
            f'{path} is {option_checks.shortened(value)}; expected a value like {before!r}, which it is without'
        )
    # most are typing errors; the environment and the model look at theirs themselves
    if name not in merged and not path.startswith(('env.', 'policy.model.')):
        click.echo(f'{path} is set, but neither the config nor DI-engine knows such an option.', err=True)
    cfg[name] = value


def _is_like(before: Any, value: Any) -> bool:
    """Whether a value can take the place of one of a kind that shows: DI-engine does not look at most of them."""
    if isinstance(before, bool):
        return isinstance(value, bool)
    if isinstance(before, (int, float)):
        return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and value == value)
    return True
