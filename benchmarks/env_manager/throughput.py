"""How many env steps a second do the managers of DI-engine and this package play, and other libraries' vectors?

    python -m benchmarks.env_manager.throughput --out docs/results/bench_manager.json

Actions are random and cost nothing. Resets are included in the time, not in the count of steps. All play under two
rules: training, where the loss of a life ends an episode, and full games (benchmarks/common/env_peers.py).
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from ..common import env_peers as peers
from ..common.cli import chosen, command, rounds
from ..common.rounds import Result, as_dict, interleaved

REFERENCE = "DI-engine's subprocess"
STOCK = dict(shared_memory=True, reset_inplace=True)
PACKAGES = ['DI-engine', 'ale-py', 'gymnasium', 'envpool', 'stable-baselines3', 'opencv-python', 'numpy']
CONTESTANTS: dict[str, Callable[[int], Any]] = {
    "DI-engine's base": partial(peers.Manager, 'base', {}),
    REFERENCE: partial(peers.Manager, 'subprocess', STOCK),
    'ours, breakout': partial(peers.Manager, 'breakout', {}),
    'ours, halves in turns': partial(peers.Halves, 'breakout', {}),
    'EnvPool, 2 threads': partial(peers.EnvPool, 2, False),
    'EnvPool, asynchronous, 2 threads': partial(peers.EnvPool, 2, True),
    'ale_py AtariVectorEnv, 2 threads': partial(peers.AtariVector, 2, False),
    'ale_py AtariVectorEnv, asynchronous, 2 threads': partial(peers.AtariVector, 2, True),
    'Stable-Baselines3 SubprocVecEnv': partial(peers.StableBaselines3, True),
    'gymnasium AsyncVectorEnv': peers.Gymnasium,
}


@command(
    *rounds(repeats=5, seconds=10.0),
    click.option('--env-num', 'env_nums', multiple=True, default=[8], help='Environments; may be repeated.'),
)
def main(repeats: int, seconds: float, only: tuple, env_nums: list[int], out: str | None) -> None:
    """Measure how many env steps a second managers play."""
    contestants = chosen(CONTESTANTS, only)
    result = Result(out, PACKAGES, repeats=repeats, seconds=seconds)
    for env_num, rules in itertools.product(env_nums, (peers.TRAINING, peers.FULL_GAMES)):
        factories = {name: partial(make, env_num=env_num, rules=rules) for name, make in contestants.items()}
        runs, failures = interleaved(factories, repeats, seconds=seconds)
        episodes = 'episodes of a life' if rules.training else 'full games'
        title = f'{env_num} environment{"s" * (env_num > 1)}, {episodes}'
        result.add(as_dict(title, runs, failures, 'steps_per_s', REFERENCE), env_num=env_num)


if __name__ == '__main__':
    main()
