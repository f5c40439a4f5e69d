"""
How fast a distributed training would be, on paper: from what was measured on one machine to thousands of collectors.

The model is the textbook's for systems of queues, operational analysis (Denning and Buzen, "The Operational Analysis of
Queueing Network Models", ACM Computing Surveys 10(3), 1978). Its utilization law says how busy something is, U = X S: X
jobs a second, of which each takes it S seconds. As nothing is busier than all the time, each of the things that a job
passes is a ceiling, X <= 1 / S, and the lowest of them is the throughput that can not be exceeded; the thing that it
belongs to is the bottleneck. Here a job is an env step. Near a bottleneck the real throughput stays a little below,
since things wait for each other; buffers between them, here a second order for each collector, keep that small.

How old play is when it is learned from follows from Little's law (Little, "A Proof for the Queuing Formula
L = lambda W", Operations Research 9(3), 1961): L env steps under way, of which X a second arrive, take W = L / X
seconds.

The seconds are measured: benchmarks/scale_constants.py writes them, ``Constants`` reads them. What the formulas leave
out: hosts and networks that are slower than the one measured on, and messages that are lost.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

SHIPPED = Path(__file__).parent / 'data' / 'scale_constants.json'
NETWORKS = ('small', 'nature')
QUEUES = ('nng', 'redis')
# The ceilings, in the order of the table; where two are equal, the first is named.
MESSAGES, COLLECTORS, CORES, LEARNER, BUFFER, INTAKE, BROADCAST = (
    'messages', 'collectors', 'cores', 'learner', 'buffer', 'network in', 'broadcast',
)  # fmt: skip
MEANING = {
    MESSAGES: 'the learner, if it did nothing but listen',
    COLLECTORS: 'their play, with a core for each',
    CORES: 'all processes on the cores there are',
    LEARNER: 'updates',
    BUFFER: 'one process unpacks, stores, draws batches',
    INTAKE: "play that reaches the learner's host",
    BROADCAST: 'weights and orders, to each collector',
}
HINTS = {
    MESSAGES: 'Fewer processes with more environments each, or a tree: a node for each host that speaks for its '
    'collectors.',
    COLLECTORS: 'More collectors, or more environments for each of them.',
    CORES: 'More cores; more collectors would only share those there are.',
    LEARNER: 'A faster update: a GPU, more of them, or more env steps to an update (--ratio).',
    BUFFER: 'A buffer in several shards, a process each, from which learners draw.',
    INTAKE: 'A faster network at the learner, or shards of the buffer on several hosts.',
    BROADCAST: 'Weights less often (--weights-every), or down a tree: once to each host, which hands them on.',
}
# where it is not the weights that fill the broadcast
ORDERS_HINT = (
    'Fewer bytes of orders, which grow with the square of the collectors: a node for each host that speaks for its '
    'collectors, or more environments for each of them.'
)


@dataclass(frozen=True)
class Network(object):
    """
    Overview:
        What depends on the size of the network.
    Arguments:
        - update_s (:obj:`Tuple[float, float]`): Seconds of an update on one core: fixed, and for each transition of \
            the batch; drawing it included.
        - weights_bytes (:obj:`int`), weights_s (:obj:`float`): A broadcast, and the learner's seconds for it.
        - gradient_bytes (:obj:`int`): What data-parallel learners exchange at an update.
    """

    update_s: Tuple[float, float]
    weights_bytes: int
    weights_s: float
    gradient_bytes: int


@dataclass(frozen=True)
class Constants(object):
    """
    Overview:
        What was measured, one machine's.
    Arguments:
        - machine, date (:obj:`str`): Where and when.
        - wall_s, cpu_s (:obj:`Tuple[float, float]`): Seconds of an env step in a collector that has a core to itself, \
            by the clock and of the CPUs: fixed, and shared by the environments that are stepped together.
        - piece_steps (:obj:`int`): Env steps of a piece of play.
        - piece_s (:obj:`float`): The learner's seconds of the CPU for a piece, updates apart.
        - standing_cpus (:obj:`float`): What the learner's process takes of its core whatever is played: logs, curves.
        - draw_s (:obj:`Tuple[float, float]`): Seconds to draw a batch: fixed, and for each transition.
        - member_s (:obj:`float`): The learner's seconds of the CPU, each second, for a node that is there.
        - bytes_per_env_step, hello_bytes, order_bytes, tell_bytes (:obj:`float`): On the wire: play; a sign of life; \
            what a node adds to the list of all orders; a message that tells one node its orders.
        - tells_per_piece (:obj:`float`): How many of these a piece takes.
        - start_s (:obj:`float`): From the start of a collector's process to its first piece.
        - learner_bytes, collector_bytes, evaluator_bytes, buffer_bytes_per_transition (:obj:`float`): Memory that is \
            a process's own, the buffer apart; and of the buffer.
        - shared_bytes (:obj:`float`): Memory of libraries that all processes of a host share.
        - networks (:obj:`Mapping[str, Network]`): By name.
    """

    machine: str
    date: str
    wall_s: Tuple[float, float]
    cpu_s: Tuple[float, float]
    piece_steps: int
    piece_s: float
    standing_cpus: float
    draw_s: Tuple[float, float]
    member_s: float
    bytes_per_env_step: float
    hello_bytes: float
    order_bytes: float
    tell_bytes: float
    tells_per_piece: float
    start_s: float
    learner_bytes: float
    collector_bytes: float
    evaluator_bytes: float
    shared_bytes: float
    buffer_bytes_per_transition: float
    networks: Mapping[str, Network]

    @classmethod
    def read(cls, path: Path = SHIPPED) -> 'Constants':
        """
        Overview:
            From a file of benchmarks/scale_constants.py.
        Arguments:
            - path (:obj:`Path`): The file; by default the one that comes with the package.
        Raises:
            - ValueError: If it is none, or can not be read.
        """
        try:
            values = json.loads(Path(path).read_text())['constants']
            networks = {name: Network(**_pairs(network)) for name, network in values.pop('networks').items()}
            found = cls(networks=networks, **_pairs(values))
            missing = set(NETWORKS) - set(networks)
        except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ValueError(
                f'{path} can not be read: {error}; expected a file that benchmarks/scale_constants.py wrote'
            ) from None
        if missing:
            raise ValueError(f'{path} has no network {", ".join(missing)}; expected {" and ".join(NETWORKS)}')
        return found


def _pairs(values: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


@dataclass(frozen=True)
class Plan(object):
    """
    Overview:
        What is to be built.
    Arguments:
        - collectors, envs_per_collector (:obj:`int`): Processes that play, and environments in each.
        - evaluators (:obj:`int`): Processes that evaluate, now and then; on the learner's host, for their memory.
        - hosts (:obj:`Optional[int]`): Machines; None for as many as give each process a core.
        - cores_per_host (:obj:`int`): Of each of them. The learner is on the first.
        - gpus, gpus_per_host (:obj:`int`): Data-parallel learners, and how many of them share a host; 0 GPUs for a \
            learner on one core.
        - update_ms (:obj:`Optional[float]`): Milliseconds of an update on one GPU, drawing the batch apart. It has to \
            be given with GPUs; without, None for what was measured on a core.
        - batch_size (:obj:`int`): Transitions of an update, for each learner.
        - ratio (:obj:`float`): Env steps to such a batch.
        - network_gbit (:obj:`float`): Of each host, each way.
        - buffer_size (:obj:`int`): Transitions.
        - weights_every_s (:obj:`float`): Seconds between two broadcasts.
        - network (:obj:`str`): One of ``NETWORKS``.
        - queue (:obj:`str`): One of ``QUEUES``.
    Raises:
        - ValueError: If a value is out of range, or GPUs come without ``update_ms``.
    """

    collectors: int = 1
    envs_per_collector: int = 8
    evaluators: int = 1
    hosts: Optional[int] = None
    cores_per_host: int = 16
    gpus: int = 0
    gpus_per_host: int = 8
    update_ms: Optional[float] = None
    batch_size: int = 32
    ratio: float = 4.0
    network_gbit: float = 10.0
    buffer_size: int = 1_000_000
    weights_every_s: float = 1.0
    network: str = 'small'
    queue: str = 'nng'

    def __post_init__(self) -> None:
        for name in ('collectors', 'envs_per_collector', 'cores_per_host', 'gpus_per_host', 'batch_size'):
            _expect(name, getattr(self, name), getattr(self, name) >= 1, 'at least 1')
        for name in ('evaluators', 'gpus', 'buffer_size'):
            _expect(name, getattr(self, name), getattr(self, name) >= 0, 'at least 0')
        for name in ('ratio', 'network_gbit', 'weights_every_s'):
            _expect(name, getattr(self, name), 0 < getattr(self, name) < math.inf, 'a number above 0')
        _expect('hosts', self.hosts, self.hosts is None or self.hosts >= 1, 'at least 1')
        ms = self.update_ms
        _expect('update_ms', ms, ms is None or 0 < ms < math.inf, 'a number above 0')
        _expect('network', self.network, self.network in NETWORKS, f'one of {", ".join(NETWORKS)}')
        _expect('queue', self.queue, self.queue in QUEUES, f'one of {", ".join(QUEUES)}')
        least_hosts = math.ceil(self.gpus / self.gpus_per_host)
        if self.hosts is not None and self.hosts < least_hosts:
            raise ValueError(
                f'hosts is {self.hosts}; expected at least {least_hosts} for {self.gpus} GPUs of which '
                f'{self.gpus_per_host} share a host (gpus_per_host)'
            )
        if self.gpus and ms is None:
            raise ValueError(
                f'gpus is {self.gpus}, and update_ms is not given; expected the milliseconds of an update on one of '
                'them, as none has been measured for this project'
            )


def _expect(name: str, value: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f'{name} is {value!r}; expected {expected}')


@dataclass(frozen=True)
class Prediction(object):
    """
    Overview:
        What the model says about a plan.
    Arguments:
        - ceilings (:obj:`Dict[str, float]`): Env steps a second that each part allows for; infinity where it takes no \
            part.
        - env_steps_per_s, updates_per_s (:obj:`float`): The lowest of them, and the updates that go with it; one of \
            all GPUs together counts once.
        - bottleneck, hint (:obj:`str`): Whose that is, and what would move it.
        - hosts, collectors_at_learner (:obj:`int`): Machines, and the collectors on the learner's.
        - received_bytes_per_s, sent_bytes_per_s (:obj:`float`): By the learner, from and to whatever host.
        - in_bytes_per_s, out_bytes_per_s (:obj:`float`): Of these, what goes over the network of the learner's host; \
            gradients, too, if GPUs are on several hosts.
        - server_out_bytes_per_s (:obj:`float`): Of the Redis server, which hands on what the learner sends once.
        - learner_host_bytes, collector_host_bytes (:obj:`float`): Memory of the learner's host, and of each of the \
            others.
        - staleness_updates, staleness_s (:obj:`float`): Age of the weights that play was made with, when it is \
            learned from, in the mean.
        - start_s (:obj:`float`): From the start of a collector to its first piece.
    """

    ceilings: Dict[str, float]
    env_steps_per_s: float
    updates_per_s: float
    bottleneck: str
    hint: str
    hosts: int
    collectors_at_learner: int
    received_bytes_per_s: float
    sent_bytes_per_s: float
    in_bytes_per_s: float
    out_bytes_per_s: float
    server_out_bytes_per_s: float
    learner_host_bytes: float
    collector_host_bytes: float
    staleness_updates: float
    staleness_s: float
    start_s: float

    def as_dict(self) -> Dict[str, Any]:
        """For JSON, which knows no infinity: null."""
        values = dict(self.__dict__, ceilings={name: _or_none(value) for name, value in self.ceilings.items()})
        return {name: _or_none(value) if isinstance(value, float) else value for name, value in values.items()}


def _or_none(value: float) -> Optional[float]:
    return value if math.isfinite(value) else None


def all_reduce_s(nbytes: float, learners: int, bytes_per_s: float) -> float:
    """
    Overview:
        Seconds in which data-parallel learners mean their gradients in a ring: each sends and receives all but its \
        own share of them twice (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of \
        workstations", Journal of Parallel and Distributed Computing 69(2), 2009).
    Arguments:
        - nbytes (:obj:`float`): The gradients of one of them.
        - learners (:obj:`int`): How many there are.
        - bytes_per_s (:obj:`float`): From one to the next.
    """
    return 2 * (learners - 1) / learners * nbytes / bytes_per_s


def _linear(pair: Tuple[float, float], x: float) -> float:
    return pair[0] + pair[1] * x


class _Costs(object):
    """What one env step takes of each part, and what is taken all the time, for a plan."""

    def __init__(self, plan: Plan, constants: Constants) -> None:
        c, network = constants, constants.networks[plan.network]
        self.wall_s, self.cpu_s = (_linear(pair, 1 / plan.envs_per_collector) for pair in (c.wall_s, c.cpu_s))
        self.piece_s = c.piece_s / c.piece_steps
        self.draw_s = _linear(c.draw_s, plan.batch_size) / plan.ratio
        self.link_bytes_per_s = plan.network_gbit * 1e9 / 8
        # GPUs on one host speak to each other by links that are faster than any network; these are left out
        is_over_network = plan.gpus > plan.gpus_per_host
        self.sync_s = all_reduce_s(network.gradient_bytes, plan.gpus, self.link_bytes_per_s) if is_over_network else 0.0
        measured_s = _linear(network.update_s, plan.batch_size)
        update_s = (measured_s if plan.update_ms is None else plan.update_ms / 1000) + self.sync_s
        self.update_s = update_s / plan.ratio / max(1, plan.gpus)
        # what keeps the core of the learner's process busy: updates as well, if there is no GPU for them
        self.core_s = self.piece_s + (self.draw_s if plan.gpus else self.update_s)
        # of that core, the share for nodes that are there, weights that go out, and logs, whatever is played
        self.standing = plan.collectors * c.member_s + network.weights_s / plan.weights_every_s + c.standing_cpus
        # What the learner sends, it sends to all: the list of all orders once a second (so that these bytes grow with
        # the square of the collectors), a few messages after each piece, and weights.
        self.orders_bytes_per_s = plan.collectors * c.order_bytes
        self.tells_bytes = c.tells_per_piece * c.tell_bytes / c.piece_steps

        learner_cores = min(max(1, plan.gpus), plan.gpus_per_host)
        needed = math.ceil((plan.collectors * self.cpu_s / self.wall_s + max(1, plan.gpus)) / plan.cores_per_host)
        self.hosts = plan.hosts or max(needed, math.ceil(plan.gpus / plan.gpus_per_host))
        # so that no host is fuller than the others
        free_here = max(0, plan.cores_per_host - learner_cores)
        free = max(1, self.hosts * plan.cores_per_host - learner_cores)
        self.here = plan.collectors if self.hosts == 1 else round(plan.collectors * free_here / free)
        self.away = plan.collectors - self.here

    def ceilings(self, plan: Plan, constants: Constants) -> Dict[str, float]:
        """Env steps a second that each part allows for."""
        c, weights_bytes = constants, constants.networks[plan.network].weights_bytes
        left = max(0.0, 1 - self.standing)
        cores = max(0.0, self.hosts * plan.cores_per_host - self.standing)
        ceilings = {
            MESSAGES: left / self.piece_s,
            COLLECTORS: plan.collectors / self.wall_s,
            CORES: cores / (self.cpu_s + self.core_s),
            LEARNER: 1 / self.update_s if plan.gpus else left / self.core_s,
            BUFFER: left / (self.piece_s + self.draw_s),
            INTAKE: math.inf,
            BROADCAST: math.inf,
        }
        if self.away:
            free_in = max(0.0, self.link_bytes_per_s - self.away * c.hello_bytes)
            ceilings[INTAKE] = free_in / (c.bytes_per_env_step * self.away / plan.collectors)
            standing_bytes_per_s = weights_bytes / plan.weights_every_s + self.orders_bytes_per_s
            ceilings[BROADCAST] = max(0.0, self.link_bytes_per_s / self.away - standing_bytes_per_s) / self.tells_bytes
        return ceilings


def predict(plan: Plan, constants: Constants) -> Prediction:
    """
    Overview:
        What a plan would come to.
    Arguments:
        - plan (:obj:`Plan`): The plan.
        - constants (:obj:`Constants`): What was measured.
    Returns:
        - prediction (:obj:`Prediction`): Throughput, bottleneck, and what goes with them.
    """
    c, count, costs = constants, plan.collectors, _Costs(plan, constants)
    ceilings = costs.ceilings(plan, constants)
    bottleneck = min(ceilings, key=ceilings.get)
    steps_per_s = ceilings[bottleneck]
    updates_per_s = steps_per_s / plan.ratio / max(1, plan.gpus)
    weights_bytes = c.networks[plan.network].weights_bytes
    is_by_orders = bottleneck == BROADCAST and costs.orders_bytes_per_s > weights_bytes / plan.weights_every_s

    piece_takes_s = c.piece_steps / steps_per_s if steps_per_s else math.inf
    # between two pieces the learner looks whether weights are due, so a slow one sends them a little later
    weights_every_s = plan.weights_every_s
    if steps_per_s:
        weights_every_s = piece_takes_s * math.ceil(plan.weights_every_s / piece_takes_s)
    sent_once = costs.orders_bytes_per_s + costs.tells_bytes * steps_per_s
    sent_once += weights_bytes / weights_every_s
    received = count * c.hello_bytes + steps_per_s * c.bytes_per_env_step
    by_server = plan.queue == 'redis'
    gradients = costs.sync_s * costs.link_bytes_per_s * updates_per_s
    # Little's law: each collector plays a piece or has one that waits, and the learner has one ready and one that it
    # learns from; age is counted to the end of that
    staleness_s = (count + 2) * piece_takes_s + weights_every_s / 2

    learners_bytes = c.learner_bytes * min(max(1, plan.gpus), plan.gpus_per_host)
    players_bytes = costs.here * c.collector_bytes + plan.evaluators * c.evaluator_bytes
    others = math.ceil(costs.away / (costs.hosts - 1)) if costs.away else 0
    return Prediction(
        ceilings=ceilings,
        env_steps_per_s=steps_per_s,
        updates_per_s=updates_per_s,
        bottleneck=bottleneck,
        hint=ORDERS_HINT if is_by_orders else HINTS[bottleneck],
        hosts=costs.hosts,
        collectors_at_learner=costs.here,
        received_bytes_per_s=received,
        sent_bytes_per_s=sent_once * (1 if by_server else count),
        in_bytes_per_s=received * costs.away / count + gradients,
        out_bytes_per_s=sent_once * (1 if by_server else costs.away) + gradients,
        server_out_bytes_per_s=sent_once * count if by_server else 0.0,
        learner_host_bytes=c.shared_bytes
        + learners_bytes
        + players_bytes
        + plan.buffer_size * c.buffer_bytes_per_transition,
        collector_host_bytes=c.shared_bytes + others * c.collector_bytes if others else 0.0,
        staleness_updates=staleness_s * updates_per_s if steps_per_s else math.inf,
        staleness_s=staleness_s,
        start_s=c.start_s,
    )
