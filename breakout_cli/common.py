"""Options that several commands share: numbers, the agent, the device."""

import functools
from collections.abc import Callable
from typing import Any

import click

COUNT = click.IntRange(min=1)  # env steps, updates, games
SEED = click.IntRange(0, 2**31 - 1)  # numpy takes 32 bits, and each environment gets its own seed above this one
GAMES = click.IntRange(1, 1_000_000)


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
        from breakout_env.agent.agent import load_agent

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
    import torch

    from breakout_env.utils.gpu import gpu_problem

    problem = gpu_problem()
    if problem and device == 'cuda':
        raise click.UsageError(f'--device is cuda, but {problem}; expected cpu or auto')
    if problem and torch.cuda.is_available():
        click.echo(f'The CPU is used: {problem}', err=True)
    return 'cpu' if problem else 'cuda'
