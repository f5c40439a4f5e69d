"""Rollout fragments as bytes: exact and small."""

import numpy as np
import pytest
import torch

from breakout_env.cluster.fragment import pack, unpack
from helpers.replay import Play, other_keys, same


def test_values_of_every_kind_keep_their_order_and_types():
    transitions = [{**Play(2, 1, np.random.default_rng(i)).transition(), **other_keys(i)} for i in range(7)]
    transitions[3]['prev_state'] = dict(h=torch.ones(2))  # as R2D2's, which only some steps have
    assert same(unpack(pack(transitions)), transitions) and unpack(pack([])) == []


def test_a_value_that_cannot_be_packed_is_named_in_the_error():
    obs = torch.zeros(4, 3, 5, dtype=torch.uint8)
    with pytest.raises(TypeError, match=r"transition\['thing'\]"):
        pack([dict(obs=obs, thing=object())])
    with pytest.raises(ValueError, match='float32.*obs_dtype'):
        pack([dict(obs=obs.float())])
    with pytest.raises(ValueError, match=r"transition\['done'\] is of type bool; expected no such key"):
        pack([dict(obs=obs), dict(obs=obs, done=True)])
