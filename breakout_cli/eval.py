"""``breakout eval``: play full games, and print what their scores say."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import GAMES, SEED, device_option, with_agent
from .program import Program

if TYPE_CHECKING:
    from tqdm import tqdm

    from breakout_env.agent.agent import Agent
    from breakout_env.agent.evaluation import Game, Report


@click.command('eval', cls=Program)
@with_agent
@click.option('-n', '--episodes', default=100, show_default=True, type=GAMES, help='Full games to play.')
@click.option(
    '--protocol',
    default='nature',
    show_default=True,
    type=click.Choice(['nature', 'sticky', 'greedy']),
    help='nature: no-op starts, 1 step in 100 random. sticky: sticky actions, 0.25. greedy: no-op starts only.',
)
@click.option(
    '--fire/--no-fire',
    default=True,
    show_default=True,
    help='Press FIRE for the agent after a lost life. This changes the protocol: state it beside a score.',
)
@click.option('--seed', default=0, show_default=True, type=SEED, help='Seed of the games.')
@click.option('--json', 'json_path', type=click.Path(dir_okay=False), help='Write all results here, game by game.')
@device_option('Where the network runs.')
def command(agent: 'Agent', episodes: int, protocol: str, fire: bool, seed: int, json_path: str | None) -> None:
    """Evaluate an agent over full games of Breakout.

    The same seed plays the same games, on as many cores as there are. Where hardly any two games differ, as under
    --protocol greedy, no interval is given: it would be meaningless.

    \b
    Examples:
      breakout eval --pretrained -n 100
      breakout eval --checkpoint RUN/ckpt/ckpt_best.pth.tar -n 30
      breakout eval --pretrained --protocol sticky --no-fire --json sticky.json
    """
    from tqdm import tqdm

    from breakout_env.agent.evaluation import evaluate
    from breakout_env.utils.atomic_file import write_bytes

    with tqdm(total=episodes, unit=' games', disable=None, leave=False, dynamic_ncols=True, miniters=0) as bar:
        report = evaluate(agent, protocol, episodes, seed, fire, on_step=partial(_show_progress, bar))
    _show(report)
    if json_path is not None:
        write_bytes(Path(json_path), json.dumps(report.as_dict(), indent=2).encode())
        click.echo(f'wrote {json_path}')


def _show_progress(bar: 'tqdm', steps: int, games: Sequence['Game']) -> None:
    if len(games) > bar.n:
        mean = sum(game.score for game in games) / len(games)
        bar.set_postfix_str(f'mean {mean:.1f}', refresh=False)
    bar.update(len(games) - bar.n)


def _show(report: 'Report') -> None:
    from breakout_env.agent.evaluation import FRAME_SKIP

    figures, interval = report.summary(), report.interval_95
    fire = 'pressed after a lost life' if report.env_options['fire_on_life_loss'] else 'left to the agent'
    frame_skip = report.env_options.get('frame_skip', FRAME_SKIP)
    frames = '' if frame_skip == FRAME_SKIP else f', {frame_skip} frames a step as in its training, not {FRAME_SKIP}'
    steps_per_s = sum(game.steps for game in report.games) / report.duration_s
    rows = [
        ('agent', report.agent),
        ('protocol', f'{report.protocol}, FIRE {fire}{frames}'),
        ('games', f'{figures["episodes"]}, of which {figures["distinct_games"]} different; seed {report.seed}'),
        ('mean', f'{figures["mean"]:.2f}'),
        ('95% interval', "{:.2f} to {:.2f} (of the mean, Student's t)".format(*interval) if interval else 'none'),
        ('std', f'{figures["std"]:.2f}'),
        ('median', f'{figures["median"]:g}'),
        ('lowest, highest', f'{report.scores.min():g}, {report.scores.max():g}'),
        ('cut off', f'{report.truncated_games} games at {report.env_options["max_episode_frames"]:,} frames'),
        ('took', f'{report.duration_s:.0f} s, {steps_per_s:,.0f} steps/s'),
    ]
    for label, value in rows:
        click.echo(f'{label:17}{value}')
    if report.too_few_different:
        click.echo(f'Note: {report.too_few_different}.')
