"""What do collectors on Ray cost: bytes to the learner, env steps a second beside a training in one process, and what
one learner can take in?

    python -m benchmarks.training.on_ray --out docs/results/bench_ray.json

``play`` is one collector with half of the environments of configs/breakout_ppo_config.py and the weights of a skilled
agent, without Ray: what it packs and how long that takes. Then trainings take turns (benchmarks/training/speed.py): in
one process, overlapped, and with two collectors on Ray on the same cores. One more has eight collectors whose
environments repeat a course that they have played once, and a small update for each rollout: what is left is Ray,
collectors and network, and the computing time of the learner's process says how much it could take in.

In the last ones a collector is killed every 20 s. What it was playing has weight 0, as in a training of this package,
or the learner waits until it works and has the rollout played again; the figure is the env steps that count.
"""

import contextlib
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import psutil
import torch
from ding.policy import create_policy

from breakout_env.agent.agent import initial_weights
from breakout_env.cluster import ray_source
from breakout_env.cluster.actors import CollectorActor, PackedFragment
from breakout_env.cluster.collector_pool import CollectorPool
from breakout_env.cluster.fragment import unpack_rollout
from breakout_env.run.budget import Budget
from breakout_env.run.config import ConfigFile, merged_config, read_config_file
from breakout_env.run.pipeline import train

from ..common.cli import CORES, command, rounds
from ..common.rounds import ROOT, Result, as_dict, interleaved, turn
from .speed import ENDLESS_STEPS, PACKAGES, Ended, Running, Training, poll_hook

REFERENCE = 'one process, overlapped'
BUDGET = Budget(env_steps=ENDLESS_STEPS)
SKILLED = ROOT / 'breakout_env' / 'pretrained' / 'breakout_ppo_80min.safetensors'
ROLLOUTS = 20
KILL_EVERY_S = 20.0
# An update of so few samples costs nothing beside a rollout of 4096.
NO_UPDATES = dict(update_per_collect=1, batch_size=8)


def recipe(env: str = 'breakout', **learn: Any) -> ConfigFile:
    """The config of PPO for a CPU, without evaluations on the way."""
    file = read_config_file(str(ROOT / 'configs' / 'breakout_ppo_config.py'))
    file.main.env.update(evaluator_env_num=1, n_evaluator_episode=1)
    file.main.env.evaluator.max_episode_frames = 400  # a training begins with an evaluation
    file.main.policy.eval.evaluator.eval_freq = ENDLESS_STEPS
    file.main.policy.learn.update(learn)
    file.create.env.update(type=env, import_names=['breakout_env', 'benchmarks.training.recorded_env'])
    return file


