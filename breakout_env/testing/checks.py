"""The checks, in order. Each returns what it saw or raises an ``Outcome``; its docstring is the fix, with a section of
the guide."""

import contextlib
import multiprocessing
import pickle
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, Callable, Dict, List, Set

import numpy as np
import psutil
from ding.envs.env.env_implementation_check import check_array_space
from ding.utils import ENV_MANAGER_REGISTRY
from easydict import EasyDict

from .footprint import named, processes, runs
from .probe import Outcome, Probe

_MEMORY_ROUNDS, _LEVEL_BYTES = 10, 32 * 1024
# in the output of a manager's processes: something was left behind
_COMPLAINTS = ('Traceback', 'ResourceWarning', 'leaked', 'Exception ignored')


def lazy_constructor(probe: Probe) -> str:
    """Open in the first `reset`, behind "if it is not open" (#open-late)"""
    kept = [probe.make()]
    probe.expect_none_left('after the constructor')
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


def spaces_before_reset(probe: Probe) -> str:
    """Set the three spaces in the constructor (#open-late)"""
    missing = _missing_spaces(probe.make().env)
    if missing:
        raise Outcome(f'no {missing} before the first reset: each manager opens one more instance', 'warning')
    return 'the three spaces are there'


def close_in_time(probe: Probe) -> str:
    """Bound each wait in `close`, then kill: `wait(timeout)`, `kill()`, `wait()` (#end-processes-for-certain)"""
    begin, env = time.monotonic(), probe.played()
    with contextlib.suppress(Outcome):  # close_twice is about errors
        env.close()
    env, stopped = probe.played(), processes()
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    if stopped:
        call = f'close while {", ".join(map(named, stopped))} did not answer'
        probe.call(call, env.env.close)
        deadline = time.monotonic() + 2
        while any(map(runs, stopped)):
            if time.monotonic() > deadline:
                raise Outcome(f'{call} left it running')
            time.sleep(0.02)
    return f'within {time.monotonic() - begin:.2f} s, with {len(stopped)} processes that did not answer'


def close_before_reset(probe: Probe) -> str:
    """Begin each release with "if it is open" (#close-in-any-state)"""
    probe.make().close()
    return 'raised nothing'


def close_twice(probe: Probe) -> str:
    """Forget in `close` what was closed (#close-in-any-state)"""
    env = probe.played()
    for _ in range(3):
        env.close()
    return 'three closes raised nothing'


def close_half_built(probe: Probe) -> str:
    """Give what `close` reads a default in the class, as `__init__` may raise first (#close-in-any-state)"""
    cls: Any = type(probe.make().env)
    try:
        env = cls.__new__(cls)
    except TypeError as error:
        raise Outcome(str(error), 'skipped') from None
    probe.call('close of an instance without __init__', env.close)
    return 'raised nothing'


def reset_after_close(probe: Probe) -> str:
    """Let `reset` open again what `close` has closed (#close-in-any-state)"""
    env = probe.played()
    for _ in range(3):
        env.close()
        env.play()
    return 'closed and reset 3 times'


def step_after_close(probe: Probe) -> str:
    """Raise in `step` where no episode is running (#close-in-any-state)"""
    env = probe.played()
    action = env.action()
    env.close()
    try:
        env.step(action)
    except Outcome as outcome:
        return str(outcome)
    raise Outcome('step after close raised nothing')


def close_after_error(probe: Probe) -> str:
    """Let `close` expect nothing that an interrupted `reset` or `step` may not have done (#after-an-error)"""
    env = probe.played()
    raised = int(env.close_after_error('step', env.env.step, object()))
    # errors between any two lines, as DI-engine's step_timeout raises them
    for name, most in (('step', 4), ('reset', 10)):
        places = [-1]  # at first no error, only a count
        while places:
            env = probe.played(1) if name == 'step' else probe.make()
            args = [env.action()] if name == 'step' else []
            place = places.pop()
            if place < 0:
                lines = probe.call(name, _interrupted, env.env, name, args, place)
                places = sorted({round(place) for place in np.linspace(0, max(lines - 1, 0), most)})
            else:
                raised += env.close_after_error(name, _interrupted, env.env, name, args, place)
                env.play(1)
    return f'closed and reset after {raised} errors'


def reset_reuses(probe: Probe) -> str:
    """Open only what is not open, and end in `reset` what it replaces (#reuse)"""
    env = probe.played()
    env.play()
    return probe.expect_level('resets', lambda: env.play(1))


def close_releases(probe: Probe) -> str:
    """Close in `close` all that `reset` and `step` have opened, and wait for its end (#close-everything)"""
    kept = []

    def cycle() -> None:
        kept.append(probe.played())
        kept[-1].close()
        probe.expect_none_left('after close')

    cycle()
    return probe.expect_level('instances that were closed', cycle)


