"""Configs, changes of them and names of runs that are wrong: each gets an error message, and nothing is left behind."""

import os
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner
from ding.config import compile_config, read_config

from breakout_cli import main
from breakout_env.agent.agent import PRETRAINED
from breakout_env.run.budget import Budget
from breakout_env.run.config import checked_config, merged_config, read_config_file, save_config
from breakout_env.run.config_checks import paths, value_at
from breakout_env.run.folder import folder_below_here
from breakout_env.utils.options import ConfigError
from helpers.processes import ROOT

CONFIG = ROOT / 'configs' / 'breakout_dqn_cpu_config.py'
PPO = str(ROOT / 'configs' / 'breakout_ppo_config.py')
ON_POLICY = str(ROOT / 'examples' / 'another_project' / 'breakout_ppo_config.py')
BUDGET = Budget(env_steps=10**6, hours=2.0)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    folder = tmp_path / 'outside' / 'here'
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def files_below(folder: Path) -> list:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*'))


def refused(*words: str) -> str:
    """The error message of a command that must refuse its arguments."""
    result = CliRunner().invoke(main, [*words])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), (result.output, result.exception)
    # one line, but for an error that a config itself raises with several
    assert '-c' in words or result.output.strip().splitlines()[-1].startswith('Error: '), result.output
    return ' '.join(result.output.split())


@pytest.mark.parametrize(
    'content, message',
    [
        ('main_config = dict(', 'is not a config: SyntaxError'),
        ('main_config = create_config = {}', 'create_config.env has no `type`; expected a .py file with'),
        ('main_config = 3; create_config = {}', 'main_config is 3 (int)'),
        ('import os\nos.listdir(\n"nowhere")', 'mine.py fails in line 2: FileNotFoundError: '),
        (
            'main_config = {}; create_config = dict.fromkeys(["env", "env_manager", "policy"], dict(type="nothing"))',
            'cannot be merged with the defaults of DI-engine',
        ),
    ],
    ids=['syntax', 'empty', 'section', 'failing', 'types'],
)
def test_config_file_that_declares_no_config_is_named_with_the_reason(content, message, here):
    Path('mine.py').write_text(content)
    output = refused('train', '--device', 'cpu', '-c', 'mine.py')
    assert 'mine.py ' in output and message in output and files_below(here) == ['mine.py']


@pytest.mark.parametrize(
    'change, message',
    [
        ('policy.learn.batch_size=0', '`policy.learn.batch_size` is 0 (int); expected a whole number from 1'),
        ('learning_rate=0.1', 'learning_rate is unknown; '),
        ('policy.learn.learning_rate=[1]', 'policy.learn.learning_rate is [1]; expected a value like'),
        ('policy.learn=None', 'policy.learn is a section of the config'),
        ('policy.other.replay_buffer.type=fame', "replay_buffer.type is 'fame' (str); did you mean `frame`?"),
        ('policy.other.replay_buffer.stroage=1', 'replay_buffer.stroage is unknown; did you mean `storage`?'),
        ('policy.learn.learner.hook.progress.ext_args.max_hours=inf', '`max_hours` is'),
        ('env.manager.step_timeout=0', '`step_timeout` is 0 (int)'),
        ('policy.model.duelling=True', 'policy.model.duelling is unknown; did you mean `dueling`?'),
    ],
    ids=lambda value: value[:60],
)
def test_wrong_value_in_any_section_is_refused_before_a_folder_is_made(change, message, here):
    assert message in refused('train', '--device', 'cpu', '-c', str(CONFIG), '--set', change) and not files_below(here)


