"""
DQN on Breakout, the pipeline written out: what ``ding -m serial`` does, in the order it does it, to read and to change.

Ctrl-C, and SIGTERM, which job schedulers send before a time limit, end it gracefully and save the run; ``--resume``
resumes it. ``breakout train`` and ``make train`` run this file.
"""

import contextlib
import logging
import os
import sys
from functools import partial
from shlex import quote
from typing import Any, Callable, Iterator, List, Mapping, Optional, Union

# first, as it keeps from the screen what DI-engine prints while it is imported
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

from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.replay.room import DoesNotFit
from breakout_env.run.budget import Budget
from breakout_env.run.config import ConfigFile, merged_config, read_config_file
from breakout_env.run.folder import newest_checkpoint, run_summary, run_to_resume
from breakout_env.run.stop_request import Stopped, StopRequest
from breakout_env.utils.atomic_file import DamagedFile
from breakout_env.utils.options import COUNT, SEED
from breakout_env.utils.program import Program
from breakout_env.worker.overlap import Overlap, own_collect_policy
from breakout_env.worker.step_callback import StepCallback

DEFAULT_CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'configs', 'breakout_dqn_config.py')


class Training(object):
    """
    Overview:
        The parts of a run, in ``__init__``, and its loop, in ``run``. Each method after these is one step of the loop.
    """

    def __init__(self, cfg: EasyDict, budget: Budget, stop: StopRequest, overlap: bool) -> None:
        self.cfg, self.budget, self.stop, self.overlap = cfg, budget, stop, overlap

        # Environments. Nothing is opened here yet: the managers start their processes when collector and evaluator
        # launch them, and each process opens its emulator at its first reset.
        env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
        self.collector_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
        evaluator_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs])
        self.collector_env.seed(cfg.seed, dynamic_seed=True)
        evaluator_env.seed(cfg.seed, dynamic_seed=False)
        set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)

        # The policy holds the network in three modes (learn, collect, eval); each worker below drives one of them.
        self.policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
        self.collect_policy = own_collect_policy(cfg.policy, self.policy) if overlap else self.policy
        logs = dict(tb_logger=SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial')), exp_name=cfg.exp_name)
        self.learner = BaseLearner(cfg.policy.learn.learner, self.policy.learn_mode, **logs)
        self.collector = create_serial_collector(
            cfg.policy.collect.collector, env=self.collector_env, policy=self.collect_policy.collect_mode, **logs
        )
        self.evaluator = create_serial_evaluator(
            cfg.policy.eval.evaluator,
            env=StepCallback(evaluator_env, lambda timesteps: stop.raise_if_requested()),
            policy=self.policy.eval_mode,
            **logs,
        )
        use_plain_timers(self.learner, self.collector, self.evaluator)
        self.replay_buffer = create_buffer(cfg.policy.other.replay_buffer, **logs)
        # sets epsilon
        self.commander = BaseSerialCommander(
            cfg.policy.other.commander,
            self.learner,
            self.collector,
            self.evaluator,
            self.replay_buffer,
            self.policy.command_mode,
        )
        self.finished = False  # whether an evaluation has reached the config's stop_value
        self.pushed_env_step = 0

    def run(self) -> None:
        with contextlib.ExitStack() as at_the_end:  # whatever ends the loop, from the last line up, each in any case
            at_the_end.callback(close, self.evaluator)
            at_the_end.callback(close, self.collector)
            if self.budget.episodes is not None and not hasattr(self.collector, 'games'):
                raise click.UsageError(
                    f'--episodes is {self.budget.episodes}, and the collector '
                    f'{self.cfg.policy.collect.collector.type!r} counts no full games; expected one of type '
                    '`full_games` in create_config.collector'
                )
            self.learner.call_hook('before_run')  # restores the run if it is resumed
            at_the_end.callback(self.learner.call_hook, 'after_run')  # saves a checkpoint, and the run
            # A signal to all processes at once ends the environments during a step; then that is no error.
            expected = (Stopped, OSError, EOFError)
            at_the_end.push(lambda kind, error, trace: self.stop.requested and isinstance(error, expected))

            self.collector.envstep = self.learner.collector_envstep
            if self.cfg.policy.get('random_collect_size', 0) > 0:
                # Random play first, so that the first updates see more than one game. It counts as env steps.
                random_collect(
                    self.cfg.policy,
                    self.collect_policy,
                    self.collector,
                    self.collector_env,
                    self.commander,
                    self.replay_buffer,
                )
            collections = self.collections()
            if self.overlap:
                Overlap(partial(next, collections, None), self.push, self.learn, self.learner.run_progress.look).run()
            else:
                for collect in collections:
                    self.push(collect())
                    self.learn()
            if not (self.finished or self.stop.requested):
                self.evaluate()
                print(f'The budget of {self.used_up()} is used up.')

    def collections(self) -> Iterator[Callable[[], List[Any]]]:
        """The collections of the run, each with the settings and weights of the moment when it is asked for."""
        while not (self.finished or self.stop.requested or self.used_up()):
            settings = self.commander.step()
            if self.evaluator.should_eval(self.learner.train_iter):
                self.evaluate()
            if self.overlap:
                self.collect_policy.collect_mode.load_state_dict(self.policy.collect_mode.state_dict())
            yield partial(self.collector.collect, train_iter=self.learner.train_iter, policy_kwargs=settings)

    def push(self, transitions: List[Any]) -> None:
        self.pushed_env_step = self.collector.envstep
        self.replay_buffer.push(transitions, cur_collector_envstep=self.pushed_env_step)

    def learn(self) -> None:
        for _ in range(self.cfg.policy.learn.update_per_collect):
            batch = self.replay_buffer.sample(self.cfg.policy.learn.batch_size, self.learner.train_iter)
            if batch is None:  # too few transitions yet
                break
            self.learner.train(batch, self.pushed_env_step)  # not the collector's count: it may be collecting
            if self.cfg.policy.priority:
                self.replay_buffer.update(self.learner.priority_info)

    def evaluate(self) -> None:
        learner = self.learner
        self.finished, _ = self.evaluator.eval(learner.save_checkpoint, learner.train_iter, self.collector.envstep)

    def used_up(self) -> Optional[str]:
        games, hours = getattr(self.collector, 'games', 0), self.learner.run_progress.run_s / 3600
        return self.budget.reached(self.collector.envstep, self.learner.train_iter, games, hours)


def close(worker: Any) -> None:
    """Close a collector or an evaluator, whose processes may have ended already."""
    with contextlib.suppress(OSError, EOFError):
        worker.close()


def train(
    config: Union[str, ConfigFile],
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
        - config (:obj:`Union[str, ConfigFile]`): A config file, or its path.
        - seed (:obj:`int`): Seed of everything random.
        - budget (:obj:`Budget`): When to end; what a resumed run used before counts.
        - resume (:obj:`Optional[str]`): Experiment folder of the run to resume; None to begin one.
        - overlap (:obj:`bool`): Whether to collect while learning, else one after the other.
        - changes (:obj:`Mapping[str, Any]`): Values that replace the config's, by their paths.
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
    with StopRequest() as stop:  # before the managers fork, so that Ctrl-C does not kill their workers
        Training(cfg, budget, stop, overlap).run()
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
    help='Resume the run in an experiment folder; without a folder, the last saved one of this exp_name.',
)
def main(config: str, seed: int, env_step: int, overlap: bool, resume: Optional[str]) -> None:
    """Train DQN on Breakout."""
    try:
        file = read_config_file(config)
        folder = train(file, seed, Budget(env_steps=env_step), run_to_resume(resume, file.exp_name), overlap)
    except (DamagedFile, DoesNotFit) as error:  # all saves are damaged, or the buffer is too large for this machine
        raise click.UsageError(str(error)) from None
    overlapped = ' --overlap' if overlap else ''
    resume_command = f'python {quote(sys.argv[0])} -c {quote(config)}{overlapped} --resume {quote(folder)}'
    stored = f'--load-path {quote(newest_checkpoint(folder))}'
    commands = {
        'watch the curves': f'tensorboard --logdir {quote(f"{folder}/log")}',
        'evaluate, record': f'ding -m eval -c {quote(os.path.relpath(config))} -s 0 {stored} --replay-path video',
    }
    click.echo(run_summary(folder, resume_command, commands))


if __name__ == '__main__':
    main()
