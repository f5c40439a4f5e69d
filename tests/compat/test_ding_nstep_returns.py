"""DI-engine's n-step returns are given the discount of the steps that they have."""

from functools import partial

import pytest
import torch
from ding.envs import SyncSubprocessEnvManager
from ding.rl_utils import get_nstep_return_data
from easydict import EasyDict

from breakout_env.compat.ding_nstep_returns import correct_value_gamma, resets_inplace
from helpers.managers import GameEnv


@pytest.mark.parametrize('length', [1, 2, 3, 5])
def test_discounts_fit_the_returns_which_upstream_still_gets_wrong(length):
    zero = torch.zeros(1)
    piece = [dict(obs=zero, next_obs=zero, reward=zero + 1, done=False) for _ in range(length)]
    samples = get_nstep_return_data(piece, 3, gamma=0.5)
    steps = [int(sample['reward'].sum()) for sample in samples]
    upstream = [sample['value_gamma'] for sample in samples]
    assert upstream != [0.5**n for n in steps], 'upstream discounts rightly now: remove the workaround'
    correct_value_gamma(samples, 3, 0.5)
    assert [sample['value_gamma'] for sample in samples] == [0.5**n for n in steps]


@pytest.mark.parametrize('in_place', [False, True])
def test_upstream_still_keeps_the_option_reset_inplace_in_its_config(in_place):
    cfg = EasyDict(SyncSubprocessEnvManager.default_config(), reset_inplace=in_place)
    assert resets_inplace(SyncSubprocessEnvManager([partial(GameEnv, {})], cfg)) is in_place
