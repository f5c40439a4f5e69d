"""Whole trainings by the ``ding`` command with our policies, models and buffers."""

import pytest

from helpers.processes import ROOT, run
from helpers.runs import DEMO, check_trained, ding_serial, shortened
from helpers.trainings import SMALL_R2D2


def test_the_recurrent_model_learns_with_di_engines_own_r2d2_and_buffer(tmp_path):
    config = shortened(
        ROOT / 'configs' / 'breakout_r2d2_config.py',
        tmp_path,
        *SMALL_R2D2,
        (r"type='r2d2_slices', import_names=\['breakout_env'\]", "type='r2d2'"),
        (r'    collector=dict.*\n    replay_buffer=dict\(type.*\n', ''),
        (r'random_collect_size=200', 'random_collect_size=10, transition_with_policy_data=True'),
        (r'n_sample=64', 'n_sample=4'),
    )
    run(ding_serial(config, 600), tmp_path)
    check_trained(tmp_path / 'experiments' / 'breakout_r2d2')


@pytest.mark.parametrize(
    'policy, options',
    [('', "storage='memmap'"), ('priority=True, priority_IS_weight=True, ', "sampler='prioritized'")],
)
def test_dqn_learns_from_torchrls_buffer(policy, options, tmp_path):
    pytest.importorskip('torchrl')
    config = shortened(
        DEMO,
        tmp_path,
        (r'random_collect_size=\d+', f'{policy}random_collect_size=200'),
        (r'replay_buffer_size=\d+', f'replay_buffer_size=1000, {options}'),
        (r"replay_buffer=dict\(type='frame'", "replay_buffer=dict(type='torchrl'"),
    )
    run(ding_serial(config, 600), tmp_path)
    experiment = tmp_path / 'experiments' / 'breakout_dqn_demo'
    check_trained(experiment)
    assert 'memmap' not in options or not list((experiment / 'replay').iterdir())
