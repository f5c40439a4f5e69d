"""The configs of the installed ``dizoo``, trained by the ``ding`` command on this environment."""

from importlib import resources

import pytest

from helpers.processes import run
from helpers.runs import check_trained, shortened

CHANGED = (
    (r"type='atari'", "type='breakout'"),
    (r"'dizoo\.atari\.envs\.atari_env'", "'breakout_env'"),
    (r'SpaceInvaders(?=NoFrameskip)', 'Breakout'),
)
SIZES = (
    (r'action_shape=\d+', 'action_shape=4'),
    (r'frame_stack=4', 'frame_stack=4, max_episode_frames=400'),
    (r'(collector_env_num|evaluator_env_num|n_evaluator_episode)=\d+', r'\1=2'),
    (r'\bn_sample=\d+', 'n_sample=16'),
    (r'batch_size=\d+', 'batch_size=8'),
)
SMALL_NETWORK = (r'encoder_hidden_size_list=\[[\d, ]+\]', 'encoder_hidden_size_list=[8, 8, 16]')


@pytest.mark.parametrize(
    'policy, mode, more', [('rainbow', 'serial', (SMALL_NETWORK,)), ('onppo', 'serial_onpolicy', ())]
)
def test_a_config_of_dizoo_trains_with_type_and_import_names_changed(policy, mode, more, tmp_path):
    name = f'spaceinvaders_{policy}'
    with resources.as_file(resources.files('dizoo.atari.config.serial.spaceinvaders')) as folder:
        config = shortened(folder / f'{name}_config.py', tmp_path, *CHANGED, *SIZES, *more)
    run(['ding', '-m', mode, '-c', config.name, '-s', '0', '--env-step', '100'], tmp_path)
    check_trained(tmp_path / f'{name}_seed0')
