"""``breakout play``: watch an agent, or play."""

import sys
from typing import Any, Optional

import click

from ..agent.play import (
    AGENT_FRAME_SKIP,
    EPSILON,
    PERSON_FRAME_SKIP,
    agent_env_options,
    agent_player,
    open_screen,
    person_env_options,
    person_player,
    play,
    record,
)
from ..utils.child_process import HelperError
from ..utils.command_types import SEED, FiniteFloat
from ..utils.game_constants import FRAMES_PER_SECOND
from ..utils.signals import exit_in_order
from .common import CONTEXT, agent_options, errors_in_a_line, load

INTERRUPTED = 130


def game_options(function: Any) -> Any:
    """The options of games that are watched or recorded."""
    for option in reversed(
        [
            click.option('--games', type=click.IntRange(1, 1_000_000), default=1, show_default=True, help='How many.'),
            click.option('--seed', type=SEED, help='The same games each time.'),
            click.option(
                '--epsilon',
                type=FiniteFloat(0, 1),
                help=f"Share of an agent's actions that are random.  [default: {EPSILON}]",
            ),
            click.option('--sticky', is_flag=True, help='Sticky actions: each frame repeats the last one in 25 %.'),
            click.option(
                '--speed',
                type=FiniteFloat(0, 100, min_open=True),
                default=1.0,
                show_default=True,
                help='How much faster than people play it.',
            ),
        ]
    ):
        function = option(function)
    return function


@click.command(context_settings=CONTEXT)
@agent_options
@click.option('--human', is_flag=True, help='Play yourself: arrows or A and D move, space fires, q quits.')
@click.option('--record', 'path', metavar='FILE', help='Into a video instead, .mp4 or .gif (see breakout record).')
@click.option('--force', is_flag=True, help='Replace a video that is there already.')
@game_options
def command(
    checkpoint: Optional[str],
    pretrained: bool,
    human: bool,
    path: Optional[str],
    force: bool,
    games: int,
    seed: Optional[int],
    epsilon: Optional[float],
    sticky: bool,
    speed: float,
) -> None:
    """
    Watch an agent play whole games, or play yourself.

    In a window, which needs a display; q quits. Without one: breakout record.

    \b
    Examples:
      breakout play                        the agent that is in the package
      breakout play --checkpoint RUN/ckpt/ckpt_best.pth.tar --games 3
      breakout play --speed 2              twice as fast
      breakout play --human                your turn
      breakout play --record game.mp4 --seed 1
    """
    if human and (checkpoint is not None or pretrained or epsilon is not None or path is not None):
        raise click.UsageError('--human is you; expected no --checkpoint, --pretrained, --epsilon or --record')
    if path is not None:
        record_file(load(checkpoint, pretrained), path, games, seed, epsilon, sticky, speed, None, force)
        return
    agent = None if human else load(checkpoint, pretrained)
    title = 'Breakout' if agent is None else f'Breakout: {agent.name}'
    played, interrupted = [], False
    with errors_in_a_line(HelperError):
        try:
            with open_screen(title, human, speed) as screen:
                if agent is None:
                    options, player = person_env_options(PERSON_FRAME_SKIP, sticky), person_player
                    about = 'arrows move, space fires, q quits'
                else:
                    options = agent_env_options(agent, EPSILON if epsilon is None else epsilon, sticky)
                    player, about = agent_player(agent), f'{agent.name}   q quits'
                for game in play(player, screen, options, games, seed, about):
                    played.append(game)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            tell(played)
    if interrupted:
        sys.exit(INTERRUPTED)


def record_file(
    agent: Any,
    path: str,
    games: int,
    seed: Optional[int],
    epsilon: Optional[float],
    sticky: bool,
    speed: float,
    max_seconds: Optional[float],
    overwrite: bool,
) -> None:
    """``record``, with its games printed and its errors in a line."""
    epsilon = EPSILON if epsilon is None else epsilon
    exit_in_order()  # so that what there is of the video is removed then, too
    try:
        with errors_in_a_line():
            played = record(agent, path, games, seed, epsilon, sticky, speed, max_seconds, overwrite, click.echo)
    except KeyboardInterrupt:
        click.echo(f'stopped; {path} was not written', err=True)
        sys.exit(INTERRUPTED)
    tell_mean(played)
    seconds = sum(game.steps + 1 for game in played) * AGENT_FRAME_SKIP / FRAMES_PER_SECOND / speed
    click.echo(f'{path}: {seconds:.0f} s')


def tell(played: list) -> None:
    """Print how the games went."""
    for game in played:
        click.echo(game)
    tell_mean(played)


def tell_mean(played: list) -> None:
    """Print the mean of several games that were played to their end."""
    whole = [game.points for game in played if game.end != 'stopped']
    if len(whole) > 1:
        click.echo(f'mean of {len(whole)} games: {sum(whole) / len(whole):.1f} points')
