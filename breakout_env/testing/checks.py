"""The checks, in order. Each returns what it saw or raises a ``CheckResult``."""

import contextlib
import ctypes
import pickle
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import gym
import numpy as np
import psutil
from ding.envs import BaseEnv
from ding.envs.env.env_implementation_check import check_array_space
from ding.utils import ENV_MANAGER_REGISTRY
from easydict import EasyDict

from .contract import Check, Contract, register
from .probe import CheckResult, Instance, Probe, interrupted, processes

_MEMORY_ROUNDS, _LEVEL_BYTES = 10, 32 * 1024
# in the output of a manager's processes: something was left behind
_COMPLAINTS = ('Traceback', 'ResourceWarning', 'leaked', 'Exception ignored')
_NOT_YET_STOPPED = (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP)
CHECKS: dict[str, Check] = {}
_check = partial(register, CHECKS)


@_check('the constructor', 'reset', 'step', 'a random action')
def works(probe: Probe) -> str:
    """Let the constructor, `reset` and `step` return without an error, also in a fork and beside other instances."""
    env = probe.make()
    missing = [name for name in ('seed', 'reset', 'step', 'close') if not callable(getattr(env.env, name, None))]
    if missing:
        kind = type(env.env).__name__
        raise CheckResult(f'it is a {kind} without {", ".join(missing)}; expected a ding.envs.BaseEnv')
    env.play()
    return 'it was made, reset and stepped'


@_check()
def lazy_constructor(probe: Probe) -> str:
    """Open in the first `reset`: each manager makes one more instance, to read the spaces, and may not close it."""
    kept: list[Instance] = []
    said = probe.expect_level('constructors', lambda: kept.append(probe.make()))
    pending: list[object] = [kept[0].env]
    seen: set[int] = set()
    while pending and len(seen) < 2000:
        value = pending.pop()
        # an emulator in a native library has no descriptor
        if type(type(value)).__module__ in ('nanobind', 'pybind11_builtins') and 'torch' not in type(value).__module__:
            raise CheckResult(f'the constructor made a {type(value).__name__} of {type(value).__module__}')
        if id(value) not in seen and not isinstance(value, type):
            seen.add(id(value))
            with contextlib.suppress(Exception):  # an attribute may do anything
                inside = value if isinstance(value, Mapping) else getattr(value, '__dict__', {})
                pending += value if isinstance(value, (list, tuple)) else inside.values()
    return said


@_check()
def spaces_before_reset(probe: Probe) -> str:
    """Set the three spaces in the constructor: a manager reads them before the first `reset`."""
    missing = _missing_spaces(probe.make().env)
    if missing:
        raise CheckResult(f'no {missing} before the first reset: each manager opens one more instance', 'warning')
    return 'the three spaces are there'


@_check('close while')
def close_in_time(probe: Probe) -> str:
    """Bound each wait in `close`, then kill: `wait(timeout)`, `kill()`, `wait()`. Some processes ignore SIGTERM."""
    env, begin = probe.played(), time.monotonic()
    try:
        env.close()
    except CheckResult as outcome:
        raise CheckResult(f'{outcome}: see close_twice', 'skipped') from None
    took = time.monotonic() - begin
    env, stopped = probe.played(), processes()
    for process in stopped:
        process.suspend()
    while any(process.is_running() and process.status() in _NOT_YET_STOPPED for process in stopped):
        time.sleep(0.001)  # until it has stopped, SIGTERM still ends it
    if stopped:
        call = f'close while {", ".join(stopped.values())} did not answer'
        begin = time.monotonic()
        probe.call(call, env.env.close)
        took = max(took, time.monotonic() - begin)
        psutil.wait_procs(stopped, timeout=2)
        if stopped.keys() & processes().keys():
            raise CheckResult(f'{call} left it running')
    return f'within {took:.2f} s, with {len(stopped)} processes that did not answer'


@_check('close before')
def close_before_reset(probe: Probe) -> str:
    """Raise nothing in `close`, which may come before the first `reset`: begin each release with "if it is open"."""
    probe.make().close()
    return 'raised nothing'


@_check('close')
def close_twice(probe: Probe) -> str:
    """Raise nothing in `close`, which may come again: forget there what was closed."""
    env = probe.played()
    for _ in range(3):
        env.close()
    return 'three closes raised nothing'


@_check('close of an instance')
def close_half_built(probe: Probe) -> str:
    """Give what `close` reads a default in the class, as the `__init__` of a subclass may raise first."""
    cls: Any = type(probe.make().env)
    try:
        env = cls.__new__(cls)
    except TypeError as error:
        raise CheckResult(str(error), 'skipped') from None
    probe.call('close of an instance without __init__', env.close)
    return 'raised nothing'


