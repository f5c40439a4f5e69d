"""``breakout eval``: play whole games, and say what their scores mean."""

import contextlib
import json
import math
import time
from typing import Callable, Iterator, Optional, Sequence

import click
import torch
from tqdm import tqdm

from ..agent.evaluation import PROTOCOLS, Game, Report, evaluate
from ..utils.atomic_file import write_bytes
from ..utils.command_types import SEED
from .common import CONTEXT, agent_options, errors_in_a_line, load

PROGRESS_EVERY_S = 0.5


@click.command('eval', context_settings=CONTEXT)
@agent_options
@click.option(
    '-n', '--episodes', default=100, show_default=True, type=click.IntRange(1, 1_000_000), help='Whole games to play.'
)
@click.option(
    '--protocol',
    default='nature',
    show_default=True,
    type=click.Choice(list(PROTOCOLS)),
    help='nature: idle starts, 1 step in 100 random. sticky: sticky actions, 0.25. greedy: idle starts only.',
)
@click.option(
    '--fire/--no-fire',
    default=True,
    show_default=True,
    help='Press FIRE for the agent after a lost life. This changes the protocol: say so beside a score.',
)
@click.option('--seed', default=0, show_default=True, type=SEED, help='Seed of the games.')
@click.option('--json', 'json_path', type=click.Path(dir_okay=False), help='Write all of it here, game by game.')
@click.option(
    '--device', default='auto', show_default=True, type=click.Choice(['auto', 'cpu', 'cuda']), help='Of the network.'
)
def command(
    checkpoint: Optional[str],
    pretrained: bool,
    episodes: int,
    protocol: str,
    fire: bool,
    seed: int,
    json_path: Optional[str],
    device: str,
) -> None:
    """
    Judge an agent over whole games of Breakout.

    The same seed plays the same games, on as many cores as there are. Where hardly any two games differ, as under
    --protocol greedy, no interval is given: it would mean nothing.

    \b
    Examples:
      breakout eval --pretrained -n 100
      breakout eval --checkpoint RUN/ckpt/ckpt_best.pth.tar -n 30
      breakout eval --pretrained --protocol sticky --no-fire --json sticky.json
    """
    if device == 'auto':
        device = 'cuda' if torch.cuda.is_available() else 'cpu'
    agent = load(checkpoint, pretrained, device)
    try:
        with errors_in_a_line(RuntimeError), _progress(episodes) as on_step:
            report = evaluate(agent, protocol, episodes, seed, fire, on_step=on_step)
    except KeyboardInterrupt:
        click.echo('stopped', err=True)
        raise click.exceptions.Exit(130) from None
    _show(report)
    agreement = report.agreement(agent.card)
    if agreement is not None:
        click.echo(f'The mean {agreement[1]}.')
    if json_path is not None:
        with errors_in_a_line():
            write_bytes(json_path, json.dumps(report.as_dict(), indent=2).encode())
        click.echo(f'wrote {json_path}')


@contextlib.contextmanager
def _progress(episodes: int) -> Iterator[Callable[[int, Sequence[Game]], None]]:
    """A line on a terminal, and nothing elsewhere."""
    with tqdm(total=episodes, unit=' games', disable=None, leave=False, dynamic_ncols=True) as bar:
        start, shown = time.monotonic(), -math.inf

        def on_step(steps: int, games: Sequence[Game]) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < PROGRESS_EVERY_S:
                return
            shown, bar.n = now, len(games)
            mean = f'mean {sum(game.score for game in games) / len(games):.1f}, ' if games else ''
            bar.set_postfix_str(f'{mean}{steps / (now - start + 1e-9):.0f} steps/s')

        yield on_step


def _show(report: Report) -> None:
    figures, interval = report.summary(), report.interval_95
    fire = 'pressed after a lost life' if report.env_options['fire_on_life_loss'] else 'left to the agent'
    rows = [
        ('agent', report.agent),
        ('protocol', f'{report.protocol}, FIRE {fire}'),
        ('games', f'{figures["episodes"]}, of which {figures["distinct_games"]} different; seed {report.seed}'),
        ('mean', f'{figures["mean"]:.2f}'),
        ('95% interval', "{:.2f} to {:.2f} (of the mean, Student's t)".format(*interval) if interval else 'none'),
        ('std', f'{figures["std"]:.2f}'),
        ('median', f'{figures["median"]:g}'),
        ('lowest, highest', f'{report.scores.min():g}, {report.scores.max():g}'),
        ('cut off', f'{report.truncated_games} games at {report.env_options["max_episode_frames"]:,} frames'),
        (
            'took',
            f'{report.duration_s:.0f} s, {sum(game.steps for game in report.games) / report.duration_s:,.0f} steps/s',
        ),
    ]
    for label, value in rows:
        click.echo(f'{label:17}{value}')
    if report.too_few_different:
        click.echo(f'Note: {report.too_few_different}.')
