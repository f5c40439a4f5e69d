"""Whole trainings by the ``ding`` command with our policies, models and buffers."""

import pytest

from helpers.processes import ROOT, run
from helpers.runs import DQN, check_trained, ding_serial, shortened

SMALL_R2D2 = (
    (r'frame_stack=4,', 'frame_stack=4, max_episode_frames=400,'),
    (r'action_shape=4,', 'action_shape=4, encoder_hidden_size_list=[8, 8, 8, 16],'),
    (r'evaluator_env_num = 8, 8', 'evaluator_env_num = 2, 2'),
    (r'n_evaluator_episode=8', 'n_evaluator_episode=2'),
    (r'burnin_step, learn_unroll_len = 20, 40', 'burnin_step, learn_unroll_len = 4, 16'),
    (r'random_collect_size=\d+', 'random_collect_size=200'),
    (r'batch_size=\d+', 'batch_size=4'),
    (r'n_sample=\d+', 'n_sample=64'),
    (r'replay_buffer_size=\d+', 'replay_buffer_size=2000'),
)
TORCHRL = (
    (r'slice_every=.*\n', "sampler='slice',"),
    (r"replay_buffer=dict\(type='frame'", "replay_buffer=dict(type='torchrl'"),
)


@pytest.mark.parametrize('changes', [(), TORCHRL], ids=['on slices', "on TorchRL's slices"])
def test_recurrent_model_learns_by_r2d2(changes, tmp_path):
    if changes is TORCHRL:
        pytest.importorskip('torchrl')
    config = shortened(ROOT / 'configs' / 'breakout_r2d2_config.py', tmp_path, *SMALL_R2D2, *changes)
    run(ding_serial(config, 300), tmp_path)
    check_trained(tmp_path / 'experiments' / 'breakout_r2d2')


SMALL_ROLLOUTS = (
    (r'frame_stack=4,', 'frame_stack=4, max_episode_frames=400,'),
    (r'encoder_hidden_size_list=.*,', 'encoder_hidden_size_list=[8, 8, 8, 16],'),
    (r'collector_env_num=\d+', 'collector_env_num=4'),
    (r'evaluator_env_num=\d+', 'evaluator_env_num=2'),
    (r'n_evaluator_episode=\d+', 'n_evaluator_episode=2'),
    (r'update_per_collect=\d+', 'update_per_collect=4'),
    (r'batch_size=\d+', 'batch_size=16'),
    (r'n_sample=\d+', 'n_sample=64'),
)


def test_ppo_learns_from_rollouts_by_di_engines_command(tmp_path):
    config = shortened(ROOT / 'configs' / 'breakout_ppo_config.py', tmp_path, *SMALL_ROLLOUTS)
    run(ding_serial(config, 300), tmp_path)
    check_trained(tmp_path / 'experiments' / 'breakout_ppo')


def test_dqn_learns_from_torchrls_buffer(tmp_path):
    pytest.importorskip('torchrl')
    config = shortened(
        DQN,
        tmp_path,
        (r'random_collect_size=\d+', 'random_collect_size=200'),
        (r'priority=False', 'priority=True, priority_IS_weight=True'),
        (r'replay_buffer_size=\d+', "replay_buffer_size=1000, sampler='prioritized', storage='memmap'"),
        (r"replay_buffer=dict\(type='frame'", "replay_buffer=dict(type='torchrl'"),
        (r'eval_freq=\d+', 'eval_freq=100'),
    )
    run(ding_serial(config, 600), tmp_path)
    experiment = tmp_path / 'experiments' / 'breakout_dqn'
    check_trained(experiment)
    assert not list((experiment / 'replay').iterdir())