@_check('reset after close')
def reset_after_close(probe: Probe) -> str:
    """Let `reset` open again what `close` has closed."""
    env = probe.played()
    for _ in range(3):
        env.close()
        env.play()
    return 'closed and reset 3 times'


@_check('step after close')
def step_after_close(probe: Probe) -> str:
    """Raise in `step` where no episode is running."""
    env = probe.played()
    action = env.action()
    env.close()
    try:
        probe.call('step after close', env.env.step, action)
    except CheckResult as outcome:
        return str(outcome)
    raise CheckResult('step after close raised nothing')


@_check('reset with an error', 'step with an error', 'close after an error', 'reset after close and an error')
def close_after_error(probe: Probe) -> str:
    """Let `close` expect nothing that an interrupted `reset` or `step` may not have done, and let the next `reset`
    begin anew. DI-engine's `step_timeout` raises at any line; so does this check, which also gives `step` a wrong
    action.
    """

    def call(name: str, at_line: int, action: object = None) -> int:
        env = probe.played(1) if name == 'step' else probe.make()
        args = [env.env, name, [env.action() if action is None else action] if name == 'step' else [], at_line]
        if at_line < 0:
            return probe.call(name, interrupted, *args)
        env.state, raised = 'broken', 0
        try:
            probe.call(f'{name} with an error', interrupted, *args)
        except CheckResult:
            raised = 1
        probe.call(f'close after an error in {name}', env.env.close)
        if env.reopens:
            env.play(1)
        return raised

    raised = call('step', sys.maxsize, object())
    # errors between any two lines, as DI-engine's step_timeout raises them
    for name, most in (('step', 4), ('reset', 10)):
        last = call(name, -1) - 1
        if last < 0:
            raise CheckResult(f'no line of {name} can be traced', 'skipped')
        raised += sum(call(name, line) for line in {round(line) for line in np.linspace(0, last, most)})
    return f'closed and reset after {raised} errors'


@_check('reset once more')
def reset_reuses(probe: Probe) -> str:
    """Open only what is not open, and end in `reset` what it replaces: `reset` comes after each episode."""
    env = probe.played()
    return probe.expect_level('resets', lambda: env.play(1), holds=True)


@_check()
def close_releases(probe: Probe) -> str:
    """Close in `close` all that `reset` and `step` have opened, such as by `contextlib.ExitStack`; wait for its end."""
    return probe.expect_released('instances that were closed', probe.played)


@_check()
def forgotten_close(probe: Probe) -> str:
    """Release by `weakref.finalize` what `close` releases; neither its function nor a thread may hold `self`."""
    return probe.expect_level('instances that were deleted without close', probe.played)


@_check()
def memory_level(probe: Probe) -> str:
    """Drop in `reset` what episodes collect."""
    env, level = probe.make(), 0
    sizes: list[int] = []
    # of one instance: what closed ones leave to the garbage collector goes later
    while level < 2 and len(sizes) < _MEMORY_ROUNDS + 2:
        for _ in range(probe.cycles):
            env.play(probe.steps)
        sizes.append(_resident())
        level += len(sizes) > 2 and sizes[-1] - sizes[-2] < _LEVEL_BYTES  # the first two fill caches
    grown = f'{(sizes[-1] - sizes[1]) / 2**20:.1f} MB more after {(len(sizes) - 2) * probe.cycles} resets'
    if level < 2:
        raise CheckResult(f'{grown}, more in each round')
    return grown


def _resident() -> int:
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)  # a leak that fits into what was freed before would not show
    return psutil.Process().memory_info().rss


@_check('seed')
def same_seed_same_episode(probe: Probe) -> str:
    """Define `seed(self, seed, dynamic_seed=True)`, as managers call `seed(0)`, `seed(0, True)` and `seed(0, False)`,
    the first time before `reset`. After the last of these, let each `reset` seed all random numbers that are used: in a
    generator of the instance, as all environments of a process share numpy's.
    """
    probe.make().seed()
    actions = _actions(probe, probe.steps)

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
    env = probe.played()
    expected = episode(env)
    courses.update({'the same instance': episode(env), 'a new instance': episode(probe.make())})
    for where, course in courses.items():
        if course != expected:
            at = next((index for index, pair in enumerate(zip(course, expected)) if pair[0] != pair[1]), len(course))
            raise CheckResult(f'with the same seed, {where} differs from step {at} on (0 is reset)')
    return f'{len(expected) - 1} steps are the same in {", ".join(courses)}'


@_check()
def observations_owned(probe: Probe) -> str:
    """Return copies, such as `self._obs.copy()`: replay buffers keep what was returned."""
    returned = [(obs, _content(obs)) for obs, *_ in probe.make().timesteps(probe.steps)]
    changed = sum(_content(obs) != content for obs, content in returned)
    if changed:
        raise CheckResult(f'later steps changed {changed} of {len(returned)} observations that were returned')
    return f'{len(returned)} observations stayed as they were'


