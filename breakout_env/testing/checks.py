"""The checks, in order. Each returns what it saw or raises an ``Outcome``."""

import contextlib
import ctypes
import inspect
import multiprocessing
import pickle
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any, Callable, Dict, List, Set, Tuple

import numpy as np
import psutil
from ding.envs.env.env_implementation_check import check_array_space
from ding.utils import ENV_MANAGER_REGISTRY
from easydict import EasyDict

from .probe import Outcome, Probe, processes

_MEMORY_ROUNDS, _LEVEL_BYTES = 10, 32 * 1024
# in the output of a manager's processes: something was left behind
_COMPLAINTS = ('Traceback', 'ResourceWarning', 'leaked', 'Exception ignored')
_NOT_YET_STOPPED = (psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP)
CHECKS: Dict[str, Tuple[Callable[[Probe], str], str]] = {}  # by name: the check, and the fix where it fails


def _check(section: str, fix: str) -> Callable:
    def register(function: Callable[[Probe], str]) -> Callable[[Probe], str]:
        CHECKS[function.__name__] = function, f'{fix} (docs/lifecycle.md#{section})'
        return function

    return register


def _check_calls(name: str, calls: str, section: str, fix: str) -> None:
    def function(probe: Probe) -> str:
        env = probe.make()
        for call in calls.split():
            getattr(env, call)()
        return f'raised nothing: {calls}'

    function.__name__ = name
    _check(section, fix)(function)


@_check('open-late', 'Open in the first `reset`, behind "if it is not open"')
def lazy_constructor(probe: Probe) -> str:
    kept: List[Any] = []
    said = probe.expect_level('constructors', lambda: kept.append(probe.make()))
    pending: List[Any] = [kept[0].env]
    seen: Set[int] = set()
    while pending and len(seen) < 2000:
        value = pending.pop()
        # an emulator in a native library has no descriptor
        if type(type(value)).__module__ in ('nanobind', 'pybind11_builtins') and 'torch' not in type(value).__module__:
            raise Outcome(f'the constructor made a {type(value).__name__} of {type(value).__module__}')
        if id(value) not in seen and not isinstance(value, type):
            seen.add(id(value))
            inside = value if isinstance(value, Mapping) else getattr(value, '__dict__', {})
            pending += value if isinstance(value, (list, tuple)) else inside.values()
    return said


@_check('open-late', 'Set the three spaces in the constructor')
def spaces_before_reset(probe: Probe) -> str:
    missing = _missing_spaces(probe.make().env)
    if missing:
        raise Outcome(f'no {missing} before the first reset: each manager opens one more instance', 'warning')
    return 'the three spaces are there'


@_check('end-processes-for-certain', 'Bound each wait in `close`, then kill: `wait(timeout)`, `kill()`, `wait()`')
def close_in_time(probe: Probe) -> str:
    env, begin = probe.played(), time.monotonic()
    with contextlib.suppress(Outcome):  # close_twice is about errors
        env.close()
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
            raise Outcome(f'{call} left it running')
    return f'within {took:.2f} s, with {len(stopped)} processes that did not answer'


_check_calls('close_before_reset', 'close', 'close-in-any-state', 'Begin each release with "if it is open"')
_check_calls('close_twice', 'play close close close', 'close-in-any-state', 'Forget in `close` what was closed')


@_check('close-in-any-state', 'Give what `close` reads a default in the class, as `__init__` may raise first')
def close_half_built(probe: Probe) -> str:
    cls: Any = type(probe.make().env)
    try:
        env = cls.__new__(cls)
    except TypeError as error:
        raise Outcome(str(error), 'skipped') from None
    probe.call('close of an instance without __init__', env.close)
    return 'raised nothing'


_check_calls(
    'reset_after_close',
    'play close play close play close play',
    'close-in-any-state',
    'Let `reset` open again what `close` has closed',
)


@_check('close-in-any-state', 'Raise in `step` where no episode is running')
def step_after_close(probe: Probe) -> str:
    env = probe.played()
    action = env.action()
    env.close()
    try:
        probe.call('step after close', env.env.step, action)
    except Outcome as outcome:
        return str(outcome)
    raise Outcome('step after close raised nothing')


