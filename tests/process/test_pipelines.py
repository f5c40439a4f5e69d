"""The real commands in a user's folder: train, evaluate, record; the task pipeline; make."""

import re
import shutil
import sys
from pathlib import Path

import av
import pytest

from helpers.processes import ROOT, completed, run
from helpers.runs import DQN, NAME, check_trained, shortened, weights

SHORT = (
    (r'random_collect_size=\d+', 'random_collect_size=200'),
    (r'(\w+)_env_num=8', r'\1_env_num=4'),
    (r'n_evaluator_episode=8', 'n_evaluator_episode=4'),
    (r'eval_freq=\d+', 'eval_freq=100'),
    (r'replay_buffer_size=\d+', 'replay_buffer_size=8000'),
    (r'max_env_step=int\(1e7\)', 'max_env_step=500'),
)


def test_a_config_trains_as_a_program_with_curves_on_wandb_and_ding_evaluates_and_records_it(tmp_path):
    config = shortened(DQN, tmp_path, *SHORT)
    lines = re.search(r'^import wandb\n.*\n', (ROOT / 'docs' / 'training.md').read_text(), re.M)[0]
    config.write_text(lines + config.read_text())
    run([sys.executable, config], tmp_path, WANDB_MODE='offline')
    check_trained(tmp_path / NAME)
    (log,) = tmp_path.glob('wandb/offline-run-*/*.wandb')
    assert b'learner_step/total_loss' in log.read_bytes()

    options = ['--load-path', tmp_path / NAME / 'ckpt' / 'ckpt_best.pth.tar', '--replay-path', 'video']
    command = ['ding', '-m', 'eval', '-c', config, '-s', '0', *options]
    output = run(command, tmp_path, WANDB_MODE='disabled')  # which the config would log to
    assert re.search(r'The performance of your RL policy is \d', output)
    videos = sorted((tmp_path / 'video').glob('*-score*.mp4'))
    assert len(videos) >= 4 and not list((tmp_path / 'video').glob('*.part.mp4'))
    with av.open(str(videos[0])) as container:
        pictures = [frame.to_ndarray(format='rgb24') for frame in container.decode(video=0)]
    assert len(pictures) > 50 and pictures[0].shape == (630, 480, 3) and pictures[-1].std() > 20


@pytest.mark.parametrize('program', ['python', 'ditask'])
def test_task_pipeline_of_the_examples_trains_in_one_process_and_in_three(tmp_path, program):
    example = Path(shutil.copy(ROOT / 'examples' / 'task_pipeline.py', tmp_path))
    command = re.search(rf'^    ({program} .*)', example.read_text(), re.M)[1].replace('python ', f'{sys.executable} ')
    output = run(command.split(), tmp_path, BREAKOUT_ENV_STEPS='200')
    # lines are wrapped where the terminal ends
    assert all(re.search(line, output, re.S) for line in (r'Evaluation: .*Env Step\(0\)', r'Training: .*Loss\(0\.'))
    (checkpoint,) = tmp_path.glob('experiments/task_pipeline*/ckpt/final.pth.tar')
    assert all(value.isfinite().all() for value in weights(checkpoint).values())


def test_make_names_the_python_versions_that_it_needs(tmp_path):
    fake = tmp_path / 'python3.13'
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.13.0 && exit 0\nexit 1\n')
    fake.chmod(0o755)
    result = completed(['make', '-C', ROOT, f'PYTHON={fake}', f'VENV={tmp_path / "venv"}', 'train'])
    assert result.returncode != 0 and not (tmp_path / 'venv').exists()
    assert 'breakout_env needs Python 3.10, 3.11 or 3.12; found Python 3.13.0. Install one of them' in result.stdout
