"""``breakout check-env``: what an environment leaks, and how it stands reuse and close."""

import contextlib
import copy
import functools
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from .program import Program


@click.command('check-env', cls=Program)
@click.argument('env', metavar='ENV')
@click.option('--gymnasium', 'by_gymnasium', is_flag=True, help='ENV is an ID, or a class, of gymnasium.')
@click.option('--config', type=click.Path(exists=True, dir_okay=False), help='A config: its env is what CLASS gets.')
@click.option('--json', 'as_json', is_flag=True, help='For programs: a list of checks, states, findings and fixes.')
def command(env: str, by_gymnasium: bool, config: str | None, as_json: bool) -> None:
    """Check how an environment of DI-engine's or gymnasium's interface is reset, reused and closed.

    ENV is PACKAGE.MODULE:CLASS, also of another project; CLASS may be a function that makes it. It gets the config as
    DI-engine passes it, by cfg=. Without --config, it is called without arguments, or with its default config. Each
    finding says how to fix it. Exit code 1 if a check fails.

    With --gymnasium, ENV is an ID for gymnasium.make, or PACKAGE.MODULE:CLASS; gymnasium:PACKAGE.MODULE:CLASS means the
    same.

    \b
    Examples:
      breakout check-env breakout_env:BreakoutEnv
      breakout check-env my_project.envs:MyEnv --config my_config.py --json
      breakout check-env --gymnasium CartPole-v1
      breakout check-env --gymnasium my_project.envs:MyGymnasiumEnv
    """
    from breakout_env.testing import check_lifecycle

    sys.path.insert(0, os.getcwd())
    if by_gymnasium or env.startswith('gymnasium:'):
        if config is not None:
            raise click.UsageError(f"--config {config} is for DI-engine's environments; expected none for gymnasium's")
        report = check_lifecycle(_gymnasium_factory(env.removeprefix('gymnasium:')))
    else:
        report = check_lifecycle(_factory(env, config))
    click.echo(json.dumps([finding._asdict() for finding in report], indent=2) if as_json else str(report))
    if not report.passed:
        sys.exit(1)


def _gymnasium_factory(name: str) -> Callable[[], Any]:
    """A function that makes the environment of an ID or a class; an ID may name a module, too, as `ale_py:ALE/...`."""
    import gymnasium

    from breakout_env.testing import gymnasium_env

    module, _, attribute = name.rpartition(':')
    with _usage_error(f'{name} cannot be imported', 'expected an ID of gymnasium, or PACKAGE.MODULE:CLASS'):
        make = getattr(importlib.import_module(module), attribute, None) if module else None
        if make is None:
            gymnasium.spec(attribute)  # raises if nobody registered it
            make = functools.partial(gymnasium.make, name)
    return gymnasium_env(make)


def _factory(name: str, config: str | None) -> Callable[[], Any]:
    """A function that makes the environment, as a collector gets it."""
    from ding.config import Config
    from ding.utils import deep_merge_dicts
    from easydict import EasyDict

    with _usage_error(f'{name} cannot be imported', 'expected PACKAGE.MODULE:CLASS'):
        module, _, attribute = name.partition(':')
        cls = getattr(importlib.import_module(module), attribute)
    with _usage_error(f'{config} is not a config', 'expected a .py file with main_config, which has env'):
        if config is not None:  # as `breakout train`: what it imports may be beside it
            sys.path.append(os.path.dirname(os.path.abspath(config)))
        cfg = EasyDict({} if config is None else Config.file_to_dict(config).cfg_dict['main_config']['env'])
    with _usage_error(f'{name} does not take its config', 'expected another --config'):
        defaults = cls.default_config() if hasattr(cls, 'default_config') else {}
        cfg = EasyDict(deep_merge_dicts(defaults, cfg))  # as DI-engine's compile_config
        if 'collector_env_num' in cfg and hasattr(cls, 'create_collector_env_cfg'):
            cfg = cls.create_collector_env_cfg(copy.deepcopy(cfg))[0]
    for arguments in [{'cfg': cfg}] if cfg else [{}, {'cfg': cfg}]:
        with contextlib.suppress(TypeError, ValueError):  # nothing to call; compiled code without a signature
            inspect.signature(cls).bind(**arguments)
            return functools.partial(cls, **arguments)
    raise click.UsageError(
        f'{name} cannot be called with cfg alone, as DI-engine does; expected a class with __init__(self, cfg), or a '
        'function without arguments that makes the environment'
    )


@contextlib.contextmanager
def _usage_error(problem: str, expected: str) -> Iterator[None]:
    """Whatever a module or a config raises, as each is a program."""
    from breakout_env.testing.probe import described

    try:
        yield
    except (Exception, SystemExit) as error:
        raise click.UsageError(f'{problem}: {described(error)[1]}; {expected}') from None
