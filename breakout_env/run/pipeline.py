"""The training pipeline: what ``ding -m serial`` does, in its order, to read and to change.

``train`` runs the loop of a run: collect, push, learn, evaluate now and then. Where the experience comes from is an
``ExperienceSource``: environments in this process, one after the other with learning or overlapped with it, or
collectors on Ray (``cluster/ray_source.py``). Ctrl-C, and SIGTERM, which job schedulers send before a time limit, end
it gracefully and save the run.
"""

import contextlib
import copy
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from ding.entry.utils import random_collect
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import Policy, create_policy
from ding.utils import set_pkg_seed
from ding.worker import (
    BaseLearner,
    BaseSerialCommander,
    IBuffer,
    ISerialCollector,
    ISerialEvaluator,
    create_buffer,
    create_serial_collector,
    create_serial_evaluator,
)
from easydict import EasyDict
from tensorboardX import SummaryWriter

from ..compat.ding_log_files import close_log_files
from ..compat.ding_timers import use_plain_timers
from ..policy.initial_weights import InitialWeights
from ..utils import run_registry
from ..utils.command_line import process_as_found
from ..worker.collector import Settings
from ..worker.overlap import overlapped, own_collect_policy
from .budget import Budget
from .config import ConfigFile, merged_config, save_config
from .paths import CURVES
from .progress_line import print_message
from .start import environments_start, remove_unless_begun
from .stop_request import Stopped, StopRequest


class Fragment(NamedTuple):
    """What one collection gives: data for the replay buffer, and the env steps of the run so far."""

    data: object
    env_step: int


class RunParts(NamedTuple):
    """The learner's side of a run, for its source of experience."""

    cfg: EasyDict
    policy: Policy
    learner: BaseLearner
    tb_logger: SummaryWriter
    at_the_end: contextlib.ExitStack
    """Closes what is open, whatever ends the run."""

    def print_line(self, text: str) -> None:
        """Print a message above the progress line, if there is one, and log it."""
        self.learner.info(text)
        print_message(text)


class ExperienceSource(Protocol):
    """Collects and evaluates for a run.

    Attributes:
        collector: The env steps of the run (``envstep``) and, if it counts them, its full games (``games``).
        evaluator: What DI-engine's commander and the saves of a run take as its evaluator.
    """

    collector: ISerialCollector
    evaluator: ISerialEvaluator

    def start(self, commander: BaseSerialCommander, replay_buffer: IBuffer) -> None:
        """Begin, with the random play that the config asks for: the first updates see more than one game."""

    def fragments(self, settings: Iterator[Settings], push: Callable[[Fragment], None]) -> Generator[Fragment]:
        """Collect fragments, push each into the buffer, and yield those to learn from. For each collection one item of
        ``settings`` is taken, such as epsilon; the policy's weights of that moment collect.
        """

    def evaluate_if_due(self) -> bool:
        """Evaluate if it is time; returns whether the score has reached ``stop_value``."""

    def evaluate(self) -> object:
        """Evaluate the policy as it is, and wait for the result."""


