"""
How many steps a second `BreakoutEnv` plays, beside the emulator alone and beside other Atari environments.

All play the same game: frame skip 4, maximum of the last two screens, 84x84 gray, four screens in an observation, no
sticky actions, whole games, points as rewards, and no no-ops at the start where that can be chosen. All are measured
in one run, in short blocks that take turns, so that whatever else slows the computer down slows all of them. A ratio
compares two blocks of the same round; it is steadier than the steps a second it is made of. ``make bench`` runs this.
"""

import contextlib
import json
import random
import time
from functools import partial
from typing import IO, Any, Callable, Dict, Iterator, List, Optional

import ale_py
import click
import cv2
import gymnasium
import numpy as np
from ding.envs import DingEnvWrapper, SyncSubprocessEnvManager
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from tabulate import tabulate
from tqdm import tqdm
from turns import show_surroundings, surroundings

from breakout_env import BreakoutEnv

OURS = dict(is_train=False, noop_max=0, fire_on_life_loss=False, fire_on_reset=False)
ACT_ALONE, BREAKOUT_ENV = 'ALE act alone (4 acts a step)', 'BreakoutEnv'
GYMNASIUM = 'gymnasium AtariPreprocessing + FrameStackObservation'
DING_MANAGER = "DI-engine's subprocess manager on BreakoutEnv"
PACKAGES = ['DI-engine', 'ale-py', 'gymnasium', 'envpool', 'stable-baselines3', 'opencv-python', 'numpy']


class ActAlone(object):
    """
    Overview:
        The emulator and nothing else, not even a look at the screen: the limit for an environment around it.
    Interfaces:
        ``reset``, ``step_many``, ``close``, as all contestants.
    """

    def __init__(self) -> None:
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat('repeat_action_probability', 0.0)
        self._ale.loadROM(ale_py.roms.get_rom_path('breakout'))
        self._joysticks = self._ale.getMinimalActionSet()

    def reset(self) -> None:
        self._ale.reset_game()

    def step_many(self, actions: np.ndarray) -> int:
        """
        Overview:
            Play, and start a new game wherever one ends.
        Arguments:
            - actions (:obj:`np.ndarray`): Indices of the actions, one row a step, one column an environment.
        Returns:
            - steps (:obj:`int`): Steps played, those of all environments added up.
        """
        ale, joysticks = self._ale, self._joysticks
        for action in actions[:, 0].tolist():
            for _ in range(4):
                ale.act(joysticks[action])
            if ale.game_over():
                self.reset()
        return len(actions)

    def close(self) -> None:
        self._ale = None  # ALE has no close; its destructor runs here


class ByHand(ActAlone):
    """
    Overview:
        The emulator and the preprocessing in the plainest loop: what an observation costs without an environment.
    """

    def reset(self) -> None:
        self._ale.reset_game()
        self._screen = self._ale.getScreenGrayscale()
        self._earlier = np.zeros_like(self._screen)
        self._stack = np.stack([self._shrunk()] * 4)

    def step_many(self, actions: np.ndarray) -> int:
        ale, joysticks = self._ale, self._joysticks
        for action in actions[:, 0].tolist():
            for frame in range(4):
                ale.act(joysticks[action])
                if frame == 2:
                    ale.getScreenGrayscale(self._earlier)
            ale.getScreenGrayscale(self._screen)
            np.maximum(self._screen, self._earlier, out=self._screen)
            self._stack = np.concatenate((self._stack[1:], self._shrunk()[None]))
            if ale.game_over():
                self.reset()
        return len(actions)

    def _shrunk(self) -> np.ndarray:
        return cv2.resize(self._screen, (84, 84), interpolation=cv2.INTER_AREA)


class _DingLoop(object):
    """One environment with DI-engine's interface."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.reset, self.close = env.reset, env.close

    def step_many(self, actions: np.ndarray) -> int:
        env = self._env
        for action in actions.astype(np.int64):  # arrays with one element, as DI-engine's policies return them
            if env.step(action).done:
                env.reset()
        return len(actions)


class _GymnasiumLoop(_DingLoop):
    """One environment with gymnasium's interface."""

    def step_many(self, actions: np.ndarray) -> int:
        env = self._env
        for action in actions[:, 0].tolist():
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)


