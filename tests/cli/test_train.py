"""`breakout train`: what it passes on. tests/run/test_config.py is about the options that it refuses."""

import pytest
from click.testing import CliRunner
from ding.utils import POLICY_REGISTRY

from breakout_env.cli import main
from breakout_env.policy.lean_ppo import LeanPPOCommandModePolicy
from helpers.processes import ROOT

POLICY_REGISTRY.register('their_ppo_command', type('TheirPPO', (LeanPPOCommandModePolicy,), {}))


@pytest.mark.parametrize(
    'config, options, overlap, threads',
    [
        ('ppo', [], True, 4),
        ('their_ppo', [], True, 4),
        ('ppo', ['--threads', '3', '--serial'], False, 3),
        ('dqn_cpu', [], False, 8),
    ],
)
def test_ppo_collects_while_it_learns_on_half_the_threads(monkeypatch, tmp_path, config, options, overlap, threads):
    started, used = [], [8]
    monkeypatch.setattr('os.sched_getaffinity', lambda pid: set(range(8)))
    monkeypatch.setattr('torch.get_num_threads', lambda: used[-1])
    monkeypatch.setattr('torch.set_num_threads', used.append)
    name, path = config.replace('their_', ''), tmp_path / 'config.py'
    text = (ROOT / 'configs' / f'breakout_{name}_config.py').read_text()
    path.write_text(text.replace("type='lean_ppo'", "type='their_ppo'") if name != config else text)
    pipeline = lambda *arguments: started.append(arguments) or arguments[0].main.exp_name  # noqa: E731
    CliRunner().invoke(main, ['train', '--device', 'cpu', '-c', str(path), *options], obj=dict(serial=pipeline))
    assert started[0][4] is overlap and used[-1] == threads
