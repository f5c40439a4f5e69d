"""Trainings of DI-engine's parts and ours, with the options of configs/breakout_lean_dqn_config.py."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ding.config import compile_config, read_config
from ding.entry.utils import random_collect
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, BaseSerialCommander, create_buffer, create_serial_collector
from easydict import EasyDict
from tensorboardX import SummaryWriter

from breakout_env.compat.ding_timers import use_plain_timers

CONFIG = Path(__file__).resolve().parents[2] / 'configs' / 'breakout_lean_dqn_config.py'
STOCK_MANAGER = dict(shared_memory=True, reset_inplace=True)


def merged_config(
    policy: str,
    manager: str = 'subprocess',
    buffer: str = 'advanced',
    buffer_size: int = 100_000,
    batch_size: int = 32,
    random_steps: int = 0,
    epsilon: float = 0.1,
    learn: dict[str, Any] | None = None,
    cuda: bool = False,
) -> EasyDict:
    """The project's config of DQN with other parts in it, by their registered types, and with more options of
    ``policy.learn``, merged with DI-engine's defaults.
    """
    main, create = read_config(str(CONFIG))
    main.exp_name = 'training'
    main.policy.update(cuda=cuda, random_collect_size=random_steps)
    main.policy.learn.update(batch_size=batch_size, **(learn or {}))
    main.policy.learn.pop('learner')  # no saving of the run
    main.policy.model.dueling = False  # the network of Mnih et al. 2015, as Stable-Baselines3's
    main.policy.other.eps.update(start=epsilon, end=epsilon)
    main.policy.other.replay_buffer.replay_buffer_size = buffer_size
    ours = dict(import_names=['breakout_env'])
    create.policy = dict(type=f'{policy}_command', **({} if policy == 'dqn' else ours))
    create.env_manager = dict(type=manager, **(ours if manager == 'breakout' else STOCK_MANAGER))
    create.replay_buffer = dict(type=buffer, **(ours if buffer == 'frame' else {}))
    create.pop('evaluator')
    return compile_config(main, seed=0, auto=True, create_cfg=EasyDict(create), save_cfg=False)


class Training:
    """DI-engine's serial pipeline without evaluations, of the parts of ``merged_config``; or, overlapped, collecting
    while learning.
    """

    def __init__(self, random_steps: int, overlap: bool, **parts: Any) -> None:
        self._cfg = cfg = merged_config(random_steps=random_steps, **parts)
        env_class, collector_cfgs, _ = get_vec_env_setting(cfg.env)
        self._envs = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
        self._envs.seed(0, dynamic_seed=True)
        set_pkg_seed(0, use_cuda=False)
        self._policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'command'])
        self._overlap = overlap
        self._playing = self._policy
        if overlap:
            from breakout_env.worker.overlap import own_collect_policy

            self._playing = own_collect_policy(cfg.policy, self._policy)
        logs = SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial'))
        named = dict(tb_logger=logs, exp_name=cfg.exp_name)
        self._learner = BaseLearner(cfg.policy.learn.learner, self._policy.learn_mode, **named)
        self._collector = create_serial_collector(
            cfg.policy.collect.collector, env=self._envs, policy=self._playing.collect_mode, **named
        )
        if overlap:  # two threads must not share one timer
            use_plain_timers(self._learner, self._collector)
        self._buffer = create_buffer(cfg.policy.other.replay_buffer, **named)
        self._commander = BaseSerialCommander(
            cfg.policy.other.commander, self._learner, self._collector, None, self._buffer, self._policy.command_mode
        )

    def run(self, running: Callable[[int, int], bool]) -> None:
        """Train until ``running``, called between two collections with env steps and updates so far, returns False."""
        self._learner.call_hook('before_run')
        random_collect(self._cfg.policy, self._playing, self._collector, self._envs, self._commander, self._buffer)

        def collections() -> Iterator[Callable[[], list[Any]]]:
            while running(self._collector.envstep, self._learner.train_iter):
                settings = self._commander.step()
                if self._overlap:
                    self._playing.collect_mode.load_state_dict(self._policy.collect_mode.state_dict())
                yield partial(self._collector.collect, train_iter=self._learner.train_iter, policy_kwargs=settings)

        def push(transitions: list[Any]) -> None:
            self._buffer.push(transitions, cur_collector_envstep=self._collector.envstep)

        def one_after_the_other() -> Iterator[None]:
            for collect in collections():
                yield push(collect())

        if self._overlap:
            from breakout_env.worker.overlap import overlapped

            fragments = overlapped(collections(), push)
        else:
            fragments = one_after_the_other()
        for _ in fragments:
            for _ in range(self._cfg.policy.learn.update_per_collect):
                batch = self._buffer.sample(self._cfg.policy.learn.batch_size, self._learner.train_iter)
                self._learner.train(batch, self._collector.envstep)

    def close(self) -> None:
        self._collector.close()
