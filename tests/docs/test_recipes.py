"""Trainings for the guide: that their variants can train, and what the tables say of the games."""

import numpy as np
import pytest
from scipy.stats import bootstrap


def test_the_interval_of_a_score_is_over_seeds_and_games(scripts):
    statistics = scripts('training_rows').statistics
    games = np.random.default_rng(0).poisson(100, (1, 100))
    one = statistics(games)
    expected = bootstrap(games, np.mean, method='percentile', rng=1).confidence_interval
    assert one.interval_95 == pytest.approx(tuple(expected), abs=0.2)
    several = statistics([games[0] + shift for shift in (-30, 0, 30)])  # the seeds differ by more than the games
    assert several.mean == pytest.approx(one.mean) and several.seeds_std == pytest.approx(30)
    assert several.interval_95[1] - several.interval_95[0] > 8 * (one.interval_95[1] - one.interval_95[0])
