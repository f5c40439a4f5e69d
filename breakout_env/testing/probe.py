"""Environment instances for the checks, and the resources that the process holds."""

import contextlib
import copy
import ctypes
import multiprocessing
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from ding.envs import BaseEnv

from ..compat.multiprocessing_helpers import helper_pids

MakeEnv = Callable[[], BaseEnv]
Footprint = dict[str, list[str]]  # by kind: names of what is held
_SET_CHILD_SUBREAPER = 36  # of prctl: daemons that descendants start become children
_CALLERS = [Path(__file__).parent, Path(__file__).parents[2] / 'breakout_cli']


class CheckResult(Exception):
    """What a check found. If a call failed, ``call`` is its name, and ``failure`` says how it failed."""

    def __init__(self, found: str, state: str = 'fail', call: str = '', failure: str = '') -> None:
        super().__init__(found)
        self.state, self.call, self.failure = state, call, failure


def result_of(function: Callable[[], Any]) -> Any:
    """What it returns, or a ``CheckResult`` of what it raises."""
    try:
        return function()
    except CheckResult as found:
        return found
    except BaseException as error:
        return CheckResult(described(error)[1])


class Probe:
    """Makes instances and watches what grows. What an environment's modules keep for the whole process (imports,
    caches, thread pools of libraries) does not count: a leak grows in both halves of the repetitions.
    """

    def __init__(self, env_fn: Any, sizes: tuple[int, int], announce: Callable, instance: type['Instance']) -> None:
        self.env_fn, (self.steps, self.cycles), self._announce = env_fn, sizes, announce
        self.make = partial(instance, self)
        self._shared_memory: set[str] = set()  # its folder is of all processes
        self._of_others = {str(path) for path in Path('/dev/shm').iterdir()}
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
        sys.addaudithook(self._note_shared_memory)

    def call(self, name: str, function: Callable, *args: Any, patience: int = 1) -> Any:
        """Call the environment, for at most ``patience`` time limits; what it raises becomes a ``CheckResult``."""
        self._announce((name, patience))
        try:
            return function(*args)
        except BaseException as error:
            # DI-engine's threads raise it without details from the real one; a cause in a pool has no traceback
            while error.__cause__ is not None and error.__cause__.__traceback__ is not None:
                error = error.__cause__
            kind, text = described(error)
            error.__traceback__ = None  # its frames would keep the environment alive
        raise CheckResult(f'{name} raised {text}', 'fail', name, kind)

    def in_fork(self, function: Callable[[], Any]) -> Any:
        """In another process, before this one has played: threads of native libraries do not live on in a fork."""
        reader, writer = multiprocessing.Pipe(duplex=False)

        def run() -> None:
            writer.send(result_of(function))

        multiprocessing.get_context('fork').Process(target=run).start()
        writer.close()
        value = self.call('an episode in another process', reader.recv, patience=3)
        if isinstance(value, CheckResult):
            raise CheckResult(f'in another process, {value}', value.state, value.call, value.failure)
        return value

    def random_actions(self, count: int) -> list[object]:
        """Actions of an instance in another process."""

        def some() -> list[object]:
            env = self.make().play(count)
            actions = [env.action() for _ in range(count)]
            env.close()
            return actions

        return self.in_fork(some)

    def expect_level(self, what: str, action: Callable[[], object]) -> str:
        """Warm up once, then act ``cycles`` times. Fails if resources grow in both halves, or if a process or shared
        memory is left.
        """
        start = self.lasting()
        action()
        before = self.footprint()
        for _ in range(self.cycles // 2):
            action()
        half = self.footprint()
        for _ in range(self.cycles - self.cycles // 2):
            action()
        self.expect_no_more(start, f'after {what}')
        grown = {kind: names for kind, names in half.items() if len(names) > len(before[kind])}
        self.expect_no_more(grown, f'after the last {self.cycles - self.cycles // 2} {what}')
        return f'nothing more after {self.cycles} {what}'

    def expect_no_more(self, before: Footprint, when: str) -> None:
        """Fail if there is more of one of these kinds, also two seconds later."""
        deadline = time.monotonic() + 2
        while more := _more(before, self.footprint()):
            if time.monotonic() > deadline:
                raise CheckResult(f'{more} {when}')
            time.sleep(0.02)

    def footprint(self) -> Footprint:
        """What the process holds."""
        descriptors = []
        for number in os.listdir('/proc/self/fd'):
            with contextlib.suppress(OSError):  # the descriptor of the listing
                descriptors.append(os.readlink(f'/proc/self/fd/{number}'))
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        threads = [thread.id for thread in psutil.Process().threads()]
        return {
            'descriptors': descriptors,
            'threads': [names.get(number) or f'native thread {number}' for number in threads],
            'temporary files': [str(path) for path in Path(tempfile.gettempdir()).rglob('*')],
            **self.lasting(),
        }

    def lasting(self) -> Footprint:
        """What lives on without the process."""
        return {'child processes': list(processes().values()), 'shared memory segments': self.shared_memory()}

    def shared_memory(self) -> list[str]:
        """Segments that were created since the beginning, and not only attached."""
        return [path for path in self._shared_memory - self._of_others if os.path.exists(path)]

    def _note_shared_memory(self, event: str, args: tuple) -> None:
        path = ''
        if event == 'open':
            path = str(args[0])
        elif event == 'mmap.__new__' and args[0] >= 0:
            path = os.readlink(f'/proc/self/fd/{args[0]}')
        if path.startswith('/dev/shm/'):
            self._shared_memory.add(path)


class Instance:
    """An environment of DI-engine's interface. Its calls are named after its ``state``."""

    by_gymnasium = False
    interface = 'ding.envs.BaseEnv'
    members: tuple[str, ...] = ('seed', 'reset', 'step', 'close')  # what managers use
    spaces: tuple[str, ...] = ('observation_space', 'action_space', 'reward_space')
    timestep: tuple[str, ...] = ('obs', 'reward', 'done', 'info')

    def __init__(self, probe: Probe) -> None:
        self._call, self.state = probe.call, ''
        self.env = probe.call('the constructor', probe.env_fn)

    def seed(self) -> None:
        """Seed as the managers of on-policy pipelines, of other collectors and of evaluators do: by position."""
        for arguments in (7,), (7, True), (7, False):
            self._call(f'seed({", ".join(map(str, arguments))})', self.env.seed, *arguments)

    def reset(self) -> Any:
        """The first observation of an episode."""
        call, self.state = f'reset {self.state}'.strip(), 'once more'
        return self._call(call, self.env.reset)

    def step(self, action: object = None) -> Any:
        """Observation, reward, whether the episode has ended, and info."""
        values = self._call('step', self.env.step, self.action() if action is None else copy.deepcopy(action))
        return self._expect_tuple('step', values, self.timestep)

    def _expect_tuple(self, call: str, value: Any, names: tuple[str, ...]) -> Any:
        if not isinstance(value, tuple) or len(value) != len(names):
            found = f'{call} returned {str(value)[:100]}; expected {", ".join(names)}'
            raise CheckResult(found, 'fail', call, 'TypeError')  # as an attempt to unpack it
        return value

    def close(self) -> 'Instance':
        """Close; returns itself, as ``play`` does."""
        names = {'': 'close before the first reset', 'after close': 'close once more'}
        call, self.state = names.get(self.state, 'close'), 'after close'
        self._call(call, self.env.close)
        return self

    def missing_spaces(self) -> str:
        """The names of the spaces that it does not have."""
        return ', '.join(name for name in self.spaces if getattr(self.env, name, None) is None)

    def action(self) -> Any:
        """A random action; of the action space where the environment has no ``random_action``."""
        return self._call('a random action', self._random_action)

    def _random_action(self) -> Any:
        action = None
        with contextlib.suppress(AttributeError, NotImplementedError):
            action = self.env.random_action()
        return self.env.action_space.sample() if action is None else action

    def timesteps(self, steps: int) -> Iterator[tuple[Any, Any, bool, Any]]:
        """What a reset and some steps return, without reward and info for a reset."""
        done = True
        for count in range(steps + 1):
            if done:
                yield self.reset(), None, False, None
            if count < steps:
                obs, reward, done, info = self.step()
                yield obs, reward, done, info

    def play(self, steps: int = 5) -> 'Instance':
        for _ in self.timesteps(steps):
            pass
        return self


def described(error: BaseException) -> tuple[str, str]:
    """The kind and the place of an error, and both with its text. Where the caller is at fault, it has no place."""
    kind, place = type(error).__name__, ''
    for last in traceback.extract_tb(error.__traceback__)[-1:]:
        path = Path(last.filename)
        if path.exists() and path.parent not in _CALLERS:
            place = f' ({path.name}:{last.lineno})'
    return kind + place, f'{kind}: {" ".join(str(error).split())[-300:]}{place}'


def interrupted(env: BaseEnv, method: str, args: list[object], at_line: int) -> int:
    """Call ``method`` with an error at its ``at_line``-th own line, ``close`` excluded; returns the lines executed."""
    modules = {cls.__module__ for cls in type(getattr(env, 'unwrapped', env)).__mro__}
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable | None:
        nonlocal lines
        if frame.f_globals.get('__name__') not in modules:
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


def processes() -> dict[psutil.Process, str]:
    """Those below this one that have not ended, with a name for messages."""
    multiprocessing.active_children()  # joins those that have ended
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if process.pid not in helper_pids() and process.status() != psutil.STATUS_ZOMBIE:
                found[process] = f'process {process.pid}: {" ".join(process.cmdline())[:80]}'
    return found


def _more(before: Footprint, after: Footprint) -> str:
    """What has grown, in words; '' if nothing has."""
    found = []
    for kind, names in before.items():
        if len(after[kind]) > len(names):
            new = list((Counter(after[kind]) - Counter(names)).elements())
            shown = ', '.join(new[:3]) + (', ...' if len(new) > 3 else '')
            found.append(f'{len(after[kind]) - len(names)} {kind} more ({shown})')
    return ' and '.join(found)
