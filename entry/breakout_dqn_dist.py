"""
DQN on Breakout in several processes, on one machine or many: a learner, collectors, an evaluator, by DI-engine's task
engine and its message queues. One machine::

    python entry/breakout_dqn_dist.py -c configs/breakout_dqn_cpu_config.py --parallel-workers 4

More collectors, from here or from another machine, at any time (docs/scale.md has more)::

    python entry/breakout_dqn_dist.py -c configs/breakout_dqn_cpu_config.py --role collector --attach-to tcp://HOST:50515

``ditask`` starts it as well, with the options in the environment (``BREAKOUT_DIST_CONFIG`` and so on)::

    ditask --package . --main entry.breakout_dqn_dist.main --parallel-workers 4 --topology star --address 127.0.0.1

Messages are pickles, as everywhere in DI-engine: whoever reaches a port of this program can run code in it. It listens
on loopback unless it is told otherwise; open it to networks that you trust, and to no others.
"""

import contextlib
import logging
import multiprocessing
import os
import re
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from shlex import quote
from typing import Any, Callable, List, Optional

# first, as it keeps from the screen what DI-engine prints while it is imported, and Ctrl-C quiet meanwhile
import breakout_env  # noqa: F401

# isort: split
import click
import torch
from ding.framework import Parallel
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, BaseSerialCommander, create_buffer
from tensorboardX import SummaryWriter
from tqdm import tqdm

from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.distributed import ditask_pool, redis_queue  # noqa: F401  the latter registers a queue
from breakout_env.distributed.broadcast import Broadcast
from breakout_env.distributed.collector_node import CollectorNode
from breakout_env.distributed.collectors import Collectors, Piece
from breakout_env.distributed.evaluator_node import Ended, EvaluatorNode
from breakout_env.distributed.launcher import ENVIRONMENT, Launcher, parent_is_gone, python_file
from breakout_env.distributed.link import ElasticTask, Link, LinkError, refuse_foreign_address
from breakout_env.distributed.members import Members
from breakout_env.distributed.node import LearnerGone, Node, Refused, fingerprint
from breakout_env.distributed.recorder import replay
from breakout_env.distributed.remote_evaluator import RemoteEvaluator
from breakout_env.run.budget import Budget
from breakout_env.run.config import config_of_node, merged_config
from breakout_env.run.config_file import read_config_file
from breakout_env.run.folder import closing_words, folder_below_here, new_folder, newest_checkpoint, run_to_resume
from breakout_env.run.stop_request import StopRequest
from breakout_env.utils import option_checks
from breakout_env.utils.atomic_file import DamagedFile
from breakout_env.utils.command_types import COUNT, DAY_S, HOURS, SEED, THREADS, FiniteFloat
from breakout_env.utils.program import Program

HERE = os.path.dirname(os.path.abspath(__file__))
DEFAULT_CONFIG = os.path.join(HERE, os.pardir, 'configs', 'breakout_dqn_config.py')
ROLES = ('learner', 'evaluator', 'collector')
DEFAULT_PORT = 50515  # ditask's
# With nobody to play for it, a learner says so, and again after as long.
ALONE_S = 30.0


# ------------------------------------------------------------------------------------------------------- the learner


