"""Training in one process, the pipeline written out: what ``ding -m serial`` does, in its order, to read and to change.

Ctrl-C, and SIGTERM, which job schedulers send before a time limit, end it gracefully and save the run; ``--resume``
resumes it. ``breakout train`` and ``make train`` run this file; it has the options of ``breakout train`` itself, too::

    python entry/serial.py -c configs/breakout_dqn_config.py --env-steps 1000000
"""

import contextlib
import copy
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
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

from breakout_env.compat.ding_log_files import close_log_files
from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.run.budget import Budget
from breakout_env.run.config import ConfigFile, merged_config, save_config
from breakout_env.run.next_steps import used_up
from breakout_env.run.paths import CURVES
from breakout_env.run.start import NewFolder, environments_start
from breakout_env.run.stop_request import Stopped, StopRequest
from breakout_env.utils import run_registry
from breakout_env.utils.command_line import process_as_found, shell_command
from breakout_env.worker.overlap import own_collect_policy, run_overlapped


@process_as_found()
def train(
    config: str | ConfigFile,
    seed: int,
    budget: Budget,
    resume: str | None = None,
    overlap: bool = False,
    changes: Mapping[str, Any] = {},
) -> str:
    """Train until the budget, the config's ``stop_value`` or a request to stop.

    Arguments:
        config: A config file, or its path.
        seed: Seed of everything random.
        budget: When to end; what a resumed run used before counts.
        resume: Experiment folder of the run to resume; None to begin one.
        overlap: Whether to collect while learning, else one after the other.
        changes: Values that replace the config's, by their paths.
    Returns:
        The experiment folder with ``ckpt``, ``log`` and the merged config.
    Raises:
        ConfigError: As ``merged_config``.
    """
    cfg = merged_config(config, seed, budget, resume, changes)
    as_given = copy.deepcopy(cfg)  # the parts change theirs

    # Environments. Nothing is opened here yet: the managers start their processes when collector and evaluator launch
    # them, and each process opens its emulator at its first reset.
    env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
    collector_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
    evaluator_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs])
    collector_env.seed(cfg.seed, dynamic_seed=True)
    evaluator_env.seed(cfg.seed, dynamic_seed=False)
    set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)

    with contextlib.ExitStack() as at_the_end:  # whatever ends the loop, from the last line up, each in any case
        at_the_end.callback(close_log_files, cfg.exp_name)
        new_folder = at_the_end.enter_context(NewFolder(cfg.exp_name, begun=resume is not None))
        stop = at_the_end.enter_context(StopRequest())  # before the managers fork: Ctrl-C is not for their workers
        run_registry.register(cfg.exp_name, 'stop', stop)  # collectors and evaluators look at it after each env step

        # The policy holds the network in three modes (learn, collect, eval); each worker drives one of them.
        policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
        as_given.policy.model = copy.deepcopy(cfg.policy.model)  # with the policy's own where the file names none
        collect_policy = own_collect_policy(cfg.policy, policy) if overlap else policy
        logs = dict(tb_logger=SummaryWriter(os.path.join(cfg.exp_name, CURVES)), exp_name=cfg.exp_name)
        learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, **logs)
        with environments_start():
            collector = create_serial_collector(
                cfg.policy.collect.collector, env=collector_env, policy=collect_policy.collect_mode, **logs
            )
            at_the_end.callback(close, collector)
            evaluator = create_serial_evaluator(
                cfg.policy.eval.evaluator, env=evaluator_env, policy=policy.eval_mode, **logs
            )
            at_the_end.callback(close, evaluator)
        use_plain_timers(learner, collector, evaluator)
        replay_buffer = create_buffer(cfg.policy.other.replay_buffer, **logs)
        commander = BaseSerialCommander(  # sets epsilon
            cfg.policy.other.commander, learner, collector, evaluator, replay_buffer, policy.command_mode
        )

        # The steps of the loop. With overlap, the collector's own count is ahead of what has been pushed.
        pushed = SimpleNamespace(env_step=0)

        def limit_reached() -> str | None:
            games, hours = getattr(collector, 'games', 0), learner.run_progress.run_s / 3600
            return budget.reached(collector.envstep, learner.train_iter, games, hours)

        def collections() -> Iterator[Callable[[], list[Any]]]:
            """The collections of the run, each with the settings and weights of the moment when it is asked for."""
            while not (stop.poll() or limit_reached()):
                settings = commander.step()
                if evaluator.should_eval(learner.train_iter):
                    finished, _ = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
                    if finished:  # its score is stop_value
                        return
                if overlap:
                    collect_policy.collect_mode.load_state_dict(policy.collect_mode.state_dict())
                yield partial(collector.collect, train_iter=learner.train_iter, policy_kwargs=settings)

        def push(transitions: list[Any]) -> None:
            pushed.env_step = collector.envstep
            replay_buffer.push(transitions, cur_collector_envstep=pushed.env_step)

        def learn() -> None:
            for _ in range(cfg.policy.learn.update_per_collect):
                batch = replay_buffer.sample(cfg.policy.learn.batch_size, learner.train_iter)
                if batch is None:  # too few transitions yet
                    break
                learner.train(batch, pushed.env_step)
                if cfg.policy.priority:
                    replay_buffer.update(learner.priority_info)

        learner.call_hook('before_run')  # restores the run if it is resumed
        at_the_end.callback(learner.call_hook, 'after_run')  # saves a checkpoint, and the run
        save_config(as_given)
        new_folder.begun = True
        # A signal to all processes at once ends the environments during a step; then that is no error.
        at_the_end.push(lambda kind, error, trace: stop.requested and isinstance(error, (Stopped, OSError, EOFError)))

        collector.envstep, updates_before = learner.collector_envstep, learner.train_iter
        if cfg.policy.get('random_collect_size', 0) > 0:
            # Random play first, so that the first updates see more than one game. It counts as env steps.
            random_collect(cfg.policy, collect_policy, collector, collector_env, commander, replay_buffer)
        if overlap:
            run_overlapped(partial(next, collections(), None), push, learn)
        else:
            for collect in collections():
                push(collect())
                learn()
        if not stop.requested and (limit := limit_reached()):
            evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            print(used_up(limit, learner, updates_before))
    return cfg.exp_name


def close(worker: Any) -> None:
    """Close a collector or an evaluator, whose processes may have ended already."""
    with contextlib.suppress(OSError, EOFError):
        worker.close()


if __name__ == '__main__':
    from breakout_cli.train import command

    command(prog_name=shell_command('python', sys.argv[0]))
