"""Training with collectors on Ray, the pipeline written out: this process learns, Ray actors collect and evaluate.
On this machine, and on a cluster, with as many collectors as it has CPUs, now and later::

    python entry/on_ray.py --collectors 2
    python entry/on_ray.py --collectors auto --ray auto

``breakout train --collectors`` runs this file, with the same options. docs/scale.md has Slurm and Kubernetes. Its name
is not `ray.py`, which would hide the library from a script beside it.
"""

import contextlib
import copy
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, BaseSerialCommander, create_buffer
from easydict import EasyDict
from tensorboardX import SummaryWriter
from tqdm import tqdm

from breakout_env.cluster.collector_pool import CollectorPool
from breakout_env.cluster.ray_session import CollectorCount, ray_session
from breakout_env.cluster.remote_evaluator import RemoteEvaluator
from breakout_env.compat.ding_log_files import close_log_files
from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.run.budget import Budget
from breakout_env.run.config import ConfigFile, merged_config, save_config
from breakout_env.run.next_steps import used_up
from breakout_env.run.paths import CURVES
from breakout_env.run.start import NewFolder
from breakout_env.run.stop_request import StopRequest
from breakout_env.utils.command_line import process_as_found, shell_command

# Seconds without a working collector after which the learner says so.
ALONE_S = 30.0


class RayTraining:
    """A run: ``__init__`` makes its parts, ``run`` is its loop, and each other method is one step of the loop."""

    def __init__(self, ray: Any, cfg: EasyDict, budget: Budget, stop: StopRequest, collectors: CollectorCount) -> None:
        self.ray, self.cfg, self.budget, self.stop = ray, cfg, budget, stop
        set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
        self.policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
        self.as_given = copy.deepcopy(cfg)  # other parts change theirs
        self.tb_logger = SummaryWriter(os.path.join(cfg.exp_name, CURVES))
        logs = dict(tb_logger=self.tb_logger, exp_name=cfg.exp_name)
        self.learner = BaseLearner(cfg.policy.learn.learner, self.policy.learn_mode, **logs)
        use_plain_timers(self.learner)
        self.replay_buffer = create_buffer(cfg.policy.other.replay_buffer, **logs)
        # these stand where a pipeline in one process has a collector and an evaluator
        self.pool = CollectorPool(ray, cfg, collectors, self.say)
        self.evaluator = RemoteEvaluator(ray, cfg, self.policy, self.tb_logger, self.say)
        # sets epsilon
        parts = self.learner, self.pool, self.evaluator, self.replay_buffer, self.policy.command_mode
        self.commander = BaseSerialCommander(cfg.policy.other.commander, *parts)
        self.finished = False  # whether an evaluation has reached the config's stop_value
        self.heard_s = time.monotonic()

    def run(self, new_folder: NewFolder) -> None:
        with contextlib.ExitStack() as at_the_end:  # whatever ends the loop, from the last line up, each in any case
            at_the_end.callback(close_log_files, self.cfg.exp_name)
            at_the_end.callback(self.tb_logger.close)
            at_the_end.callback(self.evaluator.close)
            at_the_end.callback(self.pool.close)
            self.learner.call_hook('before_run')  # restores the run if it is resumed
            at_the_end.callback(self.learner.call_hook, 'after_run')  # saves a checkpoint, and the run
            save_config(self.as_given)
            new_folder.begun = True
            self.pool.envstep, updates_before = self.learner.collector_envstep, self.learner.train_iter
            self.set_policy()
            # random play comes first, so that the first updates see more than one game; a resumed run has had it
            self.pool.open(self.cfg.policy.get('random_collect_size', 0), self.budget.env_steps)
            while not (self.finished or self.stop.poll() or self.limit_reached()):
                if self.collect_and_learn():
                    self.set_policy()
                    if self.evaluator.should_eval(self.learner.train_iter):
                        self.evaluator.begin(self.learner.train_iter, self.pool.envstep)
                self.finished = self.evaluator.look()
                self.learner.run_progress.look()
            if not (self.finished or self.stop.requested):
                self.evaluate()
                self.say(used_up(self.limit_reached() or '', self.learner, updates_before))

    def set_policy(self) -> None:
        """Epsilon and weights of the next requests."""
        self.pool.settings = self.commander.step()
        self.pool.set_weights(self.policy.collect_mode.state_dict()['model'], self.learner.train_iter)

    def collect_and_learn(self) -> bool:
        """Take the next fragment, if one has come, and learn from it."""
        collected = self.pool.next_fragment(timeout_s=0.5)
        if collected is None:
            if self.pool.number:
                self.heard_s = time.monotonic()
            elif time.monotonic() - self.heard_s > ALONE_S:
                self.heard_s = time.monotonic()
                self.say(f'No collector works; waiting for a CPU. The cluster has {self.ray.cluster_resources()}.')
            return False
        transitions, fragment, is_random = collected
        for event in fragment.events:
            self.tb_logger.add_scalar(*event)
        self.replay_buffer.push(transitions, cur_collector_envstep=self.pool.envstep)
        for _ in range(0 if is_random else self.cfg.policy.learn.update_per_collect):
            batch = self.replay_buffer.sample(self.cfg.policy.learn.batch_size, self.learner.train_iter)
            if batch is None:  # too few transitions yet
                break
            self.learner.train(batch, self.pool.envstep)
            if self.cfg.policy.priority:
                self.replay_buffer.update(self.learner.priority_info)
        return True

    def evaluate(self) -> None:
        """Evaluate what the run has come to, and wait for it."""
        while not self.stop.poll():
            if not self.evaluator.is_under_way:
                if self.evaluator.last_iteration == self.learner.train_iter:
                    return
                self.evaluator.begin(self.learner.train_iter, self.pool.envstep)
            self.evaluator.look(timeout_s=0.5)
            self.learner.run_progress.look()

    def limit_reached(self) -> str | None:
        hours = self.learner.run_progress.run_s / 3600
        return self.budget.reached(self.pool.envstep, self.learner.train_iter, self.pool.games, hours)

    def say(self, text: str) -> None:
        self.learner.info(text)
        tqdm.write(text)  # above the progress line, if there is one
        sys.stdout.flush()


@process_as_found()
def train(
    config: str | ConfigFile,
    seed: int,
    budget: Budget,
    resume: str | None = None,
    collectors: CollectorCount = 'auto',
    ray_address: str | None = None,
    changes: Mapping[str, Any] = {},
) -> str:
    """Train until the budget, the config's ``stop_value`` or a request to stop.

    Arguments:
        config, seed, budget, resume, changes: As in ``train`` of ``serial.py``.
        collectors: How many; ``'auto'`` for as many as the cluster has CPUs.
        ray_address: Of a cluster; None for a local Ray that ends with the run.
    Returns:
        The experiment folder with ``ckpt``, ``log`` and the merged config.
    Raises:
        ClusterError: If the run cannot continue with this cluster.
        ConfigError: As ``merged_config``.
    """
    cfg = merged_config(config, seed, budget, resume, changes, on_ray=True)
    new_folder = NewFolder(cfg.exp_name, begun=resume is not None)
    with new_folder, ray_session(ray_address, collectors) as ray, StopRequest() as stop:
        RayTraining(ray, cfg, budget, stop, collectors).run(new_folder)
    return cfg.exp_name


if __name__ == '__main__':
    from breakout_cli.train import command

    words = ['--collectors', 'auto', *sys.argv[1:]]
    command(words, prog_name=shell_command('python', sys.argv[0]))