def learn(cfg: 'EasyDict', link: Link, budget: Budget, weights_every_s: float, stop: StopRequest) -> None:  # noqa: F821
    """
    Overview:
        Train on what collectors send, until the budget, the config's ``stop_value`` or a request to stop.
    Arguments:
        - cfg (:obj:`EasyDict`): The merged config; its ``exp_name`` is the folder of the run.
        - link (:obj:`Link`): To the others.
        - budget (:obj:`Budget`): When to end.
        - weights_every_s (:obj:`float`): Least seconds between two broadcasts of the weights.
        - stop (:obj:`StopRequest`): Whether to end before.
    """
    set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
    policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
    tb_logger = SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial'))
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, tb_logger, exp_name=cfg.exp_name)
    use_plain_timers(learner)
    replay_buffer = create_buffer(cfg.policy.other.replay_buffer, tb_logger=tb_logger, exp_name=cfg.exp_name)

    def say(text: str) -> None:
        learner.info(text)
        tqdm.write(text)  # above the progress line, if there is one
        sys.stdout.flush()

    # Where one process has a collector and an evaluator, these stand for all that take part.
    members = Members(link, fingerprint(cfg), say)
    collectors = Collectors(link, members, cfg.exp_name, cfg.policy.collect.n_sample, say)
    evaluator = RemoteEvaluator(cfg.policy.eval.evaluator, link, members, cfg.exp_name, policy, tb_logger, say)
    broadcast = Broadcast(link, members, lambda: policy.collect_mode.state_dict()['model'], weights_every_s)
    commander = BaseSerialCommander(
        cfg.policy.other.commander, learner, collectors, evaluator, replay_buffer, policy.command_mode
    )

    finished = False
    heard_s = time.monotonic()
    shown_env_step = 0

    def used_up() -> Optional[str]:
        hours = learner.run_progress.run_s / 3600
        return budget.reached(collectors.envstep, learner.train_iter, collectors.games, hours)

    # The steps of the task below, in their order.

    def take_a_piece(ctx: 'Context') -> None:  # noqa: F821
        nonlocal heard_s
        ctx.piece = collectors.next_piece(timeout_s=0.5)
        if ctx.piece is not None:
            heard_s = time.monotonic()
        elif time.monotonic() - heard_s > ALONE_S and not collectors.number:
            heard_s = time.monotonic()
            say(f'No collector takes part; waiting. One joins with --role collector --attach-to {link.where}')
        learner.run_progress.look()
        link.check()

    def learn_from_it(ctx: 'Context') -> None:  # noqa: F821
        piece: Optional[Piece] = ctx.piece
        if piece is None:
            return
        replay(piece.records, tb_logger)
        replay_buffer.push(piece.transitions, cur_collector_envstep=collectors.envstep)
        for _ in range(0 if piece.is_random else cfg.policy.learn.update_per_collect):
            batch = replay_buffer.sample(cfg.policy.learn.batch_size, learner.train_iter)
            if batch is None:  # not enough in it yet
                break
            learner.train(batch, collectors.envstep)
            if cfg.policy.priority:
                replay_buffer.update(learner.priority_info)
        collectors.settings = commander.step()  # epsilon

    def show(ctx: 'Context') -> None:  # noqa: F821
        nonlocal shown_env_step
        piece: Optional[Piece] = ctx.piece
        if piece is None or collectors.envstep - shown_env_step < 1000:
            return
        shown_env_step = collectors.envstep
        figures = dict(
            collectors=collectors.number,
            weights_age=max(0, learner.train_iter - piece.weights),
            wire_bytes_per_env_step=len(piece.payload) / max(1, piece.env_steps),
            weights_bytes=broadcast.sent_bytes,
        )
        for name, value in figures.items():
            tb_logger.add_scalar(f'distributed_step/{name}', value, collectors.envstep)

    def evaluate(ctx: 'Context') -> None:  # noqa: F821
        nonlocal finished
        if evaluator.should_eval(learner.train_iter):
            evaluator.begin(learner.train_iter, collectors.envstep)
        finished = evaluator.look() or finished

    def send_weights(ctx: 'Context') -> None:  # noqa: F821
        broadcast.send(learner.train_iter)

    def end(ctx: 'Context') -> None:  # noqa: F821
        task.finish = finished or stop.requested or parent_is_gone() or used_up() is not None

    with contextlib.ExitStack() as at_the_end:  # from the last line up, each in any case
        at_the_end.callback(tb_logger.close)
        at_the_end.callback(members.close)
        at_the_end.callback(lambda: members.finish() if finished else None)
        at_the_end.callback(collectors.close)
        learner.call_hook('before_run')  # loads the run if there is one to go on with
        at_the_end.callback(learner.call_hook, 'after_run')  # saves a checkpoint, and the run
        collectors.envstep = learner.collector_envstep
        collectors.settings = commander.step()
        broadcast.send(learner.train_iter)
        say(f'The learner is at {link.where}; the run is in {cfg.exp_name}.')
        collectors.open(cfg.policy.get('random_collect_size', 0), budget.env_steps)
        with ElasticTask().start() as task:
            for step in (take_a_piece, learn_from_it, show, evaluate, send_weights, end):
                task.use(step)
            task.run()
        if used_up() and not (finished or stop.requested):
            last_evaluation(learner, collectors, evaluator, stop, say)
            say(f'The budget of {used_up()} is used up.')
            finished = True


