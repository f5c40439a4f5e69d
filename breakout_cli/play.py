"""``breakout play``: watch an agent."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from .common import GAMES, SEED, with_agent
from .program import Program

if TYPE_CHECKING:
    import numpy as np

    from breakout_env.agent.agent import Agent
    from breakout_env.agent.play import WatchedGame


SHARE, SPEED = click.FloatRange(0, 1), click.FloatRange(0.1, 100)


def game_options(function: Callable) -> Callable:
    """The options of games that are watched or recorded."""
    for option in (
        click.option('--speed', type=SPEED, default=1.0, show_default=True, help="Relative to the console's."),
        click.option('--sticky', is_flag=True, help='Sticky actions: frames repeat the last one, probability 0.25.'),
        click.option('--epsilon', type=SHARE, default=0.01, show_default=True, help='Share of random actions.'),
        click.option('--seed', type=SEED, help='The same games each time.'),
        click.option('--games', type=GAMES, default=1, show_default=True, help='How many.'),
    ):
        function = option(function)
    return function


@click.command('play', cls=Program)
@with_agent
@game_options
def command(agent: 'Agent', speed: float, **options: Any) -> None:
    """Watch an agent play full games.

    In a window, which needs a display; q or Esc closes it. Without a display: breakout record.

    \b
    Examples:
      breakout play                        the agent that is in the package
      breakout play --checkpoint RUN/ckpt/ckpt_best.pth.tar --games 3
      breakout play --speed 2              twice as fast
    """
    from breakout_env.agent.play import open_window

    with contextlib.closing(open_window(f'Breakout: {agent.name}', speed, agent.frame_skip)) as window:
        click.echo('Keys in the window: q or Esc closes it, which ends the games. Ctrl-C here does, too.')
        play_and_echo(agent, window.present, **options)


def play_and_echo(agent: 'Agent', show: Callable[['np.ndarray'], bool], **options: Any) -> list['WatchedGame']:
    """Play games, and print how each went and the mean of those that were played to their end, if they are several."""
    from breakout_env.agent.play import play

    played: list[WatchedGame] = []
    try:
        for game in play(agent, show, **options):
            played.append(game)
            click.echo(game)
    finally:
        points = [game.points for game in played if game.end != 'stopped']
        if len(points) > 1:
            click.echo(f'mean of {len(points)} games: {sum(points) / len(points):.1f} points')
    return played
