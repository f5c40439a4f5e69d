"""The installed wheel needs nothing else of the clone."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from helpers.processes import ROOT, completed


@pytest.fixture(scope='module')
def installed(tmp_path_factory) -> Path:
    """The wheel's contents, in a folder of their own."""
    folder = tmp_path_factory.mktemp('wheel')
    source = folder / 'source'
    source.mkdir()
    for name in ('setup.py', 'README.md', 'breakout_command.py'):
        shutil.copy(ROOT / name, source)
    for name in ('breakout_env', 'configs', 'entry'):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns('__pycache__'))
    command = [sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '-w', folder, source]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(next(folder.glob('*.whl'))) as wheel:
        wheel.extractall(folder / 'site')
    return folder / 'site'


def breakout(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    environ = {**os.environ, 'PYTHONPATH': str(installed), 'OMP_NUM_THREADS': '1'}
    return completed([sys.executable, '-m', 'breakout_env', *arguments], folder, environ=environ)


def test_wheel_records_a_game_of_the_pretrained_agent(installed, tmp_path):
    done = breakout(installed, tmp_path, 'record', '--pretrained', '--out', 'game.gif', '--max-seconds', '3')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'game.gif').read_bytes()[:3] == b'GIF'


def test_wheel_trains_with_its_own_recipe(installed, tmp_path):
    options = ['--updates', '5', '--device', 'cpu', '--set', 'env.evaluator.max_episode_frames=400']
    for change in ('learn.update_per_collect=5', 'learn.batch_size=64', 'collect.n_sample=64'):
        options += ['--set', f'policy.{change}']
    options += ['--set', 'env.collector_env_num=4']
    done = breakout(installed, tmp_path, 'train', *options)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'experiments' / 'breakout_ppo' / 'ckpt' / 'ckpt_best.pth.tar').exists()
    assert 'INFO' not in done.stdout + done.stderr  # DI-engine's logs stay in their files


def test_wheel_has_every_config_and_entry_and_one_package_with_its_command(installed):
    for folder in ('configs', 'entry'):
        ours = {path.name for path in (ROOT / folder).glob('*.py')}
        assert {path.name for path in (installed / 'breakout_env' / folder).iterdir()} == ours
    assert {path.name for path in installed.iterdir() if not path.name.endswith('.dist-info')} == {
        'breakout_command.py',
        'breakout_env',
    }
