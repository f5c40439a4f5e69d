"""
DQN on Breakout, the pipeline written out: what ``ding -m serial`` does, in the order it does it, to read and to change.

Besides, it is safe to stop: Ctrl-C (or SIGTERM, which job schedulers send before a time limit) ends it in order and
saves the run, and ``--resume`` goes on with it. ``breakout train`` and ``make train`` run this file.
"""

import contextlib
import logging
import os
import sys
from functools import partial
from shlex import quote
from typing import Any, Callable, List, Mapping, Optional

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
from tensorboardX import SummaryWriter

from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.replay.room import DoesNotFit
from breakout_env.run.budget import Budget
from breakout_env.run.config import merged_config
from breakout_env.run.config_file import read_config_file
from breakout_env.run.folder import closing_words, newest_checkpoint, run_to_resume
from breakout_env.run.stop_request import Stopped, StopRequest
from breakout_env.utils.atomic_file import DamagedFile
from breakout_env.utils.command_types import COUNT, SEED
from breakout_env.utils.program import Program
from breakout_env.worker.overlap import Overlap, own_collect_policy
from breakout_env.worker.step_callback import WatchedManager

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_CONFIG = os.path.join(HERE, os.pardir, 'configs', 'breakout_dqn_config.py')


def train(
    config: str,
    seed: int,
    budget: Budget,
    resume: Optional[str] = None,
    overlap: bool = False,
    changes: Mapping[str, Any] = {},
) -> str:
    """
    Overview:
        Train until the budget, the config's ``stop_value`` or a request to stop.
    Arguments:
        - config (:obj:`str`): Path of a config file.
        - seed (:obj:`int`): Seed of everything random.
        - budget (:obj:`Budget`): When to end; those parts of it that were used before a stop count.
        - resume (:obj:`Optional[str]`): Experiment folder of the run to go on with; None to begin one.
        - overlap (:obj:`bool`): Whether to collect while learning, else one after the other.
        - changes (:obj:`Mapping[str, Any]`): Values that stand for the config's, by their paths.
    Returns:
        - folder (:obj:`str`): The experiment folder with ``ckpt``, ``log`` and the merged config.
    Raises:
        - click.UsageError: As ``merged_config``; or if the budget is in games, and the collector does not count them.
    """
    # The workers log into files below exp_name/log; of what they also print, only warnings are left on the screen.
    logging.basicConfig()
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.WARNING)
    cfg = merged_config(config, seed, budget, resume, changes)

    # Environments. Nothing is opened here yet: the managers start their processes when collector and evaluator launch
    # them, and each process opens its emulator at its first reset.
    env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
    collector_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
    evaluator_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs])
    collector_env.seed(cfg.seed, dynamic_seed=True)
    evaluator_env.seed(cfg.seed, dynamic_seed=False)
    set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)

    # The policy holds the network in three roles (learn, collect, eval); the workers each drive one of them.
    stop = StopRequest()  # before the managers fork, so that Ctrl-C does not kill their workers
    policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
    playing_policy = own_collect_policy(cfg.policy, policy) if overlap else policy
    tb_logger = SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial'))
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, tb_logger, exp_name=cfg.exp_name)
    collector = create_serial_collector(
        cfg.policy.collect.collector,
        env=collector_env,
        policy=playing_policy.collect_mode,
        tb_logger=tb_logger,
        exp_name=cfg.exp_name,
    )
    evaluator = create_serial_evaluator(
        cfg.policy.eval.evaluator,
        env=WatchedManager(evaluator_env, lambda timesteps: stop.raise_if_requested()),
        policy=policy.eval_mode,
        tb_logger=tb_logger,
        exp_name=cfg.exp_name,
    )
    use_plain_timers(learner, collector, evaluator)
    replay_buffer = create_buffer(cfg.policy.other.replay_buffer, tb_logger=tb_logger, exp_name=cfg.exp_name)
    commander = BaseSerialCommander(
        cfg.policy.other.commander, learner, collector, evaluator, replay_buffer, policy.command_mode
    )

    # The steps of the loop below.
    finished, pushed_env_step = False, 0

    def evaluate() -> bool:
        return evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)[0]

    def used_up() -> Optional[str]:
        games = getattr(collector, 'games', 0)
        return budget.reached(collector.envstep, learner.train_iter, games, learner.run_progress.run_s / 3600)

    def next_collection() -> Optional[Callable[[], List[Any]]]:
        """The next collection, with the settings and weights of this moment; None if there is to be none."""
        nonlocal finished
        if finished or stop.requested or used_up():
            return None
        settings = commander.step()
        if evaluator.should_eval(learner.train_iter):
            finished = evaluate()
        if overlap:
            playing_policy.collect_mode.load_state_dict(policy.collect_mode.state_dict())
        return partial(collector.collect, train_iter=learner.train_iter, policy_kwargs=settings)

    def push(transitions: List[Any]) -> None:
        nonlocal pushed_env_step
        pushed_env_step = collector.envstep
        replay_buffer.push(transitions, cur_collector_envstep=pushed_env_step)

    def learn() -> None:
        for _ in range(cfg.policy.learn.update_per_collect):
            batch = replay_buffer.sample(cfg.policy.learn.batch_size, learner.train_iter)
            if batch is None:  # not enough in it yet
                break
            learner.train(batch, pushed_env_step)  # not the collector's own count: it may be playing on
            if cfg.policy.priority:
                replay_buffer.update(learner.priority_info)

    def close(worker: Any) -> None:
        with contextlib.suppress(OSError, EOFError):  # the processes behind it may be gone already
            worker.close()

    with contextlib.ExitStack() as at_the_end:  # whatever ends the loop, from the last line up, each in any case
        at_the_end.callback(close, evaluator)
        at_the_end.callback(close, collector)
        if budget.episodes is not None and not hasattr(collector, 'games'):
            raise click.UsageError(
                f'--episodes is {budget.episodes}, and the collector {cfg.policy.collect.collector.type!r} counts no '
                'whole games; expected one of type `full_games` in create_config.collector'
            )
        learner.call_hook('before_run')  # loads the run if there is one to go on with
        at_the_end.callback(learner.call_hook, 'after_run')  # saves a checkpoint, and the run
        # A signal to all processes at once ends the environments under our hands; then that is no error.
        at_the_end.push(lambda kind, error, trace: stop.requested and isinstance(error, (Stopped, OSError, EOFError)))

        collector.envstep = learner.collector_envstep
        if cfg.policy.get('random_collect_size', 0) > 0:
            # Random play first, so that the first updates see more than one game. It counts as env steps.
            random_collect(cfg.policy, playing_policy, collector, collector_env, commander, replay_buffer)
        if overlap:
            Overlap(next_collection, push, learn, learner.run_progress.look).run()
        else:
            while (collect := next_collection()) is not None:
                push(collect())
                learn()
        if not (finished or stop.requested):
            evaluate()
            print(f'The budget of {used_up()} is used up.')
    return cfg.exp_name


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
    help='Env steps to collect, those of a resumed run included; 4 emulator frames each.',
)
@click.option(
    '--overlap/--serial',
    default=False,
    show_default=True,
    help='Collect while learning, with the same ratio of updates to env steps; or one after the other.',
)
@click.option(
    '--resume',
    is_flag=False,
    flag_value='',
    metavar='[FOLDER]',
    help='Go on with the run in an experiment folder; without a folder, with the last saved one of this exp_name.',
)
def main(config: str, seed: int, env_step: int, overlap: bool, resume: Optional[str]) -> None:
    """Train DQN on Breakout."""
    try:
        resume = run_to_resume(resume, read_config_file(config)[0].get('exp_name', 'default_experiment'))
        folder = train(config, seed, Budget(env_steps=env_step), resume, overlap)
    except (DamagedFile, DoesNotFit) as error:  # all saves are damaged, or the buffer is too large for this machine
        raise click.UsageError(str(error)) from None
    overlapped = ' --overlap' if overlap else ''
    go_on = f'python {quote(sys.argv[0])} -c {quote(config)}{overlapped} --resume {quote(folder)}'
    stored = f'--load-path {quote(newest_checkpoint(folder))}'
    commands = {
        'watch the curves': f'tensorboard --logdir {quote(f"{folder}/log")}',
        'evaluate, record': f'ding -m eval -c {quote(os.path.relpath(config))} -s 0 {stored} --replay-path video',
    }
    click.echo(closing_words(folder, go_on, commands))


if __name__ == '__main__':
    main()