class _AutoResetLoop(_DingLoop):
    """A vector of environments that start new games themselves."""

    def step_many(self, actions: np.ndarray) -> int:
        env = self._env
        for row in actions:
            env.step(row)
        return actions.size


class _ManagerLoop(_DingLoop):
    """A manager, driven as DI-engine's collectors do: environments sit out while it starts new games for them."""

    def __init__(self, manager: Any) -> None:
        super().__init__(manager)
        self.reset = manager.launch

    def step_many(self, actions: np.ndarray) -> int:
        manager, steps = self._env, 0
        for row in actions.astype(np.int64):
            ready = list(manager.ready_obs)
            manager.step({env_id: row[env_id : env_id + 1] for env_id in ready})
            steps += len(ready)
        return steps


def _gymnasium(obs_type: str) -> gymnasium.Env:
    gymnasium.register_envs(ale_py)
    # without gymnasium's checker of how it is used: the others have none
    return gymnasium.make('BreakoutNoFrameskip-v4', obs_type=obs_type, disable_env_checker=True)


def _gymnasium_wrapped() -> gymnasium.Env:
    # AtariPreprocessing fetches gray screens itself and looks at none of those it is given: gray ones are cheapest
    return FrameStackObservation(AtariPreprocessing(_gymnasium('grayscale'), noop_max=0), stack_size=4)


def _sb3_wrapped() -> gymnasium.Env:
    from stable_baselines3.common.atari_wrappers import AtariWrapper

    # It turns the screens gray itself, so it has to be given colours. It starts each game with two steps of its own,
    # which can't be switched off. `make_atari_env` would add a Monitor, which the others have not.
    return AtariWrapper(_gymnasium('rgb'), noop_max=0, terminal_on_life_loss=False, clip_reward=False)


def _sb3(env_num: int) -> _AutoResetLoop:
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    # forked as DI-engine's workers are; by default each worker would import this file and all it imports anew
    env = DummyVecEnv([_sb3_wrapped]) if env_num == 1 else SubprocVecEnv([_sb3_wrapped] * env_num, 'fork')
    return _AutoResetLoop(VecFrameStack(env, 4))


def _envpool(env_num: int, thread_num: int) -> _AutoResetLoop:
    import envpool

    game = dict(frame_skip=4, repeat_action_probability=0.0, episodic_life=False, reward_clip=False)
    screen = dict(img_height=84, img_width=84, stack_num=4, use_inter_area_resize=True)
    start = dict(noop_max=1, use_fire_reset=False)  # noop_max=0 crashes it
    return _AutoResetLoop(
        envpool.make_gymnasium('Breakout-v5', num_envs=env_num, num_threads=thread_num, **game, **screen, **start)
    )


def _atari_vector_env(env_num: int, thread_num: int) -> _AutoResetLoop:
    from ale_py.vector_env import AtariVectorEnv

    game = dict(frameskip=4, repeat_action_probability=0.0, episodic_life=False, reward_clipping=False)
    screen = dict(img_height=84, img_width=84, stack_num=4, maxpool=True)
    # by default the step after a game only resets, and its action is lost
    start = dict(noop_max=0, use_fire_reset=False, autoreset_mode='SameStep')
    return _AutoResetLoop(AtariVectorEnv('breakout', env_num, num_threads=thread_num, **game, **screen, **start))


def _ding_manager(env_num: int) -> _ManagerLoop:
    config = SyncSubprocessEnvManager.default_config()  # shared memory is on
    return _ManagerLoop(SyncSubprocessEnvManager([partial(BreakoutEnv, OURS)] * env_num, config))


