"""The guide's own network and environment train by both commands."""

import os
import shutil

import pytest

from helpers.processes import ROOT, run
from helpers.runs import check_trained, shortened

SHORT = (
    (r'collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=8', r'collector_env_num=2, evaluator_env_num=1, '
     r'n_evaluator_episode=1, max_episode_frames=400'),
    (r'random_collect_size=\d+', 'random_collect_size=32'),
    (r'n_sample=\d+', 'n_sample=16'),
)  # fmt: skip


@pytest.mark.parametrize(
    'command, environ',
    [
        (['breakout', 'train', '--env-steps', '150'], {}),
        (['ding', '-m', 'serial', '-s', '0', '--env-step', '100'], dict(PYTHONPATH='.')),
    ],
    ids=['breakout', 'ding'],
)
def test_an_own_network_and_an_own_environment_train(command, environ, tmp_path, monkeypatch):
    folder = ROOT / 'examples' / 'own_parts'
    config = shortened(folder / 'config.py', tmp_path, *SHORT)
    shutil.copy(folder / 'my_parts.py', tmp_path)
    for name, value in environ.items():
        monkeypatch.setenv(name, os.pathsep.join([value, os.environ.get(name, '')]))
    run([*command, '-c', config.name], tmp_path)
    check_trained(tmp_path / 'experiments' / 'my_parts')
