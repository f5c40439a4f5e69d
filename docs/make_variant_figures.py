"""
Draws the short trainings of benchmarks/train_variants.py, and puts their tables and those of the shipped agents into
docs/training.md, the README and their translations.

    python docs/make_variant_figures.py

reads docs/results/variants/*.jsonl.gz, the recipe's log beside them, docs/results/agents/*.json, and
docs/results/no_fire.json, which ``breakout eval --no-fire -n 8 --json docs/results/no_fire.json`` wrote of the agent of
a million env steps.
"""

import json
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import numpy as np
from blocks import fill
from tabulate import tabulate

from breakout_env.run.log import RunLog
from breakout_env.run.plotting import Curve, draw_curves, save_figure

DOCS = Path(__file__).resolve().parent
RECIPE = DOCS / 'results' / 'training' / 'cpu_seed0.jsonl.gz'
GUIDES = (DOCS / 'training.md', DOCS / 'training.zh-CN.md')
READMES = (DOCS.parent / 'README.md', DOCS.parent / 'README.zh-CN.md')
# what is drawn together: file of a variant without its seed -> what the legend calls it
MATTERS = {
    'recipe': 'recipe',
    'lr_0.0001': 'learning rate 1e-4',
    'lr_0.001': 'learning rate 1e-3',
    'nstep_1': '1-step',
    'half_updates': 'half of the updates',
    'slow_epsilon': 'epsilon over 1M',
}
FAILURES = {
    'recipe': 'recipe',
    'unscaled': 'unscaled pixels',
    'scaled_twice': 'pixels scaled twice',
    'no_exploration': 'no exploration',
    'whole_games': 'life loss ends nothing',
    'no_fire': 'FIRE left to the agent',
    'no_clipping': 'unclipped rewards',
}
PANELS = ('train_return', 'q_value', 'loss')
PROTOCOLS = ('nature', 'sticky', 'greedy')


def read_variants() -> Dict[str, RunLog]:
    """
    Overview:
        The variants that are kept, by name, of their first seed; and the recipe's long run, cut to their length.
    """
    paths = sorted((DOCS / 'results' / 'variants').glob('*.jsonl.gz'), reverse=True)
    logs = {path.name.rsplit('_', 1)[0]: RunLog.read(path) for path in paths}
    longest = max(at_the_end(log.progress['env_step']) for log in logs.values())
    recipe = RunLog.read(RECIPE)
    for rows in (recipe.progress, recipe.evaluation):
        within = rows['env_step'] <= longest
        rows.update({column: values[within] for column, values in rows.items()})
    return {'recipe': recipe, **logs}


def at_the_end(values: np.ndarray) -> float:
    """The last value that there is."""
    there = values[np.isfinite(values)]
    return float(there[-1]) if len(there) else float('nan')


def variants_table(logs: Dict[str, RunLog], names: Dict[str, str]) -> str:
    """
    Overview:
        What each variant came to, in Markdown.
    """
    headers = ['', 'env steps', 'score while training, last 100 games', 'last evaluation', 'Q values', 'minutes']
    rows = []
    for name, label in names.items():
        if name in logs:
            progress, evaluation = logs[name].progress, logs[name].evaluation
            rows.append(
                [
                    label,
                    f'{at_the_end(progress["env_step"]):,.0f}',
                    f'{at_the_end(progress["train_return"]):.1f}',
                    f'{at_the_end(evaluation["score"]):.1f}',
                    f'{at_the_end(progress["q_value"]):.2f}',
                    f'{at_the_end(progress["hours"]) * 60:.0f}',
                ]
            )
    align = ('left', *['right'] * (len(headers) - 1))
    return tabulate(rows, headers, tablefmt='github', disable_numparse=True, colalign=align)


def draw(logs: Dict[str, RunLog], names: Dict[str, str], file: str) -> Path:
    """The curves of some variants."""
    curves = [Curve(label, (logs[name],)) for name, label in names.items() if name in logs]
    path = DOCS / 'figures' / file
    save_figure(draw_curves(curves, PANELS, 'env_step'), path)
    return path


def read_agents() -> List[dict]:
    """The shipped agents, that of fewer env steps first."""
    agents = [json.loads(path.read_text()) for path in (DOCS / 'results' / 'agents').glob('*.json')]
    return sorted(agents, key=lambda agent: agent['card']['env_steps'])


def scores_table(agents: Sequence[dict]) -> str:
    """
    Overview:
        Scores of the shipped agents under each protocol, in Markdown.
    """
    headers = ['agent', 'env steps', 'hours', 'protocol', 'mean', 'std', 'median', '95% interval', 'games', 'different']
    rows = []
    for agent in agents:
        card = agent['card']
        for protocol in PROTOCOLS:
            scores = card['scores'][protocol]
            low_high: Tuple[float, float] = scores['interval_95']
            rows.append(
                [
                    card['name'],
                    f'{card["env_steps"]:,}',
                    f'{card["hours"]:.2f}',
                    protocol,
                    f'{scores["mean"]:.1f}',
                    f'{scores["std"]:.1f}',
                    f'{scores["median"]:.0f}',
                    '{:.1f} to {:.1f}'.format(*low_high) if low_high else 'none',
                    scores['episodes'],
                    scores['distinct_games'],
                ]
            )
    align = ('left', 'right', 'right', 'left', *['right'] * 6)
    return tabulate(rows, headers, tablefmt='github', disable_numparse=True, colalign=align)


def averages_table(agents: Sequence[dict]) -> str:
    """
    Overview:
        What means of more and more checkpoints score in the games of the selection, in Markdown.
    """
    counts = sorted({row['checkpoints'] for agent in agents for row in agent['selection']['candidates']})
    headers = ['mean score of the mean of the last ...', *[f'{count}' for count in counts]]
    rows = []
    for agent in agents:
        by_count = {row['checkpoints']: row for row in agent['selection']['candidates']}
        cells = [f'{by_count[count]["mean"]:.1f}' if count in by_count else '' for count in counts]
        rows.append([f'{agent["card"]["env_steps"]:,} env steps, {agent["selection"]["games"]} games', *cells])
    align = ('left', *['right'] * len(counts))
    return tabulate(rows, headers, tablefmt='github', disable_numparse=True, colalign=align)


def without_fire() -> str:
    """
    Overview:
        What becomes of the shipped agent where nobody presses FIRE for it, in Markdown.
    """
    kept = json.loads((DOCS / 'results' / 'no_fire.json').read_text())
    scores, idle = [game['score'] for game in kept['games']], sum(game['truncated'] for game in kept['games'])
    steps = np.mean([game['steps'] for game in kept['games']])
    headers = ['games', 'mean score', 'mean length', 'cut off after 108,000 frames']
    row = [len(scores), f'{np.mean(scores):.1f}', f'{steps:,.0f} steps', idle]
    return tabulate([row], headers, tablefmt='github', disable_numparse=True)


def main() -> None:
    """Draw and fill in."""
    fill(GUIDES, 'no-fire', without_fire())
    logs, agents = read_variants(), read_agents()
    for names, block, figure in (
        (MATTERS, 'variants', 'training_variants.png'),
        (FAILURES, 'failures', 'training_failures.png'),
    ):
        print(draw(logs, names, figure), *fill(GUIDES, block, variants_table(logs, names)))
    if agents:
        fill([*GUIDES, *READMES], 'scores', scores_table(agents))
        fill(GUIDES, 'averages', averages_table(agents))


if __name__ == '__main__':
    main()