def last_evaluation(
    learner: BaseLearner,
    collectors: Collectors,
    evaluator: RemoteEvaluator,
    stop: StopRequest,
    say: Callable[[str], None],
) -> None:
    """
    Overview:
        Evaluate what the run has come to, and wait for that, if anybody is there to do it.
    """
    seen_s = time.monotonic()
    while not stop.requested:
        evaluator.look()
        if not evaluator.is_under_way:
            if evaluator.last_iteration == learner.train_iter:
                return
            evaluator.begin(learner.train_iter, collectors.envstep)
        if evaluator.number:
            seen_s = time.monotonic()
        elif time.monotonic() - seen_s > (ALONE_S if evaluator.has_helped else 0.0):
            # one that was killed may be on its way again, but not for ever
            say('No evaluator takes part, so what the run has come to is not evaluated.')
            return
        learner.run_progress.look()
        time.sleep(0.2)


# --------------------------------------------------------------------------------------------- those who serve it


def serve(cfg: 'EasyDict', role: str, link: Link, learner_timeout_s: float, stop: StopRequest) -> None:  # noqa: F821
    """
    Overview:
        Play, or evaluate, for a learner until it sends everybody home or this process is asked to end.
    Arguments:
        - cfg (:obj:`EasyDict`): The merged config.
        - role (:obj:`str`): 'collector' or 'evaluator'.
        - link (:obj:`Link`): To the learner.
        - learner_timeout_s (:obj:`float`): Seconds that a silent learner is waited for.
        - stop (:obj:`StopRequest`): Whether to end.
    Raises:
        - LearnerGone: If there is no learner for so long.
        - Refused: If the learner's config or version is another.
    """

    def say(text: str) -> None:
        print(f'[{role} {link.name}] {text}', flush=True)

    node = Node(link, role, fingerprint(cfg), learner_timeout_s, say, lambda: stop.requested or parent_is_gone())
    reason = 'the run is over'
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(lambda: node.leave(reason))
        folder = at_the_end.enter_context(tempfile.TemporaryDirectory(prefix=f'breakout_{role}_'))
        part = (CollectorNode if role == 'collector' else EvaluatorNode)(cfg, node, os.path.relpath(folder))
        at_the_end.callback(close_quietly, part)
        try:
            with ElasticTask().start() as task:
                task.use(lambda ctx: part.step())
                task.use(lambda ctx: setattr(task, 'finish', node.should_end()))
                task.run()
        except Ended:  # in the midst of an evaluation
            pass
        except (OSError, EOFError):  # a signal to all processes at once ends the environments under our hands
            if not stop.requested:
                raise
        except BaseException as error:
            reason = f'{type(error).__name__}: {error}'
            raise
        if not node.is_over:
            reason = 'it was asked to end'


def close_quietly(part: Any) -> None:
    """A signal to all processes of a session at once may have ended the environments under our hands."""
    with contextlib.suppress(OSError, EOFError):
        part.close()


# ------------------------------------------------------------------------------------------------ the command line


