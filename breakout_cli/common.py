"""Options that several commands share: numbers, the agent, the device."""

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import click


class Number(click.ParamType):
    """A number within bounds. Unlike click's ranges, it refuses NaN."""

    def __init__(self, type_: type, low: float, high: float = math.inf, above: bool = False) -> None:
        self.name = 'integer' if type_ is int else 'float'
        self._type, self._low, self._high, self._above = type_, low, high, above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click's."""
        with contextlib.suppress(ValueError):
            number = self._type(value)
            if self._low <= number <= self._high and not (self._above and number == self._low):
                return number
        kind = 'a whole number' if self._type is int else 'a number'
        begin = f'{kind} above' if self._above else f'{kind} from'
        to = ', up to' if self._above else ' to'
        end = '' if self._high == math.inf else f'{to} {self._high:,}'
        self.fail(f'{value!r} is not allowed; expected {begin} {self._low:,}{end}', param, ctx)


COUNT = Number(int, 1)  # env steps, updates, games
SEED = Number(int, 0, 2**31 - 1)  # numpy takes 32 bits, and each environment gets its own seed above this one
GAMES = Number(int, 1, 1_000_000)


def refuse_two_agents(ctx: click.Context) -> None:
    """The ``check`` of programs ``with_agent``."""
    if ctx.params['checkpoint'] is not None and ctx.params['pretrained']:
        ctx.fail('--checkpoint and --pretrained name two agents; expected one of them')


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

    from breakout_env.utils.command_line import shell_command
    from breakout_env.utils.gpu import gpu_problem

    problem = gpu_problem()
    if problem and device == 'cuda':
        doctor = shell_command('breakout', 'doctor')
        raise click.UsageError(f'--device is cuda, but {problem}; expected cpu or auto (see {doctor})')
    if problem and torch.cuda.is_available():
        click.echo(f'The CPU is used: {problem}', err=True)
    return 'cpu' if problem else 'cuda'
