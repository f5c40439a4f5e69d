"""Fragments as bytes, and what the learner's side makes of them; ``tests/cluster/test_ray.py`` has a real Ray."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from easydict import EasyDict

from breakout_env.cluster import collector_pool
from breakout_env.cluster.actors import PackedFragment
from breakout_env.cluster.fragment import pack, unpack
from helpers.replay import Play, other_keys, same


class Unavailable(Exception):
    """Ray's ActorUnavailableError: the actor restarts."""


class Failed(Exception):
    """Ray's RayError of an actor that lives."""


class Actor:
    def __init__(self, actor):
        self._actor = actor

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *args: lambda: getattr(self._actor, name)(*args))


# Ray's functions that the pool calls, in one process: a request is answered when its result is read.
RAY = SimpleNamespace(
    exceptions=SimpleNamespace(RayError=Exception, ActorUnavailableError=Unavailable, ActorDiedError=KeyError),
    remote=lambda **options: lambda actor_class: SimpleNamespace(remote=lambda *args: Actor(actor_class(*args))),
    wait=lambda refs, num_returns, timeout: (refs[:num_returns], refs[num_returns:]),
    get=lambda ref: ref(),
    cluster_resources=lambda: dict(CPU=3),
)


class Collector:
    """Plays a step for each request; its third request fails."""

    error = Unavailable

    def __init__(self, cfg):
        self.requests = 0

    def ready(self):
        pass

    def collect(self, *request):
        self.requests += 1
        if self.requests == 3:
            raise self.error('planted')
        obs = torch.zeros(4, 84, 84, dtype=torch.uint8)
        return PackedFragment(pack([dict(obs=obs, next_obs=obs, done=True)]), 1, [5.0], [])


@pytest.mark.parametrize(
    'error, message, kills', [(Unavailable, 'died; Ray restarts it', 0), (Failed, 'lost a fragment, which is', 2)]
)
def test_what_a_collector_failed_at_is_collected_again_and_counts_once(error, message, kills, monkeypatch):
    """By a new process, as the one that lives would play on."""
    monkeypatch.setattr(collector_pool, 'CollectorActor', Collector)
    monkeypatch.setattr(Collector, 'error', error)
    killed = []
    monkeypatch.setattr(RAY, 'kill', lambda actor, no_restart: killed.append(no_restart), raising=False)
    cfg = EasyDict(exp_name='run', policy=dict(collect=dict(n_sample=1)))
    said = []
    pool = collector_pool.CollectorPool(RAY, cfg, 2, said.append)
    pool.open(3, 8)
    arrived = [fragment for fragment in (pool.next_fragment(0.0) for _ in range(20)) if fragment]
    assert [is_random for _, _, is_random in arrived] == [True] * 3 + [False] * 5
    assert (pool.envstep, pool.games, pool.game_return_mean) == (8, 8, 5.0)
    assert sum(message in text for text in said) == 2 and pool.number == 2 and killed == [False] * kills


def test_values_of_every_kind_keep_their_order_and_types():
    transitions = [{**Play(2, 1, np.random.default_rng(i)).transition(), **other_keys(i)} for i in range(7)]
    assert same(unpack(pack(transitions)), transitions) and unpack(pack([])) == []


def test_a_value_that_cannot_be_packed_is_named_in_the_error():
    obs = torch.zeros(4, 3, 5, dtype=torch.uint8)
    with pytest.raises(TypeError, match=r"transition\['thing'\]"):
        pack([dict(obs=obs, thing=object())])
    with pytest.raises(ValueError, match='float32.*obs_dtype'):
        pack([dict(obs=obs.float())])
    with pytest.raises(ValueError, match=r"transition\['done'\] is of type bool; expected no such key"):
        pack([dict(obs=obs), dict(obs=obs, done=True)])
