"""What several commands share: the options of an agent, which they get loaded, and of a device; the next commands."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import click
import torch

from ..agent.agent import load_agent
from ..agent.network import needs_path, network_of_run
from ..run.paths import newest_checkpoint, numbered_checkpoints
from ..utils.command_line import shell_command
from ..utils.gpu import gpu_problem
from ..utils.options import Between, CommandLineType

GAMES = CommandLineType(Annotated[int, Between(1, 1_000_000)])


def with_agent(function: Callable) -> Callable:
    """The options that name an agent; the command gets it as ``agent``, on the device of --device if it has that."""

    @click.option(
        '--checkpoint',
        type=click.Path(exists=True, dir_okay=False),
        help='A checkpoint in the folder of its run (RUN/ckpt/*.pth.tar), or an agent in safetensors.',
    )
    @click.option(
        '--pretrained', is_flag=True, help='The agent that comes with the package; the default without --checkpoint.'
    )
    @functools.wraps(function)
    def command(checkpoint: str | None, pretrained: bool, device: str = 'cpu', **options: Any) -> Any:
        if checkpoint is not None and pretrained:
            raise click.UsageError('--checkpoint and --pretrained name two agents; expected one of them')
        return function(load_agent(checkpoint, device=device_of(device)), **options)

    return command


def device_option(help: str) -> Callable:
    """The option --device; ``device_of`` says what it means here."""
    devices = click.Choice(['auto', 'cpu', 'cuda'])
    return click.option('--device', type=devices, default='auto', show_default=True, help=help)


def device_of(device: str) -> str:
    """``'cpu'`` or ``'cuda'``, for an option --device that may also be ``'auto'``: the GPU if there is one."""
    if device == 'cpu':
        return device
    problem = gpu_problem()
    if problem and device == 'cuda':
        doctor = shell_command('breakout', 'doctor')
        raise click.UsageError(f'--device is cuda, but {problem}; expected cpu or auto (see {doctor})')
    if problem and torch.cuda.is_available():
        click.echo(f'The CPU is used: {problem}', err=True)
    return 'cpu' if problem else 'cuda'


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


def command_for(network: Mapping[str, Any], path: str | None, *words: Any) -> str:
    """A command that finds a network's module: in the folder ``path``, or else on PYTHONPATH, if not installed."""
    path = path or os.environ.get('PYTHONPATH')
    found_by = f'PYTHONPATH={quote(path)} ' if path and needs_path(network) else ''
    return found_by + shell_command('breakout', *words)
