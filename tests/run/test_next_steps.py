"""The commands that a run prints at its end work where they are pasted, and continue the run."""

from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from ding.entry.cli import cli as ding

from breakout_env.run.budget import Budget
from breakout_env.run.log import RunLogWriter
from breakout_env.run.next_steps import larger_budget, limits_of_ding, resume_command
from breakout_env.run.paths import PROGRESS_LOG
from breakout_env.utils.command_line import shell_command
from helpers.processes import BIN, completed


@pytest.mark.parametrize(
    'path, here, expected',
    [
        (BIN, Path('/'), 'breakout'),
        (None, BIN.parent.parent, f'{BIN.relative_to(BIN.parent.parent)}/breakout'),  # after `make`
        (None, Path('/usr'), f'{BIN}/breakout'),
    ],
    ids=['on PATH', 'below the current folder', 'elsewhere'],
)
def test_a_command_is_called_as_a_shell_finds_it(path, here, expected, tmp_path, monkeypatch):
    (tmp_path / 'breakout').touch(mode=0o755)  # of another installation
    monkeypatch.setenv('PATH', f'{path or tmp_path}:/usr/bin:/bin')
    monkeypatch.chdir(here)
    assert shell_command('breakout', 'plot', "it's", 3) == f"{expected} plot 'it'\"'\"'s' 3"
    assert completed(['bash', '-c', shell_command('breakout', '--version')]).stdout.startswith('breakout, version')


@pytest.mark.parametrize(
    'budget, expected',
    [
        (Budget(env_steps=100, hours=2), Budget(env_steps=200, hours=2)),
        (Budget(episodes=1, updates=11), Budget(episodes=4, updates=11)),
        (Budget(env_steps=106), Budget(env_steps=106)),
    ],
)
def test_a_run_continues_with_twice_the_limits_that_it_has_reached(budget, expected, tmp_path):
    RunLogWriter(tmp_path / PROGRESS_LOG).write('progress', run_s=3600.0, env_step=105, updates=10, games=3)
    assert larger_budget(str(tmp_path), budget) == expected
    assert larger_budget(str(tmp_path / 'no log'), budget) == budget


def test_a_run_of_ding_is_resumed_by_breakout_if_it_is_of_its_pipeline(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(BIN))
    monkeypatch.chdir(tmp_path)
    RunLogWriter(Path('run', PROGRESS_LOG)).write('progress', env_step=1005)
    learner = SimpleNamespace(exp_name='run')
    assert resume_command(learner) is None and limits_of_ding() == {}, 'a program, without a config file'

    def command(mode: str) -> str | None:
        words = ['-m', mode, '-c', 'my config.py', '-s', '7', '--env-step', '1e3', '--train-iter', '500']
        with click.Context(ding).scope() as context:
            ding.parse_args(context, words)
            assert limits_of_ding() == dict(max_env_step=1000, max_updates=500)
            return resume_command(learner)

    assert command('serial') == "breakout train -c 'my config.py' --resume run --env-steps 2000"
    assert command('serial_dqfd') is None