@_check()
def matches_spaces(probe: Probe) -> str:
    """Return arrays of the shape, dtype and range that the spaces declare."""
    env = probe.played()
    missing = _missing_spaces(env.env)
    if missing:
        raise CheckResult(f'no {missing} after reset')
    for obs, reward, _, _ in env.timesteps(probe.steps):
        _expect_inside(obs, env.env.observation_space, 'observation')
        if reward is not None:
            _expect_inside(reward, env.env.reward_space, 'reward')
    return f'{probe.steps} observations and rewards match'


@_check()
def info_at_the_end(probe: Probe) -> str:
    """Put `eval_episode_return`, a number, into `info` when `done`: collectors and evaluators read it there."""
    begin = time.monotonic()
    for _, _, done, info in probe.make().timesteps(20 * probe.steps):
        if done and 'eval_episode_return' not in info:
            raise CheckResult(f'the info at the end of an episode has only: {", ".join(map(str, info))[:200]}')
        if done:
            return f'eval_episode_return is {np.asarray(info["eval_episode_return"]).item():g}'
        if time.monotonic() - begin > 10:
            break
    raise CheckResult(f'no episode ended in {20 * probe.steps} steps, or 10 s', 'skipped')


@_check('launch of the', 'step of the', 'close of the')
def managers(probe: Probe) -> str:
    """See the other checks. Then make it work beside other instances and in the worker processes of the env managers
    `subprocess` and `breakout`: these are daemons, which may not start a process by `multiprocessing`.
    """
    probe.make().seed()  # where it raises, a worker only logs that
    actions, episodes = _actions(probe, 50), []
    for name in ('subprocess', 'breakout', 'base'):
        cls = ENV_MANAGER_REGISTRY.get(name)
        cfg = EasyDict({**cls.default_config(), **({} if name == 'base' else dict(reset_inplace=True))})
        manager = probe.call(f'the {name} manager', cls, [probe.env_fn] * 2, cfg, patience=3)
        manager.seed(0, dynamic_seed=True)  # as `serial_pipeline` for collectors
        probe.call(f'launch of the {name} manager', manager.launch, patience=3)
        ended = steps = 0
        while ended < 2 and steps < 300:
            chosen = {env_id: actions[(steps + env_id) % 50] for env_id in manager.ready_obs}
            timesteps = probe.call(f'step of the {name} manager', manager.step, chosen, patience=3)
            ended, steps = ended + sum(bool(timestep.done) for timestep in timesteps.values()), steps + 1
        probe.call(f'close of the {name} manager', manager.close, patience=3)
        episodes.append(f'{ended} with {name}')
        expect_clean_end(probe, f'the {name} manager')
    return f'episodes: {", ".join(episodes)}'


def expect_clean_end(probe: Probe, manager: str) -> None:
    """Fail if worker processes left something behind or complained."""
    probe.expect_none_left(f'after close of {manager}')
    for line in open('/proc/self/fd/2', errors='replace'):
        if any(map(line.count, _COMPLAINTS)):
            raise CheckResult(f'with {manager}, the output has: {line[:200]}')


def _actions(probe: Probe, count: int) -> list[object]:
    def some() -> list[object]:
        with contextlib.closing(probe.played(count)) as env:
            return [env.action() for _ in range(count)]

    return probe.in_fork(some)


def _missing_spaces(env: BaseEnv) -> str:
    missing = []
    for name in ('observation_space', 'action_space', 'reward_space'):
        with contextlib.suppress(Exception):  # as managers do, whatever is raised
            if getattr(env, name) is not None:
                continue
        missing.append(name)
    return ', '.join(missing)


def _content(value: object) -> object:
    """A copy that can be compared."""
    if isinstance(value, Mapping):
        return {key: _content(value[key]) for key in value}
    if isinstance(value, (list, tuple)):
        return [_content(one) for one in value]
    array = np.asarray(value)
    return array.dtype.str, array.shape, pickle.dumps(value) if array.dtype == object else array.tobytes()


def _expect_inside(value: object, space: gym.Space, name: str) -> None:
    try:
        check_array_space(value, space, name)
    except AttributeError:  # a space without bounds
        if not space.contains(value):
            raise CheckResult(f'the {name} {str(value)[:100]} is not in {space}') from None
    except (AssertionError, TypeError) as error:
        raise CheckResult(str(error)[:300]) from None


DING = Contract(
    CHECKS,
    Instance,
    in_workers=managers.__name__,
    hint='If it needs a config, the factory passes it, such as `lambda: MyEnv(cfg)`; `breakout check-env` takes it by '
    '`--config FILE`.',
)
