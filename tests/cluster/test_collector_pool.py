"""What the learner's side makes of fragments; ``tests/process/test_ray.py`` has it with a real Ray."""

from types import SimpleNamespace

import torch
from easydict import EasyDict

from breakout_env.cluster.actors import PackedFragment
from breakout_env.cluster.collector_pool import CollectorPool
from breakout_env.cluster.fragment import pack


class Unavailable(Exception):
    """Ray's ActorUnavailableError: the actor restarts."""


class Ray(object):
    """Ray's functions that the pool calls, in one process: a request is answered when its result is read."""

    exceptions = SimpleNamespace(RayError=Unavailable, ActorUnavailableError=Unavailable, ActorDiedError=KeyError)

    def remote(self, **options):
        return lambda actor_class: SimpleNamespace(remote=lambda *args: Actor(actor_class(*args)))

    def wait(self, refs, num_returns, timeout):
        return refs[:num_returns], refs[num_returns:]

    def get(self, ref):
        return ref()

    cluster_resources = staticmethod(lambda: dict(CPU=3))
    put = staticmethod(lambda value: value)
    kill = staticmethod(lambda actor: None)


class Actor(object):
    def __init__(self, actor):
        self._actor = actor

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *args: lambda: getattr(self._actor, name)(*args))


class Collector(object):
    """Plays an episode for each request, numbered from 0 as in each process; its third request finds it dead."""

    def __init__(self, cfg, index):
        self.requests = self.episode = 0

    def ready(self):
        pass

    def close(self):
        pass

    def collect(self, *request):
        self.requests += 1
        if self.requests == 3:
            self.episode = 0
            raise Unavailable
        obs = torch.zeros(4, 84, 84, dtype=torch.uint8)
        transition = dict(obs=obs, next_obs=obs, done=True, episode_id=self.episode, step_id=0)
        self.episode += 1
        return PackedFragment(pack([transition]), 1, 1, [], 0, [])


def test_episodes_of_all_collectors_before_and_after_a_restart_have_different_ids():
    cfg = EasyDict(exp_name='run', policy=dict(collect=dict(n_sample=1)))
    pool = CollectorPool(Ray(), cfg, 2, lambda text: None, Collector)
    pool.open(0, None)
    fragments = [pool.next_fragment(0.0) for _ in range(20)]
    ids = [transition['episode_id'] for fragment in fragments if fragment for transition in fragment[0]]
    assert len(set(ids)) == len(ids) == pool.envstep > 8
