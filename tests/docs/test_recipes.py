"""The search for a recipe: which variants go on, what is repeated after a stop, and what a table says of the games."""

import json

import click
import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import bootstrap

from benchmarks import recipes
from benchmarks.common.trainings import CURVE_POINTS, Rows
from breakout_env.cli.train_command import _read_change
from breakout_env.run.config import checked_config, read_config_file
from breakout_env.run.log import RunLogWriter
from helpers.processes import ROOT


class Breakout(object):
    """Stands for the command `breakout`: a run's log grows as it trains, and a game's score is in the run's name."""

    def __init__(self):
        self.trained, self.stops = [], []

    def __call__(self, arguments, folder):
        words = list(map(str, arguments))[2:]
        given = dict(zip(words[1:], words[2:]))
        if words[0] == 'train':
            run, hours = folder / given['--exp-name'], float(given.get('--hours', 1))
            if '--env-steps' in given:
                self.trained.append((run.name, given['--env-steps']))
                self.log(run, hours, int(given['--env-steps']) / 300)
                return
            if self.stops:
                hours, error = hours / 2, self.stops.pop()
                self.log(run, hours)
                if error:
                    raise error
                return
            self.trained.append((run.name, round(60 * hours, 6)))
            self.log(run, hours)
        elif words[0] == 'eval':
            score = {'lean_dqn': 3.0, 'ppo_points': 9.0, 'ppo': 6.0}[folder.name.rsplit('_', 1)[0]]
            (folder / 'games.json').write_text(json.dumps(dict(games=[dict(score=score)] * 40)))

    def log(self, run, hours, env_steps=100):
        log = RunLogWriter(run / 'log' / 'progress.jsonl')
        log.write('run', commit='abc1234', env_step=0)
        for row in range(1, 301):
            at = dict(env_step=int(row * env_steps), updates=row * 25, run_s=3600 * hours * row / 300)
            log.write('progress', **at, train_return=None if row < 3 else row)
        (run / 'ckpt').mkdir(exist_ok=True)
        for updates in (1000, 2000):
            (run / 'ckpt' / f'iteration_{updates}.pth.tar').touch()


@pytest.fixture
def breakout(monkeypatch):
    monkeypatch.setattr(recipes, 'run_python', command := Breakout())
    return command


def searched(tmp_path, *rounds):
    words = ['--out', tmp_path / 'runs', '--results', tmp_path / 'rows.json']
    words += [word for name in ('lean_dqn', 'ppo_points', 'ppo') for word in ('--only', name)]
    words += [word for one in rounds for word in ('--round', *one)]
    return CliRunner().invoke(recipes.main, list(map(str, words)))


def test_every_variant_is_a_config_that_can_train():
    for variant in recipes.VARIANTS.values():
        changes = dict(_read_change(change) for change in (*recipes.COMMON, *variant.changes))
        checked_config(read_config_file(str(ROOT / variant.config)), 0, changes)


def test_the_best_variants_of_a_round_train_on_in_the_next_with_more_seeds(tmp_path, breakout):
    assert searched(tmp_path, (0, 15, 1), (2, 40, 2), (1, 80, 1)).exit_code == 0
    first = [('lean_dqn_0', 15), ('ppo_points_0', 15), ('ppo_0', 15)]
    second = [(f'{name}_{seed}', 40) for seed in range(2) for name in ('ppo_points', 'ppo')]
    assert breakout.trained == [*first, *second, ('ppo_points_0', 80)]
    row = Rows(tmp_path / 'rows.json').find(variant='ppo_points', seed=1, minutes=40)
    assert row['changes'][-1] == 'policy.learn.ema_decay=None' and row['commit'] == 'abc1234'
    assert (row['env_steps'], row['updates'], row['train_score'], row['score']) == (30000, 7500, 300, 9)
    assert row['games'] == [9] * 40 and row['env_steps_per_s'] == pytest.approx(12.5)
    assert len(row['curve']) == CURVE_POINTS and row['curve'][-1] == [30000, pytest.approx(2 / 3, abs=1e-3), 300]


@pytest.mark.parametrize('stop', [SystemExit(130), KeyboardInterrupt()])
def test_a_search_that_was_stopped_repeats_nothing_that_is_done(tmp_path, breakout, stop):
    searched(tmp_path, (0, 15, 1))
    breakout.stops = [stop]
    assert searched(tmp_path, (0, 15, 1), (2, 40, 1)).exit_code != 0  # while the first of the second round trained
    assert searched(tmp_path, (0, 15, 1), (2, 40, 1)).exit_code == 0
    assert [name for name, minutes in breakout.trained if minutes == 40] == ['ppo_points_0', 'ppo_0']
    trained = len(breakout.trained)
    assert searched(tmp_path, (0, 15, 1), (2, 40, 1)).exit_code == 0 and len(breakout.trained) == trained == 5


def test_a_training_that_fails_is_said_and_leaves_the_others(tmp_path, breakout):
    breakout.stops = [click.ClickException('no such option')]
    done = searched(tmp_path, (0, 15, 1), (1, 40, 1))
    assert 'lean_dqn, seed 0: no such option' in done.output
    assert breakout.trained == [('ppo_points_0', 15), ('ppo_0', 15), ('ppo_points_0', 40)]


def test_a_training_that_ends_before_its_time_has_no_row(tmp_path, breakout):
    breakout.stops = [None]
    assert 'lean_dqn_0 has trained for 7.5 minutes; expected 15' in searched(tmp_path, (0, 15, 1)).output
    assert [row['variant'] for row in Rows(tmp_path / 'rows.json').rows] == ['ppo_points', 'ppo']
    assert searched(tmp_path, (0, 15, 1)).exit_code == 0 and breakout.trained[-1] == ('lean_dqn_0', 15)  # resumed
    assert 'lean_dqn_0 has trained for 15.0 minutes; expected 5' in searched(tmp_path, (0, 5, 1)).output


