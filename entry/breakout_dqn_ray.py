"""
DQN on Breakout with collectors on Ray, the pipeline written out: this process learns, Ray actors collect and evaluate.
On this machine, with two collectors::

    python entry/breakout_dqn_ray.py --collectors 2

On a cluster, with as many collectors as it has CPUs, now and later (docs/scale.md has Slurm and Kubernetes)::

    python entry/breakout_dqn_ray.py --collectors auto --ray auto

``breakout train --collectors`` calls it, too.
"""

import contextlib
import logging
import os
import sys
import time
from shlex import quote
from typing import Any, Mapping, Optional

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, BaseSerialCommander, create_buffer
from tensorboardX import SummaryWriter
from tqdm import tqdm

from breakout_env.cluster.actors import write_events
from breakout_env.cluster.collector_pool import CollectorPool
from breakout_env.cluster.ray_session import ClusterError, ray_session
from breakout_env.cluster.remote_evaluator import RemoteEvaluator
from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.run.budget import Budget
from breakout_env.run.config import merged_config
from breakout_env.run.folder import closing_words, newest_checkpoint, run_to_resume
from breakout_env.run.stop_request import StopRequest
from breakout_env.utils.atomic_file import DamagedFile
from breakout_env.utils.options import COUNT, SEED
from breakout_env.utils.program import Program

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_CONFIG = os.path.join(HERE, os.pardir, 'configs', 'breakout_dqn_config.py')
# With no collector at work, the learner says so, and again after as long.
ALONE_S = 30.0


def train(
    config: str,
    seed: int,
    budget: Budget,
    resume: Optional[str] = None,
    collectors: Optional[int] = None,
    ray_address: Optional[str] = None,
    changes: Mapping[str, Any] = {},
) -> str:
    """
    Overview:
        Train until the budget, the config's ``stop_value`` or a request to stop.
    Arguments:
        - config, seed, budget, resume, changes: As in ``breakout_dqn_main.train``.
        - collectors (:obj:`Optional[int]`): How many; None for as many as the cluster has CPUs.
        - ray_address (:obj:`Optional[str]`): Of a cluster; None for a local Ray that ends with the run.
    Returns:
        - folder (:obj:`str`): The experiment folder with ``ckpt``, ``log`` and the merged config.
    Raises:
        - ClusterError: If the run cannot go on with this cluster.
    """
    logging.basicConfig()
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.WARNING)  # the workers log into files below exp_name/log
    cfg = merged_config(config, seed, budget, resume, changes)

    with contextlib.ExitStack() as at_the_end:  # from the last entry up, each in any case
        ray = at_the_end.enter_context(ray_session(ray_address, collectors))
        stop = StopRequest()
        set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
        policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
        tb_logger = SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial'))
        at_the_end.callback(tb_logger.close)
        learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, tb_logger, exp_name=cfg.exp_name)
        use_plain_timers(learner)
        replay_buffer = create_buffer(cfg.policy.other.replay_buffer, tb_logger=tb_logger, exp_name=cfg.exp_name)

        def say(text: str) -> None:
            learner.info(text)
            tqdm.write(text)  # above the progress line, if there is one
            sys.stdout.flush()

        pool = CollectorPool(ray, cfg, collectors, say)
        at_the_end.callback(pool.close)
        evaluator = RemoteEvaluator(ray, cfg, policy, tb_logger, say)
        at_the_end.callback(evaluator.close)
        commander = BaseSerialCommander(
            cfg.policy.other.commander, learner, pool, evaluator, replay_buffer, policy.command_mode
        )
        learner.call_hook('before_run')  # loads the run to resume
        at_the_end.callback(learner.call_hook, 'after_run')  # saves a checkpoint, and the run

        def used_up() -> Optional[str]:
            hours = learner.run_progress.run_s / 3600
            return budget.reached(pool.envstep, learner.train_iter, pool.games, hours)

        pool.envstep = learner.collector_envstep
        pool.settings = commander.step()
        pool.set_weights(policy.collect_mode.state_dict()['model'], learner.train_iter)
        pool.open(cfg.policy.get('random_collect_size', 0), budget.env_steps)  # none of it after a resume
        finished, heard_s = False, time.monotonic()
        while not (finished or stop.requested or used_up()):
            collected = pool.next_fragment(timeout_s=0.5)
            learner.run_progress.look()
            if collected is None:
                if time.monotonic() - heard_s > ALONE_S and not pool.number:
                    heard_s = time.monotonic()
                    say(f'No collector works. Waiting for CPUs: {ray.cluster_resources()}')
                finished = evaluator.look()
                continue
            transitions, fragment, is_random = collected
            heard_s = time.monotonic()
            write_events(fragment.events, tb_logger)
            replay_buffer.push(transitions, cur_collector_envstep=pool.envstep)
            for _ in range(0 if is_random else cfg.policy.learn.update_per_collect):
                batch = replay_buffer.sample(cfg.policy.learn.batch_size, learner.train_iter)
                if batch is None:  # too few transitions yet
                    break
                learner.train(batch, pool.envstep)
                if cfg.policy.priority:
                    replay_buffer.update(learner.priority_info)
            pool.settings = commander.step()  # epsilon
            pool.set_weights(policy.collect_mode.state_dict()['model'], learner.train_iter)
            if evaluator.should_eval(learner.train_iter):
                evaluator.begin(learner.train_iter, pool.envstep)
            finished = evaluator.look()
        if not (finished or stop.requested):  # evaluate what the run has come to
            while not stop.requested and (evaluator.is_under_way or evaluator.last_iteration != learner.train_iter):
                if not evaluator.is_under_way:
                    evaluator.begin(learner.train_iter, pool.envstep)
                evaluator.look(timeout_s=0.5)
                learner.run_progress.look()
            say(f'The budget of {used_up()} is used up.')
    return cfg.exp_name


