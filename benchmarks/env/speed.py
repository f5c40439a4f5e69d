"""How many env steps a second does one ``BreakoutEnv`` play, beside the emulator alone and other Atari environments?

    python -m benchmarks.env.speed --out docs/results/bench_env.json

All play full games of the same rules (benchmarks/common/env_peers.py). The second table has the times of what
``BreakoutEnv`` opens, reuses and releases.
"""

import itertools
import time
from functools import partial
from typing import Any

import ale_py
import click
import numpy as np
from tabulate import tabulate

from breakout_env import BreakoutEnv

from ..common import env_peers as peers
from ..common.cli import chosen, command, rounds
from ..common.rounds import Result, Throughput, as_dict, interleaved

REFERENCE = 'ALE act alone (4 acts a step)'
PACKAGES = ['DI-engine', 'ale-py', 'gymnasium', 'envpool', 'stable-baselines3', 'opencv-python', 'numpy']


class ActAlone(Throughput):
    """The emulator and nothing else, not even a look at the screen: the limit for an environment around it."""

    def __init__(self) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat('repeat_action_probability', 0.0)
        self._ale.loadROM(ale_py.roms.get_rom_path('breakout'))
        self._joysticks = self._ale.getMinimalActionSet()
        self._actions = itertools.cycle(np.random.default_rng(0).integers(peers.ACTIONS, size=4096).tolist())

    def step(self) -> int:
        action = self._joysticks[next(self._actions)]
        for _ in range(4):
            self._ale.act(action)
        if self._ale.game_over():
            self._ale.reset_game()
        return 1


CONTESTANTS = {
    REFERENCE: ActAlone,
    'BreakoutEnv': peers.OurEnv,
    'gymnasium AtariPreprocessing + FrameStackObservation': peers.GymnasiumEnv,
    'Stable-Baselines3 AtariWrapper + VecFrameStack': partial(peers.StableBaselines3, False, 1, peers.FULL_GAMES),
    'EnvPool, 1 thread': partial(peers.EnvPool, 1, False, 1, peers.FULL_GAMES),
    'ale_py AtariVectorEnv, 1 env': partial(peers.AtariVector, 1, False, 1, peers.FULL_GAMES),
}


def life_cycle(repeats: int) -> dict[str, Any]:
    """Print the times of what ``BreakoutEnv`` opens, reuses and releases; returns them as a section."""
    env = BreakoutEnv(peers.FULL_GAMES.ours)
    sticky = BreakoutEnv(dict(peers.FULL_GAMES.ours, repeat_action_probability=0.25))
    sticky.reset()
    seeds = iter(range(2 * repeats))
    events = {
        'reset that opens the emulator': env.reset,
        'reset that reuses it': env.reset,
        'reset after a new seed': lambda: (env.seed(next(seeds)), env.reset()),
        'reset after a new seed, sticky actions': lambda: (sticky.seed(next(seeds)), sticky.reset()),
        'close': env.close,
    }
    times: dict[str, list[float]] = {name: [] for name in events}
    for _ in range(repeats):
        for name, event in events.items():
            start = time.perf_counter()
            event()
            times[name].append((time.perf_counter() - start) * 1e3)
    sticky.close()
    rows = [dict(name=name, median_ms=float(np.median(of_name))) for name, of_name in times.items()]
    title = 'life cycle of BreakoutEnv'
    click.echo(tabulate([[*row.values()] for row in rows], [title, 'ms'], floatfmt='.2f') + '\n')
    return dict(title=title, rows=rows)


@command(*rounds(repeats=10, seconds=2.0))
def main(repeats: int, seconds: float, only: tuple, out: str | None) -> None:
    """Measure how many env steps a second BreakoutEnv and others play."""
    result = Result(out, PACKAGES, repeats=repeats, seconds=seconds)
    runs, failures = interleaved(chosen(CONTESTANTS, only), repeats, seconds=seconds)
    result.add(as_dict('one environment', runs, failures, 'steps_per_s', REFERENCE))
    result.add(life_cycle(repeats))


if __name__ == '__main__':
    main()
