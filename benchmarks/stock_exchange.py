"""
DI-engine's own way to play in one process and learn in another: its task middleware with ContextExchanger, unchanged.

    python benchmarks/stock_exchange.py --role learner --port 50600 --counts FILE --env-steps 1024
    python benchmarks/stock_exchange.py --role collector --port 50600 --counts FILE --env-steps 1024

The pipeline is that of DI-engine's ding/example/dqn.py on our environment (uint8 screens) and our model, a process to a
role, as ``ditask`` starts it. benchmarks/bench_exchange.py counts what these two say to each other.
"""

import os
from functools import partial
from pathlib import Path

import click
import counted_queue
import torch
from ding.config import compile_config, read_config
from ding.data import DequeBuffer, FileStorageLoader
from ding.data.storage import FileStorage
from ding.envs import get_vec_env_setting
from ding.framework import Parallel, task
from ding.framework.context import OnlineRLContext
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
from ding.utils import set_pkg_seed
from easydict import EasyDict

from breakout_env import GroupEnvManagerV2

# Printed by a process that hears the others from now on. What is sent to one that does not yet is lost, and a collector
# then waits a minute for an answer.
READY = 'ready'
CONFIG = Path(__file__).resolve().parent.parent / 'configs' / 'breakout_dqn_cpu_config.py'


def merged_config(envs: int, n_sample: int) -> EasyDict:
    """
    Overview:
        The recipe for the CPU, with 1-step returns and an update a piece: the exchange is what is looked at.
    """
    main, create = read_config(str(CONFIG))
    main.env.update(collector_env_num=envs)
    main.policy.update(nstep=1, random_collect_size=0)
    main.policy.learn.update(update_per_collect=1)
    main.policy.learn.pop('learner')
    main.policy.collect.update(n_sample=n_sample)
    main.policy.other.eps.update(start=1.0, end=1.0)  # as random as the play that ours is compared on
    create.policy = dict(type='dqn')
    return compile_config(EasyDict(main), seed=0, auto=True, create_cfg=EasyDict(create), save_cfg=False)


class CountedFiles(FileStorageLoader):
    """DI-engine's loader, which hands over the name of a file in place of its content; the file counts as well."""

    def __init__(self, folder: str, counts: counted_queue.Counts) -> None:
        super().__init__(dirname=folder)
        self._counts = counts

    def save(self, obj: object) -> FileStorage:
        storage = super().save(obj)
        self._counts.sent(counted_queue.BESIDE, os.path.getsize(storage.path), 1)
        return storage


def take_part(role: str, cfg: EasyDict, env_steps: int, counts: counted_queue.Counts, files: str) -> None:
    """
    Overview:
        What one of the two processes does.
    Arguments:
        - role (:obj:`str`): 'learner' or 'collector'.
        - cfg (:obj:`EasyDict`): The merged config.
        - env_steps (:obj:`int`): When to end.
        - counts (:obj:`Counts`): Of this process.
        - files (:obj:`str`): Folder to hand play over in; '' to send it.
    """
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.add_role(task.role.LEARNER if role == 'learner' else task.role.COLLECTOR)
        set_pkg_seed(cfg.seed, use_cuda=False)
        env_class, collector_cfgs, _ = get_vec_env_setting(cfg.env)
        manager = GroupEnvManagerV2([partial(env_class, cfg=c) for c in collector_cfgs], cfg.env.manager)
        policy = DQNPolicy(cfg.policy)
        buffer = DequeBuffer(size=10_000)
        task.use(ContextExchanger(skip_n_iter=1, storage_loader=CountedFiles(files, counts) if files else None))
        task.use(ModelExchanger(policy._model))
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, manager))
        task.use(data_pusher(cfg, buffer))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))
        task.use(termination_checker(max_env_step=env_steps))
        print(READY, flush=True)
        task.run()
        counts.write()
        manager.close()


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--role', required=True, type=click.Choice(['learner', 'collector']))
@click.option('--port', required=True, type=int, help='Of the learner, on this machine.')
@click.option('--counts', required=True, type=click.Path(dir_okay=False), help='JSON to write.')
@click.option('--env-steps', default=1024, type=click.IntRange(min=1), help='Env steps to play.')
@click.option('--envs', default=8, type=click.IntRange(min=1), help='Environments that are stepped together.')
@click.option('--n-sample', default=64, type=click.IntRange(min=1), help='Env steps of a message.')
@click.option('--files', default='', help='Folder to hand play over in, in place of messages.')
def main(role: str, port: int, counts: str, env_steps: int, envs: int, n_sample: int, files: str) -> None:
    """Take part in an exchange of DI-engine's."""
    torch.set_num_threads(1)
    counted = counted_queue.count(Path(counts))
    if role == 'learner':
        queue = dict(protocol='tcp', address='127.0.0.1', ports=port, node_ids=0)
    else:
        queue = dict(protocol='ipc', attach_to=[f'tcp://127.0.0.1:{port}'], node_ids=1)
    router = Parallel.runner(n_parallel_workers=1, mq_type='nng', **queue)
    router(take_part, role, merged_config(envs, n_sample), env_steps, counted, files)


if __name__ == '__main__':
    main()
