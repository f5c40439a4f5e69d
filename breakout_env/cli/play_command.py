"""``breakout play``: watch an agent, or play."""

import contextlib
from typing import Annotated, Callable, List, Optional

import click

from ..agent.play import (
    EPSILON,
    Player,
    WatchedGame,
    agent_env_options,
    agent_player,
    open_window,
    person_env_options,
    person_player,
    play,
)
from ..utils.child_process import HelperError
from ..utils.options import SEED, Between, CommandLineType
from .common import CONTEXT, GAMES, agent_options, load, user_errors


def game_options(function: Callable) -> Callable:
    """The options of games that are watched or recorded."""
    probability = CommandLineType(Annotated[float, Between(0, 1)])
    speed = CommandLineType(Annotated[float, Between(0, 100, above=True)])
    for option in (
        click.option('--speed', type=speed, default=1.0, show_default=True, help="Relative to the console's."),
        click.option('--sticky', is_flag=True, help='Sticky actions: each frame repeats the last one in 25 %.'),
        click.option(
            '--epsilon', type=probability, help=f"Share of an agent's actions that are random.  [default: {EPSILON}]"
        ),
        click.option('--seed', type=SEED, help='The same games each time.'),
        click.option('--games', type=GAMES, default=1, show_default=True, help='How many.'),
    ):
        function = option(function)
    return function


@click.command(context_settings=CONTEXT)
@agent_options
@click.option('--human', is_flag=True, help='Play yourself: arrows or A and D move, space fires, q quits.')
@game_options
def command(
    checkpoint: Optional[str],
    pretrained: bool,
    human: bool,
    games: int,
    seed: Optional[int],
    epsilon: Optional[float],
    sticky: bool,
    speed: float,
) -> None:
    """
    Watch an agent play full games, or play yourself.

    In a window, which needs a display; q quits. Without one: breakout record.

    \b
    Examples:
      breakout play                        the agent that is in the package
      breakout play --checkpoint RUN/ckpt/ckpt_best.pth.tar --games 3
      breakout play --speed 2              twice as fast
      breakout play --human                your turn
    """
    if human and (checkpoint is not None or pretrained or epsilon is not None):
        raise click.UsageError('--human is you; expected no --checkpoint, --pretrained or --epsilon')
    player: Player
    if human:
        title, player, options = 'Breakout', person_player, person_env_options(sticky)
    else:
        agent = load(checkpoint, pretrained)
        title, player = f'Breakout: {agent.name}', agent_player(agent)
        options = agent_env_options(agent, EPSILON if epsilon is None else epsilon, sticky)
    played: List[WatchedGame] = []
    try:
        with user_errors(HelperError), contextlib.closing(open_window(title, options['frame_skip'], speed)) as window:
            for game in play(player, window.present, options, games, seed, window.keys):
                played.append(game)
                click.echo(game)
    finally:
        echo_mean(played)


def echo_mean(played: List[WatchedGame]) -> None:
    """Print the mean of the games that were played to their end, if they are several."""
    points = [game.points for game in played if game.end != 'stopped']
    if len(points) > 1:
        click.echo(f'mean of {len(points)} games: {sum(points) / len(points):.1f} points')
