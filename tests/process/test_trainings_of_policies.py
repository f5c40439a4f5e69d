"""Whole trainings with our policies, models and buffers, each with its config of this package in small."""

import pytest

from helpers.processes import ROOT, run
from helpers.runs import ENTRY, check_trained, ding_serial, shortened

SMALL = (
    (r'frame_stack=4,', 'frame_stack=4, max_episode_frames=400,'),
    (r'n_evaluator_episode=\d+', 'n_evaluator_episode=2'),
    (r'n_sample=\d+', 'n_sample=64'),
)
RANDOM = (r'random_collect_size=\d+', 'random_collect_size=200')


def small(name, folder, *changes):
    return shortened(ROOT / 'configs' / f'breakout_{name}_config.py', folder, *SMALL, *changes)


def test_recurrent_model_learns_by_r2d2(tmp_path):
    config = small(
        'r2d2',
        tmp_path,
        RANDOM,
        (r'action_shape=4,', 'action_shape=4, encoder_hidden_size_list=[8, 8, 8, 16],'),
        (r'evaluator_env_num = 8, 8', 'evaluator_env_num = 2, 2'),
        (r'burnin_step, learn_unroll_len = 20, 40', 'burnin_step, learn_unroll_len = 4, 16'),
        (r'batch_size=\d+', 'batch_size=4'),
        (r'replay_buffer_size=\d+', 'replay_buffer_size=2000'),
    )
    run(ding_serial(config, 300), tmp_path)
    check_trained(tmp_path / 'experiments' / 'breakout_r2d2')


def test_ppo_learns_from_rollouts_by_di_engines_command(tmp_path):
    config = small(
        'ppo',
        tmp_path,
        (r'encoder_hidden_size_list=.*,', 'encoder_hidden_size_list=[8, 8, 8, 16],'),
        (r'collector_env_num=\d+', 'collector_env_num=4'),
        (r'evaluator_env_num=\d+', 'evaluator_env_num=2'),
        (r'update_per_collect=\d+', 'update_per_collect=4'),
        (r'batch_size=\d+', 'batch_size=16'),
    )
    run(ding_serial(config, 300), tmp_path)
    check_trained(tmp_path / 'experiments' / 'breakout_ppo')


def test_lean_dqn_for_a_gpu_learns_without_one_from_torchrls_buffer(tmp_path):
    pytest.importorskip('torchrl')
    config = small(
        'lean_dqn',
        tmp_path,
        RANDOM,
        (r'(collector|evaluator)_env_num=8', r'\1_env_num=2'),
        (r'priority=False', 'priority=True, priority_IS_weight=True'),
        (r'replay_buffer_size=\d+', "replay_buffer_size=1000, sampler='prioritized', storage='memmap'"),
        (r"replay_buffer=dict\(type='frame'", "replay_buffer=dict(type='torchrl'"),
    )
    output = run([*ENTRY, '-c', config, '--env-step', '500'], tmp_path)
    experiment = tmp_path / 'experiments' / 'breakout_lean_dqn'
    check_trained(experiment)
    assert 'breakout eval --checkpoint' in output and 'env steps' in output
    assert not list((experiment / 'replay').iterdir())
