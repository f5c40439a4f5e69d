"""Rollout fragments as bytes: exact, small, and harmless when they are damaged."""

import json
import pickle
import struct
from functools import partial

import numpy as np
import psutil
import pytest
import torch
import zstandard
from ding.config import compile_config, read_config
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.worker import create_serial_collector
from hypothesis import given, settings
from hypothesis import strategies as st

from breakout_env.cluster.fragment import pack, unpack
from breakout_env.worker.event_recorder import EventRecorder
from helpers.processes import ROOT
from helpers.replay import Play, other_keys, same


@pytest.fixture(scope='module')
def play():
    """A fragment as the collector of the config makes it, on the real game."""
    cfg, create_cfg = read_config(str(ROOT / 'configs' / 'breakout_dqn_cpu_config.py'))
    create_cfg.policy.type += '_command'
    create_cfg.env_manager = dict(type='base')
    cfg = compile_config(cfg, seed=0, auto=True, create_cfg=create_cfg, save_cfg=False)
    env_class, env_cfgs, _ = get_vec_env_setting(cfg.env)
    manager = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in env_cfgs[:4]])
    manager.seed(0)
    policy = create_policy(cfg.policy, enable_field=['collect'])
    collector = create_serial_collector(
        cfg.policy.collect.collector, env=manager, policy=policy.collect_mode, tb_logger=EventRecorder()
    )
    yield collector.collect(n_sample=256, train_iter=7, policy_kwargs=dict(eps=1.0))
    collector.close()


def test_real_play_is_unpacked_exactly_as_it_was_packed(play):
    assert same(unpack(pack(play)), play)


def test_a_fragment_takes_less_than_a_fiftieth_of_its_pickled_transitions(play):
    packed, pickled = len(pack(play)), len(pickle.dumps(play, pickle.HIGHEST_PROTOCOL))
    assert packed * 50 < pickled, (packed / len(play), pickled / len(play))


def screens(seed: int, count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 255, (count, 3, 5), np.uint8))


def test_values_of_every_kind_keep_their_order_and_types():
    transitions = [{**Play(2, 1, np.random.default_rng(i)).transition(), **other_keys(i)} for i in range(7)]
    transitions[3]['prev_state'] = dict(h=torch.ones(2))  # as R2D2's, which only some steps have
    assert same(unpack(pack(transitions)), transitions)
    assert unpack(pack([])) == []


def test_a_value_that_cannot_be_packed_is_named_in_the_error():
    with pytest.raises(TypeError, match=r"transition\['thing'\]"):
        pack([dict(obs=screens(0, 4), thing=object())])
    with pytest.raises(ValueError, match='float32.*obs_dtype'):
        pack([dict(obs=screens(0, 4).float())])
    with pytest.raises(ValueError, match=r"transition\['done'\] is of type bool; expected no such key"):
        pack([dict(obs=screens(0, 4)), dict(obs=screens(0, 4), done=True)])


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damaged_bytes_raise_value_error(data):
    transitions = [dict(obs=screens(i, 4), next_obs=screens(i + 1, 4), reward=float(i)) for i in range(3)]
    packed = pack(transitions)
    how = data.draw(st.sampled_from(['cut', 'flip', 'other']))
    at = data.draw(st.integers(0, len(packed) - 1))
    if how == 'cut':
        damaged = packed[:at]
    elif how == 'flip':
        damaged = packed[:at] + bytes([packed[at] ^ (1 << data.draw(st.integers(0, 7)))]) + packed[at + 1 :]
    else:
        damaged = data.draw(st.binary(max_size=200))
    try:
        assert same(unpack(damaged), transitions)  # a bit that zstd does not use
    except ValueError:
        pass


def crafted(described: object) -> bytes:
    """Bytes with a right checksum, and a description of the sender's own."""
    text = (described if isinstance(described, str) else json.dumps(described)).encode()
    head = struct.pack('<III', len(text), 0, 0)
    return head + zstandard.ZstdCompressor(write_checksum=True).compress(text)


STACK = ['obs'], 'tensor', 'uint8', [4, 84, 84]


@pytest.mark.parametrize(
    'described',
    [
        dict(count=10**9, leaves=[], strings=[]),
        dict(count=-1, leaves=[STACK], strings=[]),
        dict(count=1, leaves=[STACK, STACK], strings=[]),
        dict(count=1, leaves=[(['obs'], 'tensor', 'uint8', [4, 10**6, 10**6])], strings=[]),
        dict(count=1, leaves=[(['action'], 'tensor', 'int64', [10**6, 10**6])], strings=[]),
        dict(count=1, leaves=[(['prev_state'], 'tensor', 'int64', [10**6, 10**6])], strings=[], states=1),
        dict(count=10**6, leaves=[STACK], strings=[]),
        [],
        None,
        '[' * 100_000,
    ],
)
def test_a_false_description_is_refused_before_memory_is_allocated(described):
    before = psutil.Process().memory_info().rss
    with pytest.raises(ValueError, match='.'):
        unpack(crafted(described))
    assert psutil.Process().memory_info().rss - before < 500e6
