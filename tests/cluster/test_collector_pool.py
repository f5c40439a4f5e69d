"""Fragments as bytes, and what the learner's side makes of them; ``tests/cluster/test_ray.py`` has a real Ray."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from easydict import EasyDict

from breakout_env.cluster import collector_pool
from breakout_env.cluster.actors import PackedFragment
from breakout_env.cluster.fragment import pack, pack_rollout, unpack, unpack_rollout
from breakout_env.policy.lean_ppo import Samples
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
    wait=lambda refs, num_returns=1, timeout=None: (refs, []),
    get=lambda ref, timeout=None: ref(),
    put=lambda value: value,
    cluster_resources=lambda: dict(CPU=RAY.cpus),
    cpus=3,
)


class Collector:
    """Plays what it is asked for; its third request fails."""

    error = Unavailable
    eps: list = []

    def __init__(self, cfg, *seed_and_share):
        self.requests, self.seed_and_share = 0, seed_and_share

    def ready(self):
        pass

    close = ready

    def collect(self, n_sample, settings, *request):
        self.requests += 1
        self.eps.append(settings.get('eps'))
        if self.requests == 3:
            raise self.error('planted')
        obs = torch.zeros(4, 84, 84, dtype=torch.uint8)
        return PackedFragment(pack([dict(obs=obs, next_obs=obs, done=True)] * n_sample), n_sample, [5.0])


@pytest.fixture
def pool_of(monkeypatch):
    """Makes a pool of collectors on two CPUs, with the messages that it prints and the actors that it kills."""
    monkeypatch.setattr(collector_pool, 'CollectorActor', Collector)
    said, killed = [], []
    monkeypatch.setattr(RAY, 'kill', lambda actor, no_restart=True: killed.append(no_restart), raising=False)
    monkeypatch.setattr(RAY, 'cpus', 3)

    def make(count, collector, n_sample):
        collect = dict(n_sample=n_sample, collector=dict(type=collector))
        cfg = EasyDict(exp_name='run', seed=0, env=dict(collector_env_num=5), policy=dict(collect=collect))
        pool = collector_pool.CollectorPool(RAY, cfg, count, said.append)
        pool.set_weights(dict(model={}), 0)
        return pool, said, killed

    return make


@pytest.mark.parametrize('error, kills', [(Unavailable, []), (Failed, [False, False])])
def test_what_a_failed_collector_played_does_not_count(error, kills, pool_of, monkeypatch):
    """A process that lives is replaced, as it would play on."""
    monkeypatch.setattr(Collector, 'error', error)
    pool, said, killed = pool_of(2, 'nstep', 3)
    rounds = [len(pool.play_round()) for _ in range(4)]
    assert rounds == [2, 2, 0, 2]
    assert (pool.envstep, pool.games, pool.game_return_mean) == (18, 6, 5.0)
    assert sum('is restarted, and what it was playing is lost' in text for text in said) == 2 and killed == kills


def test_random_play_is_made_up_for_and_counted_once(pool_of, monkeypatch):
    monkeypatch.setattr(Collector, 'eps', [])
    pool, *_ = pool_of(1, 'nstep', 3)
    pool.random_steps = pool.random_steps_left = 8
    pool.settings = dict(eps=0.5)
    left = []
    for _ in range(5):
        pool.play_round()
        left.append(pool.random_steps_left)
    assert left == [5, 2, 2, -1, -1]  # the third round failed
    assert Collector.eps == [1, 1, 1, 1, 0.5] and pool.activity is None


def test_collectors_of_rollouts_share_environments_as_the_cluster_changes(pool_of):
    pool, said, killed = pool_of('auto', 'rollout', 20)
    assert [fragment.env_steps for fragment in pool.play_round().values()] == [12, 8]  # 4 steps in 3 and 2 environments
    RAY.cpus = 9
    assert [fragment.env_steps for fragment in pool.play_round().values()] == [4] * 5
    assert killed == [True] * 2 and said == ['5 collectors from here on, 2 before: the cluster has CPUs for 8.']
    pool, *_ = pool_of(6, 'rollout', 20)
    assert pool.play_round().keys() == set(range(5))


def test_values_of_every_kind_keep_their_order_and_types():
    transitions = [{**Play(2, 1, np.random.default_rng(i)).transition(), **other_keys(i)} for i in range(7)]
    assert same(list(unpack(pack(transitions))), transitions) and unpack(pack([])) == []


def test_a_rollout_keeps_its_values_and_each_screen_once():
    steps, envs, size = 6, 3, (8, 8)
    screens = torch.randint(0, 256, (envs, steps + 3, *size), dtype=torch.uint8)
    obs = torch.stack([screens[:, t : t + 4] for t in range(steps)])
    obs[4:, 1] = torch.randint(0, 256, (2, 4, *size), dtype=torch.uint8)  # two more episodes begin
    count = steps * envs
    numbers = [torch.randn(count), torch.randn(count), torch.randn(count), torch.ones(count)]
    rollout = Samples(obs.flatten(0, 1), torch.randint(0, 4, (count,)), *numbers)
    payload = pack_rollout(rollout, envs)
    back = unpack_rollout(payload)
    assert all(torch.equal(here, there) and here.dtype == there.dtype for here, there in zip(rollout, back))
    assert len(payload) < 64 * (3 * 9 + 2 * 3 + 5) + 1500
