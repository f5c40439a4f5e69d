"""
How many env steps a second env managers play: DI-engine's, ours, and the vectors of other libraries.

    python benchmarks/bench_manager.py --out docs/results/bench_manager.json
    python benchmarks/bench_manager.py --scaling --out docs/results/bench_manager_scaling.json

Actions are random and cost nothing. Steps are counted over a stretch of time, resets included in the time but not in
the count. benchmarks/env_peers.py says what is played, benchmarks/turns.py how contestants take turns.
"""

import time
from functools import partial
from typing import Any, Callable, Dict, Optional

import click
from env_peers import AtariVector, DingEnvPool, EnvPool, Gymnasium, Manager, PlainEnv, StableBaselines3, Tianshou
from turns import chosen, numbers, show, show_surroundings, surroundings, take_turns, write

REFERENCE = "DI-engine's subprocess"
OURS = 'ours, breakout'
STOCK = dict(shared_memory=True, reset_inplace=True)
PACKAGES = [
    'DI-engine',
    'ale-py',
    'gymnasium',
    'envpool',
    'stable-baselines3',
    'tianshou',
    'opencv-python',
    'numpy',
    'torch',
]
BESIDE_PEERS: Dict[str, Callable[[int], Any]] = {
    "DI-engine's base": partial(Manager, 'base', {}),
    REFERENCE: partial(Manager, 'subprocess', STOCK),
    "DI-engine's subprocess, a plain env": partial(Manager, 'subprocess', STOCK, env_class=PlainEnv),
    "DI-engine's async_subprocess": partial(Manager, 'async_subprocess', STOCK),
    "DI-engine's env_pool": DingEnvPool,
    OURS: partial(Manager, 'breakout', {}),
    'EnvPool, 1 thread': partial(EnvPool, 1, False),
    'EnvPool, 2 threads': partial(EnvPool, 2, False),
    'EnvPool, asynchronous, 1 thread': partial(EnvPool, 1, True),
    'EnvPool, asynchronous, 2 threads': partial(EnvPool, 2, True),
    'ale_py AtariVectorEnv, 1 thread': partial(AtariVector, 1),
    'ale_py AtariVectorEnv, 2 threads': partial(AtariVector, 2),
    'Stable-Baselines3 DummyVecEnv': partial(StableBaselines3, False),
    'Stable-Baselines3 SubprocVecEnv': partial(StableBaselines3, True),
    'gymnasium AsyncVectorEnv': Gymnasium,
    'Tianshou ShmemVectorEnv': Tianshou,
}
SCALING: Dict[str, Callable[[int], Any]] = {
    REFERENCE: BESIDE_PEERS[REFERENCE],
    OURS: BESIDE_PEERS[OURS],
    **{
        f'{OURS}, {workers} worker{"s" * (workers > 1)}': partial(Manager, 'breakout', dict(worker_num=workers))
        for workers in (1, 2, 4)
    },
    'EnvPool, 2 threads': BESIDE_PEERS['EnvPool, 2 threads'],
    'EnvPool, asynchronous, 2 threads': BESIDE_PEERS['EnvPool, asynchronous, 2 threads'],
}


class Playing(object):
    """
    Overview:
        A contestant of benchmarks/turns.py around environments.
    Interfaces:
        ``turn``, ``close``.
    """

    def __init__(self, factory: Callable[[int], Any], env_num: int) -> None:
        self._envs = factory(env_num)

    def turn(self, seconds: float) -> Dict[str, float]:
        """Play for so long, after a fifth of it that is not counted."""
        self._play(seconds / 5)
        steps, elapsed_s = self._play(seconds)
        return dict(steps_per_s=steps / elapsed_s)

    def _play(self, seconds: float) -> tuple:
        start, steps, elapsed_s = time.perf_counter(), 0, 0.0
        while elapsed_s < seconds:
            steps += self._envs.advance()
            elapsed_s = time.perf_counter() - start
        return steps, elapsed_s

    def close(self) -> None:
        self._envs.close()


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--repeats', default=5, type=click.IntRange(min=1), help='Turns of each.')
@click.option('--seconds', default=10.0, type=click.FloatRange(min=0.1), help='Length of a turn.')
@click.option('--scaling', is_flag=True, help='Fewer contestants, and numbers of environments from 1 to 64.')
@click.option('--env-nums', help='Environments, with commas.  [default: 8, with --scaling 1,2,4,8,16,32,64]')
@click.option('--only', multiple=True, help='Only those whose names contain this; may be repeated.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
def main(repeats: int, seconds: float, scaling: bool, env_nums: Optional[str], only: tuple, out: Optional[str]) -> None:
    """Measure how many env steps a second managers play."""
    contestants = chosen(SCALING if scaling else BESIDE_PEERS, only)
    result = dict(surroundings(PACKAGES), repeats=repeats, seconds=seconds, sections=[])
    show_surroundings(result)
    for env_num in numbers(env_nums or ('1,2,4,8,16,32,64' if scaling else '8')):
        builds = {name: partial(Playing, factory, env_num) for name, factory in contestants.items()}
        runs, failures = take_turns(builds, repeats, seconds=seconds)
        title = f'{env_num} environment{"s" * (env_num > 1)}'
        result['sections'].append(dict(show(title, runs, failures, 'steps_per_s', REFERENCE), env_num=env_num))
        write(out, result)


if __name__ == '__main__':
    main()
