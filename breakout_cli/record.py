"""``breakout record``: an agent's games as a video."""

import math
from typing import TYPE_CHECKING, Any

import click

from .common import with_agent
from .play import game_options, play_and_echo
from .program import Program

if TYPE_CHECKING:
    from breakout_env.agent.agent import Agent

GIF_SECONDS = 30.0  # longer ones are too large for most pages and chats


@click.command('record', cls=Program)
@with_agent
@click.option('--out', 'path', metavar='FILE', required=True, help='The video, .mp4 or .gif.')
@game_options
@click.option(
    '--max-seconds',
    type=click.FloatRange(0, 86_400, min_open=True),
    help='Where the video ends.  [default: no limit; a GIF: 30]',
)
@click.option('--force', is_flag=True, help='Replace an existing file.')
def command(agent: 'Agent', path: str, force: bool, speed: float, max_seconds: float | None, **options: Any) -> None:
    """Record an agent's games in one video, which appears when it is complete.

    \b
    Examples:
      breakout record --out game.mp4       the agent that is in the package
      breakout record --checkpoint RUN/ckpt/ckpt_best.pth.tar --out best.mp4
      breakout record --out game.gif --max-seconds 10
    """
    from breakout_env.rendering.video import VideoFile
    from breakout_env.utils.game_constants import FRAMES_PER_SECOND

    pictures_per_second = FRAMES_PER_SECOND / agent.frame_skip * speed
    if max_seconds is None:
        max_seconds = GIF_SECONDS if path.lower().endswith('.gif') else math.inf
    most = max_seconds * pictures_per_second
    with VideoFile(path, pictures_per_second, overwrite=force) as video:
        played = play_and_echo(agent, lambda picture: video.show(picture) < most, **options)
        video.finish()
    seconds = sum(game.steps + 1 for game in played) / pictures_per_second
    click.echo(f'{path}: {seconds:.0f} s')
