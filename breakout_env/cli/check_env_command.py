"""``breakout check-env``: what an environment leaks, and how it stands reuse and close."""

import copy
import importlib
import inspect
import json
import os
import sys
from typing import Any, Callable, Optional

import click
from ding.config import Config
from ding.utils import deep_merge_dicts
from easydict import EasyDict

from ..testing import check_lifecycle


@click.command()
@click.argument('env', metavar='PACKAGE.MODULE:CLASS')
@click.option('--config', type=click.Path(exists=True, dir_okay=False), help='A config: its env is what CLASS gets.')
@click.option('--json', 'as_json', is_flag=True, help='For programs: a list of checks, states, findings and fixes.')
def command(env: str, config: Optional[str], as_json: bool) -> None:
    """
    Check how an environment of DI-engine's interface is reset, reused and closed.

    Any environment, also of another project. Without --config, CLASS is called without arguments, or with an empty
    config. The checks and what to do where they fail are in docs/lifecycle.md. Exit code 1 if a check fails.

    \b
    Examples:
      breakout check-env breakout_env:BreakoutEnv
      breakout check-env my_project.envs:MyEnv --config my_config.py --json
    """
    report = check_lifecycle(_factory(env, config))
    click.echo(json.dumps([finding._asdict() for finding in report], indent=2) if as_json else str(report))
    sys.exit(not report.passed)


def _factory(name: str, config: Optional[str]) -> Callable[[], Any]:
    """A function that makes the environment, as a collector gets it."""
    sys.path.insert(0, os.getcwd())
    try:
        module, _, attribute = name.partition(':')
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.UsageError(f'{name} cannot be imported: {error}; expected PACKAGE.MODULE:CLASS') from None
    try:
        if config is not None:  # as `breakout train`: what it imports may be beside it
            sys.path.append(os.path.dirname(os.path.abspath(config)))
        cfg = EasyDict({} if config is None else Config.file_to_dict(config).cfg_dict['main_config']['env'])
    except Exception as error:  # a config is a program, which fails in any way
        reason = f'{type(error).__name__}: {error}'
        raise click.UsageError(f'{config} is no config: {reason}; expected a .py file with main_config') from None
    defaults = cls.default_config() if hasattr(cls, 'default_config') else {}
    cfg = EasyDict(deep_merge_dicts(defaults, cfg))  # as DI-engine's compile_config
    if 'collector_env_num' in cfg and hasattr(cls, 'create_collector_env_cfg'):
        try:
            cfg = cls.create_collector_env_cfg(copy.deepcopy(cfg))[0]
        except (ValueError, OSError) as error:
            raise click.UsageError(f'--config: {error}') from None
    try:
        inspect.signature(cls).bind()
    except TypeError:
        return lambda: cls(copy.deepcopy(cfg))
    return lambda: cls(copy.deepcopy(cfg)) if cfg else cls()
