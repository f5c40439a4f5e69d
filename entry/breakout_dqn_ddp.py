"""
DQN on Breakout with data-parallel learners, the pipeline written out: several processes (ranks) that each collect,
store and sample for themselves, and make every update together, from their averaged gradients. Two on this machine::

    torchrun --nproc-per-node 2 entry/breakout_dqn_ddp.py

Gradients go by NCCL between GPUs and by gloo between CPUs. With plain ``python`` it is one process, which learns as
``breakout_dqn_main.py`` does. docs/scale.md says which options are per rank and what they come to in total.
"""

import contextlib
import os
import signal
import sys
from functools import partial
from shlex import quote
from typing import Annotated, Any, Callable, Optional

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
from ding.entry.utils import random_collect
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, BaseSerialCommander, create_buffer
from ding.worker.collector import create_serial_collector, create_serial_evaluator
from easydict import EasyDict
from tensorboardX import SummaryWriter

from breakout_env.cluster.data_parallel import SEEDS_APART, RankFailed, RankLost, Ranks
from breakout_env.cluster.rank_saver import RankSaver
from breakout_env.compat.ding_rank_logs import average_logs, count_alone, learner_place
from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.replay.size_check import DoesNotFit
from breakout_env.run.budget import Budget
from breakout_env.run.config import ConfigFile, merged_config, read_config_file
from breakout_env.run.folder import newest_checkpoint, run_summary, run_to_resume
from breakout_env.run.stop_request import Stopped, StopRequest
from breakout_env.utils import signals
from breakout_env.utils.command_line import Program, show_only_warnings
from breakout_env.utils.options import COUNT, DAY_S, SEED, Between, CommandLineType
from breakout_env.worker.step_callback import StepCallback

DEFAULT_CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'configs', 'breakout_dqn_ddp_config.py')
TIMEOUT = CommandLineType(Annotated[float, Between(1, DAY_S)])