SINGLE = {
    ACT_ALONE: ActAlone,
    'act, gray, max, resize, stack by hand': ByHand,
    BREAKOUT_ENV: lambda: _DingLoop(BreakoutEnv(OURS)),
    GYMNASIUM: lambda: _GymnasiumLoop(_gymnasium_wrapped()),
    # it needs no option for gymnasium, because it is given an instance, and adds only the return of an episode
    "the same through DI-engine's DingEnvWrapper": lambda: _DingLoop(DingEnvWrapper(_gymnasium_wrapped())),
    'Stable-Baselines3 AtariWrapper + VecFrameStack': partial(_sb3, 1),
    'EnvPool, 1 thread': partial(_envpool, 1, 1),
    'ale_py AtariVectorEnv, 1 env': partial(_atari_vector_env, 1, 1),
}
VECTOR = {  # those that fork come first, before the others start threads
    DING_MANAGER: partial(_ding_manager, 8),
    'Stable-Baselines3 SubprocVecEnv + VecFrameStack': partial(_sb3, 8),
    'EnvPool, 1 thread': partial(_envpool, 8, 1),
    'EnvPool, 2 threads': partial(_envpool, 8, 2),
    'ale_py AtariVectorEnv, 1 thread': partial(_atari_vector_env, 8, 1),
    'ale_py AtariVectorEnv, 2 threads': partial(_atari_vector_env, 8, 2),
}


@contextlib.contextmanager
def _opened(factories: Dict[str, Callable]) -> Iterator[Dict[str, Any]]:
    """The contestants whose packages are installed, built one after another, and all closed in the end."""
    with contextlib.ExitStack() as stack:
        contestants = {}
        for name, factory in factories.items():
            try:
                contestants[name] = factory()
            except ModuleNotFoundError:  # a peer is optional; its row will say that it is not installed
                continue
            stack.callback(contestants[name].close)
            contestants[name].reset()
        yield contestants


def measure(factories: Dict[str, Callable], env_num: int, rounds: int, steps: int) -> Dict[str, np.ndarray]:
    """
    Overview:
        Let the contestants play in turns, in a new order in each round, all with the same actions.
    Arguments:
        - factories (:obj:`Dict[str, Callable]`): What builds each of them.
        - env_num (:obj:`int`): Environments that each of them holds.
        - rounds (:obj:`int`): Blocks measured, after one that is not.
        - steps (:obj:`int`): Steps a block, of all environments at once.
    Returns:
        - rates (:obj:`Dict[str, np.ndarray]`): Steps a second in each round, for those that are installed.
    """
    # int32 is what the vectors written in C++ take without a conversion
    actions = np.random.default_rng(0).integers(4, size=(rounds + 1, steps, env_num), dtype=np.int32)
    shuffle = random.Random(0).shuffle
    with _opened(factories) as contestants:
        rates: Dict[str, List[float]] = {name: [] for name in contestants}
        order = list(contestants)
        for block in tqdm(actions, desc=f'{env_num} env', leave=False, disable=None):
            shuffle(order)
            for name in order:
                start = time.perf_counter()
                played = contestants[name].step_many(block)
                rates[name].append(played / (time.perf_counter() - start))
    return {name: np.array(of_rounds[1:]) for name, of_rounds in rates.items()}


def measure_life_cycle(rounds: int) -> Dict[str, List[float]]:
    """
    Overview:
        Time what `BreakoutEnv` opens, reuses and releases.
    Arguments:
        - rounds (:obj:`int`): How many times each.
    Returns:
        - milliseconds (:obj:`Dict[str, List[float]]`): Each time that was taken, in milliseconds.
    """
    env, sticky = BreakoutEnv(OURS), BreakoutEnv(dict(OURS, repeat_action_probability=0.25))
    sticky.reset()
    seeds = iter(range(2 * rounds))
    events = {
        'reset that opens the emulator': env.reset,
        'reset that reuses it': env.reset,
        'reset after a new seed': lambda: (env.seed(next(seeds)), env.reset()),
        'reset after a new seed, sticky actions': lambda: (sticky.seed(next(seeds)), sticky.reset()),
        'close': env.close,
    }
    milliseconds: Dict[str, List[float]] = {name: [] for name in events}
    for _ in range(rounds):
        for name, event in events.items():
            start = time.perf_counter()
            event()
            milliseconds[name].append((time.perf_counter() - start) * 1e3)
    sticky.close()
    return milliseconds


