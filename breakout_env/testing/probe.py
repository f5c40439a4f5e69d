"""Environment instances for the checks, and the resources that the process holds."""

import contextlib
import copy
import ctypes
import inspect
import multiprocessing
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
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
IN_ANOTHER_PROCESS = ' in another process'  # ends the names of calls there


class CheckResult(Exception):
    """What a check found; ``key`` has the call that failed and how it failed, to report it once."""

    def __init__(self, found: str, state: str = 'fail', key: tuple[str, str] | None = None) -> None:
        super().__init__(found)
        self.state, self.key = state, key


class Probe:
    """Makes instances and watches what grows. What an environment's modules keep for the whole process (imports,
    caches, thread pools of libraries) does not count: a leak grows in both halves of the repetitions.
    """

    def __init__(
        self,
        env_fn: MakeEnv,
        sizes: tuple[int, int],
        announce: Callable[[tuple], None],
        instance: type['Instance'],
    ) -> None:
        self.env_fn, (self.steps, self.cycles), self._announce = env_fn, sizes, announce
        self._instance = instance
        self._where = ''
        self._shared_memory: set[str] = set()  # its folder is of all processes
        self._of_others = {str(path) for path in Path('/dev/shm').iterdir()}
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
        sys.addaudithook(self._note_shared_memory)
        self._start = {kind: self._footprint()[kind] for kind in ('child processes', 'shared memory segments')}

    def call(self, name: str, function: Callable, *args: Any, patience: int = 1) -> Any:
        """Call the environment, for at most ``patience`` time limits; what it raises becomes a ``CheckResult``."""
        name += self._where
        self._announce((name, patience))
        try:
            return function(*args)
        except BaseException as error:
            # DI-engine's threads raise an error without details from the real one; causes in process pools have no
            # traceback
            while error.__cause__ is not None and error.__cause__.__traceback__ is not None:
                error = error.__cause__
            kind, text = described(error)
            error.__traceback__ = None  # its frames would keep the environment alive
        raise CheckResult(f'{name} raised {text}', key=(name, kind))

    def in_fork(self, function: Callable[[], Any]) -> Any:
        """In another process, before this one has played: threads of native libraries do not live on in a fork."""
        reader, writer = multiprocessing.Pipe(duplex=False)

        def run() -> None:
            self._where = IN_ANOTHER_PROCESS
            try:
                writer.send(function())
            except BaseException as error:
                writer.send(error if isinstance(error, CheckResult) else CheckResult(described(error)[1]))

        multiprocessing.get_context('fork').Process(target=run).start()
        writer.close()
        value = self.call(f'an episode{IN_ANOTHER_PROCESS}', reader.recv, patience=3)
        if isinstance(value, CheckResult):
            raise value
        return value

    def make(self) -> 'Instance':
        return self._instance(self)

    def played(self, steps: int = 5) -> 'Instance':
        env = self.make()
        env.play(steps)
        return env

    def expect_level(self, what: str, action: Callable[[], object], holds: bool = False) -> str:
        """Warm up once, then act ``cycles`` times. Fails if resources grow in both halves or, unless ``holds``, if a
        process or shared memory is left.
        """
        for index in range(self.cycles + 1):
            if index == 1:
                before = half = self._footprint()
            if index == self.cycles // 2 + 1:
                half = self._settled(before)
            action()
            if not holds:
                self.expect_none_left(f'after {what}')
        after = self._settled(half)
        grown = {kind: before[kind] for kind in after if len(before[kind]) < len(half[kind]) < len(after[kind])}
        if grown:
            raise CheckResult(f'{_more(grown, after)} after {self.cycles} {what}')
        return f'nothing more after {self.cycles} {what}'

    def expect_released(self, what: str, use: Callable[[], 'Instance']) -> str:
        """Fail if instances that are closed, but not deleted, leave something behind."""
        kept = []

        def cycle() -> None:
            kept.append(use())
            kept[-1].close()

        return self.expect_level(what, cycle)

    def opened_by(self, action: Callable[[], object]) -> str:
        """What the action has left open, in words; '' if nothing."""
        before = self._footprint()
        action()
        return _more(before, self._settled(before))

    def expect_none_left(self, when: str) -> None:
        left = _more(self._start, self._settled(self._start))
        if left:
            raise CheckResult(f'{left} {when}')

    def shared_memory(self) -> list[str]:
        """Segments that were created since the beginning, and not only attached."""
        return [path for path in self._shared_memory - self._of_others if os.path.exists(path)]

    def _footprint(self) -> Footprint:
        descriptors, children = [], processes()
        for number in os.listdir('/proc/self/fd'):
            with contextlib.suppress(OSError):  # the descriptor of the listing
                descriptors.append(os.readlink(f'/proc/self/fd/{number}'))
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        threads = [thread.id for thread in psutil.Process().threads()]
        for process in children:
            with contextlib.suppress(psutil.Error):  # it has just ended
                self._shared_memory.update(m.path for m in process.memory_maps() if m.path.startswith('/dev/shm/'))
        return {
            'descriptors': descriptors,
            'threads': [names.get(number) or f'native thread {number}' for number in threads],
            'child processes': list(children.values()),
            'shared memory segments': self.shared_memory(),
            'temporary files': [str(path) for path in Path(tempfile.gettempdir()).rglob('*')],
        }

    def _settled(self, before: Footprint, timeout_s: float = 2.0) -> Footprint:
        """The footprint, as soon as nothing has grown; after the timeout, as it is then."""
        deadline = time.monotonic() + timeout_s
        while _more(before, after := self._footprint()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return after

    def _note_shared_memory(self, event: str, args: tuple) -> None:
        path: Any = ''
        if event == 'open' and isinstance(args[2], int) and args[2] & os.O_CREAT:
            path = args[0]
        elif event == 'mmap.__new__' and args[0] >= 0:
            path = os.readlink(f'/proc/self/fd/{args[0]}')
        if isinstance(path, str) and path.startswith('/dev/shm/'):
            self._shared_memory.add(path)


class Instance:
    """An environment; its calls are named after the state it is in."""

    reopens = True  # whether ``reset`` has to work after ``close``

    def __init__(self, probe: Probe) -> None:
        self._call, self.state = probe.call, 'new'
        self.env = probe.call('the constructor', probe.env_fn)

    def seed(self) -> None:
        """Seed as the managers of on-policy pipelines, of other collectors and of evaluators do: by position."""
        for arguments in (7,), (7, True), (7, False):
            self._call(f'seed({", ".join(map(str, arguments))})', self.env.seed, *arguments)

    def reset(self) -> Any:
        """The first observation of an episode."""
        return self._call(self._name_of_reset(), self.env.reset)

    def _name_of_reset(self) -> str:
        state, self.state = self.state, 'open'
        names = {'open': 'reset once more', 'closed': 'reset after close', 'broken': 'reset after close and an error'}
        return names.get(state, 'reset')

    def step(self, action: object = None) -> tuple[Any, Any, bool, Any]:
        """Observation, reward, whether the episode has ended, and info."""
        return self._step(4, 'a BaseEnvTimestep of obs, reward, done and info', action)

    def _step(self, size: int, expected: str, action: object) -> Any:
        name = 'step after close' if self.state == 'closed' else 'step'
        timestep = self._call(name, self.env.step, self.action() if action is None else copy.deepcopy(action))
        return self._expect_tuple(name, timestep, size, expected)

    def _expect_tuple(self, name: str, value: Any, size: int, expected: str) -> Any:
        if not isinstance(value, tuple) or len(value) != size:
            raise CheckResult(f'{name} returned {str(value)[:100]}; expected {expected}', key=(name, 'returned'))
        return value

    def close(self) -> None:
        state, self.state = self.state, 'closed'
        name = {'new': 'close before the first reset', 'closed': 'close once more'}.get(state, 'close')
        self._call(name, self.env.close)

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

    def play(self, steps: int = 5) -> None:
        for _ in self.timesteps(steps):
            pass


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
    members = [
        getattr(one, '__func__', one)
        for cls in type(getattr(env, 'unwrapped', env)).__mro__
        for one in vars(cls).values()
    ]
    files = {one.__code__.co_filename for one in map(inspect.unwrap, members) if inspect.isfunction(one)}
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Callable | None:
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
