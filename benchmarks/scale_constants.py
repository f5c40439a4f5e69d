"""
What the sizing model (``breakout plan``) computes with, measured on this machine.

    python benchmarks/scale_constants.py --out docs/results/scale_constants.json

- a collector alone with a learner that hardly learns: seconds of the clock and of the CPUs for an env step, bytes on
  the wire, memory, and how long it takes from the start of its process to its first piece;
- the learner alone, on recorded play: seconds of an update by network and batch size, of drawing a batch, of taking a
  piece in;
- the protocol with many nodes (swarm.py): seconds of the learner's CPU for each of them.

``--ship`` also writes them to where the installed command reads them. Others measure their own machines, and tell
``breakout plan --constants FILE``.
"""

import json
import logging
import os
import pickle
import signal
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
import torch
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, create_buffer
from processes import ROOT, SCALE_CONFIG, Processes, free_port
from recorded_pieces import NATURE, record
from scale_runs import Training, undisturbed, wait_for_quiet
from turns import numbers as integers
from turns import show_surroundings, surroundings, write

from breakout_env.budget import Budget
from breakout_env.distributed import compact, weights
from breakout_env.run_config import merged_config
from breakout_env.scale_model import Constants

PACKAGES = ['DI-engine', 'torch', 'numpy', 'pynng', 'zstandard']
SHIPPED = ROOT / 'breakout_env' / 'data' / 'scale_constants.json'
REPLAY = ROOT / 'docs' / 'results' / 'bench_replay.json'
SWARM = ROOT / 'benchmarks' / 'swarm.py'
BATCH_SIZES = (32, 128)
WARM_UP_S = 3.0
# Of the machine, that other programs may take; each measurement waits for that, but not for ever.
OTHERS_CPUS = 0.1
WAIT_S = 120.0


def per_call_s(call: Callable[[], Any], seconds: float, warm_up: int = 3) -> float:
    """The median seconds of the CPU that a call takes, again and again for so long."""
    for _ in range(warm_up):
        call()
    times, end_s = [], time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        begin_s = time.process_time()
        call()
        times.append(time.process_time() - begin_s)
    return statistics.median(times)


# ------------------------------------------------------------------------------------------- the learner's parts


class Learner(object):
    """
    Overview:
        A learner and its buffer, as the entry builds them, with recorded play to learn from, in this process.
    Interfaces:
        ``draw``, ``update``, ``push``, ``weights``, ``close``.
    """

    def __init__(self, name: str, widths: Optional[List[int]], batch_size: int, pieces: List[list]) -> None:
        changes = {'exp_name': f'{name}_{batch_size}', 'policy.learn.batch_size': batch_size}
        if widths:
            changes['policy.model.encoder_hidden_size_list'] = widths
        cfg = merged_config(str(SCALE_CONFIG), 0, Budget(env_steps=10**8), None, changes)
        set_pkg_seed(0, use_cuda=False)
        self._policy = create_policy(cfg.policy, enable_field=['learn', 'collect'])
        self._learner = BaseLearner(cfg.policy.learn.learner, self._policy.learn_mode, exp_name=cfg.exp_name)
        self._learner.call_hook('before_run')
        self._buffer = create_buffer(cfg.policy.other.replay_buffer, exp_name=cfg.exp_name)
        self._batch_size, self._pieces = batch_size, pieces
        for _ in pieces:
            self.push()

    def push(self) -> None:
        """Take in the next piece."""
        self._pieces.append(self._pieces.pop(0))
        self._buffer.push(self._pieces[-1], cur_collector_envstep=0)

    def draw(self) -> Any:
        """Draw a batch."""
        return self._buffer.sample(self._batch_size, self._learner.train_iter)

    def update(self) -> None:
        """Draw a batch and learn from it."""
        self._learner.train(self.draw(), 0)

    def weights(self) -> Dict[str, torch.Tensor]:
        """What is sent to collectors."""
        return self._policy.collect_mode.state_dict()['model']

    def close(self) -> None:
        """Give the buffer's memory back."""
        self._buffer.close()


