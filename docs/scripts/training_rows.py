"""Tables of the trainings in docs/results/recipes*.json, which benchmarks/recipes.py writes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from blocks import ROOT, markdown

RESULTS = ROOT / 'docs' / 'results'
RESAMPLES = 10_000
# What `breakout train` runs on a CPU.
DEFAULT = 'ppo'


def interval_95(games: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95% percentile bootstrap interval of the mean. A resample draws seeds, and games of each of them (two stages,
    Davison & Hinkley 1997, section 3.8): the interval is about another training as well as about other games. Of one
    seed it is about the games alone.

    Arguments:
        games: The scores of each seed, as many of each.
    """
    scores = np.asarray(games, float)
    seeds, count = scores.shape
    random = np.random.default_rng(0)
    drawn = random.integers(seeds, size=(RESAMPLES, seeds, 1))
    means = scores[drawn, random.integers(count, size=(RESAMPLES, seeds, count))].mean(axis=(1, 2))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def timed() -> list[dict[str, Any]]:
    """All trainings of equal time, also the losers."""
    return json.loads((RESULTS / 'recipes.json').read_text())['rows']


def by_env_steps() -> list[dict[str, Any]]:
    """All trainings that ended with their env steps."""
    return json.loads((RESULTS / 'recipes_env_steps.json').read_text())['rows']


def ranked(found: Sequence[dict[str, Any]], budget: str, columns: Mapping[str, str]) -> list[list[str]]:
    """Budget, name, CPU, seeds, the means of columns (formatted), score and its interval of each variant: the longest
    trainings first, and of those the best.
    """
    groups: dict[tuple[float, str, str], list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault((row[budget], row['variant'], row['cpu']), []).append(row)
    lines = []
    for (asked, *about), seeds in sorted(groups.items(), key=lambda group: (-group[0][0], -_mean(group[1], 'score'))):
        means = [format(_mean(seeds, column), style) for column, style in columns.items()]
        low, high = interval_95([row['games'] for row in seeds])
        score = [f'{_mean(seeds, "score"):.1f}', f'{low:.1f} to {high:.1f}']
        lines.append([f'{asked:,.0f}', *about, str(len(seeds)), *means, *score])
    return lines


def _mean(seeds: Sequence[dict[str, Any]], column: str) -> float:
    return float(np.mean([row[column] for row in seeds]))


def table() -> str:
    """A row for each variant and time."""
    columns = dict(env_steps=',.0f', env_steps_per_s=',.0f', updates_per_s=',.0f', train_score='.1f')
    headers = ['minutes', 'variant', 'CPU', 'seeds', 'env steps', 'env steps/s', 'updates/s', 'while training', 'mean']
    return markdown([*headers, '95% interval'], ranked(timed(), 'minutes', columns), 7)


def after_env_steps() -> str:
    """A row for each variant that trained for a number of env steps."""
    columns = dict(updates=',.0f', train_score='.1f')
    headers = ['env steps', 'variant', 'CPU', 'seeds', 'updates', 'while training', 'mean', '95% interval']
    return markdown(headers, ranked(by_env_steps(), 'budget_env_steps', columns), 5)


def expect() -> str:
    """What the recipe scores after some env steps of each budget, as the mean of its seeds, and when on each CPU."""
    budgets: dict[float, list[np.ndarray]] = {}
    for row in by_env_steps():
        if row['variant'] == DEFAULT and row['budget_env_steps'] > 1e6:  # shorter ones end where it begins to learn
            budgets.setdefault(row['budget_env_steps'], []).append(np.transpose(row['curve']))
    speeds: dict[str, list[float]] = {}
    for row in timed():
        if row['variant'] == DEFAULT:
            speeds.setdefault(row['cpu'], []).append(row['env_steps_per_s'])
    at = 1e6 * np.array([0.5, 1, 2, 3, 4, 5, 6, 8, 10])
    columns = {'million env steps': [f'{env_steps / 1e6:g}' for env_steps in at]}
    for budget, curves in sorted(budgets.items()):
        scores = np.mean([np.interp(at, env_steps, score, right=np.nan) for env_steps, _, score in curves], axis=0)
        name = f'score, budget of {budget / 1e6:g} million ({len(curves)} seeds)'
        columns[name] = ['' if np.isnan(score) else f'{score:.0f}' for score in scores]
    for cpu, per_s in sorted(speeds.items()):
        columns[f'minutes, {cpu}'] = [f'{env_steps / np.mean(per_s) / 60:.0f}' for env_steps in at]
    return markdown([*columns], [list(cells) for cells in zip(*columns.values())], len(columns))