class DataParallelTraining(object):
    """
    Overview:
        One rank's parts of a run, in ``__init__``, and its loop, in ``run``. Each method after these is one step of \
        the loop. All ranks take the same steps: what one of them finds out, such as a stop, it first tells the others.
    """

    def __init__(self, ranks: Ranks, cfg: EasyDict, budget: Budget, stop: StopRequest) -> None:
        self.ranks, self.cfg, self.budget, self.stop = ranks, cfg, budget, stop
        ranks.register(cfg.exp_name, RankSaver)

        # Environments: each rank plays games of its own. The first one evaluates for all.
        seed = cfg.seed + ranks.rank * SEEDS_APART
        env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
        self.collector_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
        self.collector_env.seed(seed, dynamic_seed=True)
        set_pkg_seed(seed, use_cuda=cfg.policy.cuda)

        # As policy.multi_gpu is on, the policy copies the first rank's weights and averages gradients over all ranks.
        self.policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
        tb_logger = SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial')) if ranks.is_first else None
        logs = dict(tb_logger=tb_logger, exp_name=cfg.exp_name)
        learner_cfg, place = cfg.policy.learn.learner, learner_place(ranks.rank)
        self.learner = BaseLearner(learner_cfg, self.policy.learn_mode, dist_info=place, **logs)
        average_logs(self.learner, ranks.mean, learner_cfg.hook.log_show_after_iter)
        stoppable = partial(StepCallback, callback=lambda timesteps: stop.raise_if_requested())
        self.collector = create_serial_collector(
            cfg.policy.collect.collector, env=stoppable(self.collector_env), policy=self.policy.collect_mode, **logs
        )
        count_alone(self.collector)
        self.evaluator: Any = None
        if ranks.is_first:
            evaluator_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs])
            evaluator_env.seed(cfg.seed, dynamic_seed=False)
            self.evaluator = create_serial_evaluator(
                cfg.policy.eval.evaluator, env=stoppable(evaluator_env), policy=self.policy.eval_mode, **logs
            )
        self.workers = [worker for worker in (self.collector, self.evaluator) if worker is not None]
        use_plain_timers(self.learner, *self.workers)
        self.replay_buffer = create_buffer(cfg.policy.other.replay_buffer, **logs)
        parts = self.learner, self.collector, self.evaluator, self.replay_buffer, self.policy.command_mode
        self.commander = BaseSerialCommander(cfg.policy.other.commander, *parts)  # sets epsilon
        # the same on all ranks: whether one of them was stopped, and whether an evaluation has reached stop_value
        self.stopped = self.finished = False

    def run(self) -> None:
        with contextlib.ExitStack() as at_the_end:  # whatever ends the loop, from the last line up, each in any case
            for worker in self.workers:
                at_the_end.callback(close, worker)
            try:
                self.learner.call_hook('before_run')  # restores the run if it is resumed
            except ValueError as error:  # of another network or number of ranks, damaged, or in use by another process
                raise click.UsageError(str(error)) from None
            at_the_end.callback(self.learner.call_hook, 'after_run')  # saves a checkpoint
            self.collector.envstep = self.learner.collector_envstep
            if self.cfg.policy.get('random_collect_size', 0) > 0:
                # Random play first, so that the first updates see more than one game. It counts as env steps.
                parts = self.policy, self.collector, self.collector_env, self.commander, self.replay_buffer
                self.collect(partial(random_collect, self.cfg.policy, *parts))
            while not (self.stopped or self.finished or self.used_up()):
                self.save()
                is_due = self.ranks.is_first and self.evaluator.should_eval(self.learner.train_iter)
                self.stopped, is_due = self.ranks.any(self.stop.requested, is_due)
                if is_due and not self.stopped:
                    self.evaluate()
                if not (self.stopped or self.finished):
                    self.collect_and_learn()
            if not (self.stopped or self.finished):
                self.evaluate()
                if self.ranks.is_first and not self.stopped:
                    click.echo(f'The budget of {self.used_up()} is used up.')
            self.save(is_last=True)

    def evaluate(self) -> None:
        arguments = self.learner.save_checkpoint, self.learner.train_iter, self.collector.envstep
        finished = self.ranks.evaluated(lambda: self.unless_stopped(lambda: self.evaluator.eval(*arguments)[0]))
        self.stopped, self.finished = finished is None, bool(finished)

    def collect_and_learn(self) -> None:
        settings = self.commander.step()  # epsilon, which follows the env steps of all ranks
        collect = partial(self.collector.collect, train_iter=self.learner.train_iter, policy_kwargs=settings)
        transitions = self.collect(collect)
        if not self.stopped:
            self.replay_buffer.push(transitions, cur_collector_envstep=self.collector.envstep)
            self.learn()

    def collect(self, collect: Callable[[], Any]) -> Any:
        """Collect on each rank; a stop on any of them stops all. Env steps are those of all ranks."""
        env_step, transitions, is_stopped = self.collector.envstep, None, False
        try:
            transitions = self.unless_stopped(collect)
        except Stopped:
            is_stopped = True
        env_steps, stopped_ranks = self.ranks.sum(self.collector.envstep - env_step, is_stopped)
        self.collector.envstep = env_step + env_steps
        self.stopped = stopped_ranks > 0
        return transitions

    def unless_stopped(self, function: Callable[[], Any]) -> Any:
        """Call a function. A signal to all processes at once ends the environments during a step; that is a stop."""
        try:
            return function()
        except (OSError, EOFError):
            self.stop.raise_if_requested()
            raise

    def learn(self) -> None:
        for update in range(self.cfg.policy.learn.update_per_collect):
            batch = self.replay_buffer.sample(self.cfg.policy.learn.batch_size, self.learner.train_iter)
            if update == 0 and self.ranks.any(batch is None)[0]:
                return  # too few transitions yet on some rank; an update takes a batch from each
            if batch is None:
                raise RuntimeError(
                    'the replay buffer ran empty; expected no max_use and max_staleness with several ranks'
                )
            self.learner.train(batch, self.collector.envstep)
            if self.cfg.policy.priority:
                self.replay_buffer.update(self.learner.priority_info)

    def save(self, is_last: bool = False) -> None:
        if hasattr(self.learner, 'run_saver'):  # the config may have no hook of type resume
            self.learner.run_saver.between_rounds(is_last)

    def used_up(self) -> Optional[str]:
        return self.budget.reached(self.collector.envstep, self.learner.train_iter, 0, 0.0)  # the same on all ranks


