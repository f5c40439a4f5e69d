"""`breakout train`: what it passes on. tests/run/test_config.py is about the options that it refuses."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from breakout_env.cli import main
from helpers.processes import ROOT


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
    CliRunner().invoke(main, ['train', '-s', '1', '-s', '2', '--device', 'cpu', '--collectors', '2', '--serial'])
    assert 'experiments/breakout_ppo_seed1' in commands[2] and '--overlap' not in commands[2]
    assert 'experiments/breakout_dqn_cpu_seed1' in commands[4] and '--serial' in commands[4]


@pytest.mark.parametrize(
    'config, options, overlap, threads',
    [
        ('ppo', [], True, 4),
        ('ppo', ['--threads', '3', '--serial'], False, 3),
        ('dqn_cpu', [], False, 8),
    ],
)
def test_ppo_collects_while_it_learns_with_half_of_the_threads(monkeypatch, config, options, overlap, threads):
    started, used = [], [8]
    monkeypatch.setattr('os.sched_getaffinity', lambda pid: set(range(8)))
    monkeypatch.setattr('torch.get_num_threads', lambda: used[-1])
    monkeypatch.setattr('torch.set_num_threads', used.append)
    path = str(ROOT / 'configs' / f'breakout_{config}_config.py')
    pipeline = lambda *arguments: started.append(arguments) or arguments[0].exp_name  # noqa: E731
    CliRunner().invoke(main, ['train', '--device', 'cpu', '-c', path, *options], obj=dict(serial=pipeline))
    assert started[0][4] is overlap and used[-1] == threads
