"""What runs in Ray's processes: a collector and an evaluator, with DI-engine's workers of the config inside."""

import copy
import os
import secrets
import tempfile
from functools import partial
from typing import Any, NamedTuple

import cv2
import torch
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import create_serial_collector, create_serial_evaluator
from easydict import EasyDict
from tensorboardX import SummaryWriter

from ..compat.ding_timers import use_plain_timers
from ..policy.lean_ppo import Samples
from ..worker.collector import GameScores, Settings
from ..worker.nstep_collector import number_episodes_from
from .fragment import pack, pack_rollout


class PackedFragment(NamedTuple):
    """A rollout fragment on its way to the learner: bytes and numbers."""

    payload: bytes
    env_steps: int
    games: list[float]  # scores of the games that ended in it


class _Actor:
    """Environments and a policy on one CPU, the worker of DI-engine's that uses them, and the newest weights."""

    def __init__(self, cfg: EasyDict, mode: str, seed: int) -> None:
        """``cfg``: the merged config; ``mode``: the policy's, ``'collect'`` or ``'eval'``."""
        torch.set_num_threads(1)
        cv2.setNumThreads(0)
        cfg = copy.deepcopy(cfg)
        cfg.policy.cuda = False
        if cfg.env.manager.get('worker_num', 0) is None:  # of the manager `breakout`: the actor is the process
            cfg.env.manager.context = 'inline'
        os.nice(cfg.env.manager.get('nice', 0))
        self._weights: object | None = None  # the reference that was loaded last
        collects = mode == 'collect'
        env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
        env_cfgs = collector_cfgs if collects else evaluator_cfgs
        env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in env_cfgs])
        env.seed(seed, dynamic_seed=collects)
        set_pkg_seed(seed, use_cuda=False)
        self._policy = getattr(create_policy(cfg.policy, enable_field=[mode]), f'{mode}_mode')
        if collects:  # at random, as another actor has other episodes, and so has this one after a restart
            number_episodes_from(secrets.randbits(31) << 20)
        create = create_serial_collector if collects else create_serial_evaluator
        worker_cfg = cfg.policy.collect.collector if collects else cfg.policy.eval.evaluator
        # The learner has the curves. DI-engine's workers also write a text log below the current folder, which goes on
        # without the folder, so that an actor that is killed leaves nothing behind.
        with tempfile.TemporaryDirectory(prefix='breakout_actor_') as folder:
            logs = dict(tb_logger=SummaryWriter(write_to_disk=False), exp_name=os.path.relpath(folder))
            self._worker = create(worker_cfg, env=env, policy=self._policy, **logs)
        use_plain_timers(self._worker)

    def ready(self) -> None:
        """Return once the actor works."""

    def close(self) -> None:
        self._worker.close()

    def _load(self, weights: list[Any]) -> None:
        """Load a state of the policy, given by a reference; in a list, as Ray would fetch a bare one for each call."""
        if weights[0] != self._weights:
            import ray  # not before ``ray_session`` has prepared it: the learner imports this file, too

            self._policy.load_state_dict(ray.get(weights[0]))
            self._weights = weights[0]


class CollectorActor(_Actor):
    """Collects fragments on request: transitions, or its part of a rollout, in ``env_num`` environments. If ``seed`` is
    None, it plays other games after each start.
    """

    def __init__(self, cfg: EasyDict, seed: int | None, env_num: int) -> None:
        self._env_num = env_num
        cfg = copy.deepcopy(cfg)
        cfg.env.collector_env_num = env_num
        super().__init__(cfg, 'collect', secrets.randbits(31) if seed is None else seed)

    def collect(self, n_sample: int, settings: Settings, weights: list[object], version: int) -> PackedFragment:
        """Collect a fragment of ``n_sample`` transitions, or env steps of a rollout, with weights as in ``_load`` after
        ``version`` updates.
        """
        worker = self._worker
        self._load(weights)
        counts_games = isinstance(worker, GameScores)
        games, env_steps = worker.games if counts_games else 0, worker.envstep
        collected = worker.collect(n_sample=n_sample, train_iter=version, policy_kwargs=settings)
        scores = worker.scores_since(games) if counts_games else []
        payload = pack_rollout(collected, self._env_num) if isinstance(collected, Samples) else pack(collected)
        return PackedFragment(payload, worker.envstep - env_steps, scores)


class EvaluatorActor(_Actor):
    """Plays full games on request, as the config's evaluator does."""

    def __init__(self, cfg: EasyDict) -> None:
        super().__init__(cfg, 'eval', cfg.seed)

    def evaluate(self, weights: list[object]) -> list[float]:
        """The scores of the games of one evaluation, with weights as in ``_load``."""
        self._load(weights)
        _, info = self._worker.eval()
        return [float(value) for value in info['eval_episode_return']]
