"""Whole trainings in small: configs of this package, of another project's folder and of the installed ``dizoo``."""

from importlib import resources

import pytest

from helpers.processes import ROOT, run
from helpers.runs import ENTRY, SMALL, SMALL_DQN, check_trained, ding_serial, with_values

pytestmark = pytest.mark.process

SHORT_GAMES = {'env.max_episode_frames': 400}
R2D2 = {
    'policy.collect.env_num': 2,
    'policy.eval.env_num': 1,
    'policy.burnin_step': 4,
    'policy.learn_unroll_len': 16,
    'policy.random_collect_size': 200,
    'policy.learn.batch_size': 4,
    'policy.other.replay_buffer.slice_len': 20,
    'policy.other.replay_buffer.replay_buffer_size': 2000,
}
FEWER_ENVS = {'env.collector_env_num': 2, 'env.evaluator_env_num': 2, 'env.n_evaluator_episode': 2}
FEWER_STEPS = {'policy.collect.n_sample': 256, 'policy.learn.batch_size': 64, 'policy.learn.epoch_per_collect': 1}
DIZOO = (
    (r"type='atari'", "type='breakout'"),
    (r"'dizoo\.atari\.envs\.atari_env'", "'breakout_env'"),
    (r'SpaceInvaders(?=NoFrameskip)', 'Breakout'),
    (r'action_shape=\d+', 'action_shape=4'),
)


def trains(config, folder, values, *changes, mode='serial'):
    """By the ``ding`` command, in a folder with nothing of this checkout but the installed package."""
    config = with_values(config, folder, {**values, **SHORT_GAMES}, *changes)
    command = ding_serial(config, 300)
    command[command.index('serial')] = mode
    run(command, folder)
    (experiment,) = (path.parent for path in folder.rglob('ckpt'))
    check_trained(experiment)


@pytest.mark.parametrize('name, values', [('r2d2', {**SMALL, **R2D2}), ('ppo', SMALL)])
def test_policies_of_this_package_learn_by_di_engines_command(tmp_path, name, values):
    trains(ROOT / 'configs' / f'breakout_{name}_config.py', tmp_path, values)


@pytest.mark.parametrize(
    'name, mode, values', [('ppo', 'serial_onpolicy', {**FEWER_ENVS, **FEWER_STEPS}), ('c51', 'serial', FEWER_ENVS)]
)
def test_another_project_trains_policies_that_we_do_not_ship(tmp_path, name, mode, values):
    trains(ROOT / 'examples' / 'another_project' / f'breakout_{name}_config.py', tmp_path, values, mode=mode)


def test_a_config_of_dizoo_trains_with_type_and_import_names_changed(tmp_path):
    with resources.as_file(resources.files('dizoo.atari.config.serial.spaceinvaders')) as folder:
        trains(folder / 'spaceinvaders_rainbow_config.py', tmp_path, SMALL, *DIZOO)


def test_lean_dqn_for_a_gpu_learns_without_one_from_torchrls_buffer(tmp_path):
    pytest.importorskip('torchrl')
    buffer = {'policy.other.replay_buffer.sampler': 'prioritized', 'policy.other.replay_buffer.storage': 'memmap'}
    values = {**SMALL_DQN, **SHORT_GAMES, **buffer, 'policy.priority': True, 'policy.priority_IS_weight': True}
    to_torchrl = (r"replay_buffer=dict\(type='frame'", "replay_buffer=dict(type='torchrl'")
    config = with_values(ROOT / 'configs' / 'breakout_lean_dqn_config.py', tmp_path, values, to_torchrl)
    output = run([*ENTRY, '-c', config, '--env-step', '500'], tmp_path)
    experiment = tmp_path / 'experiments' / 'breakout_lean_dqn'
    check_trained(experiment)
    assert 'breakout eval --checkpoint' in output and 'env steps' in output
    assert not list((experiment / 'replay').iterdir())
