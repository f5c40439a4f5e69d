"""`breakout train` and `ding -m serial` as a user runs them: the line, the log, budgets, stops, several seeds."""

import json
import pickle
import re
import signal
import sys
from pathlib import Path

import click
import pytest

from breakout_env.run.budget import Budget
from breakout_env.run.paths import saves_in
from helpers.processes import BIN, Command, run
from helpers.runs import NAME, OURS, config_in, ding_serial, entry
from helpers.terminal import Terminal

PROGRESS = (
    r'log_show_after_iter=1,',
    "log_show_after_iter=1, progress=dict(type='progress', name='progress', position='before_run', "
    'ext_args=dict(max_env_step=3000, log_every_s=0.5)),',
)
COMMAND = [sys.executable, '-m', 'breakout_env', 'train']


def rows_of(folder: Path, kind: str = None) -> list:
    rows = [json.loads(line) for line in (folder / 'log' / 'progress.jsonl').read_text().splitlines()]
    return [row for row in rows if kind in (None, row['kind'])]


@pytest.fixture(scope='module')
def stopped_and_resumed(tmp_path_factory):
    """`breakout train` in a terminal, stopped by Ctrl-C and resumed; its folder and what both drew."""
    folder = tmp_path_factory.mktemp('terminal')
    config = config_in(folder, 900, PROGRESS)
    first = Terminal([*COMMAND, '-c', str(config), '-s', '7', '--env-steps', '100000'], folder)
    first.wait_for(lambda: re.search(r'updates/s.*GB', first.text)).press_ctrl_c()
    assert first.exit_code() == 0, first.text
    stopped_at = rows_of(folder / NAME)[-1]
    again = re.search(r'resume: +(breakout .*?)\r?\n', first.text)[1]
    further = str(stopped_at['env_step'] + 1600)  # several whole games, however busy the machine is
    command = [*COMMAND[:3], *again.replace('100000', further).replace('-s 7 ', '').split()[1:]]
    second = Terminal(command, folder)
    assert second.exit_code() == 0, second.text
    return folder, first.text, second.text, stopped_at


def test_the_terminal_shows_the_line_and_logs_stay_in_their_files(stopped_and_resumed):
    folder, text, _, _ = stopped_and_resumed
    line = re.findall(r'[^\r\n]*updates/s[^\r\n]*', text)[-1]
    assert re.search(r'\d+%.*[\d.]+k?/100k \[\d+:\d+<.*env steps/s', line), line
    assert re.search(r'\d+ updates/s, score [\d.]+ \(best [\d.]+\)(, playing [\d.]+)?, \d\.\d GB', line), line
    assert 'Training Iteration' not in text
    assert 'Training Iteration' in (folder / NAME / 'log' / 'learner' / 'learner_logger.txt').read_text()


def test_ctrl_c_saves_the_run_and_the_shown_command_resumes_it(stopped_and_resumed):
    folder, first, second, stopped_at = stopped_and_resumed
    assert 'Stopping: finishing what is under way' in first
    assert re.search(r'Resuming .* at [\d,]+ updates', second), second
    runs, rows = rows_of(folder / NAME, 'run'), rows_of(folder / NAME, 'progress')
    assert [run['env_step'] for run in runs][0] < [run['env_step'] for run in runs][1]
    assert runs[1]['env_step'] == stopped_at['env_step']
    # the clock continues where it was, without the pause
    assert runs[1]['run_s'] == pytest.approx(stopped_at['run_s'], abs=15)
    assert rows[-1]['run_s'] > stopped_at['run_s'] and rows[-1]['games'] >= stopped_at['games']
    assert 'budget' in second and rows[-1]['env_step'] >= stopped_at['env_step'] + 400


STOCK_EVALUATOR = (r"evaluator=dict\(type='resumable', import_names=\['breakout_env'\]\),", '')


