"""The commands to use next, for an agent's file or a run. Importing this module imports the package."""

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from breakout_env.agent.network import needs_path, network_of_run
from breakout_env.run.paths import newest_checkpoint, numbered_checkpoints
from breakout_env.utils.command_line import shell_command


def agent_commands(file: str | Path, network: Mapping[str, Any], path: str | None = None) -> dict[str, str]:
    """What to do with an agent's file, by what it is for; ``network`` and ``path`` as for ``command_for``."""
    commands = {'its score': 'eval', 'watch it': 'play'}
    return {what: command_for(network, path, command, '--checkpoint', file) for what, command in commands.items()}


def run_commands(folder: str | Path, path: str | None = None) -> dict[str, str]:
    """What to do with the agents of a run: nothing without a checkpoint, or if only its policy plays its network."""
    best = newest_checkpoint(folder)
    if not best.exists():
        return {}
    try:
        network = network_of_run(best)
    except ValueError:  # `ding -m eval` plays it
        return {}
    commands = agent_commands(best, network, path)
    if len(numbered_checkpoints(folder)) > 2:  # the first is that of the untrained network
        commands['a better agent'] = command_for(network, path, 'average', folder)
    return commands


def command_for(network: Mapping[str, Any], path: str | None, *words: object) -> str:
    """A command that finds a network's module: in the folder ``path``, or else on PYTHONPATH, if not installed."""
    path = path or os.environ.get('PYTHONPATH')
    found_by = f'PYTHONPATH={quote(path)} ' if path and needs_path(network) else ''
    return found_by + shell_command('breakout', *words)