def forgotten_close(probe: Probe) -> str:
    """Release by `weakref.finalize` what `close` releases (#a-forgotten-close)"""

    def cycle() -> None:
        probe.played()
        probe.expect_none_left('after del without close')

    cycle()
    return probe.expect_level('instances that were deleted without close', cycle)


def memory_level(probe: Probe) -> str:
    """Drop in `reset` what episodes collect (#close-everything)"""
    env, level = probe.make(), 0
    sizes: List[int] = []
    # of one instance: what closed ones leave to the garbage collector goes later
    while level < 2 and len(sizes) < _MEMORY_ROUNDS + 2:
        for _ in range(probe.cycles):
            env.play(probe.steps)
        sizes.append(psutil.Process().memory_info().rss)
        level += len(sizes) > 2 and sizes[-1] - sizes[-2] < _LEVEL_BYTES  # the first two fill caches
    grown = f'{(sizes[-1] - sizes[1]) / 2**20:.1f} MB more after {(len(sizes) - 2) * probe.cycles} resets'
    if level < 2:
        raise Outcome(f'{grown}, more in each round')
    return grown


def same_seed_same_episode(probe: Probe) -> str:
    """Seed in `reset` all random numbers that the environment uses (#seeds)"""
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


def observations_owned(probe: Probe) -> str:
    """Return copies: `self._obs.copy()` (#observations)"""
    returned = [(obs, _content(obs)) for obs, *_ in probe.make().timesteps(probe.steps)]
    changed = sum(_content(obs) != content for obs, content in returned)
    if changed:
        raise Outcome(f'later steps changed {changed} of {len(returned)} observations that were returned')
    return f'{len(returned)} observations stayed as they were'


def matches_spaces(probe: Probe) -> str:
    """Return arrays of the shape, dtype and range that the spaces declare (#observations)"""
    env = probe.played()
    missing = _missing_spaces(env.env)
    if missing:
        raise Outcome(f'no {missing} after reset')
    for obs, reward, _, _ in env.timesteps(probe.steps):
        _expect_inside(obs, env.env.observation_space, 'observation')
        if reward is not None:
            _expect_inside(reward, env.env.reward_space, 'reward')
    return f'{probe.steps} observations and rewards match'


def info_at_the_end(probe: Probe) -> str:
    """Put `eval_episode_return`, a number, into `info` when `done` (#observations)"""
    begin = time.monotonic()
    for _, _, done, info in probe.make().timesteps(20 * probe.steps):
        if done and 'eval_episode_return' not in info:
            raise Outcome(f'the info at the end of an episode has only: {", ".join(map(str, info))[:200]}')
        if done:
            return f'eval_episode_return is {np.asarray(info["eval_episode_return"]).item():g}'
        if time.monotonic() - begin > 10:
            break
    raise Outcome(f'no episode ended in {20 * probe.steps} steps, or 10 s', 'skipped')


def managers(probe: Probe) -> str:
    """See the other checks, then what each manager does (#what-each-manager-does)"""
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


CHECKS: Dict[str, Callable[[Probe], str]] = {
    function.__name__: function
    for function in (lazy_constructor, spaces_before_reset, close_in_time, close_before_reset, close_twice)
    + (close_half_built, reset_after_close, step_after_close, close_after_error, reset_reuses, close_releases)
    + (forgotten_close, memory_level, same_seed_same_episode, observations_owned, matches_spaces, info_at_the_end)
    + (managers,)
}


def _actions(probe: Probe, count: int) -> List[Any]:
    def some() -> List[Any]:
        env = probe.played()
        actions = [env.action() for _ in range(count)]
        env.close()
        return actions

    return _in_fork(probe, some)


def _in_fork(probe: Probe, function: Callable[[], Any]) -> Any:
    """In another process, before this one has played: threads of native libraries do not live on in a fork."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def run() -> None:
        try:
            theirs.send((function(), None, None, None))
        except Outcome as outcome:
            theirs.send((None, str(outcome), outcome.state, outcome.key))

    multiprocessing.get_context('fork').Process(target=run).start()
    theirs.close()
    value, found, state, key = probe.call('an episode in another process', ours.recv, patience=3)
    if found is not None:
        raise Outcome(found, state, key)
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


def _interrupted(env: Any, method: str, args: List[Any], place: int) -> int:
    """A call with an error at the n-th line of the environment's own files, outside of ``close``; its lines."""
    files = {getattr(sys.modules.get(cls.__module__), '__file__', None) for cls in type(env).__mro__}
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        outer = frame
        while outer is not None:
            if outer.f_code.co_name in ('close', '__del__', '__exit__'):
                return None
            outer = outer.f_back
        lines += event == 'line'
        if event == 'line' and lines - 1 == place:
            raise RuntimeError('planted by close_after_error')
        return trace

    sys.settrace(trace)
    try:
        getattr(env, method)(*args)
    finally:
        sys.settrace(None)
    return lines
