"""The commands that a run prints at its end work where they are pasted, and continue the run."""

from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from ding.entry.cli import cli as ding
from easydict import EasyDict

from breakout_env.run.budget import Budget
from breakout_env.run.log import RunLogWriter
from breakout_env.run.next_steps import larger_budget, larger_stop_value, limits_of_ding, resume_command
from breakout_env.run.paths import PROGRESS_LOG
from breakout_env.utils.command_line import shell_command
from helpers.processes import BIN, completed


@pytest.mark.parametrize(
    'path, here, expected',
    [
        (BIN, Path('/'), 'breakout'),
        (None, BIN.parent.parent, f'{BIN.relative_to(BIN.parent.parent)}/breakout'),  # after `make`
        (None, BIN, f'{BIN}/breakout'),
        (None, Path('/usr'), f'{BIN}/breakout'),
    ],
    ids=['on PATH', 'below the current folder', 'in it', 'elsewhere'],
)
def test_a_command_is_called_as_a_shell_finds_it(path, here, expected, tmp_path, monkeypatch):
    (tmp_path / 'breakout').touch(mode=0o755)  # of another installation
    monkeypatch.setenv('PATH', f'{path or tmp_path}:/usr/bin:/bin')
    monkeypatch.chdir(here)
    assert shell_command('breakout', 'plot', "it's", 3) == f"{expected} plot 'it'\"'\"'s' 3"
    assert completed(['bash', '-c', shell_command('breakout', '--version')]).stdout.startswith('breakout, version')


def log_of(folder: Path, score: float = 5.0, **used) -> str:
    log = RunLogWriter(folder / PROGRESS_LOG)
    log.write('evaluation', **{**dict(run_s=1.0, env_step=90, updates=9), **used}, returns=[score])
    log.write('progress', **{**dict(run_s=3600.0, env_step=105, updates=10, games=3), **used})
    return str(folder)


@pytest.mark.parametrize(
    'budget, expected',
    [
        (Budget(env_steps=100, hours=2), Budget(env_steps=200, hours=2)),
        (Budget(updates=10), Budget(updates=20)),
        (Budget(episodes=1), Budget(episodes=4)),
        (Budget(env_steps=200, hours=0.5), Budget(env_steps=200, hours=2.0)),
        (Budget(env_steps=106), Budget(env_steps=106)),
    ],
)
def test_a_run_continues_with_twice_the_limits_that_it_has_reached(budget, expected, tmp_path):
    assert larger_budget(log_of(tmp_path), budget) == expected
    assert larger_budget(str(tmp_path / 'no log'), budget) == budget


def test_a_run_that_reached_its_stop_value_continues_with_a_larger_one(tmp_path):
    assert [larger_stop_value(log_of(tmp_path), value) for value in (4.0, 6.0, None)] == [10.0, None, None]
    assert larger_stop_value(log_of(tmp_path / 'untrained', updates=0), 4.0) is None


def test_a_run_of_ding_is_resumed_by_breakout_or_with_its_options(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(BIN))
    cfg = EasyDict(learn=dict(), eval=dict(evaluator=dict(stop_value=4.0)))
    learner = SimpleNamespace(
        exp_name=log_of(tmp_path / 'run'),
        collector_envstep=1005,
        train_iter=10,
        policy=SimpleNamespace(get_attribute=lambda name: cfg),
    )
    assert resume_command(learner) is None and limits_of_ding() == {}, 'a program, without a config file'

    def command(mode: str) -> str:
        words = ['-m', mode, '-c', 'my config.py', '-s', '7', '--env-step', '1e3', '--train-iter', '500']
        with click.Context(ding).scope() as context:
            ding.parse_args(context, words)
            assert limits_of_ding() == dict(max_env_step=1000, max_updates=500)
            return resume_command(learner)

    folder, config = tmp_path / 'run', "-c 'my config.py'"
    assert command('serial') == f'breakout train {config} --resume {folder} --env-steps 2000 --set env.stop_value=10'
    assert command('serial_dqfd') == (  # breakout train has no such pipeline
        f'ding -m serial_dqfd {config} -s 7 --exp-name {folder} --env-step 2000 --train-iter 500'
        '  # with env.stop_value=10.0, policy.learn.resume_training=True in my config.py'
    )
