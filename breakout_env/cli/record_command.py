"""``breakout record``: an agent's games as a video."""

from typing import Optional

import click

from ..utils.command_types import DAY_S, FiniteFloat
from .common import CONTEXT, agent_options, load
from .play_command import game_options, record_file


@click.command(context_settings=CONTEXT)
@agent_options
@click.option('--out', 'path', metavar='FILE', required=True, help='The video, .mp4 or .gif.')
@game_options
@click.option(
    '--max-seconds',
    type=FiniteFloat(0, DAY_S, min_open=True),
    help='Where the video is cut off.  [default: nowhere; a GIF: 30]',
)
@click.option('--force', is_flag=True, help='Replace a file that is there already.')
def command(
    checkpoint: Optional[str],
    pretrained: bool,
    path: str,
    games: int,
    seed: Optional[int],
    epsilon: Optional[float],
    sticky: bool,
    speed: float,
    max_seconds: Optional[float],
    force: bool,
) -> None:
    """
    Record an agent's games in one video, which appears when it is complete.

    \b
    Examples:
      breakout record --out game.mp4       the agent that is in the package
      breakout record --checkpoint RUN/ckpt/ckpt_best.pth.tar --out best.mp4
      breakout record --out game.gif --max-seconds 10
    """
    record_file(load(checkpoint, pretrained), path, games, seed, epsilon, sticky, speed, max_seconds, force)
