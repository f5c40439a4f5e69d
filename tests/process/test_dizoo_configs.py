"""The configs of the installed ``dizoo``, trained by the ``ding`` command on this environment."""

from importlib import resources

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
    (r'encoder_hidden_size_list=\[[\d, ]+\]', 'encoder_hidden_size_list=[8, 8, 16]'),
)


def test_a_config_of_dizoo_trains_with_type_and_import_names_changed(tmp_path):
    with resources.as_file(resources.files('dizoo.atari.config.serial.spaceinvaders')) as folder:
        config = shortened(folder / 'spaceinvaders_rainbow_config.py', tmp_path, *CHANGED, *SIZES)
    run(['ding', '-m', 'serial', '-c', config.name, '-s', '0', '--env-step', '100'], tmp_path)
    check_trained(tmp_path / 'spaceinvaders_rainbow_seed0')