@_check('after-an-error', 'Let `close` expect nothing that an interrupted `reset` or `step` may not have done')
def close_after_error(probe: Probe) -> str:
    def call(name: str, at_line: int, action: Any = None) -> int:
        env = probe.played(1) if name == 'step' else probe.make()
        args = [env.env, name, [env.action() if action is None else action] if name == 'step' else [], at_line]
        if at_line < 0:
            return probe.call(name, _interrupted, *args)
        env.state, raised = 'closed', 0
        try:
            probe.call(f'{name} with an error', _interrupted, *args)
        except Outcome:
            raised = 1
        probe.call(f'close after an error in {name}', env.env.close)
        env.play(1)
        return raised

    raised = call('step', sys.maxsize, object())
    # errors between any two lines, as DI-engine's step_timeout raises them
    for name, most in (('step', 4), ('reset', 10)):
        last = call(name, -1) - 1
        if last < 0:
            raise Outcome(f'no line of {name} can be traced', 'skipped')
        raised += sum(call(name, line) for line in {round(line) for line in np.linspace(0, last, most)})
    return f'closed and reset after {raised} errors'


@_check('reuse', 'Open only what is not open, and end in `reset` what it replaces')
def reset_reuses(probe: Probe) -> str:
    env = probe.played()
    return probe.expect_level('resets', lambda: env.play(1), holds=True)


@_check('close-everything', 'Close in `close` all that `reset` and `step` have opened, and wait for its end')
def close_releases(probe: Probe) -> str:
    kept = []

    def cycle() -> None:
        kept.append(probe.played())
        kept[-1].close()

    return probe.expect_level('instances that were closed', cycle)


@_check('a-forgotten-close', 'Release by `weakref.finalize` what `close` releases')
def forgotten_close(probe: Probe) -> str:
    return probe.expect_level('instances that were deleted without close', probe.played)


@_check('close-everything', 'Drop in `reset` what episodes collect')
def memory_level(probe: Probe) -> str:
    env, level = probe.make(), 0
    sizes: List[int] = []
    # of one instance: what closed ones leave to the garbage collector goes later
    while level < 2 and len(sizes) < _MEMORY_ROUNDS + 2:
        for _ in range(probe.cycles):
            env.play(probe.steps)
        sizes.append(_resident())
        level += len(sizes) > 2 and sizes[-1] - sizes[-2] < _LEVEL_BYTES  # the first two fill caches
    grown = f'{(sizes[-1] - sizes[1]) / 2**20:.1f} MB more after {(len(sizes) - 2) * probe.cycles} resets'
    if level < 2:
        raise Outcome(f'{grown}, more in each round')
    return grown


def _resident() -> int:
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)  # a leak that fits into what was freed before would not show
    return psutil.Process().memory_info().rss


@_check('seeds', 'Seed in `reset` all random numbers that the environment uses')
def same_seed_same_episode(probe: Probe) -> str:
    actions = _actions(probe, probe.steps)

    def episode(env: Any) -> List[Any]:
        probe.call('seed', _seed, env.env)
        course = [_content(env.reset())]
        for action in actions:
            obs, reward, done, _ = env.step(action)
            course.append(_content((obs, reward, bool(done))))
            if done:
                break
        return course

    courses = {'another process': _in_fork(probe, lambda: episode(probe.make()))}
    env = probe.played()
    expected = episode(env)
    courses.update({'the same instance': episode(env), 'a new instance': episode(probe.make())})
    for where, course in courses.items():
        if course != expected:
            at = next((index for index, pair in enumerate(zip(course, expected)) if pair[0] != pair[1]), len(course))
            raise Outcome(f'with the same seed, {where} differs from step {at} on (0 is reset)')
    return f'{len(expected) - 1} steps are the same in {", ".join(courses)}'


@_check('observations', 'Return copies: `self._obs.copy()`')
def observations_owned(probe: Probe) -> str:
    returned = [(obs, _content(obs)) for obs, *_ in probe.make().timesteps(probe.steps)]
    changed = sum(_content(obs) != content for obs, content in returned)
    if changed:
        raise Outcome(f'later steps changed {changed} of {len(returned)} observations that were returned')
    return f'{len(returned)} observations stayed as they were'


@_check('observations', 'Return arrays of the shape, dtype and range that the spaces declare')
def matches_spaces(probe: Probe) -> str:
    env = probe.played()
    missing = _missing_spaces(env.env)
    if missing:
        raise Outcome(f'no {missing} after reset')
    for obs, reward, _, _ in env.timesteps(probe.steps):
        _expect_inside(obs, env.env.observation_space, 'observation')
        if reward is not None:
            _expect_inside(reward, env.env.reward_space, 'reward')
    return f'{probe.steps} observations and rewards match'


