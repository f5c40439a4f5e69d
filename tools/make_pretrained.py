"""An agent to ship, out of a training: chosen on some games, judged on others, written with its card.

    python tools/make_pretrained.py experiments/breakout_ppo --name breakout_ppo --card

Candidates are the means of the last 1, 8, 16 and 32 checkpoints of the run (``breakout average``), and the best of them
with actions drawn at each ``--temperature``. Each plays games of the selection's seed under protocol ``nature``; the
best plays the games of the report, of another seed, under all protocols. What was played goes to
docs/results/agents/NAME.json, the agent to breakout_env/pretrained/NAME.safetensors; docs/scripts/make_tables.py writes
the scores into the guides.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import torch
from tabulate import tabulate

from breakout_env.agent.agent import Agent, initial_weights, load_agent, save_agent
from breakout_env.agent.evaluation import evaluate
from breakout_env.agent.network import network_of_run
from breakout_env.agent.weights_file import average_weights, checkpoints_of
from breakout_env.run.log import RunLog
from breakout_env.run.paths import updates_of
from breakout_env.utils.atomic_file import write_bytes

ROOT = Path(__file__).resolve().parent.parent
PRETRAINED = ROOT / 'breakout_env' / 'pretrained'
# few, with many games each: single games end near 420 or 850, so the mean of 24 is 30 points off
CANDIDATES = (1, 8, 16, 32)
SELECTION_SEED, SELECTION_GAMES = 20_000, 40
REPORT_SEED = 0
# greedy play has hardly more than 4 different games, and may go in circles until it is cut off
REPORT_GAMES = dict(nature=100, sticky=100, greedy=12)
LIMITS = (
    'It plays Breakout as this package shows it (4 screens of 84 by 84 gray pixels, 4 frames a step, 4 actions), and '
    'nothing else. It was trained without sticky actions, and plays worse with them. FIRE is pressed for it after a '
    'lost life. One training from one seed: another one may end elsewhere.'
)
# What the card tells of a training, and of the games of each protocol.
CARD_FACTS = dict(
    env_steps='env steps',
    updates='updates',
    seed='seed',
    hours='hours of training',
    config='config',
    commit='commit',
    temperature='temperature of its actions',
)
CARD_FIGURES = ('mean', 'std', 'median', 'interval_95', 'episodes', 'distinct_games', 'seed')


def candidate(checkpoints: Sequence[Path], folder: Path, temperature: float | None = None) -> Agent:
    """The mean of checkpoints as an agent; it is written into the folder."""
    card = {} if temperature is None else dict(temperature=temperature)
    path = str(folder / f'last_{len(checkpoints)}_{temperature}.safetensors')
    save_agent(path, average_weights(checkpoints), card, network_of_run(checkpoints[-1]))
    return load_agent(path)


def selected(agent: Agent, **about: Any) -> dict[str, Any]:
    """How a candidate plays, as a row of the selection."""
    report = evaluate(agent, 'nature', SELECTION_GAMES, SELECTION_SEED)
    row = dict(about, **report.summary())
    click.echo(', '.join(f'{key} {value}' for key, value in about.items()) + f': {report.mean:.1f}')
    return row


def card_as_markdown(card: Mapping[str, Any]) -> str:
    """A card as Markdown, for people; it leaves out what the card lacks."""
    facts = [(label, card[key]) for key, label in CARD_FACTS.items() if card.get(key) is not None]
    facts = [(label, f'{value:,}' if isinstance(value, int) else value) for label, value in facts]
    parts = [
        f'# {card.get("name", "An agent")}',
        tabulate(facts, ['training', ''], tablefmt='github', disable_numparse=True),
    ]
    if card.get('scores'):
        header = ['protocol', 'mean', 'std', 'median', '95% interval of the mean', 'games', 'different games', 'seed']
        scores = {
            name: {**row, 'interval_95': ' to '.join(f'{end:.1f}' for end in row['interval_95'] or ()) or None}
            for name, row in card['scores'].items()
        }
        rows = [[name, *map(row.get, CARD_FIGURES)] for name, row in scores.items()]
        parts.append(tabulate(rows, header, tablefmt='github', floatfmt='.1f', missingval='none'))
        parts.append(
            'Points of full games. `breakout eval --pretrained --protocol <protocol>` plays such games again. The '
            'interval is about the luck of the games; another training, from another seed, may end elsewhere.'
        )
    return '\n\n'.join([*parts, *(str(card[key]) for key in ('limits', 'note') if card.get(key))]) + '\n'


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
@click.argument('run', type=click.Path(exists=True, file_okay=False))
@click.option('--name', required=True, help='Of the agent and its files.')
@click.option('--config', default='configs/breakout_ppo_config.py', help='The config of the run.')
@click.option(
    '--temperature', 'temperatures', type=float, multiple=True, help='As of `breakout average`; may be repeated.'
)
@click.option('--note', help='What else there is to say of the training, for its card.')
@click.option('--card/--no-card', default=False, help="Write CARD.md, the package's own card, from it.")
def main(run: str, name: str, config: str, temperatures: tuple[float, ...], note: str | None, card: bool) -> None:
    """Choose, judge and write an agent of the run in the folder RUN."""
    torch.set_num_threads(1)
    log = RunLog.read(run)
    scratch = Path(run, 'candidates')
    scratch.mkdir(exist_ok=True)
    paths = checkpoints_of(run)
    selection = []
    for count in [count for count in CANDIDATES if count <= len(paths)]:
        agent = candidate(paths[-count:], scratch)
        selection.append(selected(agent, checkpoints=count, first=updates_of(paths[-count])))
    best = max(selection, key=lambda row: row['mean'])
    chosen, newest = paths[-best['checkpoints'] :], paths[-1]
    draws = [selected(candidate(chosen, scratch, each), temperature=each) for each in temperatures]
    temperature = max([best, *draws], key=lambda row: row['mean']).get('temperature')
    steps = int(torch.load(newest, map_location='cpu', weights_only=True)['last_step'])
    facts: dict[str, Any] = dict(
        name=name,
        env_steps=steps,
        updates=updates_of(newest),
        checkpoints=f'mean of the last {len(chosen)}, from {updates_of(chosen[0]):,} updates on',
        seed=log.starts[-1]['seed'],
        hours=round(float(log.progress['hours'][-1]), 2),
        commit=log.starts[-1]['commit'],
        config=config,
    )
    if temperature is not None:
        facts['temperature'] = temperature
    agent = candidate(chosen, scratch, temperature)
    reports = {}
    for protocol, games in REPORT_GAMES.items():
        reports[protocol] = evaluate(agent, protocol, games, REPORT_SEED)
        click.echo(f'{protocol}: {reports[protocol].mean:.1f}')
    facts['scores'] = {protocol: report.summary() for protocol, report in reports.items()}
    facts['limits'] = LIMITS
    facts['return_scale'] = initial_weights(newest).return_scale
    if note:
        facts['note'] = note
    PRETRAINED.mkdir(exist_ok=True)
    save_agent(str(PRETRAINED / f'{name}.safetensors'), average_weights(chosen), facts, agent.config)
    result = dict(
        date=datetime.now(timezone.utc).isoformat(timespec='seconds'),
        card=facts,
        selection=dict(seed=SELECTION_SEED, games=SELECTION_GAMES, candidates=selection, temperatures=draws),
        games={protocol: [game.score for game in report.games] for protocol, report in reports.items()},
    )
    write_bytes(ROOT / 'docs' / 'results' / 'agents' / f'{name}.json', json.dumps(result, indent=1).encode())
    if card:
        (PRETRAINED / 'CARD.md').write_text(card_as_markdown(facts))


if __name__ == '__main__':
    main()
