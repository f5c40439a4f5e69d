"""
With 64 collectors on Ray, how many env steps a second does one learner take in, and what limits it?

    python -m benchmarks.distributed.saturation --out docs/results/bench_saturation.json

The collectors are Ray actors that answer each request at once with a recorded rollout fragment of real play, so that
two cores can stand for 64: the learner's side is the real one (Ray, unpacking, replay buffer, updates of the recipe for
the CPU on one thread). Play itself takes no time here, so what is left is the learner's limit.
"""

import os
import tempfile
import time
from types import SimpleNamespace
from typing import Any, Dict, Optional

import click
import torch
from ding.policy import create_policy
from ding.worker import BaseLearner, create_buffer

from breakout_env.cluster.actors import CollectorActor
from breakout_env.cluster.collector_pool import CollectorPool
from breakout_env.cluster.ray_session import ray_session
from breakout_env.run.config import checked_config

from ..common.cli import command
from ..common.processes import ROOT
from ..common.rounds import Result

CONFIG = ROOT / 'configs' / 'breakout_dqn_cpu_config.py'
PACKAGES = ['DI-engine', 'ray', 'torch', 'numpy']


def collector_of(fragment: Dict[str, Any]) -> type:
    """
    A class of actors that have played already. It needs nothing of ours, so that 64 processes of it fit into memory.
    """

    class RecordedCollector(object):
        def __init__(self, cfg: Any, index: int) -> None:
            pass

        def ready(self) -> None:
            pass

        def close(self) -> None:
            pass

        def collect(self, *request: Any) -> SimpleNamespace:
            return SimpleNamespace(**fragment)

    return RecordedCollector


def recorded_fragment(cfg: Any) -> Dict[str, Any]:
    """A fragment of real play with random actions; the second, as the first one begins with incomplete returns."""
    actor = CollectorActor(cfg, 0)
    try:
        for _ in range(2):
            fragment = actor.collect(cfg.policy.collect.n_sample, 0, True, {}, [None], 0)
    finally:
        actor.close()
    return {**fragment._asdict(), 'events': []}


def measure(cfg: Any, fragment: Dict[str, Any], collectors: int, updates: int, seconds: float) -> Dict[str, float]:
    """Env steps and updates a second of one learner."""
    policy = create_policy(cfg.policy, enable_field=['learn', 'collect'])
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, exp_name=cfg.exp_name)
    buffer = create_buffer(cfg.policy.other.replay_buffer, exp_name=cfg.exp_name)
    with ray_session(None, collectors) as ray:
        pool = CollectorPool(ray, cfg, collectors, click.echo, collector_of(fragment))
        pool.set_weights(policy.collect_mode.state_dict()['model'], 0)
        pool.open(0, None)
        while pool.number < collectors or buffer.count() < 4 * cfg.policy.learn.batch_size:
            collected = pool.next_fragment(timeout_s=1.0)
            if collected is not None:
                buffer.push(collected[0], cur_collector_envstep=pool.envstep)
        begin_s, steps, iterations = time.perf_counter(), pool.envstep, learner.train_iter
        while time.perf_counter() - begin_s < seconds:
            collected = pool.next_fragment(timeout_s=1.0)
            if collected is not None:
                buffer.push(collected[0], cur_collector_envstep=pool.envstep)
                for _ in range(updates):
                    learner.train(buffer.sample(cfg.policy.learn.batch_size, learner.train_iter), pool.envstep)
                if updates:
                    pool.set_weights(policy.collect_mode.state_dict()['model'], learner.train_iter)
        elapsed_s = time.perf_counter() - begin_s
        steps, iterations = pool.envstep - steps, learner.train_iter - iterations
        pool.close()
    buffer.close()
    return dict(env_steps_per_s=steps / elapsed_s, updates_per_s=iterations / elapsed_s)


@command(
    click.option('--collectors', default=64, type=click.IntRange(1), help='Actors that replay a fragment.'),
    click.option('--seconds', default=20.0, type=click.FloatRange(min=1), help='Of each measurement.'),
)
def main(collectors: int, seconds: float, out: Optional[str]) -> None:
    """Measure what one learner takes in."""
    torch.set_num_threads(1)
    cfg = checked_config(str(CONFIG), 0)
    cfg.policy.cuda = False
    result = Result(out, PACKAGES, seconds=seconds, collectors=collectors)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # DI-engine takes all names as below the current folder
        fragment = recorded_fragment(cfg)
        for updates in (0, 1, cfg.policy.learn.update_per_collect):
            figures = measure(cfg, fragment, collectors, updates, seconds)
            click.echo(f'{updates} updates a fragment: {figures}')
            result.add(dict(title=f'{updates} updates a fragment', **figures))


if __name__ == '__main__':
    main()