@dataclass
class Options(object):
    """The command line's; see there."""

    config: str
    seed: int
    env_step: int
    hours: Optional[float]
    exp_name: Optional[str]
    resume: Optional[str]
    auto_resume: bool
    parallel_workers: int
    role: str
    address: str
    port: Optional[int]
    attach_to: Optional[str]
    mq_type: str
    redis_host: str
    redis_port: int
    channel: Optional[str]
    threads: Optional[int]
    weights_every: float
    learner_timeout: float

    def __post_init__(self) -> None:
        self.name_in_config = read_config_file(self.config)[0].get('exp_name', 'default_experiment')
        # collectors on other machines name their folder, if any, as they like: the channel is the config's name
        self.channel = self.channel or self.name_in_config
        for name in ('address', 'redis_host', 'channel'):
            option = f'--{name.replace("_", "-")}'
            option_checks.checked('option', option, getattr(self, name), option_checks.text)
        option = 'exp_name' if self.exp_name is None else '--exp-name'
        self.exp_name = folder_below_here(self.name_in_config if self.exp_name is None else self.exp_name, option)

    @property
    def budget(self) -> Budget:
        return Budget(env_steps=self.env_step, hours=self.hours)

    def folder_to_resume(self) -> Optional[str]:
        """The run to go on with, or to begin in just this folder; None for a folder of its own."""
        return self.exp_name if self.auto_resume else run_to_resume(self.resume, self.exp_name)


def take_part(role: str, options: Options) -> None:
    """
    Overview:
        What one process does, once DI-engine's router is there.
    Arguments:
        - role (:obj:`str`): One of ``ROLES``.
        - options (:obj:`Options`): The command line's.
    """
    # before any process is forked, so that Ctrl-C does not kill it
    stop = StopRequest(say=print if role == 'learner' else lambda text: None)
    link = Link(options.channel)
    refuse_foreign_address(link)
    if role == 'learner':
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        changes = dict(exp_name=options.exp_name)
        cfg = merged_config(options.config, options.seed, options.budget, options.folder_to_resume(), changes)
        learn(cfg, link, options.budget, options.weights_every, stop)
        tell(cfg.exp_name)
    else:
        cfg = config_of_node(options.config, options.seed)
        # batches of a few screens, in as many processes as there are cores
        torch.set_num_threads(1)
        cfg.policy.cuda = False
        if cfg.env.manager.type == 'breakout' and cfg.env.manager.worker_num is None:
            cfg.env.manager.worker_num = 1
        serve(cfg, role, link, options.learner_timeout, stop)


def tell(folder: str) -> None:
    """
    Overview:
        Print what there is after a run, and how it goes on.
    """
    under_ditask = multiprocessing.parent_process() is not None
    how = f'{ENVIRONMENT}_RESUME={quote(folder)}' if under_ditask else f'--resume {quote(folder)}'
    commands = {
        'watch the curves': f'tensorboard --logdir {quote(f"{folder}/log")}',
        'evaluate': f'breakout eval --checkpoint {quote(newest_checkpoint(folder))}',
    }
    print(closing_words(folder, f'the same command with {how}', commands), flush=True)


def run_alone(options: Options) -> None:
    """
    Overview:
        Be one process of a run, with a router of DI-engine's that listens where the options say.
    Arguments:
        - options (:obj:`Options`): The command line's, with a role of its own.
    """
    check_address(options.attach_to, options.learner_timeout)
    queue = dict(labels={options.role})
    if options.mq_type == 'redis':
        queue.update(mq_type='redis', redis_host=options.redis_host, redis_port=options.redis_port)
    elif options.role == 'learner':
        queue.update(protocol='tcp', address=options.address, ports=options.port or DEFAULT_PORT)
    else:  # nobody has to reach this process, so no port is opened
        queue.update(protocol='ipc', attach_to=[options.attach_to or f'tcp://{options.address}:{DEFAULT_PORT}'])
    Parallel.runner(n_parallel_workers=1, **queue)(take_part, options.role, options)


