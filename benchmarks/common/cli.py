"""The command line that benchmarks share."""

import os
from collections.abc import Callable, Sequence

import click

from .rounds import Factory

CORES = len(os.sched_getaffinity(0))
OUT = click.option('--out', type=click.Path(dir_okay=False), help='JSON file to write.')


def command(*options: Callable) -> Callable:
    """A click command with ``--out`` and the given options, all defaults shown."""

    def decorate(function: Callable) -> click.Command:
        for option in reversed([*options, OUT]):
            function = option(function)
        settings = dict(show_default=True, help_option_names=['-h', '--help'])
        return click.command(context_settings=settings)(function)

    return decorate


def rounds(repeats: int, seconds: float) -> Sequence[Callable]:
    """The options of benchmarks in interleaved rounds, with their defaults."""
    return (
        click.option('--repeats', default=repeats, type=click.IntRange(min=1), help='Turns of each contestant.'),
        click.option('--seconds', default=seconds, type=click.FloatRange(min=0.1), help='Counted in each turn.'),
        click.option('--only', multiple=True, help='Only contestants whose names contain this; may be repeated.'),
    )


def chosen(factories: dict[str, Factory], only: Sequence[str]) -> dict[str, Factory]:
    """The contestants whose names contain one of the given words, or all of them; a UsageError if no name does."""
    kept = {name: factory for name, factory in factories.items() if not only or any(word in name for word in only)}
    if not kept:
        raise click.UsageError(f'--only is {", ".join(only)}; expected part of one of these: {"; ".join(factories)}')
    return kept