class InThisProcess:
    """DI-engine's collector and evaluator of the config, with their environments in this process and its workers.

    Arguments:
        overlap: Whether to collect in a thread while the caller learns.
    """

    def __init__(self, parts: RunParts, overlap: bool) -> None:
        cfg, policy, self._overlap = parts.cfg, parts.policy, overlap
        self._cfg, self._policy, self._learner = cfg, policy, parts.learner
        self._collect_policy = own_collect_policy(cfg.policy, policy) if overlap else policy
        # Nothing is opened here yet: the managers start their processes when collector and evaluator launch them, and
        # each process opens its emulator at its first reset.
        env_class, collector_cfgs, evaluator_cfgs = get_vec_env_setting(cfg.env)
        self._env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
        evaluator_env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs])
        self._env.seed(cfg.seed, dynamic_seed=True)
        evaluator_env.seed(cfg.seed, dynamic_seed=False)
        logs = dict(tb_logger=parts.tb_logger, exp_name=cfg.exp_name)
        with environments_start():
            self.collector = create_serial_collector(
                cfg.policy.collect.collector, env=self._env, policy=self._collect_policy.collect_mode, **logs
            )
            parts.at_the_end.callback(_close, self.collector)
            self.evaluator = create_serial_evaluator(
                cfg.policy.eval.evaluator, env=evaluator_env, policy=policy.eval_mode, **logs
            )
            parts.at_the_end.callback(_close, self.evaluator)
        use_plain_timers(self.collector, self.evaluator)

    def start(self, commander: BaseSerialCommander, replay_buffer: IBuffer) -> None:
        if self._cfg.policy.get('random_collect_size', 0) > 0:  # these env steps count
            policies = self._cfg.policy, self._collect_policy
            random_collect(*policies, self.collector, self._env, commander, replay_buffer)

    def fragments(self, settings: Iterator[Settings], push: Callable[[Fragment], None]) -> Generator[Fragment]:
        return (overlapped if self._overlap else _one_after_the_other)(self._collections(settings), push)

    def _collections(self, settings: Iterator[Settings]) -> Iterator[Callable[[], Fragment]]:
        for of_collection in settings:
            if self._overlap:
                self._collect_policy.collect_mode.load_state_dict(self._policy.collect_mode.state_dict())
            yield partial(self._collect, train_iter=self._learner.train_iter, policy_kwargs=of_collection)

    def _collect(self, **kwargs: object) -> Fragment:
        return Fragment(self.collector.collect(**kwargs), self.collector.envstep)

    def evaluate_if_due(self) -> bool:
        return self.evaluator.should_eval(self._learner.train_iter) and self.evaluate()

    def evaluate(self) -> bool:
        counts = self._learner.train_iter, self.collector.envstep
        finished, _ = self.evaluator.eval(self._learner.save_checkpoint, *counts)
        return finished


def _one_after_the_other(
    collections: Iterator[Callable[[], Fragment]], push: Callable[[Fragment], None]
) -> Generator[Fragment]:
    for collect in collections:
        fragment = collect()
        push(fragment)
        yield fragment


