"""
One of the two processes of DI-engine's own way to collect in one and learn in another: ContextExchanger, unchanged.

The pipeline is that of DI-engine's ding/example/dqn.py on our environment (uint8 screens) and our model, a process to a
role, as ``ditask`` starts it. What a process hands to DI-engine's message queue is counted and written to a JSON file.
``benchmarks/distributed/exchange.py`` starts it.
"""

import json
import os
from collections import Counter
from functools import partial
from pathlib import Path

import click
import torch
from ding.config import compile_config, read_config
from ding.data import DequeBuffer
from ding.envs import get_vec_env_setting
from ding.framework import Parallel, task
from ding.framework.context import OnlineRLContext
from ding.framework.message_queue.nng import NNGMQ
from ding.framework.middleware import (
    ContextExchanger,
    ModelExchanger,
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    termination_checker,
)
from ding.policy import DQNPolicy
from ding.utils import MQ_REGISTRY, set_pkg_seed
from easydict import EasyDict

from breakout_env import GroupEnvManagerV2

# Printed by a process that receives messages from now on. A message to one that does not yet is lost, and a collector
# then waits a minute for an answer.
READY = 'ready'
STEPS_PER_MESSAGE = 64
PLAY_TOPIC = 'task.context_exchanger_Role.COLLECTOR'
CONFIG = Path(__file__).resolve().parents[2] / 'configs' / 'breakout_dqn_cpu_config.py'


class CountedNNG(NNGMQ):
    """DI-engine's queue; counts messages and bytes by topic. Another name than 'nng' would get other arguments."""

    messages: Counter = Counter()
    bytes: Counter = Counter()

    def publish(self, topic: str, data: bytes) -> None:
        if self._running:
            self.messages[topic] += 1
            self.bytes[topic] += len(topic) + len(data)
        super().publish(topic, data)


def merged_config(envs: int) -> EasyDict:
    """The recipe for the CPU, with 1-step returns, random actions and an update a message."""
    main, create = read_config(str(CONFIG))
    main.env.update(collector_env_num=envs)
    main.policy.update(nstep=1, random_collect_size=0)
    main.policy.learn.update(update_per_collect=1)
    main.policy.learn.pop('learner')
    main.policy.collect.update(n_sample=STEPS_PER_MESSAGE)
    main.policy.other.eps.update(start=1.0, end=1.0)
    create.policy = dict(type='dqn')
    return compile_config(EasyDict(main), seed=0, auto=True, create_cfg=EasyDict(create), save_cfg=False)


def take_part(role: str, cfg: EasyDict, env_steps: int, counts: str) -> None:
    """The work of one of the two processes, 'learner' or 'collector'; its counts go into a JSON file."""
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.add_role(task.role.LEARNER if role == 'learner' else task.role.COLLECTOR)
        set_pkg_seed(cfg.seed, use_cuda=False)
        env_class, collector_cfgs, _ = get_vec_env_setting(cfg.env)
        manager = GroupEnvManagerV2([partial(env_class, cfg=c) for c in collector_cfgs], cfg.env.manager)
        policy = DQNPolicy(cfg.policy)
        buffer = DequeBuffer(size=10_000)
        task.use(ContextExchanger(skip_n_iter=1))
        task.use(ModelExchanger(policy._model))
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, manager))
        task.use(data_pusher(cfg, buffer))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))
        task.use(termination_checker(max_env_step=env_steps))
        print(READY, flush=True)
        task.run()
        Path(counts).write_text(json.dumps(dict(messages=CountedNNG.messages, bytes=CountedNNG.bytes)))
        manager.close()


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--role', required=True, type=click.Choice(['learner', 'collector']))
@click.option('--port', required=True, type=int, help='Of the learner, on this machine.')
@click.option('--counts', required=True, type=click.Path(dir_okay=False), help='JSON file to write.')
@click.option('--env-steps', required=True, type=int, help='Env steps to play.')
@click.option('--envs', required=True, type=int, help='Environments that are stepped together.')
def main(role: str, port: int, counts: str, env_steps: int, envs: int) -> None:
    """Take part in an exchange of DI-engine's."""
    torch.set_num_threads(1)
    MQ_REGISTRY.register('nng', CountedNNG, force_overwrite=True)
    if role == 'learner':
        queue = dict(protocol='tcp', address='127.0.0.1', ports=port, node_ids=0)
    else:
        queue = dict(protocol='ipc', attach_to=[f'tcp://127.0.0.1:{port}'], node_ids=1)
    router = Parallel.runner(n_parallel_workers=1, mq_type='nng', **queue)
    router(take_part, role, merged_config(envs), env_steps, os.path.abspath(counts))


if __name__ == '__main__':
    main()
