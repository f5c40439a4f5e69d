"""Tables of the trainings in docs/results/recipes*.json, which benchmarks/recipes.py writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from blocks import ROOT, markdown
from scipy.stats import trim_mean

RESULTS = ROOT / 'docs' / 'results' / 'recipes.json'
ENV_STEPS_RESULTS = RESULTS.with_name('recipes_env_steps.json')
RESAMPLES = 10_000
# What `breakout train` runs on a CPU.
DEFAULT = 'ppo'


class Statistics(NamedTuple):
    """What the games of several seeds say about a recipe."""

    mean: float
    interquartile_mean: float
    interval_95: tuple[float, float]
    seeds_std: float
    """Standard deviation of the seeds' means; 0 for one seed."""


def statistics(games: Sequence[Sequence[float]]) -> Statistics:
    """Mean, interquartile mean (Agarwal et al. 2021) and the 95% percentile bootstrap interval of the mean. A resample
    draws seeds, and games of each of them (two stages, Davison & Hinkley 1997, section 3.8; ``scipy.stats.bootstrap``
    has one): the interval is about another training as well as about other games. Of one seed it is about the games
    alone.

    Arguments:
        games: The scores of each seed, as many of each.
    """
    scores = np.asarray(games, float)
    seeds, count = scores.shape
    random = np.random.default_rng(0)
    drawn = random.integers(seeds, size=(RESAMPLES, seeds, 1))
    means = scores[drawn, random.integers(count, size=(RESAMPLES, seeds, count))].mean(axis=(1, 2))
    low, high = np.percentile(means, [2.5, 97.5])
    std = scores.mean(axis=1).std(ddof=1) if seeds > 1 else 0.0
    return Statistics(float(scores.mean()), float(trim_mean(scores, 0.25, axis=None)), (low, high), float(std))


def rows(results: Path = RESULTS) -> list[dict[str, Any]]:
    """All trainings of equal time, also those that lost."""
    return json.loads(results.read_text())['rows']


def env_steps_rows() -> list[dict[str, Any]]:
    """All trainings that ended with their env steps."""
    return rows(ENV_STEPS_RESULTS)


def by_variant(found: Sequence[dict[str, Any]], budget: str = 'minutes') -> dict[tuple[float, str, str], list[dict]]:
    """The seeds of each variant, by its budget (``minutes`` or ``budget_env_steps``), name and CPU."""
    groups: dict[tuple[float, str, str], list[dict]] = {}
    for row in found:
        groups.setdefault((row[budget], row['variant'], row['cpu']), []).append(row)
    return groups


def ranked(found: Sequence[dict[str, Any]], budget: str) -> list[tuple[float, str, str, list[dict], Statistics]]:
    """Budget, name, CPU, seeds and statistics of each variant: the longest trainings first, and of those the best."""
    groups = by_variant(found, budget).items()
    rows = [(*key, seeds, statistics([row['games'] for row in seeds])) for key, seeds in groups]
    return sorted(rows, key=lambda row: (-row[0], -row[-1].mean))


def table(found: Sequence[dict[str, Any]]) -> str:
    """A row for each variant and time."""
    lines = []
    for minutes, name, cpu, seeds, of_games in ranked(found, 'minutes'):
        speeds = [np.mean([row[key] for row in seeds]) for key in ('env_steps', 'env_steps_per_s', 'updates_per_s')]
        scores = [f'{of_games.mean:.1f}', f'{of_games.interquartile_mean:.1f}']
        scores.append('{:.1f} to {:.1f}'.format(*of_games.interval_95))
        while_training = np.mean([row['train_score'] for row in seeds])
        about = [f'{minutes:g}', name, cpu, str(len(seeds)), *(f'{speed:,.0f}' for speed in speeds)]
        lines.append([*about, f'{while_training:.1f}', *scores, f'{of_games.seeds_std:.1f}' if len(seeds) > 1 else ''])
    headers = ['minutes', 'variant', 'CPU', 'seeds', 'env steps', 'env steps/s', 'updates/s', 'while training', 'mean']
    return markdown([*headers, 'interquartile mean', '95% interval', 'std of seeds'], lines, 9)


def after_env_steps(found: Sequence[dict[str, Any]]) -> str:
    """A row for each variant that trained for a number of env steps."""
    lines = []
    for env_steps, name, cpu, seeds, of_games in ranked(found, 'budget_env_steps'):
        updates, while_training = (np.mean([row[key] for row in seeds]) for key in ('updates', 'train_score'))
        about = [f'{env_steps:,}', name, cpu, str(len(seeds)), f'{updates:,.0f}', f'{while_training:.1f}']
        lines.append([*about, f'{of_games.mean:.1f}', '{:.1f} to {:.1f}'.format(*of_games.interval_95)])
    headers = ['env steps', 'variant', 'CPU', 'seeds', 'updates', 'while training', 'mean', '95% interval']
    return markdown(headers, lines, 5)


def expect(found: Sequence[dict[str, Any]], timed: Sequence[dict[str, Any]]) -> str:
    """What the recipe scores after some env steps of each budget, as the mean of its seeds, and when on each CPU."""
    budgets: dict[float, list[np.ndarray]] = {}
    for row in found:
        if row['variant'] == DEFAULT:
            budgets.setdefault(row['budget_env_steps'], []).append(np.transpose(row['curve']))
    speeds: dict[str, list[float]] = {}
    for row in timed:
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
