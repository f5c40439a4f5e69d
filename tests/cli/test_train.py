"""`breakout train`: what it passes on. tests/run/test_config.py is about the options that it refuses."""

import pytest
from click.testing import CliRunner

from breakout_env.cli import main
from helpers.processes import ROOT


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
    pipeline = lambda *arguments: started.append(arguments) or arguments[0].main.exp_name  # noqa: E731
    CliRunner().invoke(main, ['train', '--device', 'cpu', '-c', path, *options], obj=dict(serial=pipeline))
    assert started[0][4] is overlap and used[-1] == threads