def test_ding_serial_without_a_terminal_draws_no_line_and_its_resumed_run_may_end_before_an_evaluation(tmp_path):
    """DI-engine's pipeline needs the result of an evaluation of its own process, however short that is."""
    config = config_in(tmp_path, 900, PROGRESS, STOCK_EVALUATOR)
    output = run(ding_serial(config, 120), tmp_path)
    assert 'updates/s' not in output and 'Training Iteration' in output
    assert rows_of(tmp_path / NAME, 'progress')[-1]['updates'] > 0
    run(ding_serial(config, 140), tmp_path)
    begun, resumed = rows_of(tmp_path / NAME, 'run')
    assert begun['env_step'] == 0 and resumed['env_step'] >= 120
    with (tmp_path / NAME / 'result.pkl').open('rb') as file:
        assert pickle.load(file)['eval_value_raw']


BEGINS = (r'resume_training=True', 'resume_training=False')


def test_several_seeds_are_runs_of_their_own_that_one_signal_stops_and_resume_continues(tmp_path):
    (tmp_path / 'ding').mkdir()  # as in a checkout of DI-engine; nothing is imported from the current folder
    (tmp_path / 'ding' / '__init__.py').write_text('raise ImportError("the current folder")')
    config = config_in(tmp_path, 900, PROGRESS, BEGINS)
    seeds = [BIN / 'breakout', 'train', '-c', config, '-s', '3', '-s', '5']
    command = Command(seeds, tmp_path)
    first, second = (tmp_path / f'{NAME}_seed{seed}' for seed in (3, 5))
    command.wait_for((first / 'ckpt' / 'iteration_0.pth.tar').exists)
    assert command.end(signal.SIGTERM) == 128 + signal.SIGTERM  # a scheduler signals only the command
    assert command.text.count('Stopping') == 1 and saves_in(first) and not second.exists()
    output = run([*seeds, '--updates', '10', '--resume'], tmp_path)
    assert f'Resuming {NAME}_seed3' in output
    assert [[row['seed'] for row in rows_of(folder, 'run')] for folder in (first, second)] == [[3, 3], [5]]


def test_a_budget_ends_the_run_and_the_shown_command_can_be_pasted_into_a_shell(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, BEGINS)
    name = 'it\'s "mine" $HOME'
    options = ['--exp-name', name, '--set', 'policy.learn.learning_rate=0.0002', '--episodes', '2', '--serial']
    output = run([*COMMAND, '-c', config.name, *options], tmp_path)
    assert output.startswith(f'Training in {name}\n') and 'env steps, random play' in output
    assert re.search(r'The budget of .* is used up', output) and 2 <= rows_of(tmp_path / name)[-1]['games'] <= 3
    again = re.search(r'resume: +(breakout train .*)', output)[1].replace('--episodes 2', '--episodes 3')
    more = run(['bash', '-c', again], tmp_path)
    assert f'Resuming {name} at ' in more and re.search(r'resume: +(breakout train .*)', more)[1] == again


STOCK = (  # DI-engine's collector, evaluator and buffer
    (r"collector=dict\(type='nstep', import_names=\['breakout_env'\]\),", ''),
    STOCK_EVALUATOR,
    (r"type='frame', import_names=\['breakout_env'\]", "type='advanced'"),
)


def test_stock_collector_evaluator_and_buffer_train_and_log_what_they_provide(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, *STOCK)
    run([*COMMAND, '-c', config, '--updates', '4'], tmp_path)
    last = rows_of(tmp_path / NAME, 'progress')[-1]
    assert last['updates'] == 4 and last['loss'] > 0 and last['games'] is last['replay_bytes'] is None


def test_a_budget_in_games_needs_a_collector_that_counts_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = config_in(tmp_path, 900, OURS, *STOCK)
    with pytest.raises(click.UsageError, match="the collector 'sample' counts no full games; expected one of type"):
        entry().train(str(config), 0, Budget(episodes=3))