def learner_parts(pieces: List[list], seconds: float) -> Dict[str, Any]:
    """
    Overview:
        What the learner does for an update and for a piece, each by itself, on one thread.
    Arguments:
        - pieces (:obj:`List[list]`): Recorded play.
        - seconds (:obj:`float`): For each measurement.
    """
    torch.set_num_threads(1)
    payload = compact.pack(pieces[-1])
    figures: Dict[str, Any] = dict(
        bytes_per_env_step=statistics.mean(len(compact.pack(piece)) / len(piece) for piece in pieces[1:]),
        unpack_s=per_call_s(lambda: compact.unpack(payload), seconds),
        draw_s={},
        networks={},
    )
    for name, widths in dict(small=None, nature=NATURE).items():
        update_s = {}
        for batch_size in BATCH_SIZES:
            wait_for_quiet(OTHERS_CPUS, WAIT_S)
            learner = Learner(name, widths, batch_size, list(pieces))
            figures['push_s'] = per_call_s(learner.push, seconds / 4)
            figures['draw_s'][str(batch_size)] = per_call_s(learner.draw, seconds / 2)
            update_s[str(batch_size)] = per_call_s(learner.update, seconds)
            sent = learner.weights()
            weights_s = per_call_s(partial(weights.to_bytes, sent), seconds / 4)
            learner.close()
        figures['networks'][name] = dict(
            update_s=update_s,
            weights_s=weights_s,
            weights_bytes=len(weights.to_bytes(sent)),
            gradient_bytes=sum(value.numel() * value.element_size() for value in sent.values()),
        )
    return figures


# ------------------------------------------------------------------------------------------- processes


def collector_alone(home: Path, envs: int, seconds: float) -> Dict[str, Any]:
    """
    Overview:
        A collector whose learner makes an update a piece, and an evaluator that has nothing to do after its start.
    """
    with Processes(home) as processes:
        training = Training(
            processes, 'distributed', collectors=1, evaluators=1, SCALE_UPDATES=1, SCALE_ENVS=envs
        )  # fmt: skip
        training.wait_for_updates(WARM_UP_S)
        figures = training.window(seconds)
        (collector,) = [process for process in processes.tree('collector 1') if process.ppid() == os.getpid()]
        started_s = training.counts_of(collector)['sent']['breakout.scale.piece']['first_after_s']
    wire = figures['wire']
    pieces_per_s = wire['piece']['messages_per_s']
    steps_per_s = figures['env_steps_per_s']
    return dict(
        envs=envs,
        others_cpus=figures['others_cpus'],
        env_steps_per_s=steps_per_s,
        wall_s_per_env_step=1 / steps_per_s,
        cpu_s_per_env_step=figures['cpus']['collector 1'] / steps_per_s,
        learner_cpu_s_per_piece=figures['cpus']['learner'] / pieces_per_s,
        bytes_per_env_step=wire['piece']['bytes_per_s'] / steps_per_s,
        hello_bytes=wire['hello']['bytes_per_s'] / wire['hello']['messages_per_s'],
        # to two members: the orders to both once a second, the rest when a piece comes
        tells_per_piece=(wire['orders']['messages_per_s'] - 1) / pieces_per_s,
        tell_bytes=wire['orders']['bytes_per_s'] / wire['orders']['messages_per_s'] / 2,
        start_s=started_s,
        memory={name.split()[0]: parts for name, parts in figures['memory_by_process'].items()},
    )


def swarm(home: Path, number: int, seconds: float) -> Dict[str, float]:
    """What a number of nodes take of a learner's CPU; see swarm.py."""
    with Processes(home) as processes:
        common = [SWARM, '--number', number, '--port', free_port()]
        processes.start('learner', [*common, '--role', 'learner', '--seconds', seconds, '--out', 'out.json'])
        processes.start('players', [*common, '--role', 'players', '--seconds', 120])
        processes.wait('learner', timeout_s=180)
        return json.loads((processes.folder / 'out.json').read_text())


def line_through(points: List[Tuple[float, float]]) -> Tuple[float, float]:
    """The value at 0 and the slope of the straight line that fits best."""
    (xs, ys) = zip(*points)
    slope, at_zero = statistics.linear_regression(xs, ys)
    # seconds are never below 0; a little noise may say so where one of the two is small
    if at_zero < 0:
        return 0.0, statistics.linear_regression(xs, ys, proportional=True).slope
    return (at_zero, slope) if slope > 0 else (statistics.mean(ys), 0.0)


def order_bytes() -> float:
    """Bytes that a collector adds to the list of all orders, two of them each."""
    order = dict(is_random=False, n_sample=256, settings=dict(eps=0.1), env_step=123456789, number=12345)
    lists = [
        len(pickle.dumps({f'{name:012x}': [dict(order), dict(order)] for name in range(members)}, protocol=5))
        for members in (100, 200)
    ]
    return (lists[1] - lists[0]) / 100


def buffer_bytes_per_transition() -> Optional[float]:
    """Memory of the buffer of type frame with a million transitions, from the benchmark of buffers."""
    measured = json.loads(REPLAY.read_text())['results']['compressed']['1000000']
    return measured['bytes_per_transition']