def launch(options: Options) -> int:
    """
    Overview:
        Start all processes of a run on this machine, or several that serve a learner elsewhere, and stay with them.
    Arguments:
        - options (:obj:`Options`): The command line's.
    Returns:
        - code (:obj:`int`): The exit code of the learner, or of the first process.
    """
    command = python_file(os.path.abspath(__file__), '--parallel-workers=1', *common_arguments(options))
    if options.role == 'all':
        folder = options.folder_to_resume() or new_folder(options.exp_name)
        port = options.port or free_port(options.address)
        attach = ['--attach-to', options.attach_to or f'tcp://{reachable(options.address)}:{port}']
        learner = ['--role', 'learner', '--port', str(port), '--exp-name', folder, '--auto-resume']
        commands = {'learner': command + learner}
        if options.parallel_workers > 2:
            commands['evaluator'] = command + ['--role', 'evaluator', *attach]
        for number in range(options.parallel_workers - len(commands)):
            commands[f'collector {number + 1}'] = command + ['--role', 'collector', *attach]
    else:
        attach = ['--attach-to', options.attach_to] if options.attach_to else []
        commands = {
            f'{options.role} {number + 1}': command + ['--role', options.role, *attach]
            for number in range(options.parallel_workers)
        }
    learner = 'learner' if options.role == 'all' else None
    return Launcher(commands, lambda text: print(text, flush=True), learner).run()


def common_arguments(options: Options) -> List[str]:
    """What all processes of a run are told."""
    named = dict(
        config=options.config,
        seed=options.seed,
        env_step=options.env_step,
        hours=options.hours,
        address=options.address,
        mq_type=options.mq_type,
        redis_host=options.redis_host,
        redis_port=options.redis_port,
        channel=options.channel,
        threads=options.threads,
        weights_every=options.weights_every,
        learner_timeout=options.learner_timeout,
    )
    return [f'--{name.replace("_", "-")}={value}' for name, value in named.items() if value is not None]


def check_address(address: Optional[str], wait_s: float) -> None:
    """
    Overview:
        See that what ``--attach-to`` names can be found. A name that is not known may become so: that of a service \
        whose learner is just being started.
    Arguments:
        - address (:obj:`Optional[str]`): Its value.
        - wait_s (:obj:`float`): Seconds to wait for the name.
    Raises:
        - click.BadParameter: If it is no address.
        - LearnerGone: If nobody knows the name by then.
    """
    if address is None or address.startswith('ipc://'):
        return
    match = re.fullmatch(r'tcp://\[?([^/\s]+?)\]?:(\d+)', address)
    if match is None:
        raise click.BadParameter(f'--attach-to is {address!r}; expected tcp://HOST:PORT')
    end_s = time.monotonic() + wait_s
    while True:
        try:
            socket.getaddrinfo(match[1], int(match[2]))
            return
        except (OverflowError, UnicodeError):  # no port, no name
            raise click.BadParameter(f'--attach-to is {address!r}; expected tcp://HOST:PORT') from None
        except OSError as error:
            if time.monotonic() > end_s:
                raise LearnerGone(
                    f'--attach-to {address}: {error}; expected the name or address of the machine of a learner'
                ) from None
        time.sleep(1)


def free_port(address: str) -> int:
    """A port that nobody listens at now."""
    try:
        with socket.socket() as listener:
            listener.bind((address, 0))
            return listener.getsockname()[1]
    except (OSError, UnicodeError) as error:
        raise ValueError(
            f'--address is {address!r}: {error}; expected one of this machine, such as 127.0.0.1'
        ) from None


def reachable(address: str) -> str:
    """Where this machine finds what listens at an address."""
    return '127.0.0.1' if address == '0.0.0.0' else address


