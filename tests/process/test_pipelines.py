"""The real commands, in a folder of the user's: train, evaluate, record, stop; our configs and another project's."""

import os
import re
import shutil
import signal
import subprocess
import sys

import av
import psutil
import pytest

from helpers.processes import BIN, ROOT, run, wait_until
from helpers.runs import DEMO, check_trained, shortened


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """An experiment of the demo config, trained for a little while by the real command."""
    folder = tmp_path_factory.mktemp('demo')
    config = shortened(DEMO, folder, (r'random_collect_size=\d+', 'random_collect_size=200'))
    output = run(['ding', '-m', 'serial', '-c', str(config), '-s', '0', '--env-step', '1000'], folder)
    return folder, config, output


def test_ding_serial_trains(trained):
    folder, _, _ = trained
    check_trained(folder / 'experiments' / 'breakout_dqn_demo')


def test_ding_eval_evaluates_and_records_what_was_trained(trained):
    folder, config, _ = trained
    checkpoint = folder / 'experiments' / 'breakout_dqn_demo' / 'ckpt' / 'ckpt_best.pth.tar'
    output = run(
        ['ding', '-m', 'eval', '-c', str(config), '-s', '0', '--load-path', str(checkpoint), '--replay-path', 'video'],
        folder,
    )
    assert re.search(r'The performance of your RL policy is \d', output)
    whole = sorted((folder / 'video').glob('*-score*.mp4'))
    assert len(whole) >= 4 and not list((folder / 'video').glob('*.part.mp4'))
    with av.open(str(whole[0])) as container:
        pictures = [frame.to_ndarray(format='rgb24') for frame in container.decode(video=0)]
    assert len(pictures) > 50 and pictures[0].shape == (630, 480, 3) and pictures[-1].std() > 20


def test_the_eval_entry_gives_each_game(trained):
    folder, config, _ = trained
    checkpoint = folder / 'experiments' / 'breakout_dqn_demo' / 'ckpt' / 'ckpt_best.pth.tar'
    output = run(
        [
            sys.executable,
            str(ROOT / 'entry' / 'breakout_dqn_eval.py'),
            '-c',
            str(config),
            '--load-path',
            str(checkpoint),
            '--episodes',
            '5',
        ],
        folder,
    )
    scores = re.search(r'^scores: (.*)$', output, re.M)[1].split()
    assert len(scores) == 5 and f'over {len(scores)} games' in output


def test_the_config_is_a_program_too(tmp_path):
    config = shortened(
        DEMO,
        tmp_path,
        (r'random_collect_size=\d+', 'random_collect_size=200'),
        (r'max_env_step=\d+', 'max_env_step=500'),
    )
    run([sys.executable, str(config)], tmp_path)
    assert (tmp_path / 'experiments' / 'breakout_dqn_demo' / 'ckpt' / 'ckpt_best.pth.tar').exists()


def test_the_real_config_starts_and_learns(tmp_path):
    """As it stands but for the length of random play and the size of the buffer, which is filled by nobody here."""
    config = shortened(
        ROOT / 'configs' / 'breakout_dqn_config.py',
        tmp_path,
        (r'random_collect_size=\d+', 'random_collect_size=200'),
        (r'decay=\d+', 'decay=1000'),
    )
    output = run(
        [
            sys.executable,
            str(ROOT / 'entry' / 'breakout_dqn_main.py'),
            '-c',
            str(config),
            '-s',
            '1',
            '--env-step',
            '500',
        ],
        tmp_path,
    )
    check_trained(tmp_path / 'experiments' / 'breakout_dqn')
    assert 'ding -m eval' in output and 'env steps' in output


@pytest.mark.parametrize(
    'number, whole_group', [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_make_trains_program_is_safe_to_stop(tmp_path, number, whole_group):
    """Ctrl-C and some schedulers reach all processes at once; a checkpoint is left, and no traceback, and nobody."""
    config = shortened(DEMO, tmp_path, (r'random_collect_size=\d+', 'random_collect_size=200'))
    with open(tmp_path / 'output', 'w+') as output:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / 'entry' / 'breakout_dqn_main.py'), '-c', str(config)],
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        text = lambda: (tmp_path / 'output').read_text()  # noqa: E731
        first = tmp_path / 'experiments' / 'breakout_dqn_demo' / 'ckpt' / 'iteration_0.pth.tar'  # after one update
        assert wait_until(lambda: first.exists() or process.poll() is not None, 120), text()
        workers = psutil.Process(process.pid).children(recursive=True)
        if whole_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(60) == 0, text()
    assert len(workers) == 8 and not any(worker.is_running() for worker in workers)
    assert 'Stopping: finishing what is under way' in text() and 'Traceback' not in text(), text()
    check_trained(tmp_path / 'experiments' / 'breakout_dqn_demo')


def test_user_errors_get_a_line(tmp_path):
    for arguments, said in (
        (['breakout_dqn_main.py', '-c', 'nowhere.py'], "File 'nowhere.py' does not exist"),
        (['breakout_dqn_main.py', '--env-step', '0'], '0 is not in the range 1<=x'),
        (['breakout_dqn_main.py', '--env-step', '20000'], 'expected more than the 20000 steps of random play'),
        (['breakout_dqn_eval.py'], "Missing option '--load-path'"),
    ):
        result = subprocess.run(
            [sys.executable, str(ROOT / 'entry' / arguments[0]), *arguments[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 2 and said in result.stderr and 'Traceback' not in result.stderr


FEWER_ENVS = (
    (r'collector_env_num=8', 'collector_env_num=2'),
    (r'evaluator_env_num=8', 'evaluator_env_num=2'),
    (r'n_evaluator_episode=8', 'n_evaluator_episode=2'),
)


@pytest.mark.parametrize(
    'name, mode, env_step, changes',
    [
        (
            'ppo',
            'serial_onpolicy',
            600,
            [
                (r'n_sample=1024', 'n_sample=256'),
                (r'batch_size=256', 'batch_size=64'),
                (r'epoch_per_collect=3', 'epoch_per_collect=1'),
            ],
        ),
        ('rainbow', 'serial', 250, []),
        ('c51', 'serial', 250, []),
    ],
)
def test_another_project_trains_policies_that_we_do_not_ship(tmp_path, name, mode, env_step, changes):
    """A folder elsewhere with a config, and nothing of this checkout but the installed package."""
    config = shortened(
        ROOT / 'examples' / 'another_project' / f'breakout_{name}_config.py', tmp_path, *FEWER_ENVS, *changes
    )
    run(['ding', '-m', mode, '-c', config.name, '-s', '0', '--env-step', str(env_step)], tmp_path)
    check_trained(tmp_path / 'experiments' / f'breakout_{name}')


def test_a_wrong_python_gets_one_clear_line(tmp_path):
    """``make`` with an interpreter that is too new says so, and which it wants."""
    fake = tmp_path / 'python3.13'
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.13.0 && exit 0\nexit 1\n')
    fake.chmod(0o755)
    result = subprocess.run(
        ['make', '-C', str(ROOT), f'PYTHON={fake}', f'VENV={tmp_path / "venv"}', 'train'],
        capture_output=True,
        text=True,
    )
    lines = [line for line in result.stdout.splitlines() if not line.startswith('make')]
    assert result.returncode != 0 and lines == [
        'breakout_env needs Python 3.10, 3.11 or 3.12; found Python 3.13.0. '
        'Install one of them, or name it: make PYTHON=/path/to/python3.11'
    ]
    assert shutil.which('ding', path=str(BIN)) and not (tmp_path / 'venv').exists()
