"""What runs in Ray's processes: a collector and an evaluator, with DI-engine's workers of the config inside."""

import copy
import os
import tempfile
import time
from functools import partial
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import PolicyFactory, create_policy
from ding.utils import set_pkg_seed
from ding.worker import create_serial_collector, create_serial_evaluator
from easydict import EasyDict

from ..compat.ding_timers import use_plain_timers
from ..worker.collector import scores_in
from ..worker.event_recorder import Event, EventRecorder
from ..worker.step_callback import StepCallback
from .fragment import pack, unpack_weights


class PackedFragment(NamedTuple):
    """A rollout fragment on its way to the learner: bytes and numbers."""

    payload: bytes
    env_steps: int
    episodes: int
    games: List[float]  # scores of the games that ended in it
    weights_version: int  # updates of the weights that played it
    events: List[Event]


class _Actor(object):
    """The config for one CPU, and the newest weights."""

    def __init__(self, cfg: EasyDict) -> None:
        torch.set_num_threads(1)
        self._cfg = cfg = copy.deepcopy(cfg)
        cfg.policy.cuda = False
        if cfg.env.manager.type == 'breakout' and cfg.env.manager.get('worker_num') is None:
            cfg.env.manager.worker_num = 1
        self._weights: Optional[Any] = None  # the reference that was loaded last
        self._recorder = EventRecorder()
        # DI-engine's workers write a text log of their own, below the current folder
        self._folder = tempfile.TemporaryDirectory(prefix='breakout_actor_')
        self._logs = dict(tb_logger=self._recorder, exp_name=os.path.relpath(self._folder.name))
        self._worker: Any = None

    def ready(self) -> None:
        """Return once the actor works."""

    def _start(self, worker: Any) -> None:
        self._worker = worker
        use_plain_timers(worker)
        self._folder.cleanup()  # its log is open, so writing goes on; an actor that is killed leaves nothing behind

    def close(self) -> None:
        """Close the environments."""
        self._worker.close()

    def _load(self, mode: Any, weights: List[Any]) -> None:
        if weights[0] != self._weights:
            import ray  # not before ``ray_session`` has prepared it: the learner imports this file, too

            self._weights = weights[0]
            mode.load_state_dict(dict(model=unpack_weights(ray.get(weights[0]))))


class CollectorActor(_Actor):
    """
    Overview:
        Environments and a policy that collect rollout fragments on request.
    """

    def __init__(self, cfg: EasyDict, index: int) -> None:
        """
        Arguments:
            - cfg (:obj:`EasyDict`): The merged config.
            - index (:obj:`int`): Which of the collectors it is.
        """
        super().__init__(cfg)
        cfg = self._cfg
        self._games: List[float] = []
        self._version = 0
        self._is_random = False
        # no two collectors play the same games, nor does one that was restarted repeat its own
        seed = int(np.random.SeedSequence([cfg.seed, index, time.time_ns()]).generate_state(1)[0]) % 2**31
        env_class, env_cfgs, _ = get_vec_env_setting(cfg.env)
        env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in env_cfgs])
        env.seed(seed, dynamic_seed=True)
        set_pkg_seed(seed, use_cuda=False)
        self._policy = create_policy(cfg.policy, enable_field=['collect']).collect_mode
        self._random_policy = PolicyFactory.get_random_policy(self._policy, action_space=env.action_space)
        env = StepCallback(env, lambda timesteps: self._games.extend(scores_in(timesteps)))
        self._start(create_serial_collector(cfg.policy.collect.collector, env=env, policy=self._policy, **self._logs))

    def collect(
        self, n_sample: int, env_step: int, is_random: bool, settings: Dict[str, Any], weights: List[Any], version: int
    ) -> PackedFragment:
        """
        Overview:
            Collect a fragment.
        Arguments:
            - n_sample (:obj:`int`): Transitions.
            - env_step (:obj:`int`): Env steps of the whole run so far, over which curves are drawn.
            - is_random (:obj:`bool`): Whether to play uniformly random actions.
            - settings (:obj:`Dict[str, Any]`): The policy's, such as epsilon.
            - weights (:obj:`List[Any]`): The reference to packed weights; in a list, as Ray would fetch a bare one \
                for each call.
            - version (:obj:`int`): Updates of these weights.
        """
        worker = self._worker
        if is_random != self._is_random:
            self._is_random = is_random
            worker.reset_policy(self._random_policy if is_random else self._policy)
        if not is_random:
            self._load(self._policy, weights)
            self._version = version
        worker.envstep, episodes = env_step, worker._total_episode_count
        transitions = worker.collect(
            n_sample=n_sample,
            train_iter=self._version,
            random_collect=is_random,
            record_random_collect=not is_random,
            policy_kwargs=settings,
        )
        games, self._games = self._games, []
        counts = worker.envstep - env_step, worker._total_episode_count - episodes
        return PackedFragment(pack(transitions), *counts, games, self._version, self._recorder.take())


class EvaluatorActor(_Actor):
    """
    Overview:
        Environments and a policy that play full games on request, as the config's evaluator does.
    """

    def __init__(self, cfg: EasyDict) -> None:
        """
        Arguments:
            - cfg (:obj:`EasyDict`): The merged config.
        """
        super().__init__(cfg)
        cfg = self._cfg
        env_class, _, env_cfgs = get_vec_env_setting(cfg.env)
        env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in env_cfgs])
        env.seed(cfg.seed, dynamic_seed=False)
        set_pkg_seed(cfg.seed, use_cuda=False)
        self._policy = create_policy(cfg.policy, enable_field=['eval']).eval_mode
        self._start(create_serial_evaluator(cfg.policy.eval.evaluator, env=env, policy=self._policy, **self._logs))

    def evaluate(self, weights: List[Any], train_iter: int, env_step: int) -> Tuple[List[float], List[Event]]:
        """
        Overview:
            Play the games of one evaluation.
        Arguments:
            - weights (:obj:`List[Any]`): As in ``CollectorActor.collect``.
            - train_iter, env_step (:obj:`int`): What the weights have seen, for curves.
        Returns:
            - returns, events (:obj:`Tuple[List[float], List[Event]]`): Scores, and what goes into TensorBoard.
        """
        self._load(self._policy, weights)
        _, info = self._worker.eval(None, train_iter, env_step)
        return [float(value) for value in info['eval_episode_return']], self._recorder.take()