class Training:
    """A run: ``__init__`` makes its parts, ``run`` is its loop, and each other method is a step of the loop."""

    def __init__(
        self,
        cfg: EasyDict,
        budget: Budget,
        stop: StopRequest,
        at_the_end: contextlib.ExitStack,
        source: Callable[[RunParts], ExperienceSource],
        initial: InitialWeights | None,
    ) -> None:
        self.cfg, self.budget, self.stop, self.at_the_end = cfg, budget, stop, at_the_end
        self.initial = initial
        self.as_given = copy.deepcopy(cfg)  # the parts change the config
        set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
        # The policy holds the network in three modes (learn, collect, eval); each worker drives one of them.
        policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
        if initial is not None:
            initial.load(policy.learn_mode)
        self.as_given.policy.model = copy.deepcopy(cfg.policy.model)  # the policy's own where the file names none
        tb_logger = SummaryWriter(os.path.join(cfg.exp_name, CURVES))
        logs = dict(tb_logger=tb_logger, exp_name=cfg.exp_name)
        at_the_end.callback(_close, tb_logger)
        self.learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, **logs)
        use_plain_timers(self.learner)
        self.parts = RunParts(cfg, policy, self.learner, tb_logger, at_the_end)
        self.source = source(self.parts)
        self.collector, self.evaluator = self.source.collector, self.source.evaluator
        self.replay_buffer = create_buffer(cfg.policy.other.replay_buffer, **logs)
        workers = self.learner, self.collector, self.evaluator, self.replay_buffer, policy.command_mode
        self.commander = BaseSerialCommander(cfg.policy.other.commander, *workers)  # sets epsilon

    def run(self) -> None:
        self.learner.call_hook('before_run')  # restores the run if it is resumed
        if self.initial is not None and not self.learner.train_iter:
            self.parts.print_line(f'The training begins with the weights of {self.initial.path}')
        self.at_the_end.callback(self.learner.call_hook, 'after_run')  # saves a checkpoint, and the run
        save_config(self.as_given)  # the run has begun
        # A signal to all processes at once ends the environments during a step: that is a stop, not an error.
        self.at_the_end.push(self.is_stopped_by)
        self.collector.envstep = self.learner.collector_envstep
        self.source.start(self.commander, self.replay_buffer)
        with contextlib.closing(self.source.fragments(self.settings(), self.push)) as fragments:
            for fragment in fragments:
                self.learn(fragment.env_step)
        if not self.stop.requested and (limit := self.limit_reached()):
            self.source.evaluate()
            self.parts.print_line(
                f'The budget of {limit} is used up: it counts from the beginning of the run, which has '
                f'{self.learner.train_iter:,} updates and {self.learner.collector_envstep:,} env steps; to train on, '
                'resume it with a larger one.'
            )

    def settings(self) -> Iterator[Settings]:
        """Settings for the next collection, until a stop, a limit or ``stop_value`` ends the run."""
        while not (self.stop.poll() or self.limit_reached()):
            settings = self.commander.step()
            if self.source.evaluate_if_due():
                self.parts.print_line('The score has reached env.stop_value; to train on, resume with a larger one.')
                return
            yield settings

    def push(self, fragment: Fragment) -> None:
        self.replay_buffer.push(fragment.data, cur_collector_envstep=fragment.env_step)

    def learn(self, env_step: int) -> None:
        """The updates for one fragment."""
        for _ in range(self.cfg.policy.learn.update_per_collect):
            batch = self.replay_buffer.sample(self.cfg.policy.learn.batch_size, self.learner.train_iter)
            if batch is None:  # too few transitions yet
                break
            self.learner.train(batch, env_step)
            if self.cfg.policy.priority:
                self.replay_buffer.update(self.learner.priority_info)

    def limit_reached(self) -> str | None:
        games, hours = getattr(self.collector, 'games', 0), self.learner.run_progress.run_s / 3600
        return self.budget.reached(self.collector.envstep, self.learner.train_iter, games, hours)

    def is_stopped_by(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return self.stop.requested and isinstance(error, (Stopped, OSError, EOFError))


@process_as_found()
def train(
    config: str | ConfigFile,
    seed: int,
    budget: Budget,
    resume: str | None = None,
    overlap: bool = False,
    changes: Mapping[str, object] = {},
    source: Callable[[RunParts], ExperienceSource] | None = None,
    initial: InitialWeights | None = None,
) -> str:
    """Train until the budget, the config's ``stop_value`` or a request to stop.

    Arguments:
        config: A config file, or its path.
        seed: Seed of everything random.
        budget: When to end; what a resumed run used before counts.
        resume: Experiment folder of the run to resume; None to begin one.
        overlap: Whether to collect while learning, else one after the other.
        changes: Values that replace the config's, by their paths.
        source: Makes what collects and evaluates; None for this process.
        initial: Weights to begin with, as ``initial_weights`` reads them from a file; None for random ones. A resumed
            run keeps its weights.
    Returns:
        The experiment folder with ``ckpt``, ``log`` and the merged config.
    Raises:
        ConfigError: As ``merged_config``, or if the initial weights do not fit.
    """
    cfg = merged_config(config, seed, budget, resume, changes)
    with contextlib.ExitStack() as at_the_end:  # from the last entry up, each in any case
        at_the_end.callback(close_log_files, cfg.exp_name)
        if resume is None:
            at_the_end.callback(remove_unless_begun, cfg.exp_name)
        stop = at_the_end.enter_context(StopRequest())  # before the managers fork: Ctrl-C is not for their workers
        run_registry.register(cfg.exp_name, 'stop', stop)  # collectors and evaluators look at it after each env step
        source = source or partial(InThisProcess, overlap=overlap)
        # this name keeps the replay buffer until the last save
        training = Training(cfg, budget, stop, at_the_end, source, initial)
        training.run()
    return cfg.exp_name


def _close(worker: ISerialCollector | ISerialEvaluator | SummaryWriter) -> None:
    """Close a worker, whose processes may have ended already, or the log, whose disk may be full."""
    with contextlib.suppress(OSError, EOFError):
        worker.close()
