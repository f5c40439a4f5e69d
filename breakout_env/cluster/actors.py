"""What runs in Ray's processes: a collector and an evaluator, with DI-engine's workers of the config inside."""

import copy
import os
import secrets
import tempfile
from functools import partial
from typing import Any, NamedTuple

import torch
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import PolicyFactory, create_policy
from ding.utils import set_pkg_seed
from ding.worker import create_serial_collector, create_serial_evaluator
from easydict import EasyDict

from ..compat.ding_timers import use_plain_timers
from ..run.config import collects_rollouts
from ..worker.collector import Settings, scores_in
from ..worker.nstep_collector import number_episodes_from
from ..worker.step_callback import StepCallback
from .fragment import Event, EventRecorder, pack, unpack_weights


class PackedFragment(NamedTuple):
    """A rollout fragment on its way to the learner: bytes and numbers."""

    payload: bytes
    env_steps: int
    games: list[float]  # scores of the games that ended in it
    events: list[Event]


class _Actor:
    """Environments and a policy on one CPU, the worker of DI-engine's that uses them, and the newest weights."""

    def __init__(self, cfg: EasyDict, mode: str, seed: int) -> None:
        """``cfg``: the merged config; ``mode``: the policy's, ``'collect'`` or ``'eval'``."""
        torch.set_num_threads(1)
        cfg = copy.deepcopy(cfg)
        cfg.policy.cuda = False
        if (
            cfg.env.manager.get('worker_num', 0) is None
        ):  # of the manager `breakout`, which would start one for each core
            cfg.env.manager.worker_num = 1
        self._weights: object | None = None  # the reference that was loaded last
        self._recorder = EventRecorder()
        collects = mode == 'collect'
        env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
        env_cfgs = collector_cfgs if collects else evaluator_cfgs
        env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in env_cfgs])
        env.seed(seed, dynamic_seed=collects)
        set_pkg_seed(seed, use_cuda=False)
        self._policy = getattr(create_policy(cfg.policy, enable_field=[mode]), f'{mode}_mode')
        if collects:
            # as DI-engine's random_collect: the policy itself, with a high epsilon, where its hidden states are needed
            self._random_policy = self._policy
            if not cfg.policy.get('transition_with_policy_data', False):
                self._random_policy = PolicyFactory.get_random_policy(self._policy, action_space=env.action_space)
            # at random, as another actor has other episodes, and so has this one after a restart
            number_episodes_from(secrets.randbits(31) << 20)
            self._games: list[float] = []
            self._collects_rollouts = collects_rollouts(cfg)
            if not self._collects_rollouts:  # these count games themselves, and exchange batches with the manager
                env = StepCallback(env, lambda timesteps: self._games.extend(scores_in(timesteps)))
        create = create_serial_collector if collects else create_serial_evaluator
        worker_cfg = cfg.policy.collect.collector if collects else cfg.policy.eval.evaluator
        # DI-engine's workers write a text log below the current folder. It is open, so writing goes on
        # without the folder, and an actor that is killed leaves nothing behind, unless it has only begun.
        with tempfile.TemporaryDirectory(prefix='breakout_actor_') as folder:
            logs = dict(tb_logger=self._recorder, exp_name=os.path.relpath(folder))
            self._worker = create(worker_cfg, env=env, policy=self._policy, **logs)
        use_plain_timers(self._worker)

    def ready(self) -> None:
        """Return once the actor works."""

    def close(self) -> None:
        self._worker.close()

    def _load(self, weights: list[Any]) -> None:
        """Load weights, given by a reference; in a list, as Ray would fetch a bare one for each call."""
        if weights[0] != self._weights:
            import ray  # not before ``ray_session`` has prepared it: the learner imports this file, too

            self._policy.load_state_dict(unpack_weights(ray.get(weights[0])))
            self._weights = weights[0]


class CollectorActor(_Actor):
    """Collects fragments on request: transitions, or its part of a rollout."""

    def __init__(self, cfg: EasyDict, seed: int | None = None, env_num: int | None = None) -> None:
        """
        Arguments:
            seed: None for one by chance: no two collectors play the same games, nor does one that was restarted repeat
                its own.
            env_num: Environments; None for as many as in the config.
        """
        if env_num is not None:
            cfg = copy.deepcopy(cfg)
            cfg.env.collector_env_num = env_num
        super().__init__(cfg, 'collect', seed=secrets.randbits(31) if seed is None else seed)
        self._is_random = False

    def collect(
        self, n_sample: int, env_step: int, is_random: bool, settings: Settings, weights: list[object], version: int
    ) -> PackedFragment:
        """Collect a fragment.

        Arguments:
            n_sample: Transitions, or env steps of a rollout.
            env_step: Env steps of the whole run so far, over which curves are drawn.
            is_random: Whether this is the random play before the first update.
            settings: The policy's, such as epsilon.
            weights: The reference to packed weights, in a list.
            version: Updates of these weights.
        """
        worker = self._worker
        if is_random != self._is_random:
            self._is_random = is_random
            worker.reset_policy(self._random_policy if is_random else self._policy)
        if not is_random or self._random_policy is self._policy:
            self._load(weights)
        worker.envstep = env_step
        games_before = worker.games if self._collects_rollouts else 0
        collected = worker.collect(
            n_sample=n_sample,
            train_iter=version,
            random_collect=is_random,
            record_random_collect=not is_random,
            policy_kwargs=settings,
        )
        games, self._games = self._games, []
        if self._collects_rollouts:
            games = (
                worker.state()['game_returns'][-(worker.games - games_before) :] if worker.games > games_before else []
            )
            collected = [dict(zip(collected._fields, step)) for step in zip(*collected)]
        return PackedFragment(pack(collected), worker.envstep - env_step, games, self._recorder.take())


class EvaluatorActor(_Actor):
    """Plays full games on request, as the config's evaluator does."""

    def __init__(self, cfg: EasyDict) -> None:
        super().__init__(cfg, 'eval', cfg.seed)

    def evaluate(self, weights: list[object], train_iter: int, env_step: int) -> tuple[list[float], list[Event]]:
        """Play the games of one evaluation.

        Arguments:
            weights: As in ``CollectorActor.collect``.
            train_iter, env_step: What the weights have seen, for curves.
        Returns:
            Scores, and what goes into TensorBoard.
        """
        self._load(weights)
        _, info = self._worker.eval(None, train_iter, env_step)
        return [float(value) for value in info['eval_episode_return']], self._recorder.take()