class Play:
    """A collector that plays as a skilled agent."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        cfg = merged_config(recipe(), 0, BUDGET)
        self._collector = CollectorActor(cfg, seed=0, env_num=cfg.env.collector_env_num // 2)
        self._n_sample = cfg.policy.collect.n_sample // 2
        state = create_policy(cfg.policy, enable_field=['collect']).collect_mode.state_dict()
        self._weights = initial_weights(str(SKILLED)).weights
        self._collector._policy.load_state_dict(dict(state, model=self._weights))

    def measure(self) -> dict[str, float]:
        """Medians of the second half: the first games have begun together."""
        rows = [self._fragment() for _ in range(ROLLOUTS)][ROLLOUTS // 2 :]
        return {name: statistics.median(row[name] for row in rows) for name in rows[0]}

    def _fragment(self) -> dict[str, float]:
        begun_s = time.process_time()
        fragment = self._collector.collect(self._n_sample, {}, [None], 0)
        played_s = time.process_time()
        unpack_rollout(fragment.payload)
        unpacked_s = time.process_time()
        return dict(
            bytes_per_step=len(fragment.payload) / fragment.env_steps,
            collector_us_per_step=1e6 * (played_s - begun_s) / fragment.env_steps,
            unpack_us_per_step=1e6 * (unpacked_s - played_s) / fragment.env_steps,
            weights_bytes=sum(value.nbytes for value in self._weights.values()),
        )

    def close(self) -> None:
        self._collector.close()


class PPOTraining(Training):
    """A training of this package: with collectors on Ray, or none and overlapped."""

    def __init__(self, collectors: int, file: ConfigFile) -> None:
        super().__init__(threads=max(1, CORES // 2), random_steps=0)
        self._collectors, self._file = collectors, file

    def run(self, running: Running) -> None:
        learn = self._file.main.policy.learn
        learn.learner.hook.poll = poll_hook(running, learn.update_per_collect)
        with contextlib.suppress(Ended):
            source = partial(ray_source.OnRay, collectors=self._collectors) if self._collectors else None
            train(self._file, 0, BUDGET, overlap=True, source=source)

    def close(self) -> None:
        """The parts of the training end with it."""


class CountingPool(CollectorPool):
    """Counts the env steps that are learned from."""

    played = 0

    def play_round(self) -> dict[int, PackedFragment]:
        fragments = super().play_round()
        CountingPool.played += sum(fragment.env_steps for fragment in fragments.values())
        return fragments


class RepeatingPool(CountingPool):
    """Has a rollout played again if a part of it was lost."""

    def play_round(self) -> dict[int, PackedFragment]:
        fragments = super().play_round()
        while len(fragments) < len(self.sizes()):
            lost = sum(fragment.env_steps for fragment in fragments.values())
            self.envstep -= lost
            CountingPool.played -= lost
            while len(self._working()) < len(self.sizes()):
                self._wait([collector.ready for collector in self._collectors if collector.ready is not None], 1)
            fragments = super().play_round()
        return fragments


class WithKills(PPOTraining):
    """A training on Ray whose collectors are killed, one by one."""

    def __init__(self, pool: type[CountingPool]) -> None:
        super().__init__(2, recipe())
        ray_source.CollectorPool = pool
        self._ended = threading.Event()

    def run(self, running: Running) -> None:
        killer = threading.Thread(target=self._kill)
        killer.start()
        super().run(lambda steps, updates: running(CountingPool.played, updates))
        self._ended.set()
        killer.join()

    def _kill(self) -> None:
        while not self._ended.wait(KILL_EVERY_S):
            for process in psutil.Process().children(recursive=True):
                if 'CollectorActor' in ''.join(process.cmdline()[:1]):
                    process.kill()
                    break


def ppo(collectors: int, env: str, learn: dict[str, Any]) -> PPOTraining:
    """Made in the process of the contestant, as a config may not be picklable."""
    return PPOTraining(collectors, recipe(env, **learn))


SPEED: dict[str, Callable[[], PPOTraining]] = {
    REFERENCE: partial(ppo, 0, 'breakout', {}),
    '2 collectors on Ray': partial(ppo, 2, 'breakout', {}),
}
INTAKE: dict[str, Callable[[], PPOTraining]] = {
    '8 collectors, environments that take no time': partial(ppo, 8, 'breakout_recorded', NO_UPDATES)
}
KILLS: dict[str, Callable[[], PPOTraining]] = {
    'a lost part has weight 0': partial(WithKills, CountingPool),
    'a lost part is played again': partial(WithKills, RepeatingPool),
}


@command(
    *rounds(repeats=3, seconds=60.0)[:2],
    click.option('--warm-up-seconds', default=20.0, type=click.FloatRange(min=0), help='Of training, not counted.'),
)
def main(repeats: int, seconds: float, warm_up_seconds: float, out: str | None) -> None:
    """Measure what collectors on Ray cost."""
    result = Result(out, [*PACKAGES, 'ray'], repeats=repeats, seconds=seconds)
    play = turn(Play)
    click.echo('\n'.join(f'{name.replace("_", " ")}: {value:,.1f}' for name, value in play.items()) + '\n')
    result.content.update(play=play)
    result.write()
    for what, contestants in (('PPO', SPEED), ('PPO without updates', INTAKE), ('PPO, a kill every 20 s', KILLS)):
        runs, failures = interleaved(contestants, repeats, warm_up_s=warm_up_seconds, seconds=seconds)
        more = ['updates_per_step', 'learner_us_per_step']
        reference = next(iter(contestants))
        result.add(as_dict(f'{what}, {CORES} cores', runs, failures, 'steps_per_s', reference, more))


if __name__ == '__main__':
    main()
