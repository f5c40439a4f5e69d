"""
How many env steps a second does a training make in one process, and with collectors on Ray, on this machine?

    python -m benchmarks.distributed.scale --out docs/results/bench_scale.json

The recipe for the CPU without evaluations and with little random play, the learner on one thread: ``breakout train``
with ``--serial``, ``--overlap`` and ``--collectors N``, in interleaved rounds. A second table has a learner that makes
an update to 256 env steps instead of 4: what collectors could play if the learner were no limit. A third one has two
collectors of which one is killed every 20 seconds, beside two that nobody disturbs.
"""

import contextlib
import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import click
import psutil

from ..common.cli import Numbers, chosen, command, rounds
from ..common.processes import ROOT, Processes
from ..common.rounds import Result, interleaved, section

PACKAGES = ['DI-engine', 'ray', 'torch', 'numpy', 'ale-py']
REFERENCE = 'serial'
Factory = Callable[[], Any]
CONFIG = ROOT / 'configs' / 'breakout_dqn_cpu_config.py'
# more than any of these runs comes to
ENDLESS_STEPS = 10**8
KILL_EVERY_S = 20.0
CHANGES = {
    'policy.random_collect_size': 1024,
    'policy.eval.evaluator.eval_freq': 10**9,
    # the evaluations at both ends of a run cannot be turned off; these are short
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'env.evaluator.max_episode_frames': 200,
    # how often a network is asked must not depend on how far a training has come
    'policy.other.eps.start': 0.1,
    'policy.other.eps.end': 0.1,
    # no saves meanwhile, and a row of the log for each half of a second
    'policy.learn.learner.hook.resume.ext_args.save_every_s': 86400,
    'policy.learn.learner.hook.save_ckpt_after_iter': 10**9,
    'policy.learn.learner.hook.progress.ext_args.log_every_s': 0.5,
}


class Training(object):
    """
    Overview:
        A contestant: ``breakout train`` in a folder of its own, observed from outside.
    Arguments:
        - options (:obj:`List[Any]`): The command's.
        - updates (:obj:`int`): Updates after each 256 env steps.
        - kill_every_s (:obj:`float`): Seconds between two kills of a collector, while it is measured.
    """

    def __init__(self, options: List[Any], updates: int, kill_every_s: float = math.inf) -> None:
        self._processes = Processes(Path.cwd())
        self._kill_every_s = kill_every_s
        self._log = Path.cwd() / 'run' / 'log' / 'progress.jsonl'
        common = ['--env-steps', ENDLESS_STEPS, '--exp-name', 'run', '--threads', 1, '--device', 'cpu']
        changes = {**CHANGES, 'policy.learn.update_per_collect': updates}
        common += [part for name, value in changes.items() for part in ('--set', f'{name}={value}')]
        self._processes.start('run', ['-m', 'breakout_env', 'train', '-c', CONFIG, *common, *options])

    def measure(self, warm_up_s: float, seconds: float) -> Dict[str, float]:
        """Speed and memory of a while, after random play and the warm-up."""
        self._processes.wait_until(
            lambda: any(row['updates'] > 0 for row in self._rows()), 'update of the training', timeout_s=240
        )
        time.sleep(warm_up_s)
        begin_s, end_s = time.time(), time.time() + seconds
        while (left_s := end_s - time.time()) > 0:
            time.sleep(min(left_s, self._kill_every_s))
            if left_s > self._kill_every_s:
                self._kill_a_collector()
        memory_bytes = self._processes.memory_bytes('run')
        rows = [row for row in self._rows() if begin_s <= row['time'] <= end_s]
        # env steps come a fragment at a time: they are counted from one arrival to another
        arrivals = [row for row, before in zip(rows[1:], rows) if row['env_step'] > before['env_step']]
        if len(arrivals) < 2:
            raise ValueError(f'only {len(arrivals)} collections within {seconds} s')
        first, last = arrivals[0], arrivals[-1]
        elapsed_s = last['time'] - first['time']
        steps, updates = (last[key] - first[key] for key in ('env_step', 'updates'))
        return dict(env_steps_per_s=steps / elapsed_s, updates_per_s=updates / elapsed_s, memory_gb=memory_bytes / 1e9)

    def _kill_a_collector(self) -> None:
        """SIGKILL to the collector that has lived longest."""
        collectors = [p for p in psutil.process_iter() if p.name().startswith('ray::CollectorA')]
        min(collectors, key=lambda process: process.create_time()).kill()

    def _rows(self) -> List[Dict[str, Any]]:
        """The progress that the run has logged."""
        rows = []
        with contextlib.suppress(FileNotFoundError):
            for line in self._log.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # it is being written
                    rows.append(json.loads(line))
        return [row for row in rows if row['kind'] == 'progress']

    def close(self) -> None:
        """End all processes of the run."""
        self._processes.__exit__()


@command(
    *rounds(repeats=3, seconds=25.0),
    click.option('--warm-up-seconds', default=4.0, type=click.FloatRange(min=0), help='Of training, not counted.'),
    click.option('--collectors', default='1,2,3,4', type=Numbers(), help='Numbers of collectors, with commas.'),
)
def main(
    repeats: int, seconds: float, only: tuple, warm_up_seconds: float, collectors: List[int], out: Optional[str]
) -> None:
    """Measure trainings in one process and in several."""
    result = Result(out, PACKAGES, repeats=repeats, seconds=seconds)
    on_ray = {f'{n} collector{"s" * (n > 1)}': ['--collectors', n] for n in collectors}
    two = ['--collectors', 2]
    tables: Tuple[Tuple[str, int, str, float, Dict[str, Factory]], ...] = (
        (
            'an update to 4 env steps',
            64,
            REFERENCE,
            seconds,
            {
                name: partial(Training, options, 64)
                for name, options in {REFERENCE: ['--serial'], 'overlapped': ['--overlap'], **on_ray}.items()
            },
        ),
        (
            'an update to 256 env steps',
            1,
            REFERENCE,
            seconds,
            {name: partial(Training, options, 1) for name, options in on_ray.items()},
        ),
        (
            f'2 collectors, a kill every {KILL_EVERY_S:.0f} s',
            64,
            'undisturbed',
            4.5 * KILL_EVERY_S,
            {'undisturbed': partial(Training, two, 64), 'disturbed': partial(Training, two, 64, KILL_EVERY_S)},
        ),
    )
    names = chosen({name: factory for *_, factories in tables for name, factory in factories.items()}, only)
    for title, updates, reference, measured_s, factories in tables:
        factories = {name: factory for name, factory in factories.items() if name in names}
        if not factories:
            continue
        runs, failures = interleaved(chosen(factories, only), repeats, warm_up_s=warm_up_seconds, seconds=measured_s)
        more = ['updates_per_s', 'memory_gb']
        result.add(section(title, runs, failures, 'env_steps_per_s', reference, more), updates=updates)


if __name__ == '__main__':
    main()
