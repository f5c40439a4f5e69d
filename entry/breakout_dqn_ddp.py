"""
DQN on Breakout with data-parallel learners, the pipeline written out: several processes that each play, remember and
draw batches for themselves, and make every update together, from the mean of their gradients. Two on this machine::

    torchrun --nproc-per-node 2 entry/breakout_dqn_ddp.py

Gradients go by NCCL between GPUs and by gloo between CPUs. With plain ``python`` it is one process, which learns as
``breakout_dqn_main.py`` does. docs/scale.md says what is per rank and what is in total.
"""

import contextlib
import logging
import os
import signal
import sys
from functools import partial
from shlex import quote
from typing import Annotated, Any, Callable, Iterator, Optional

# first, as it keeps from the screen what DI-engine prints while it is imported, and Ctrl-C quiet meanwhile
import breakout_env  # noqa: F401

# isort: split
import click
from ding.entry.utils import random_collect
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import (
    BaseLearner,
    BaseSerialCommander,
    create_buffer,
    create_serial_collector,
    create_serial_evaluator,
)
from easydict import EasyDict
from tensorboardX import SummaryWriter

from breakout_env.cluster.data_parallel import SEEDS_APART, RankFailed, RankLost, Ranks
from breakout_env.cluster.rank_saver import RankSaver
from breakout_env.compat.ding_rank_logs import average_logs, count_alone, learner_place
from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.run.budget import Budget
from breakout_env.run.config import merged_config, read_config_file
from breakout_env.run.folder import newest_checkpoint, run_summary, run_to_resume
from breakout_env.run.stop_request import Stopped, StopRequest
from breakout_env.utils import signals
from breakout_env.utils.options import COUNT, DAY_S, SEED, Between, CommandLineType
from breakout_env.utils.program import Program
from breakout_env.worker.step_callback import StepCallback

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_CONFIG = os.path.join(HERE, os.pardir, 'configs', 'breakout_dqn_ddp_config.py')