@click.command(cls=Program, context_settings=dict(help_option_names=['-h', '--help'], auto_envvar_prefix=ENVIRONMENT))
@click.option(
    '-c', '--config', default=DEFAULT_CONFIG, type=click.Path(exists=True, dir_okay=False), help='Config file.'
)
@click.option('-s', '--seed', default=0, show_default=True, type=SEED, help='Seed of the learner.')
@click.option(
    '--env-step',
    default=10_000_000,
    show_default=True,
    type=COUNT,
    help='Env steps to collect, those of a resumed run included; 4 emulator frames each.',
)
@click.option('--hours', type=HOURS, help='Hours to train, pauses left out.')
@click.option('--exp-name', help="Experiment folder; the config's without.")
@click.option(
    '--resume',
    is_flag=False,
    flag_value='',
    metavar='[FOLDER]',
    help='Go on with the run in an experiment folder; without a folder, with the last saved one of this name.',
)
@click.option(
    '--auto-resume',
    is_flag=True,
    help='Go on with the run in just this experiment folder, or begin it there: one command for job schedulers.',
)
@click.option(
    '--parallel-workers',
    default=1,
    show_default=True,
    type=THREADS,
    help='Processes on this machine. With role all: a learner, an evaluator (from 3 on), the others collect.',
)
@click.option(
    '--role',
    default='all',
    show_default=True,
    type=click.Choice(['all', *ROLES]),
    help='What the processes of this command do.',
)
@click.option(
    '--address',
    default='127.0.0.1',
    show_default=True,
    help='Address that the learner listens on; other machines need one that they reach. Trusted networks only: '
    'whoever reaches it can run code here.',
)
@click.option(
    '--port',
    type=click.IntRange(1, 65535),
    help=f'Port of the learner; {DEFAULT_PORT} by default, any free one with role all.',
)
@click.option('--attach-to', metavar='tcp://HOST:PORT', help='Where the learner listens, for those who serve it.')
@click.option(
    '--mq-type', default='nng', show_default=True, type=click.Choice(['nng', 'redis']), help='Kind of message queue.'
)
@click.option('--redis-host', default='127.0.0.1', show_default=True, help='Host of the Redis server.')
@click.option('--redis-port', default=6379, show_default=True, type=click.IntRange(1, 65535), help='Port of it.')
@click.option('--channel', help="What keeps runs on one server apart; by default the config's exp_name.")
@click.option('--threads', type=THREADS, help="PyTorch's threads in the learner.")
@click.option(
    '--weights-every',
    default=1.0,
    show_default=True,
    type=FiniteFloat(0, DAY_S),
    help='Least seconds between two broadcasts of the weights.',
)
@click.option(
    '--learner-timeout',
    default=120.0,
    show_default=True,
    type=FiniteFloat(10, DAY_S),
    help='Seconds that collectors and evaluators wait for a learner that is gone, before they end.',
)
def program(**values: Any) -> None:
    """Train DQN on Breakout in several processes, on one machine or many."""
    logging.basicConfig()
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.WARNING)
    try:
        options = Options(**values)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if options.role == 'all' and options.parallel_workers == 1:
        raise click.UsageError('--parallel-workers is 1; expected at least 2, a learner and a collector, or a --role')
    if options.role == 'learner' and options.parallel_workers > 1:
        raise click.UsageError('--parallel-workers is more than 1 for --role learner; expected one learner')
    try:
        if options.role == 'all' or options.parallel_workers > 1:
            sys.exit(launch(options))
        run_alone(options)
    except (DamagedFile, LearnerGone, LinkError, Refused, ValueError) as error:
        # what a user can mend in the command comes with exit code 2, and a launcher does not try it again
        kind = click.ClickException if isinstance(error, LearnerGone) else click.UsageError
        raise kind(str(error)) from None


def main() -> None:
    """
    Overview:
        What ``ditask --main entry.breakout_dqn_dist.main`` calls in each of its processes. The first is the learner, \
        the second the evaluator if there are more, the others collect; ``--labels collector`` and the like say \
        otherwise. Options are taken from the environment.
    """
    values = program.make_context('breakout_dqn_dist', []).params
    router = Parallel()
    named = [role for role in ROLES if role in router.labels]
    if named:
        role = named[0]
    elif router.node_id == 0:
        role = 'learner'
    else:
        role = 'evaluator' if router.node_id == 1 and router.n_parallel_workers > 2 else 'collector'
    with ditask_pool.ends_in_order():
        take_part(role, Options(**values))


if __name__ == '__main__':
    program()
