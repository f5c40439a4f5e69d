"""Trainings for the guide: that their variants can train, and what the tables say of the games."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from benchmarks import recipes
from breakout_env.cli.train_command import _read_change
from breakout_env.run.config import checked_config, read_config_file
from helpers.processes import ROOT


def test_every_variant_is_a_config_that_can_train():
    for variant in recipes.VARIANTS.values():
        changes = dict(_read_change(change) for change in (*recipes.COMMON, *variant.changes))
        checked_config(read_config_file(str(ROOT / variant.config)), 0, changes)


def test_the_interval_of_a_score_is_over_seeds_and_games(scripts):
    statistics = scripts('training_rows').statistics
    games = np.random.default_rng(0).poisson(100, (1, 100))
    one = statistics(games)
    expected = bootstrap(games, np.mean, method='percentile', rng=1).confidence_interval
    assert one.interval_95 == pytest.approx(tuple(expected), abs=0.2)
    several = statistics([games[0] + shift for shift in (-30, 0, 30)])  # the seeds differ by more than the games
    assert several.mean == pytest.approx(one.mean) and several.seeds_std == pytest.approx(30)
    assert several.interval_95[1] - several.interval_95[0] > 8 * (one.interval_95[1] - one.interval_95[0])


def test_what_to_expect_is_by_env_steps_with_minutes_for_each_cpu(scripts):
    def row(seed, cpu, speed, env_steps):
        curve = [[1000, 0.01, 2.0], [env_steps, env_steps / speed / 3600, env_steps / 1e5]]
        about = dict(seed=seed, minutes=1, hours=curve[-1][1], cpu=cpu, env_steps_per_s=speed, score=7.0)
        return dict(variant='ppo', env_steps=env_steps, curve=curve, **about)

    rows = [row(0, 'A', 1000, 2_000_000), row(1, 'A', 2000, 1_000_000), row(0, 'B', 500, 500_000)]
    table = scripts('training_rows').expect(rows)
    header, _, *lines = [[cell.strip() for cell in line.split('|')[1:-1]] for line in table.splitlines()]
    assert header[-2:] == ['minutes, A', 'minutes, B']
    assert [line[0] for line in lines] == ['0.5', '1', '2']
    assert lines[1][1:4] == ['10', '2', '11'] and float(lines[2][1]) == 20