def train(ranks: Ranks, config: str, seed: int, budget: Budget, resume: Optional[str] = None) -> str:
    """
    Overview:
        Train until the budget, the config's ``stop_value`` or a request to stop; called by all ranks at once.
    Arguments:
        - ranks (:obj:`Ranks`): All processes of the run.
        - config (:obj:`str`): Path of a config file.
        - seed (:obj:`int`): Seed of everything random; each rank makes one of its own of it.
        - budget (:obj:`Budget`): When to end, over all ranks; what was used before a stop counts.
        - resume (:obj:`Optional[str]`): As the option.
    Returns:
        - folder (:obj:`str`): The experiment folder with ``ckpt``, ``log`` and the merged config.
    Raises:
        - click.UsageError: If config, budget or the run to go on with will not do.
        - RankFailed: If it is another rank that found so.
        - RankLost: If another rank is gone.
    """
    # The workers log into files below exp_name/log; of what they also print, only warnings are left on the screen.
    logging.basicConfig()
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.WARNING)
    # One config for all, and one folder.
    cfg = ranks.from_first(partial(common_config, ranks, config, seed, budget, resume))
    if ranks.is_first:
        click.echo(in_total(cfg, ranks))
    ranks.register(cfg.exp_name, RankSaver)

    # Environments: each rank plays games of its own. The first one evaluates for all.
    own_seed = cfg.seed + ranks.rank * SEEDS_APART
    env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
    collector_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
    collector_env.seed(own_seed, dynamic_seed=True)
    set_pkg_seed(own_seed, use_cuda=cfg.policy.cuda)

    # The policy takes over the first rank's weights, and means gradients over all ranks, as policy.multi_gpu is on.
    # Only the first rank has a log, and says things.
    # The stop comes before the managers fork, so that Ctrl-C does not kill their workers.
    stop = StopRequest(print if ranks.is_first else lambda text: None)
    policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
    tb_logger = SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial')) if ranks.is_first else None
    learner = BaseLearner(
        cfg.policy.learn.learner,
        policy.learn_mode,
        tb_logger,
        dist_info=learner_place(ranks.rank),
        exp_name=cfg.exp_name,
    )
    average_logs(learner, ranks.mean, cfg.policy.learn.learner.hook.log_show_after_iter)
    collector = create_serial_collector(
        cfg.policy.collect.collector,
        env=StepCallback(collector_env, lambda timesteps: stop.raise_if_requested()),
        policy=policy.collect_mode,
        tb_logger=tb_logger,
        exp_name=cfg.exp_name,
    )
    count_alone(collector)
    evaluator = None
    if ranks.is_first:
        evaluator_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs])
        evaluator_env.seed(cfg.seed, dynamic_seed=False)
        evaluator = create_serial_evaluator(
            cfg.policy.eval.evaluator,
            env=StepCallback(evaluator_env, lambda timesteps: stop.raise_if_requested()),
            policy=policy.eval_mode,
            tb_logger=tb_logger,
            exp_name=cfg.exp_name,
        )
    use_plain_timers(learner, collector, *filter(None, [evaluator]))
    # drawn from with random numbers of its own, as these come from the rank's seed
    replay_buffer = create_buffer(cfg.policy.other.replay_buffer, tb_logger=tb_logger, exp_name=cfg.exp_name)
    commander = BaseSerialCommander(
        cfg.policy.other.commander, learner, collector, evaluator, replay_buffer, policy.command_mode
    )

    # The steps of the loop below. Those that other ranks have to hear of end by telling them.

    @contextlib.contextmanager
    def stoppable() -> Iterator[None]:
        """A signal to all processes at once ends the environments under our hands; then that is no error."""
        try:
            yield
        except (OSError, EOFError):
            stop.raise_if_requested()
            raise

    def evaluate() -> bool:
        with stoppable():
            return evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)[0]

    def played(play: Callable[[], Any]) -> Optional[Any]:
        """What came of playing; None if a stop came in its midst on any rank. Env steps are those of all ranks."""
        env_steps, transitions, is_whole = collector.envstep, None, True
        try:
            with stoppable():
                transitions = play()
        except Stopped:
            is_whole = False
        steps_of_all, broken_off = ranks.sum(collector.envstep - env_steps, not is_whole)
        collector.envstep = env_steps + steps_of_all
        return None if broken_off else transitions

    def play_at_random() -> bool:
        random_collect(cfg.policy, policy, collector, collector_env, commander, replay_buffer)
        return True

    def learn() -> None:
        for update in range(cfg.policy.learn.update_per_collect):
            batch = replay_buffer.sample(cfg.policy.learn.batch_size, learner.train_iter)
            if update == 0 and ranks.any(batch is None)[0]:  # not enough in it yet; an update takes a batch of each
                return
            if batch is None:
                raise RuntimeError(
                    f'the replay buffer of rank {ranks.rank} ran empty between two updates; expected one that keeps '
                    'transitions (max_use and max_staleness of policy.other.replay_buffer are not for several ranks)'
                )
            learner.train(batch, collector.envstep)
            if cfg.policy.priority:
                replay_buffer.update(learner.priority_info)

    def save(is_last: bool = False) -> None:
        if hasattr(learner, 'run_saver'):  # the config may have no hook of type resume
            learner.run_saver.between_rounds(is_last)

    def used_up() -> Optional[str]:
        return budget.reached(collector.envstep, learner.train_iter, 0, 0.0)  # the same on all ranks

    def close(worker: Any) -> None:
        with contextlib.suppress(OSError, EOFError):  # the processes behind it may be gone already
            worker.close()

    with contextlib.ExitStack() as at_the_end:  # whatever ends the loop, from the last line up, each in any case
        at_the_end.callback(close, collector)
        if evaluator is not None:
            at_the_end.callback(close, evaluator)
        try:
            learner.call_hook('before_run')  # loads the run if there is one to go on with
        except ValueError as error:  # of another network or number of ranks, damaged, or trained by others already
            raise click.UsageError(str(error)) from None
        at_the_end.callback(learner.call_hook, 'after_run')  # saves a checkpoint

        collector.envstep = learner.collector_envstep
        is_stopped, finished = False, False
        if cfg.policy.get('random_collect_size', 0) > 0:
            # Random play first, so that the first updates see more than one game. It counts as env steps.
            is_stopped = played(play_at_random) is None
        while not (is_stopped or finished or used_up()):
            save()
            is_stopped, evaluation_is_due = ranks.any(
                stop.requested, ranks.is_first and evaluator.should_eval(learner.train_iter)
            )
            if evaluation_is_due and not is_stopped:
                finished = ranks.evaluated(evaluate)
                is_stopped = finished is None
            if is_stopped or finished:
                continue
            settings = commander.step()  # epsilon, which follows the env steps of all ranks
            transitions = played(partial(collector.collect, train_iter=learner.train_iter, policy_kwargs=settings))
            is_stopped = transitions is None
            if not is_stopped:
                replay_buffer.push(transitions, cur_collector_envstep=collector.envstep)
                learn()
        if not (is_stopped or finished):
            is_stopped = ranks.evaluated(evaluate) is None
            if ranks.is_first and not is_stopped:
                click.echo(f'The budget of {used_up()} is used up.')
        save(is_last=True)
    return cfg.exp_name