@pytest.mark.parametrize(
    'section, names, message',
    [
        ('create_config.collector', ['no_such'], "is ['no_such'] (list): No module named 'no_such'; expected modules"),
        ('create_config.collector', 'parts', "is 'parts' (str); expected a list of modules"),
        ('main_config.policy.model', ['parts'], 'fails in line 1 of PARTS: ModuleNotFoundError: No module '),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_cause(section, names, message, here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    Path('parts.py').write_text('import nothing')
    Path('config.py').write_text(f'{CONFIG.read_text()}\n{section}.import_names={names!r}\n')
    assert message.replace('PARTS', str(here / 'parts.py')) in refused('train', '--device', 'cpu', '-c', 'config.py')


@pytest.mark.parametrize('name', ['breakout_dqn_config.py', 'breakout_ppo_config.py', 'breakout_r2d2_config.py'])
def test_no_number_of_a_shipped_config_may_be_text_or_negative(name):
    file = read_config_file(str(ROOT / 'configs' / name))
    for path in [each for each in paths(file.main) if type(value_at(file.main, each)) in (int, float)]:
        for value in ('many',) if path == 'env.stop_value' else ('many', -1):
            with pytest.raises(ConfigError) as refused:
                checked_config(file, 0, {path: value})
            assert path.rpartition('.')[2] in str(refused.value), (path, value, str(refused.value))


def test_misspelt_name_in_a_config_gets_a_warning_with_the_nearest_name(here, caplog):
    Path('config.py').write_text(f'{CONFIG.read_text()}\nmain_config.policy.learn.batch_sise = 3\n')
    checked_config('config.py', 0)
    assert 'config.py: policy.learn.batch_sise is unknown; did you mean `batch_size`?' in caplog.text


@pytest.mark.parametrize('path', sorted([*ROOT.glob('configs/*.py'), *ROOT.glob('examples/*/*_config.py')]))
def test_shipped_configs_are_accepted_and_have_no_name_that_nobody_reads(path, caplog):
    checked_config(str(path), 0)
    assert 'is unknown' not in caplog.text


def test_a_config_without_hooks_and_evaluator_gets_ours(here):
    text = CONFIG.read_text() + "\ncreate_config.pop('evaluator')\nmain_config.policy.learn.learner.pop('hook')\n"
    Path('config.py').write_text(text)
    cfg = merged_config('config.py', 0, BUDGET)
    assert cfg.policy.learn.learner.hook.resume.type == 'resume' and cfg.policy.eval.evaluator.type == 'resumable'
    options = cfg.policy.learn.learner.hook.progress.ext_args
    assert (options.max_env_step, options.max_hours) == (10**6, 2.0)


def test_config_is_executed_once_and_merged_as_by_di_engine(here):
    Path('config.py').write_text(f'{CONFIG.read_text()}\nopen("executed", "a").write("once ")\n')
    cfg = merged_config('config.py', 3, BUDGET)
    assert Path('executed').read_text() == 'once '
    changed = merged_config('config.py', 3, BUDGET, changes={'policy.learn.batch_size': 7})
    assert changed.policy.learn.batch_size == 7
    main_config, create_config = read_config('config.py')
    create_config.policy.type += '_command'
    expected = compile_config(main_config, seed=3, auto=True, create_cfg=create_config, save_cfg=False)
    assert cfg.env == expected.env and cfg.policy.other == expected.policy.other and cfg.seed == 3
    assert not list(Path(cfg.exp_name).iterdir())  # a run that may not be resumed keeps its own
    save_config(cfg)
    assert runpy.run_path(str(Path(cfg.exp_name, 'total_config.py')))['exp_config'] == cfg
    assert cfg.exp_name != changed.exp_name


@pytest.mark.parametrize('name', ['../x', '.', '', '/tmp/x', 'a/../../x', 'a\x00b', '~/x'], ids=ascii)
def test_run_name_outside_of_the_current_folder_is_refused(name, here):
    assert 'expected' in refused('train', '--device', 'cpu', '--exp-name', name) and not files_below(here.parent / 'x')
    assert 'exp_name' in refused('train', '--device', 'cpu', '--set', f'exp_name={name!r}') and not files_below(here)


@pytest.mark.parametrize('name', ['a/b/c', './x', 'a/../x', '随机'])
def test_run_name_below_the_current_folder_is_accepted(name, here, monkeypatch):
    monkeypatch.setenv('HOME', str(here))
    expected = os.path.normpath(name)
    assert folder_below_here(name) == folder_below_here(f'~/{name}') == folder_below_here(str(here / name)) == expected


def test_target_theta_counts_where_the_update_frequency_is_none():
    changes = {'policy.learn.target_theta': 0.5, 'policy.learn.target_update_freq': None}
    learn = checked_config(str(CONFIG), 0, changes).policy.learn
    assert learn.target_theta == 0.5 and 'target_update_freq' not in learn


@pytest.mark.parametrize(
    'words, message',
    [
        (['train', '-c', str(CONFIG), '--env-steps', '99'], '--env-steps is 99; expected more than the '),
        (['train', '-c', PPO, '--set', 'policy.model.head=nature'], "`head` is 'nature' (str); expected"),
        (['train', '-c', PPO, '--set', 'policy.model.encoder_hidden_size_list=[8,8,8,9]'], 'with even sizes in'),
        (['train', '-c', PPO, '--set', 'policy.collect.n_sample=100'], 'n_sample is 100; expected a multiple of'),
        (['train', '-c', PPO, '--set', 'policy.learn.batch_size=4097'], 'batch_size is 4097; expected at most'),
        (['train', '-c', PPO, '--set', 'policy.learn.ignore_done=True'], '.ignore_done is True (bool); exp'),
        (['train', '-c', PPO, '--set', 'policy.model.head_layer_num=2'], '`head_layer_num` is 2; expected 0 with'),
        (['train', '--set', 'learning_rate'], "--set is 'learning_rate'; expected KEY=VALUE"),
        (['train', '--set', 'polcy.learn=3'], 'polcy is unknown; did you mean `policy`?'),
        (['train', '--set', 'seed=3'], '--set seed=3 has no effect; expected --seed'),
        (['train', '--set', 'policy.eval.evaluator.stop_value=3'], 'has no effect; expected env.stop_value'),
        (['train', '-c', PPO, '--set', 'policy.cuda.x=3'], 'policy.cuda.x is unknown; policy.cuda has no options'),
        (
            ['train', '-c', str(CONFIG), '--set', 'policy.learn.target_theta=0.1'],
            'expected policy.learn.target_update_freq=N',
        ),
        (['train', '-c', PPO, '--set', 'policy.model.type=pixel_actor'], "policy.model.type is 'pixel_actor' (str); "),
        (['train', '--hours', '0'], "'--hours': 0.0 is not in the range 0<x<=1000000"),
        (['train', '--resume', 'a_file'], 'no saved run is there'),
        (['train', '--resume', '--from', 'a_file'], '--from is a_file, beside --resume, which has its own weights'),
        (['train', '-c', ON_POLICY], 'expected `ding -m serial_onpolicy`'),
    ],
    ids=lambda value: ' '.join(value)[:30] if isinstance(value, list) else '',
)
def test_wrong_option_on_the_command_line_is_refused(words, message, here):
    Path('a_file').touch()
    assert message in refused(*words) and files_below(here) == ['a_file']


def test_an_agent_of_another_network_is_refused_and_leaves_no_run(here):
    error = refused('train', '-c', PPO, '--exp-name', 'mine', '--from', str(PRETRAINED))
    assert "'critic.weight' is (1, 512); expected (1, 256)" in error and not files_below(here)