def train(ranks: Ranks, config: ConfigFile, seed: int, budget: Budget, resume: Optional[str] = None) -> str:
    """
    Overview:
        Train until the budget, the config's ``stop_value`` or a request to stop; all ranks call it at once.
    Arguments:
        - ranks (:obj:`Ranks`): All processes of the run.
        - config, seed, budget, resume: As in ``main``; the budget is that of all ranks together.
    Returns:
        - folder (:obj:`str`): The experiment folder with ``ckpt``, ``log`` and the merged config.
    Raises:
        - click.UsageError: If the config, the budget or the run to resume is wrong.
        - RankFailed, RankLost: If another rank cannot continue, or has ended.
    """
    show_only_warnings()
    cfg = ranks.from_first(partial(common_config, ranks, config, seed, budget, resume))
    if ranks.is_first:
        click.echo(totals(cfg, ranks))
    # the stop comes before the managers fork: Ctrl-C is not for their workers
    with StopRequest(print if ranks.is_first else lambda text: None) as stop:
        DataParallelTraining(ranks, cfg, budget, stop).run()
    return cfg.exp_name


def common_config(ranks: Ranks, config: ConfigFile, seed: int, budget: Budget, resume: Optional[str]) -> EasyDict:
    """The merged config of all ranks, and with it the folder of the run; arguments and errors as of ``train``."""
    resume = run_to_resume(resume, config.exp_name)
    # DI-engine then waits for the GPU alone, and would update the weights before all gradients are there
    if ranks.backend == 'gloo' and not config.main.policy.get('bp_update_sync', True):
        raise click.UsageError(
            f'policy.bp_update_sync is False in {config.path}; expected True without NCCL (updates would be too early)'
        )
    return merged_config(config, seed, budget, resume, {'policy.multi_gpu': True}, ranks.size)


def totals(cfg: EasyDict, ranks: Ranks) -> str:
    """The totals over all ranks of the numbers in a config, which are per rank."""
    policy, size = cfg.policy, ranks.size
    learn, memory = policy.learn, policy.other.replay_buffer.replay_buffer_size
    return (
        f'{size} rank(s) by {ranks.backend}: {cfg.env.collector_env_num * size} environments, batches of '
        f'{learn.batch_size * size} transitions, learning rate {learn.learning_rate:g}, '
        f'{policy.collect.n_sample * size / learn.update_per_collect:g} env steps to an update, '
        f'{policy.get("random_collect_size", 0) * size:,} of random play, {memory * size:,} transitions kept'
    )


def close(worker: Any) -> None:
    """Close a collector or an evaluator, whose processes may have ended already."""
    with contextlib.suppress(OSError, EOFError):
        worker.close()


@click.command(cls=Program, context_settings=dict(help_option_names=['-h', '--help'], show_default=True))
@click.option('-c', '--config', default=DEFAULT_CONFIG, type=click.Path(exists=True, dir_okay=False), help='A config.')
@click.option('-s', '--seed', default=0, type=SEED, help='Seed of everything random.')
@click.option('--env-step', '--env-steps', default=10_000_000, type=COUNT, help='Env steps of all ranks and starts.')
@click.option('--resume', is_flag=False, flag_value='', metavar='[FOLDER]', help='Resume a run, by default the last.')
@click.option('--peer-timeout', default=1800.0, type=TIMEOUT, help="Seconds to wait for a rank; above an evaluation's.")
def main(config: str, seed: int, env_step: int, resume: Optional[str], peer_timeout: float) -> None:
    """Train DQN on Breakout with data-parallel learners."""
    if 'TORCHELASTIC_RUN_ID' in os.environ:
        # torchrun ends its ranks, unless it is killed itself; then they would train on, and nobody would notice
        signals.follow_parent(os.getppid(), signal.SIGTERM)
    file = read_config_file(config)
    try:
        ranks = Ranks(file.main.policy.get('cuda', False), peer_timeout)
    except ValueError as error:  # the variables are not those of torchrun
        raise click.UsageError(str(error)) from None
    try:
        with ranks:
            folder = train(ranks, file, seed, Budget(env_steps=env_step), resume)
    except (DoesNotFit, RankFailed, RankLost) as error:
        raise click.ClickException(str(error)) from None
    if ranks.is_first:
        start = 'python' if ranks.size == 1 else f'torchrun --nproc-per-node {ranks.size}'
        resume_command = f'{start} {quote(sys.argv[0])} -c {quote(config)} --resume {quote(folder)}'
        log, best = quote(f'{folder}/log'), quote(newest_checkpoint(folder))
        commands = {'watch the curves': f'tensorboard --logdir {log}', 'evaluate': f'breakout eval --checkpoint {best}'}
        click.echo(run_summary(folder, resume_command, commands))


if __name__ == '__main__':
    main()
