"""A collector's process: plays what the learner orders, with DI-engine's collector of the config."""

import time
from functools import partial
from typing import Any, Dict, List

import numpy as np
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import PolicyFactory, create_policy
from ding.utils import set_pkg_seed
from ding.worker import create_serial_collector

from ..compat.ding_timers import use_plain_timers
from ..worker.step_callback import WatchedManager
from . import compact, weights
from .node import Node
from .recorder import Recorder


class CollectorNode(object):
    """
    Overview:
        Environments, a policy to play with, and the node that hears what is to be played.
    Interfaces:
        ``step``, ``close``.
    """

    def __init__(self, cfg: 'EasyDict', node: Node, folder: str) -> None:  # noqa: F821
        """
        Arguments:
            - cfg (:obj:`EasyDict`): The merged config.
            - node (:obj:`Node`): Orders and answers.
            - folder (:obj:`str`): Where DI-engine's collector writes its text log, below the current one.
        """
        self._node = node
        self._recorder = Recorder()
        self._games: List[float] = []
        self._version = 0
        self._content = b''
        env_class, collector_cfgs, _ = get_vec_env_setting(cfg.env)
        self._env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
        # no two collectors play the same games, nor one that was started again those it has played already
        seed = int(np.random.SeedSequence([cfg.seed, int(node.name, 16)]).generate_state(1)[0]) % 2**31
        self._env.seed(seed, dynamic_seed=True)
        set_pkg_seed(seed, use_cuda=cfg.policy.cuda)
        self._policy = create_policy(cfg.policy, enable_field=['collect'])
        self._collector = create_serial_collector(
            cfg.policy.collect.collector,
            env=WatchedManager(self._env, self._look_at),
            policy=self._policy.collect_mode,
            tb_logger=self._recorder,
            exp_name=folder,
        )
        self._random_policy = PolicyFactory.get_random_policy(
            self._policy.collect_mode, action_space=self._env.action_space
        )
        self._plays_at_random = False
        use_plain_timers(self._collector)

    def _look_at(self, timesteps: Dict[int, Any]) -> None:
        for timestep in timesteps.values():
            if timestep.done and 'game_return' in timestep.info:
                self._games.append(float(timestep.info['game_return']))

    def step(self) -> None:
        """
        Overview:
            Play and send the next piece, or wait a moment for an order.
        Raises:
            - LearnerGone, Refused: As ``Node.next_order``.
        """
        order = self._node.next_order(lambda order: '' if order['is_random'] else 'play')
        if order is None:
            return
        self._take_policy(order)
        collector = self._collector
        collector.envstep = order['env_step']  # the whole run's, which curves are drawn over
        episodes = collector._total_episode_count
        begin_s = time.monotonic()
        transitions = collector.collect(
            n_sample=order['n_sample'],
            train_iter=self._version,
            random_collect=order['is_random'],
            record_random_collect=not order['is_random'],
            policy_kwargs=order['settings'],
        )
        games, self._games = self._games, []
        self._node.answer(
            order,
            'piece',
            dict(
                payload=compact.pack(transitions),
                env_steps=collector.envstep - order['env_step'],
                episodes=collector._total_episode_count - episodes,
                games=games,
                weights=self._version,
                records=self._recorder.take(),
                play_s=time.monotonic() - begin_s,
            ),
        )

    def _take_policy(self, order: Dict[str, Any]) -> None:
        if order['is_random'] != self._plays_at_random:
            self._plays_at_random = order['is_random']
            self._collector.reset_policy(self._random_policy if order['is_random'] else self._policy.collect_mode)
        if not order['is_random']:
            self._version, content = self._node.weights('play')
            if content is not self._content:  # not by the version: a learner that was killed may count from before
                self._content = content
                self._policy.collect_mode.load_state_dict(dict(model=weights.from_bytes(content)))

    def close(self) -> None:
        """Close the environments."""
        self._collector.close()
