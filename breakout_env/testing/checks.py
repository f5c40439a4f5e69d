"""The public functions are the checks, in order. Each returns what it saw or raises a ``CheckResult``. Its docstring is
the fix that is printed; a second paragraph is the fix for gymnasium.
"""

import contextlib
import ctypes
import gc
import pickle
import sys
import time
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

import gym
import gymnasium
import numpy as np
import psutil
from ding.envs.env.env_implementation_check import check_array_space

from .probe import CheckResult, Instance, Probe, interrupted, processes

_MEMORY_ROUNDS, _LEVEL_BYTES = 10, 32 * 1024
_NOT_YET_STOPPED = (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP)
# what does not say that the environment is closed
_BY_ACCIDENT = ('AttributeError', 'TypeError', 'NameError', 'KeyError', 'IndexError')


def works(probe: Probe) -> str:
    """Let the constructor, `reset` and `step` return without an error, also in worker processes and beside other
    instances. If it needs a config, the factory passes it, such as `lambda: MyEnv(cfg)`; `breakout check-env` takes it
    by `--config FILE`.

    Let the constructor, `reset(*, seed=None, options=None)` and `step` return without an error, also in worker
    processes and beside other instances: `reset` returns obs and info, `step` obs, reward, terminated, truncated and
    info. If it needs arguments, the function passes them: `gymnasium_env(lambda: gymnasium.make(ENV_ID, ...))`.
    """
    env = probe.make()
    missing = [name for name in env.members if not hasattr(env.env, name)]
    if missing:
        kind = type(env.env).__name__
        raise CheckResult(f'it is a {kind} without {", ".join(missing)}; expected a {env.interface}')
    env.play()
    return 'it was made, reset and stepped'


def lazy_constructor(probe: Probe) -> str:
    """Open in the first `reset`: each manager makes one more instance, to read the spaces, and may not close it."""
    kept: list[Instance] = []
    said = probe.expect_level('constructors', lambda: kept.append(probe.make()))
    pending: list[object] = [kept[0].env]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        kind = type(value)
        # an emulator in a native library has no descriptor
        if type(kind).__module__ in ('nanobind', 'pybind11_builtins') and 'torch' not in kind.__module__:
            raise CheckResult(f'the constructor made a {kind.__name__} of {kind.__module__}')
        if id(value) not in seen and not isinstance(value, (type, FunctionType, ModuleType)):
            seen.add(id(value))
            pending += gc.get_referents(value)
    return said


def spaces_before_reset(probe: Probe) -> str:
    """Set the spaces in the constructor: managers, wrappers and vector environments read them before `reset`."""
    env = probe.make()
    missing = env.missing_spaces()
    if missing:
        # without them, a manager opens one more instance; a vector environment does not work
        raise CheckResult(f'no {missing} before the first reset', 'fail' if env.by_gymnasium else 'warning')
    return f'{", ".join(env.spaces)} are there'


def close_in_time(probe: Probe) -> str:
    """Bound each wait in `close`, then kill: `wait(timeout)`, `kill()`, `wait()`. Some processes ignore SIGTERM."""
    env = probe.make().play()
    try:
        env.close()
    except CheckResult as outcome:
        raise CheckResult(f'{outcome}: see close_twice', 'skipped') from None
    env, stopped = probe.make().play(), processes()
    for process in stopped:
        process.suspend()
    while any(process.is_running() and process.status() in _NOT_YET_STOPPED for process in stopped):
        time.sleep(0.001)  # until it has stopped, SIGTERM still ends it
    if stopped:
        call = f'close while {", ".join(stopped.values())} did not answer'
        probe.call(call, env.env.close)
        psutil.wait_procs(stopped, timeout=2)
        if stopped.keys() & processes().keys():
            raise CheckResult(f'{call} left it running')
    return f'close ended, with {len(stopped)} processes that did not answer'


def close_before_reset(probe: Probe) -> str:
    """Raise nothing in `close`, which may come before the first `reset`: begin each release with "if it is open".
    Release there what the constructor opened.
    """
    kept: list[Instance] = []  # closed, but not deleted
    return probe.expect_level('instances that were closed before reset', lambda: kept.append(probe.make().close()))


def close_twice(probe: Probe) -> str:
    """Raise nothing in `close`, which may come again: forget there what was closed."""
    env = probe.make().play()
    for _ in range(3):
        env.close()
    return 'three closes raised nothing'


def close_half_built(probe: Probe) -> str:
    """Give what `close` reads a default in the class, as the `__init__` of a subclass may raise first."""
    cls: Any = type(probe.make().env)
    try:
        env = cls.__new__(cls)
    except TypeError as error:
        raise CheckResult(str(error), 'skipped') from None
    probe.call('close of an instance without __init__', env.close)
    return 'raised nothing'


