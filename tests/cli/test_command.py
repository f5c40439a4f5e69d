"""The ``breakout`` command as a whole: help, wrong names, and that it needs nothing but the installed wheel."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from breakout_env.cli import COMMANDS, main
from breakout_env.cli.common import shipped
from breakout_env.compat.ding_import_noise import quiet_import
from helpers.processes import BIN, ROOT


def test_help_names_each_command_in_a_line():
    text = CliRunner().invoke(main, ['-h']).output
    for name in COMMANDS:
        assert re.search(rf'^  {name} +\S+', text, re.M), text


@pytest.mark.parametrize('name', COMMANDS)
def test_the_help_of_each_command_has_examples(name):
    result = CliRunner().invoke(main, [name, '-h'])
    assert result.exit_code == 0
    assert re.search(rf'Examples:\n +breakout {name}', result.output), result.output


@pytest.mark.parametrize('arguments', [[], *([name] for name in COMMANDS)], ids=' '.join)
def test_help_fits_into_a_terminal_of_80_columns(arguments):
    text = CliRunner().invoke(main, [*arguments, '-h'], terminal_width=80).output
    assert 'Usage' in text and not [line for line in text.splitlines() if len(line) > 80]


def test_a_wrong_command_gets_a_line():
    result = CliRunner().invoke(main, ['trian'])
    assert result.exit_code == 2
    assert "there is no command 'trian'; expected one of train, eval" in result.output


def test_the_installed_command_says_its_version_and_nothing_else():
    done = subprocess.run([str(BIN / 'breakout'), '--version'], capture_output=True, text=True, timeout=120)
    assert re.fullmatch(r'breakout, version [\d.]+\n', done.stdout) and not done.stderr


def test_the_import_is_quiet_and_warnings_after_it_are_seen():
    code = "import breakout_env, logging; logging.getLogger('breakout_env').warning('the disk is full')"
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=120)
    assert 'the disk is full' in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout


def test_an_import_that_fails_shows_what_was_written_meanwhile(capsys):
    with pytest.raises(ImportError), quiet_import():
        print('the reason', file=sys.stderr)
        raise ImportError
    assert capsys.readouterr().err == 'the reason\n'


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """The wheel's contents, in a folder that is no clone."""
    folder = tmp_path_factory.mktemp('wheel')
    source = folder / 'source'
    source.mkdir()
    for name in ('setup.py', 'README.md'):
        shutil.copy(ROOT / name, source)
    for name in ('breakout_env', 'configs', 'entry'):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns('__pycache__'))
    command = [sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '-w', folder, source]
    subprocess.run(command, check=True, timeout=280)
    with zipfile.ZipFile(next(folder.glob('*.whl'))) as wheel:
        wheel.extractall(folder / 'site')
    return folder / 'site'


def in_an_empty_folder(installed: Path, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess:
    environ = {**os.environ, 'PYTHONPATH': str(installed), 'OMP_NUM_THREADS': '1'}
    command = [sys.executable, '-m', 'breakout_env', *arguments]
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=250)


def test_from_the_wheel_it_plays_and_judges_without_training(installed, tmp_path):
    done = in_an_empty_folder(installed, tmp_path, 'record', '--pretrained', '--out', 'game.gif', '--max-seconds', '3')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'game.gif').read_bytes()[:3] == b'GIF'


def test_from_the_wheel_it_trains_with_the_recipes_it_brings(installed, tmp_path):
    options = ['--updates', '5', '--device', 'cpu']
    for change in ('policy.random_collect_size=100', 'policy.learn.update_per_collect=5', 'policy.collect.n_sample=16'):
        options += ['--set', change]
    done = in_an_empty_folder(installed, tmp_path, 'train', *options, '--set', 'env.evaluator.max_episode_frames=400')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'experiments' / 'breakout_dqn_cpu' / 'ckpt' / 'ckpt_best.pth.tar').exists()
    assert 'INFO' not in done.stdout + done.stderr  # what DI-engine logs stays in its files


def test_the_wheel_has_every_config_and_entry_and_no_more(installed):
    for folder in ('configs', 'entry'):
        ours = {path.name for path in (ROOT / folder).glob('*.py')}
        assert {path.name for path in (installed / 'breakout_env' / folder).iterdir()} == ours
    assert {path.name for path in installed.iterdir() if not path.name.endswith('.dist-info')} == {'breakout_env'}


def test_a_file_that_is_not_there_gets_a_line():
    with pytest.raises(Exception, match='configs/nothing.py is not there; expected it in'):
        shipped('configs/nothing.py')
