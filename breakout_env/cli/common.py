"""What several commands share: which agent, which files of ours, and errors in a line."""

import contextlib
from pathlib import Path
from typing import Any, Callable, Iterator

import click

CONTEXT = dict(help_option_names=['-h', '--help'])
_PACKAGE = Path(__file__).resolve().parent.parent


def shipped(relative: str) -> Path:
    """
    Overview:
        Where a file of ``configs/`` or ``entry/`` is: inside the package in a wheel, beside it in a clone.
    Arguments:
        - relative (:obj:`str`): Such as ``'configs/breakout_dqn_cpu_config.py'``.
    Raises:
        - click.ClickException: If it is in neither place.
    """
    for folder in (_PACKAGE, _PACKAGE.parent):
        if (folder / relative).is_file():
            return folder / relative
    raise click.ClickException(
        f'{relative} is not there; expected it in {_PACKAGE}: the package is not installed whole'
    )


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


@contextlib.contextmanager
def errors_in_a_line(*kinds: type) -> Iterator[None]:
    """
    Overview:
        Errors that are the user's to mend, as click shows them: a line, and exit code 1.
    Arguments:
        - kinds (:obj:`type`): More exceptions than ``ValueError`` and ``OSError``.
    """
    try:
        yield
    except (ValueError, OSError, *kinds) as error:
        raise click.ClickException(str(error)) from None


def load(checkpoint: Any, pretrained: bool, device: str = 'cpu') -> 'Agent':  # noqa: F821
    """
    Overview:
        The agent that the options of ``agent_options`` name.
    Raises:
        - click.UsageError: If they name two.
        - click.ClickException: If the file is no agent.
    """
    from ..agent.agent import load_agent

    if checkpoint is not None and pretrained:
        raise click.UsageError('--checkpoint and --pretrained name two agents; expected one of them')
    with errors_in_a_line():
        return load_agent(checkpoint, device=device)