def collector_count(context: click.Context, parameter: click.Parameter, value: str) -> Optional[int]:
    """A number, or None for ``auto``."""
    if value == 'auto':
        return None
    if value.isascii() and value.isdigit() and 1 <= int(value) <= 4096:
        return int(value)
    raise click.BadParameter(f'{value!r} is not allowed; expected auto or a whole number from 1 to 4,096')


@click.command(cls=Program, context_settings=dict(help_option_names=['-h', '--help']))
@click.option(
    '-c', '--config', default=DEFAULT_CONFIG, type=click.Path(exists=True, dir_okay=False), help='Config file.'
)
@click.option('-s', '--seed', default=0, show_default=True, type=SEED, help='Seed of everything random.')
@click.option('--env-step', default=10_000_000, show_default=True, type=COUNT, help='Env steps to collect in all.')
@click.option('--collectors', default='auto', show_default=True, callback=collector_count, help='How many, or auto.')
@click.option('--ray', 'address', metavar='ADDRESS', help="Of a Ray cluster, 'auto' for the one of this machine.")
@click.option('--resume', is_flag=False, flag_value='', metavar='[FOLDER]', help='Resume a run, by default the last.')
def main(
    config: str, seed: int, env_step: int, collectors: Optional[int], address: Optional[str], resume: Optional[str]
) -> None:
    """Train DQN on Breakout with collectors on Ray."""
    try:
        resume = run_to_resume(resume, read_config_file(config)[0].get('exp_name', 'default_experiment'))
        folder = train(config, seed, Budget(env_steps=env_step), resume, collectors, address)
    except ClusterError as error:
        raise click.ClickException(str(error)) from None
    except (DamagedFile, ValueError) as error:
        raise click.UsageError(str(error)) from None
    again = f'python {quote(sys.argv[0])} -c {quote(config)} --resume {quote(folder)}'
    commands = {'evaluate': f'breakout eval --checkpoint {quote(newest_checkpoint(folder))}'}
    click.echo(closing_words(folder, again, commands))


if __name__ == '__main__':
    main()
