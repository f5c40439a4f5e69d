"""
How many env steps a second do env managers play: DI-engine's, ours, and the vectors of other libraries?

    python -m benchmarks.env_manager.throughput --out docs/results/bench_manager.json
    python -m benchmarks.env_manager.throughput --scaling --out docs/results/bench_manager_scaling.json

Actions are random and cost nothing. Resets are included in the time, not in the count of steps. All play under two
rules, those of a training, where the loss of a life ends an episode, and full games (benchmarks/common/env_peers.py).
"""

from functools import partial
from typing import Any, Callable, Dict, List, Optional

import click

from ..common.cli import Numbers, chosen, command, rounds
from ..common.env_peers import (
    FULL_GAMES,
    TRAINING,
    AtariVector,
    EnvPool,
    Gymnasium,
    Halves,
    Manager,
    PlainEnv,
    StableBaselines3,
    Tianshou,
)
from ..common.rounds import Result, interleaved, section

REFERENCE = "DI-engine's subprocess"
OURS = 'ours, breakout'
STOCK = dict(shared_memory=True, reset_inplace=True)
PACKAGES = ['DI-engine', 'ale-py', 'gymnasium', 'envpool', 'stable-baselines3', 'tianshou', 'opencv-python', 'numpy']
BESIDE_PEERS: Dict[str, Callable[[int], Any]] = {
    "DI-engine's base": partial(Manager, 'base', {}),
    REFERENCE: partial(Manager, 'subprocess', STOCK),
    "DI-engine's subprocess, a plain env": partial(Manager, 'subprocess', STOCK, env_class=PlainEnv),
    "DI-engine's async_subprocess": partial(Manager, 'async_subprocess', STOCK),
    OURS: partial(Manager, 'breakout', {}),
    f'{OURS}, halves in turns': partial(Halves, 'breakout', {}),
    'EnvPool, 2 threads': partial(EnvPool, 2, False),
    'EnvPool, asynchronous, 2 threads': partial(EnvPool, 2, True),
    'ale_py AtariVectorEnv, 2 threads': partial(AtariVector, 2),
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
}


@command(
    *rounds(repeats=5, seconds=10.0),
    click.option('--scaling', is_flag=True, help='Fewer contestants, and 1 to 64 environments.'),
    click.option('--env-nums', type=Numbers(), help='Environments, with commas.  [default: 8, or 1,4,16,64]'),
)
def main(
    repeats: int, seconds: float, only: tuple, scaling: bool, env_nums: Optional[List[int]], out: Optional[str]
) -> None:
    """Measure how many env steps a second managers play."""
    contestants = chosen(SCALING if scaling else BESIDE_PEERS, only)
    result = Result(out, PACKAGES, repeats=repeats, seconds=seconds)
    for env_num in env_nums or ([1, 4, 16, 64] if scaling else [8]):
        for rules in (TRAINING,) if scaling else (TRAINING, FULL_GAMES):
            factories = {name: partial(make, env_num=env_num, rules=rules) for name, make in contestants.items()}
            runs, failures = interleaved(factories, repeats, seconds=seconds)
            episodes = 'episodes of a life' if rules.training else 'full games'
            title = f'{env_num} environment{"s" * (env_num > 1)}, {episodes}'
            result.add(section(title, runs, failures, 'steps_per_s', REFERENCE), env_num=env_num)


if __name__ == '__main__':
    main()
