"""Upstream behaviour worked around (DI-engine 0.5.3, ``ding/entry/cli.py``): ``ding`` passes a run only some of the
options that it was called with. It is a click command, whose context has all of them.
"""

import multiprocessing
from collections.abc import Mapping
from typing import Any

import click


def options_of_ding() -> Mapping[str, Any]:
    """The options that ``ding`` was called with, by their names; empty if no ``ding`` runs."""
    context = click.get_current_context(silent=True)
    is_ding = context is not None and getattr(context.command.callback, '__module__', '') == 'ding.entry.cli'
    return context.params if context is not None and is_ding else {}


def is_command() -> bool:
    """Whether this process was started as a command, ``ding`` or ``breakout``, and ends with it."""
    return click.get_current_context(silent=True) is not None and multiprocessing.parent_process() is None
