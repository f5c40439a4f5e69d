"""`breakout train`: what it passes on, and the options that it refuses."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from breakout_env.cli import main


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_each_seed_gets_the_options_of_all(monkeypatch):
    """On a machine with a GPU, where --device=cpu is another recipe than the default."""
    commands = []

    def start(command: list, **options) -> SimpleNamespace:
        commands.append(command[command.index('train') + 1 :])
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr('torch.cuda.is_available', lambda: True)
    monkeypatch.setattr('breakout_env.cli.train_command.subprocess', SimpleNamespace(Popen=start))
    options = ['--device', 'cpu', '--threads', '2', '--hours', '1.5', '--overlap', '--set', 'exp_name=mine/x']
    result = CliRunner().invoke(main, ['train', '-s', '1', *options, '-s', '2'])
    assert result.exit_code == 0, result.output
    for seed, command in zip((1, 2), commands):
        at = [command[command.index(option) + 1] for option in ('-s', '--exp-name', '--device', '--threads', '--hours')]
        assert at == [str(seed), f'mine/x_seed{seed}', 'cpu', '2', '1.5'] and '--overlap' in command
    CliRunner().invoke(main, ['train', '-s', '1', '-s', '2', '--device', 'cpu'])
    assert 'experiments/breakout_dqn_cpu_seed1' in commands[2]


def test_an_option_that_neither_the_config_nor_di_engine_knows_is_reported():
    """But not those that are only in DI-engine's defaults, or read elsewhere."""
    known = ['policy.learn.learner.hook.save_ckpt_after_iter=5', 'env.evaluator.noop_max=3', 'policy.model.new=1']
    changes = [*known, 'policy.learn.lerning_rate=0.1', 'policy.learn.batch_size=none']
    result = CliRunner().invoke(main, ['train', *(word for change in changes for word in ('--set', change))])
    said = [line for line in result.output.splitlines() if 'is set' in line]
    assert said == ['policy.learn.lerning_rate is set, but neither the config nor DI-engine knows such an option.']


@pytest.mark.parametrize(
    'options, message',
    [
        (['--env-steps', '0'], "Invalid value for '--env-steps' / '--env-step': '0' is not allowed; expected a whole"),
        (['--seed', 'x'], "Invalid value for '-s' / '--seed': 'x' is not allowed; expected a whole number"),
        (['-c', 'nowhere.py'], "File 'nowhere.py' does not exist"),
        (['--set', 'learning_rate'], "--set is 'learning_rate'; expected KEY=VALUE"),
        (['--set', 'polcy.learn.batch_size=3'], 'there is no section polcy in the config; expected one of env, policy'),
        (['--exp-name', '../elsewhere'], "--exp-name is '../elsewhere'; expected a folder below the current one"),
        (['--resume', 'nowhere'], '--resume nowhere: no saved run is there'),
        (['--set', 'env.frame_stak=3'], 'did you mean `frame_stack`?'),
        (['--set', 'policy.learn=3'], 'policy.learn is a section of the config; expected one of its options: '),
        (['--set', 'policy.learn.batch_size=many'], "policy.learn.batch_size is 'many'; expected a value like 32"),
        (['--set', 'exp_name=/tmp/x'], "exp_name is '/tmp/x'; expected a folder below the current one"),
        (['-s', '1', '-s', '2', '--resume', 'x'], '--resume with a folder resumes one run'),
        (['-s', '1', '-s', '2', '--resume'], '--resume found no saved run in experiments/'),
        (['--exp-name', 'a_file/run'], "'a_file/run', and a_file is no folder; expected another name"),
    ],
)
def test_a_refused_option_gets_an_error_message_of_one_line(tmp_path, options, message):
    (tmp_path / 'a_file').touch()
    result = CliRunner().invoke(main, ['train', '--device', 'cpu', *options])
    assert result.exit_code in (1, 2) and isinstance(result.exception, SystemExit)
    last = result.output.strip().splitlines()[-1]
    assert last.startswith('Error: ') and message in last