def reset_after_close(probe: Probe) -> str:
    """Let `reset` open again what `close` has closed.

    Let `reset` after `close` open everything again, or raise `gymnasium.error.ClosedEnvironmentError`.
    """
    env = probe.make().play()
    try:
        for _ in range(3):
            env.close()
            env.play()
    except CheckResult as outcome:
        is_allowed = env.by_gymnasium and outcome.call == 'reset after close'
        if is_allowed and outcome.failure.split()[0] not in _BY_ACCIDENT:
            return f'{outcome}, as gymnasium allows'
        raise
    return 'closed and reset 3 times'


def step_after_close(probe: Probe) -> str:
    """Raise in `step` where no episode is running.

    Raise `gymnasium.error.ClosedEnvironmentError` in `step` after `close`; open nothing there.
    """
    env = probe.make().play()
    action = env.action()
    env.close()
    said, before = '', probe.footprint()
    try:
        probe.call('step after close', env.env.step, action)
    except CheckResult as outcome:
        said = str(outcome)
    probe.expect_no_more(before, 'after a step after close')
    if not said and not env.by_gymnasium:
        raise CheckResult('step after close raised nothing')
    return said or 'step after close raised nothing, as gymnasium allows'


def close_after_error(probe: Probe) -> str:
    """Let `close` expect nothing that an interrupted `reset` or `step` may not have done, and let the next `reset`
    begin anew. DI-engine's `step_timeout` raises at any line; so does this check, which also gives `step` a wrong
    action.

    Let `close` expect nothing that an interrupted `reset` or `step` may not have done: Ctrl-C raises at any line, and
    `with gymnasium.make(...)` closes then. The check does the same, and gives `step` a wrong action.
    """

    def lines_of(name: str, at_line: int = sys.maxsize, *wrong: object) -> int:
        """Call with an error at this line, then close; the lines executed if none was raised."""
        env, lines = probe.make().play(1) if name == 'step' else probe.make(), 0
        args = list(wrong) or ([env.action()] if name == 'step' else [])
        with contextlib.suppress(CheckResult):
            lines = probe.call(f'{name} with an error', interrupted, env.env, name, args, at_line)
        env.state = 'after close and an error'
        probe.call(f'close after an error in {name}', env.env.close)
        if not env.by_gymnasium:
            env.play(1)
        return lines

    lines_of('step', sys.maxsize, object())
    # errors between any two lines, as DI-engine's step_timeout raises them
    for name, most in (('step', 4), ('reset', 10)):
        last = lines_of(name) - 1
        if last < 0:
            raise CheckResult(f'no line of {name} can be traced', 'skipped')
        for line in {round(line) for line in np.linspace(0, last, most)}:
            lines_of(name, line)
    return 'closed after errors in step and reset'


def reset_reuses(probe: Probe) -> str:
    """Open only what is not open, and end in `reset` what it replaces: `reset` comes after each episode."""
    env = probe.make().play()
    return probe.expect_level('resets', lambda: env.play(1))


def close_releases(probe: Probe) -> str:
    """Close in `close` all that `reset` and `step` have opened, such as by `contextlib.ExitStack`; wait for its end."""
    kept: list[Instance] = []  # closed, but not deleted
    return probe.expect_level('instances that were closed', lambda: kept.append(probe.make().play().close()))


def forgotten_close(probe: Probe) -> str:
    """Release by `weakref.finalize` what `close` releases; neither its function nor a thread may hold `self`."""
    return probe.expect_level('instances that were deleted without close', lambda: probe.make().play())


def memory_level(probe: Probe) -> str:
    """Drop in `reset` what episodes collect."""
    env, level = probe.make(), 0
    sizes: list[int] = []
    # of one instance: what closed ones leave to the garbage collector goes later
    while level < 2 and len(sizes) < _MEMORY_ROUNDS + 2:
        for _ in range(probe.cycles):
            env.play(probe.steps)
        with contextlib.suppress(AttributeError):  # not glibc
            ctypes.CDLL(None).malloc_trim(0)  # a leak that fits into what was freed before would not show
        sizes.append(psutil.Process().memory_info().rss)
        level += len(sizes) > 2 and sizes[-1] - sizes[-2] < _LEVEL_BYTES  # the first two fill caches
    grown = f'{(sizes[-1] - sizes[1]) / 2**20:.1f} MB more after {(len(sizes) - 2) * probe.cycles} resets'
    if level < 2:
        raise CheckResult(f'{grown}, more in each round')
    return grown