def _show_life_cycle(milliseconds: Dict[str, List[float]]) -> List[dict]:
    """Print a table; the same as rows of figures."""
    rows = []
    for name, times in milliseconds.items():
        low, median, high = np.percentile(times, [25, 50, 75]).tolist()
        rows.append(dict(section='life cycle', name=name, median_ms=median, quartiles=[low, high]))
    cells = [[row['name'], f'{row["median_ms"]:.2f}', '{:.2f} to {:.2f}'.format(*row['quartiles'])] for row in rows]
    headers = ['life cycle of BreakoutEnv', 'ms', 'middle half']
    click.echo(tabulate(cells, headers, disable_numparse=True, colalign=('left', 'right', 'right')) + '\n')
    return rows


def _show(title: str, factories: Dict[str, Callable], rates: Dict[str, np.ndarray], reference: str) -> List[dict]:
    """Print a table; the same as rows of figures, which are None for what is not installed."""
    rows, cells = [], []
    for name in factories:
        low = median = high = ratio = None
        cells.append([name, 'not installed', '', ''])
        if name in rates:
            low, median, high = np.percentile(rates[name], [25, 50, 75]).tolist()
            ratio = float(np.median(rates[name] / rates[reference]))
            cells[-1] = [name, f'{median:,.0f}', f'{low:,.0f} to {high:,.0f}', f'{ratio:.2f}']
        rows.append(dict(section=title, name=name, steps_per_s=median, quartiles=[low, high], ratio=ratio))
    headers = [title, 'env steps/s', 'middle half', 'ratio']
    click.echo(tabulate(cells, headers, disable_numparse=True, colalign=('left', 'right', 'right', 'right')) + '\n')
    return rows


def _show_bars(rates: Dict[str, np.ndarray]) -> List[dict]:
    """Print what `BreakoutEnv` has to reach, and whether the printed figure does; the same as figures."""
    limit, wrappers = (round(float(np.median(rates[BREAKOUT_ENV] / rates[n])), 2) for n in (ACT_ALONE, GYMNASIUM))
    bars = [
        dict(bar='BreakoutEnv at 0.72 of act alone or more', ratio=limit, unit='', met=limit >= 0.72),
        dict(bar="faster than gymnasium's wrappers", ratio=wrappers, unit=' times', met=wrappers > 1),
    ]
    for bar in bars:
        click.echo(f'bar: {bar["bar"]}: {bar["ratio"]:.2f}{bar.pop("unit")}, {"met" if bar["met"] else "missed"}')
    return bars


@click.command(context_settings=dict(show_default=True))
@click.option('--repeats', default=20, type=click.IntRange(min=1), help='Rounds; for 8 environments two fifths of it.')
@click.option('--steps', default=250, type=click.IntRange(min=1), help='Steps a block; for 8, two fifths of it.')
@click.option('--only', default='all', type=click.Choice(['single', 'vector', 'all']), help='One environment, or 8.')
@click.option('--json', 'json_file', type=click.File('w', lazy=False), help='Write the figures to it, too.')
def main(repeats: int, steps: int, only: str, json_file: Optional[IO[str]]) -> None:
    """Measure how many steps a second BreakoutEnv and others play."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    result = dict(surroundings(PACKAGES), repeats=repeats, steps=steps, rows=[], bars=[])
    show_surroundings(result)
    single = {}
    if only != 'vector':
        single = measure(SINGLE, 1, repeats, steps)
        result['rows'] += _show('one environment', SINGLE, single, ACT_ALONE)
        result['rows'] += _show_life_cycle(measure_life_cycle(repeats))
    if only != 'single':
        vector = measure(VECTOR, 8, max(1, repeats * 2 // 5), max(1, steps * 2 // 5))
        result['rows'] += _show('8 environments', VECTOR, vector, DING_MANAGER)
    if single:
        result['bars'] = _show_bars(single)
    if json_file is not None:
        json_file.write(json.dumps(result, indent=2) + '\n')


if __name__ == '__main__':
    main()
