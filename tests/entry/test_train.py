"""`breakout train` and `ding -m serial` as a user runs them: the log, budgets, stops."""

import pickle
import re
import runpy
import sys

import pytest

from helpers.processes import ROOT, completed, run
from helpers.runs import NAME, OURS, PROGRESS, config_in, ding_serial, rows_of

pytestmark = pytest.mark.process

COMMAND = [sys.executable, '-m', 'breakout_env', 'train']


STOCK_EVALUATOR = (r"evaluator=dict\(type='resumable', import_names=\['breakout_env'\]\),", '')


def test_ding_serial_without_a_terminal_names_commands_that_work(tmp_path):
    """A resumed run may end before an evaluation is due, and DI-engine's pipeline needs the result of one."""
    config = config_in(tmp_path, 900, PROGRESS, STOCK_EVALUATOR)
    output = run(ding_serial(config, 120), tmp_path)
    assert 'updates/s' not in output and 'Training Iteration' in output
    assert rows_of(tmp_path / NAME, 'progress')[-1]['updates'] > 0
    assert f'Checkpoints, logs and the merged config are in {NAME}' in output
    ours, score = (re.search(rf'\n  {what}: +(.*)', output)[1] for what in ('resume', 'its score'))
    assert '--env-steps 240' in ours
    assert 'The performance of your RL policy is' in run(['bash', '-c', score], tmp_path)
    run(ding_serial(config, 240), tmp_path)
    with (tmp_path / NAME / 'result.pkl').open('rb') as file:
        assert pickle.load(file)['eval_value_raw']
    assert 'is used up' in run(['bash', '-c', ours.replace('240', '260')], tmp_path)
    assert [row['env_step'] // 120 for row in rows_of(tmp_path / NAME, 'run')] == [0, 1, 2]


BEGINS = (r'resume_training=True', 'resume_training=False')


def test_a_budget_ends_the_run_and_the_shown_command_resumes_it(tmp_path):
    names_no_model = (r"type='pixel_dqn',\s+import_names=\['breakout_env'\],", '')
    lean = (r"type='dqn'", "type='lean_dqn', import_names=['breakout_env']")
    config = config_in(tmp_path, 900, PROGRESS, BEGINS, names_no_model, lean)
    name = 'it\'s "mine" $HOME'
    options = ['--exp-name', name, '--set', 'policy.learn.learning_rate=0.0002', '--episodes', '2', '--serial']
    # as a notebook leaves it for its children
    environ = dict(MPLBACKEND='module://of_another_python.backend', PYTHONIOENCODING='ascii', DISPLAY=':77')
    output = run([*COMMAND, '-c', config.name, *options], tmp_path, **environ)
    assert output.startswith(f'Training in {name}\n') and 'env steps, before the first update' in output
    assert re.search(r'The budget of .* is used up', output) and 2 <= rows_of(tmp_path / name)[-1]['games'] <= 3
    again = re.search(r'resume: +(breakout train .*)', output)[1]
    more = run(['bash', '-c', again], tmp_path)
    assert f'Resuming {name} at ' in more and rows_of(tmp_path / name)[-1]['games'] >= 4
    policy = runpy.run_path(str(tmp_path / name / 'total_config.py'))['exp_config']['policy']
    assert policy['model']['type'] == 'pixel_dqn' and policy['random_collect_size'] > 0, 'as it began'


def test_auto_resume_begins_a_run_and_continues_it_until_a_score(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, BEGINS)
    command = [*COMMAND, '-c', config, '--auto-resume', '--exp-name', 'mine', '--set', 'env.stop_value=-1']
    first = run([*command, '--hours', '0.0005'], tmp_path)  # an evaluation of an untrained network ends no run
    assert 'The budget of 0.0005 hours is used up' in first and 'Resuming' not in first
    second = run([*command, '--hours', '1'], tmp_path)
    assert 'Resuming mine at ' in second and 'is used up' not in second
    (begun, resumed), last = rows_of(tmp_path / 'mine', 'run'), rows_of(tmp_path / 'mine', 'evaluation')[-1]
    assert begun['env_step'] == 0 < resumed['updates'] == last['updates']
    assert re.search(r'--hours 0\.00[1-9]', first) and 'The score has reached env.stop_value' in second


FAILING = """
from ding.utils import ENV_REGISTRY
from breakout_env import BreakoutEnv

@ENV_REGISTRY.register('failing')
class FailingEnv(BreakoutEnv):
    def reset(self):
        raise KeyError('no such level')
"""


def test_a_start_that_fails_is_one_error_and_gives_its_folder_back(tmp_path):
    (tmp_path / 'failing.py').write_text(FAILING)
    own = (r"type='breakout',\n\s+import_names=\['breakout_env'\]", "type='failing', import_names=['failing']")
    result = completed([*COMMAND, '-c', config_in(tmp_path, 900, OURS, own, BEGINS)], tmp_path)
    error = result.stderr.strip().splitlines()
    assert result.returncode == 1 and 'Traceback' not in result.stderr and 'Hint' not in result.stdout
    assert re.fullmatch(
        r'Error: the environments did not start: KeyError\(.*no such level.*\)\. The load average is .*', error[-1]
    )
    assert not (tmp_path / NAME).exists()


# what a notebook finds after a run: all as it was, and nothing of the run in the log of the next one
HOST = """
import logging, os, signal, sys, warnings
import torch
import breakout_env, entry.serial, entry.on_ray
from breakout_cli import main
from breakout_env.run.budget import Budget

def state():
    root, loggers = logging.getLogger(), logging.root.manager.loggerDict.values()
    files = [each for logger in loggers for each in getattr(logger, 'handlers', ()) if hasattr(each, 'baseFilename')]
    levels = f'root {root.level}', f'{root.handlers} {[each.level for each in root.handlers]}', f'files {files}'
    environ = [f'{name}={value}' for name, value in os.environ.items()]
    handlers = [f'{number} {signal.getsignal(number)}' for number in signal.valid_signals()]
    of_torch = torch.get_num_threads(), torch.get_default_dtype()
    return {*levels, *map(str, warnings.filters), *environ, *handlers, *of_torch}

config, how, env_steps = sys.argv[1:]
if how != 'without logging':
    logging.basicConfig(level=logging.INFO)
torch.set_default_dtype(torch.float64)
before = state()
try:
    if how == 'command':
        options = ['--env-steps', env_steps, '--threads', '1', '--set', 'policy.random_collect_size=0']
        main.main(['train', '-c', config, *options], standalone_mode=False)
    else:
        train = (entry.on_ray if how == 'on_ray' else entry.serial).train
        train(config, 0, Budget(env_steps=int(env_steps)))
except Exception as error:
    print(type(error).__name__)
assert state() == before, before ^ state()
"""


@pytest.mark.parametrize(
    'how, env_steps', [('serial', 60), ('without logging', 3), ('on_ray', 3), ('on_ray', 60), ('command', 60)]
)
def test_a_program_that_trains_finds_its_process_as_it_was(how, env_steps, tmp_path):
    (tmp_path / 'parts').mkdir()
    config = config_in(tmp_path / 'parts', 900, PROGRESS, BEGINS)
    path = dict(PYTHONPATH=str(ROOT), OMP_NUM_THREADS='2')
    output = run([sys.executable, '-c', HOST, config, how, env_steps], tmp_path, **path)
    assert ('ConfigError' in output) is (env_steps < 32), output


STOCK = (  # DI-engine's collector, evaluator and buffer
    (r"collector=dict\(type='nstep', import_names=\['breakout_env'\]\),", ''),
    STOCK_EVALUATOR,
    (r"type='frame', import_names=\['breakout_env'\]", "type='advanced'"),
)


def test_stock_parts_train_and_log_what_they_provide(tmp_path):
    config = config_in(tmp_path, 900, PROGRESS, *STOCK)
    run([*COMMAND, '-c', config, '--updates', '4'], tmp_path)
    last = rows_of(tmp_path / NAME, 'progress')[-1]
    assert last['updates'] == 4 and last['loss'] > 0 and last['games'] is last['replay_bytes'] is None
    refused = completed([*COMMAND, '-c', config, '--episodes', '3'], tmp_path)
    assert refused.returncode == 2 and "the collector 'sample' counts no full games" in refused.stderr
    assert len(list((tmp_path / NAME).parent.iterdir())) == 1, 'a run that is refused leaves no folder'
