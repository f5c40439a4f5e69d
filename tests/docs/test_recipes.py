"""Trainings for the guide: what is repeated after a stop, and what the tables say of the games."""

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
    """Stands for the command `breakout`: a run's log grows as it trains, 100 env steps in a row of the log."""

    def __init__(self):
        self.trained, self.stop = [], None

    def __call__(self, arguments, folder):
        words = list(map(str, arguments))[2:]
        given = dict(zip(words[1:], words[2:]))
        if words[0] == 'eval':
            (folder / 'games.json').write_text(json.dumps(dict(games=[dict(score=9.0)] * 40)))
        elif words[0] == 'train':
            self.trained.append(given['--exp-name'])
            share, self.stop = (0.5, None) if self.stop else (1, None)
            hours = share * float(given.get('--hours', 1))
            self.log(folder / given['--exp-name'], hours, share * int(given.get('--env-steps', 30000)) / 300)

    def log(self, run, hours, env_steps):
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


def trained(tmp_path, *words):
    paths = ['--out', tmp_path / 'runs', '--results', tmp_path / 'rows.json']
    return CliRunner().invoke(recipes.main, list(map(str, [*paths, *words])))


def test_every_variant_is_a_config_that_can_train():
    for variant in recipes.VARIANTS.values():
        changes = dict(_read_change(change) for change in (*recipes.COMMON, *variant.changes))
        checked_config(read_config_file(str(ROOT / variant.config)), 0, changes)


@pytest.mark.parametrize('budget', [('--minutes', 40), ('--env-steps', 30000)])
def test_a_training_is_done_once_and_has_a_row(tmp_path, breakout, budget):
    for _ in range(2):
        assert trained(tmp_path, '--variant', 'ppo', '--seed', 1, *budget).exit_code == 0
    assert breakout.trained == ['ppo_1']
    (row,) = Rows(tmp_path / 'rows.json').rows
    assert (row['env_steps'], row['updates'], row['train_score'], row['score']) == (30000, 7500, 300, 9)
    assert row['commit'] == 'abc1234' and row['games'] == [9] * 40
    assert len(row['curve']) == CURVE_POINTS and row['curve'][-1][0] == 30000


def test_a_training_that_was_stopped_has_no_row_and_is_resumed(tmp_path, breakout):
    breakout.stop = True
    stopped = trained(tmp_path, '--variant', 'ppo', '--minutes', 40)
    assert stopped.exit_code == 1 and 'ppo_0 has trained for 20.0 minutes; expected 40' in stopped.output
    assert Rows(tmp_path / 'rows.json').rows == []
    assert trained(tmp_path, '--variant', 'ppo', '--minutes', 40).exit_code == 0
    assert [row['minutes'] for row in Rows(tmp_path / 'rows.json').rows] == [40]
    past = trained(tmp_path, '--variant', 'ppo', '--minutes', 5)
    assert 'ppo_0 has trained for 40.0 minutes; expected 5' in past.output


def test_a_training_that_fails_is_an_error(tmp_path, monkeypatch):
    def fail(arguments, folder):
        raise click.ClickException('no such option')

    monkeypatch.setattr(recipes, 'run_python', fail)
    failed = trained(tmp_path, '--variant', 'ppo')
    assert failed.exit_code == 1 and 'no such option' in failed.output


def test_env_steps_are_for_variants_of_this_package(tmp_path):
    done = trained(tmp_path, '--variant', 'SB3 PPO', '--env-steps', 60000)
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