def same_seed_same_episode(probe: Probe) -> str:
    """Define `seed(self, seed, dynamic_seed=True)`, as managers call `seed(0)`, `seed(0, True)` and `seed(0, False)`,
    the first time before `reset`. After the last of these, let each `reset` seed all random numbers that are used: in a
    generator of the instance, as all environments of a process share numpy's.

    Begin `reset(self, *, seed=None, options=None)` with `super().reset(seed=seed)`, and draw all random numbers from
    `self.np_random`: all environments of a process share the generators of numpy and of `random`.
    """
    probe.make().seed()
    actions = probe.random_actions(probe.steps)

    def episode(env: Instance) -> list[object]:
        env.seed()
        course = [_content(env.reset())]
        for action in actions:
            obs, reward, done, _ = env.step(action)
            course.append(_content((obs, reward, bool(done))))
            if done:
                break
        return course

    courses = {'another process': probe.in_fork(lambda: episode(probe.make()))}
    env = probe.make().play()
    expected = episode(env)
    courses.update({'the same instance': episode(env), 'a new instance': episode(probe.make())})
    for where, course in courses.items():
        if course != expected:
            at = next((index for index, pair in enumerate(zip(course, expected)) if pair[0] != pair[1]), len(course))
            raise CheckResult(f'with the same seed, {where} differs from step {at} on (0 is reset)')
    return f'{len(expected) - 1} steps are the same in {", ".join(courses)}'


def observations_owned(probe: Probe) -> str:
    """Return copies, such as `self._obs.copy()`: replay buffers keep what was returned."""
    returned = [(obs, _content(obs)) for obs, *_ in probe.make().timesteps(probe.steps)]
    changed = sum(_content(obs) != content for obs, content in returned)
    if changed:
        raise CheckResult(f'later steps changed {changed} of {len(returned)} observations that were returned')
    return f'{len(returned)} observations stayed as they were'


def matches_spaces(probe: Probe) -> str:
    """Return arrays of the shape, dtype and range that the spaces declare.

    Return observations that `observation_space.contains` accepts (shape, dtype, range), and a number as reward;
    `gymnasium.utils.env_checker.check_env` checks more of spaces and types.
    """
    env = probe.make().play()
    missing = env.missing_spaces()
    if missing:
        raise CheckResult(f'no {missing} after reset')
    a_number = gymnasium.spaces.Box(-np.inf, np.inf, (), np.float64)
    reward_space: Any = a_number if env.by_gymnasium else env.env.reward_space
    for obs, reward, _, info in env.timesteps(probe.steps):
        _expect_inside(obs, env.env.observation_space, 'observation', not env.by_gymnasium)
        if info is not None:
            _expect_inside(reward, reward_space, 'reward', not env.by_gymnasium)
    return f'{probe.steps} observations and rewards match'


def info_at_the_end(probe: Probe) -> str:
    """Put `eval_episode_return`, a number, into `info` when `done`: collectors and evaluators read it there.

    Return an info dict from each `step`, also the last one of an episode, with the same keys.
    """
    env = probe.make()
    always: set[object] | None = None if env.by_gymnasium else {'eval_episode_return'}
    for _, reward, done, info in env.timesteps(20 * probe.steps):
        if reward is None:
            continue
        if not isinstance(info, Mapping):
            when = 'the last step' if done else 'a step'
            raise CheckResult(f'the info of {when} is a {type(info).__name__}; expected a dict')
        lost = (always or set()) - info.keys()
        if done and lost:
            found = f'the info of the last step lacks {", ".join(map(str, lost))}'
            raise CheckResult(found, 'warning' if env.by_gymnasium else 'fail')
        if done and not env.by_gymnasium:
            return f'eval_episode_return is {np.asarray(info["eval_episode_return"]).item():g}'
        if done:
            return 'each step has an info'
        if env.by_gymnasium:
            always = info.keys() & (info.keys() if always is None else always)
    raise CheckResult(f'no episode ended in {20 * probe.steps} steps', 'skipped')


def _content(value: object) -> object:
    """A copy that can be compared."""
    if isinstance(value, Mapping):
        return {key: _content(value[key]) for key in value}
    if isinstance(value, (list, tuple)):
        return [_content(one) for one in value]
    array = np.asarray(value)
    return array.dtype.str, array.shape, pickle.dumps(value) if array.dtype == object else array.tobytes()


def _expect_inside(value: object, space: gym.Space, name: str, exactly: bool) -> None:
    try:
        if exactly:
            return check_array_space(value, space, name)
    except AttributeError:  # a space without bounds
        pass
    except (AssertionError, TypeError) as error:
        raise CheckResult(str(error)[:300]) from None
    if not space.contains(value):
        kind = getattr(value, 'dtype', type(value).__name__)
        raise CheckResult(f'the {name} {str(value)[:100]} ({kind}) is not in {str(space)[:200]}')