@_check('observations', 'Put `eval_episode_return`, a number, into `info` when `done`')
def info_at_the_end(probe: Probe) -> str:
    begin = time.monotonic()
    for _, _, done, info in probe.make().timesteps(20 * probe.steps):
        if done and 'eval_episode_return' not in info:
            raise Outcome(f'the info at the end of an episode has only: {", ".join(map(str, info))[:200]}')
        if done:
            return f'eval_episode_return is {np.asarray(info["eval_episode_return"]).item():g}'
        if time.monotonic() - begin > 10:
            break
    raise Outcome(f'no episode ended in {20 * probe.steps} steps, or 10 s', 'skipped')


@_check('what-each-manager-does', 'See the other checks, then what each manager does')
def managers(probe: Probe) -> str:
    actions, episodes = _actions(probe, 50), []
    for name in ('subprocess', 'breakout', 'base'):
        cls = ENV_MANAGER_REGISTRY.get(name)
        cfg = EasyDict({**cls.default_config(), **({} if name == 'base' else dict(reset_inplace=True))})
        manager = probe.call(f'the {name} manager', cls, [probe.env_fn] * 2, cfg, patience=3)
        manager.seed(0)
        probe.call(f'launch of the {name} manager', manager.launch, patience=3)
        ended = steps = 0
        while ended < 2 and steps < 300:
            chosen = {env_id: actions[(steps + env_id) % 50] for env_id in manager.ready_obs}
            timesteps = probe.call(f'step of the {name} manager', manager.step, chosen, patience=3)
            ended, steps = ended + sum(bool(timestep.done) for timestep in timesteps.values()), steps + 1
        probe.call(f'close of the {name} manager', manager.close, patience=3)
        episodes.append(f'{ended} with {name}')
        probe.expect_none_left(f'after close of the {name} manager')
        for line in open('/proc/self/fd/2', errors='replace'):
            if any(map(line.count, _COMPLAINTS)):
                raise Outcome(f'with the {name} manager, the output has: {line[:200]}')
    return f'episodes: {", ".join(episodes)}'


def _actions(probe: Probe, count: int) -> List[Any]:
    def some() -> List[Any]:
        with contextlib.closing(probe.played()) as env:
            return [env.action() for _ in range(count)]

    return _in_fork(probe, some)


def _in_fork(probe: Probe, function: Callable[[], Any]) -> Any:
    """In another process, before this one has played: threads of native libraries do not live on in a fork."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        try:
            theirs.send(function())
        except BaseException as error:
            theirs.send(error if isinstance(error, Outcome) else Outcome(f'{type(error).__name__}: {error}'))

    multiprocessing.get_context('fork').Process(target=run).start()
    theirs.close()
    value = probe.call('an episode in another process', ours.recv, patience=3)
    if isinstance(value, Outcome):
        raise value
    return value


def _seed(env: Any) -> None:
    """As DI-engine's evaluators: each episode is the same."""
    try:
        env.seed(7, dynamic_seed=False)
    except TypeError:
        env.seed(7)


def _missing_spaces(env: Any) -> str:
    names = ('observation_space', 'action_space', 'reward_space')
    return ', '.join(name for name in names if getattr(env, name, None) is None)


def _content(value: Any) -> Any:
    """A copy that can be compared."""
    if isinstance(value, Mapping):
        return {key: _content(value[key]) for key in value}
    if isinstance(value, (list, tuple)):
        return [_content(one) for one in value]
    array = np.asarray(value)
    return array.dtype.str, array.shape, pickle.dumps(value) if array.dtype == object else array.tobytes()


def _expect_inside(value: Any, space: Any, name: str) -> None:
    try:
        check_array_space(value, space, name)
    except AttributeError:  # a space without bounds
        if not space.contains(value):
            raise Outcome(f'the {name} {str(value)[:100]} is not in {space}') from None
    except (AssertionError, TypeError) as error:
        raise Outcome(str(error)[:300]) from None


def _interrupted(env: Any, method: str, args: List[Any], at_line: int) -> int:
    """Call ``method`` with an error at its ``at_line``-th own line, ``close`` excluded; returns the lines executed."""
    members = [getattr(one, '__func__', one) for cls in type(env).__mro__ for one in vars(cls).values()]
    files = {one.__code__.co_filename for one in map(inspect.unwrap, members) if inspect.isfunction(one)}
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        if any(outer.f_code.co_name in ('close', '__del__', '__exit__') for outer, _ in traceback.walk_stack(frame)):
            return None
        lines += event == 'line'
        if event == 'line' and lines - 1 == at_line:
            raise RuntimeError('planted by close_after_error')
        return trace

    sys.settrace(trace)
    try:
        getattr(env, method)(*args)
    finally:
        sys.settrace(None)
    return lines