def after_env_steps(tmp_path, *words):
    paths = ['--out', tmp_path / 'runs', '--results', tmp_path / 'rows.json']
    return CliRunner().invoke(recipes.main, list(map(str, [*paths, *words])))


def test_a_variant_trains_once_for_as_many_env_steps_as_are_asked(scripts, tmp_path, breakout):
    for _ in range(2):
        assert after_env_steps(tmp_path, '--variant', 'ppo', '--env-steps', 60000).exit_code == 0
    assert breakout.trained == [('ppo_0', '60000')]
    (row,) = Rows(tmp_path / 'rows.json').rows
    assert (row['env_steps'], row['score'], row['train_score']) == (60000, 6, 300) and 'minutes' not in row
    (line,) = scripts('training_rows').after_env_steps([row]).splitlines()[2:]
    assert [cell.strip() for cell in line.split('|')[1:6]] == ['60,000', 'ppo', '1', '7,500', '300.0']
    assert (
        'ppo_0 has trained for 60,000 env steps; expected 50,000'
        in after_env_steps(tmp_path, '--variant', 'ppo', '--env-steps', 50000).output
    )


@pytest.mark.parametrize('words', [(), ('--variant', 'SB3 PPO')])
def test_env_steps_are_for_one_variant_of_this_package(tmp_path, words):
    done = after_env_steps(tmp_path, *words, '--env-steps', 60000)
    assert done.exit_code == 2 and 'expected a variant of this package' in done.output


def test_the_interval_of_a_score_is_over_seeds_and_games(scripts):
    statistics = scripts('training_rows').statistics
    games = np.random.default_rng(0).poisson(100, (1, 100))
    one = statistics(games)
    expected = bootstrap(games, np.mean, method='percentile', rng=1).confidence_interval
    assert one.interval_95 == pytest.approx(tuple(expected), abs=0.2)
    several = statistics([games[0] + shift for shift in (-30, 0, 30)])  # the seeds differ by more than the games
    assert several.mean == pytest.approx(one.mean) and several.seeds_std == pytest.approx(30)
    assert several.interval_95[1] - several.interval_95[0] > 8 * (one.interval_95[1] - one.interval_95[0])
    assert statistics([[0, 10, 10, 90]]).interquartile_mean == 10


def test_all_trainings_are_in_the_table_and_the_long_ones_are_drawn(scripts, tmp_path, breakout):
    searched(tmp_path, (0, 15, 1), (2, 40, 2))
    make, rows = scripts('training_rows'), Rows(tmp_path / 'rows.json').rows
    lines = [[cell.strip() for cell in line.split('|')[1:3]] for line in make.table(rows).splitlines()[2:]]
    assert lines == [
        ['40', 'ppo_points'],
        ['40', 'ppo'],
        ['15', 'ppo_points'],
        ['15', 'ppo'],
        ['15', 'lean_dqn'],
    ]
    assert [(curve.label, len(curve.runs)) for curve in make.curves(make.drawn(rows))] == [
        ('ppo', 2),
        ('ppo_points', 2),
    ]


def test_a_seed_that_trained_longer_is_drawn_beside_the_others(scripts, tmp_path, breakout):
    searched(tmp_path, (0, 15, 1), (1, 40, 3), (1, 80, 1))
    make = scripts('training_rows')
    (curve,) = make.curves(make.drawn(Rows(tmp_path / 'rows.json').rows))
    hours = [log.progress['hours'][-1] for log in curve.runs]
    assert hours == pytest.approx([80 / 60, 40 / 60, 40 / 60], abs=1e-3)


def test_the_first_million_env_steps_of_dqn_are_drawn_beside_those_of_the_default(scripts):
    def row(name, minutes, **more):
        curve = [[1000, 0.1, 2.0], [1_000_000, 0.2, 3.0], [1_100_000, 0.3, 4.0]]
        return dict(variant=name, seed=0, minutes=minutes, hours=minutes / 60, curve=curve, **more)

    timed = [
        row('ppo_overlap', 15),
        row('ppo_overlap', 40),
        row('ppo_batch_32', 40),
        row('lean_dqn', 15),
        row('lean_dqn_a', 40),
    ]
    found = scripts('training_rows').first_million(timed, [row('lean_dqn_b', 70)])
    assert [(each['variant'], each['minutes']) for each in found] == [
        ('ppo_overlap', 15),
        ('lean_dqn_a', 40),
        ('lean_dqn_b', 70),
    ]
    assert all(each['curve'][-1][0] == 1_000_000 for each in found)


def test_what_to_expect_is_read_off_the_longest_training_of_each_seed(scripts, tmp_path, breakout):
    searched(tmp_path, (0, 15, 1), (2, 40, 2))
    rows = Rows(tmp_path / 'rows.json').rows

    def expected(variant):
        table = scripts('training_rows').expect(rows, variant).splitlines()[2:]
        return [[cell.strip() for cell in line.split('|')[1:-1]] for line in table]

    minutes, _, scores, agents, seeds = zip(*expected('ppo_points'))
    assert minutes == ('5', '10', '15', '30', '40') and seeds == ('2',) * 5
    assert [float(score) for score in scores] == pytest.approx([37.5, 75, 112.5, 225, 300], abs=1)
    assert agents == ('', '', '9 (1 of the seeds)', '', '9')
    assert [line[-1] for line in expected('lean_dqn')] == ['1'] * 3
