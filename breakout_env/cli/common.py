"""What several commands share: which agent, numbers, and how errors are shown."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, Callable, Iterator, Optional

import click

from ..utils.options import Between, CommandLineType

if TYPE_CHECKING:
    from ..agent.agent import Agent

CONTEXT = dict(help_option_names=['-h', '--help'])
GAMES = CommandLineType(Annotated[int, Between(1, 1_000_000)])


def agent_options(function: Callable) -> Callable:
    """The options that name an agent, ``checkpoint`` and ``pretrained``."""
    function = click.option(
        '--pretrained', is_flag=True, help='The agent that comes with the package; the default without --checkpoint.'
    )(function)
    return click.option(
        '--checkpoint',
        type=click.Path(exists=True, dir_okay=False),
        help="A checkpoint of a run (ckpt/*.pth.tar, DI-engine's or ours), or an agent in safetensors.",
    )(function)


def load(checkpoint: Optional[str], pretrained: bool, device: str = 'cpu') -> 'Agent':
    """The agent that the options of ``agent_options`` name."""
    from ..agent.agent import load_agent

    if checkpoint is not None and pretrained:
        raise click.UsageError('--checkpoint and --pretrained name two agents; expected one of them')
    with user_errors():
        return load_agent(checkpoint, device=device)


def device_option(help: str) -> Callable:
    """The option --device; ``device_of`` says what it means here."""
    devices = click.Choice(['auto', 'cpu', 'cuda'])
    return click.option('--device', type=devices, default='auto', show_default=True, help=help)


def device_of(device: str) -> str:
    """``'cpu'`` or ``'cuda'``, for an option --device that may also be ``'auto'``: the GPU if there is one."""
    import torch

    from ..utils.gpu import gpu_problem

    if device == 'cpu':
        return device
    problem = gpu_problem()
    if problem and device == 'cuda':
        raise click.UsageError(f'--device is cuda, but {problem}; expected cpu or auto (see breakout doctor)')
    if problem and torch.cuda.is_available():
        click.echo(f'The CPU is used: {problem}', err=True)
    return 'cpu' if problem else 'cuda'


@contextlib.contextmanager
def user_errors(*more: type, option: str = '') -> Iterator[None]:
    """
    Overview:
        Show errors that the user can fix as click does: in a line, with exit code 1.
    Arguments:
        - more (:obj:`type`): Exceptions that count as such besides ``ValueError`` and ``OSError``.
        - option (:obj:`str`): The option whose value is wrong; this makes it a usage error, with exit code 2.
    """
    kinds: Any = (ValueError, OSError, *more)
    try:
        yield
    except kinds as error:
        raise (click.UsageError(f'{option}: {error}') if option else click.ClickException(str(error))) from None