def measure(seconds: float, numbers: List[int], pieces: int) -> Dict[str, Any]:
    """
    Overview:
        All of it.
    """
    with tempfile.TemporaryDirectory(prefix='scale-') as name:
        home = Path(name)
        collectors = [
            undisturbed(
                lambda tried, envs=envs: collector_alone(home / f'collector_{envs}_{tried}', envs, seconds),
                OTHERS_CPUS,
                WAIT_S,
            )
            for envs in (8, 1)
        ]
        swarms = [swarm(home / f'swarm_{number}', number, seconds / 4) for number in numbers]
        os.chdir(home)  # DI-engine logs to a folder below the current one
        parts = learner_parts(record(pieces, 0.1, True, 'recorded'), seconds / 4)
        os.chdir(ROOT)
    return dict(
        collectors=collectors,
        swarms=swarms,
        learner=parts,
        order_bytes=order_bytes(),
        buffer_bytes_per_transition=buffer_bytes_per_transition(),
    )


def constants_of(measured: Dict[str, Any], about: Dict[str, Any]) -> Dict[str, Any]:
    """
    Overview:
        What the model reads, out of what was measured.
    """
    eight, one = measured['collectors']
    learner = measured['learner']

    def shared(name: str) -> Tuple[float, float]:
        """Fixed, and what environments that are stepped together share."""
        return line_through([(1 / each['envs'], each[name]) for each in (eight, one)])

    def by_batch(values: Dict[str, float]) -> Tuple[float, float]:
        return line_through([(int(size), value) for size, value in values.items()])

    networks = {
        name: dict(network, update_s=by_batch(network['update_s'])) for name, network in learner['networks'].items()
    }
    idle = [(each['number'], each['idle_cpus']) for each in measured['swarms']]
    first = min(measured['swarms'], key=lambda each: each['number'])
    piece_s = first['cpus'] / first['pieces_per_s'] + learner['push_s']
    # what the learner's process does in a run besides: curves, logs, the watch over its memory
    pieces_per_s = eight['env_steps_per_s'] / 256
    other_s = eight['learner_cpu_s_per_piece'] - learner['networks']['small']['update_s']['32'] - piece_s
    return dict(
        machine=f'{about["cpu"]}, {about["cores"]} cores',
        date=about['date'],
        wall_s=shared('wall_s_per_env_step'),
        cpu_s=shared('cpu_s_per_env_step'),
        piece_steps=256,
        piece_s=piece_s,
        standing_cpus=max(0.0, other_s * pieces_per_s),
        draw_s=by_batch(learner['draw_s']),
        member_s=line_through(idle)[1],
        bytes_per_env_step=max(eight['bytes_per_env_step'], learner['bytes_per_env_step']),
        hello_bytes=eight['hello_bytes'],
        order_bytes=measured['order_bytes'],
        tell_bytes=eight['tell_bytes'],
        tells_per_piece=eight['tells_per_piece'],
        start_s=eight['start_s'],
        learner_bytes=eight['memory']['learner']['own_bytes'],
        collector_bytes=eight['memory']['collector']['own_bytes'],
        evaluator_bytes=eight['memory']['evaluator']['own_bytes'],
        shared_bytes=max(parts['files_bytes'] for parts in eight['memory'].values()),
        buffer_bytes_per_transition=measured['buffer_bytes_per_transition'],
        networks=networks,
    )


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option(
    '--seconds', default=16.0, type=click.FloatRange(min=4), help='To look at each collector; less elsewhere.'
)
@click.option('--numbers', default='1,64,256', help='Nodes of the swarms, with commas.')
@click.option('--pieces', default=24, type=click.IntRange(min=2), help='Recorded pieces to learn from.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
@click.option('--ship', is_flag=True, help=f'Also write it to {SHIPPED.relative_to(ROOT)}.')
def main(seconds: float, numbers: str, pieces: int, out: Optional[str], ship: bool) -> None:
    """Measure what the sizing model computes with."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # leaves no process behind
    out = out and os.path.abspath(out)
    logging.basicConfig()
    for handler in logging.getLogger().handlers:  # DI-engine's learners print what they also write to files
        handler.setLevel(logging.WARNING)
    result = surroundings(PACKAGES)
    show_surroundings(result)
    measured = measure(seconds, integers(numbers), pieces)
    result.update(constants=constants_of(measured, result), measured=measured)
    click.echo(json.dumps(result['constants'], indent=1))
    for path in [out, str(SHIPPED) if ship else None]:
        write(path, result)
        if path:
            Constants.read(Path(path))  # what was written can be read


if __name__ == '__main__':
    main()