def common_config(ranks: Ranks, config: str, seed: int, budget: Budget, resume: Optional[str]) -> EasyDict:
    """
    Overview:
        The merged config of all ranks; the folder of a new run is there then.
    Arguments:
        - ranks, config, seed, budget, resume: As in ``train``.
    Raises:
        - click.UsageError: If it will not do.
    """
    cfg = read_config_file(config)[0]
    resume = run_to_resume(resume, cfg.get('exp_name', 'default_experiment'))
    random_steps = cfg.policy.get('random_collect_size', 0) * ranks.size
    if budget.env_steps <= random_steps:
        raise click.UsageError(
            f'--env-step is {budget.env_steps}; expected more than the {random_steps} steps of random play that '
            f'policy.random_collect_size in {config} asks for on {ranks.size} rank(s) before the first update'
        )
    if ranks.backend == 'gloo' and not cfg.policy.get('bp_update_sync', True):
        raise click.UsageError(
            f'policy.bp_update_sync is False in {config}; expected True without NCCL: DI-engine waits for the GPU '
            'alone, and would step before all gradients are there'
        )
    return merged_config(config, seed, budget, resume, {'policy.multi_gpu': True})


def in_total(cfg: EasyDict, ranks: Ranks) -> str:
    """What the numbers of a config, which are per rank, come to over all ranks."""
    learn, policy, size = cfg.policy.learn, cfg.policy, ranks.size
    return (
        f'{size} rank(s) by {ranks.backend}: {cfg.env.collector_env_num * size} environments, '
        f'batches of {learn.batch_size * size} transitions, learning rate {learn.learning_rate:g}, '
        f'{policy.collect.n_sample * size / learn.update_per_collect:g} env steps to an update, '
        f'{policy.get("random_collect_size", 0) * size:,} of random play, '
        f'{policy.other.replay_buffer.replay_buffer_size * size:,} transitions kept'
    )


@click.command(cls=Program, context_settings=dict(help_option_names=['-h', '--help']))
@click.option(
    '-c', '--config', default=DEFAULT_CONFIG, type=click.Path(exists=True, dir_okay=False), help='Config file.'
)
@click.option('-s', '--seed', default=0, show_default=True, type=SEED, help='Seed of everything random.')
@click.option(
    '--env-step',
    default=10_000_000,
    show_default=True,
    type=COUNT,
    help='Env steps to collect over all ranks, those of a resumed run included; 4 emulator frames each.',
)
@click.option(
    '--resume',
    is_flag=False,
    flag_value='',
    metavar='[FOLDER]',
    help='Go on with the run in an experiment folder; without a folder, with the last saved one of this exp_name.',
)
@click.option(
    '--peer-timeout',
    default=1800.0,
    show_default=True,
    type=CommandLineType(Annotated[float, Between(1, DAY_S)]),
    help='Seconds to wait for another rank before giving up; longer than an evaluation takes.',
)
def main(config: str, seed: int, env_step: int, resume: Optional[str], peer_timeout: float) -> None:
    """Train DQN on Breakout with data-parallel learners."""
    if 'TORCHELASTIC_RUN_ID' in os.environ:
        # torchrun ends its ranks unless it is killed itself; then they would train on, where nobody looks for them
        signals.follow_parent(os.getppid(), signal.SIGTERM)
    try:
        ranks = Ranks(read_config_file(config)[0].policy.get('cuda', False), peer_timeout)
    except ValueError as error:  # the environment is none of torchrun's
        raise click.UsageError(str(error)) from None
    try:
        with ranks:
            folder = train(ranks, config, seed, Budget(env_steps=env_step), resume)
    except (RankFailed, RankLost) as error:
        raise click.ClickException(str(error)) from None
    if not ranks.is_first:
        return
    start = 'python' if ranks.size == 1 else f'torchrun --nproc-per-node {ranks.size}'
    go_on = f'{start} {quote(sys.argv[0])} -c {quote(config)} --resume {quote(folder)}'
    commands = {
        'watch the curves': f'tensorboard --logdir {quote(f"{folder}/log")}',
        'evaluate': f'breakout eval --checkpoint {quote(newest_checkpoint(folder))}',
    }
    click.echo(run_summary(folder, go_on, commands))


if __name__ == '__main__':
    main()
