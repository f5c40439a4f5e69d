"""What the checks play with: instances whose calls are announced and named, and a measure of growth."""

import contextlib
import copy
import os
from typing import Any, Callable, Iterator, Optional, Tuple

from .footprint import PROCESSES, SHARED_MEMORY, footprint, more, settled


class Outcome(Exception):
    """What a check found instead of a pass; ``key`` names a call that failed, to report it once."""

    def __init__(self, found: str, state: str = 'fail', key: Optional[Tuple[str, str]] = None) -> None:
        super().__init__(found)
        self.state, self.key = state, key


class Probe(object):
    """
    Makes instances and watches what grows. What an environment's modules keep for the whole process (imports, caches,
    thread pools of libraries) is no leak: a leak grows in both halves of the repetitions.
    """

    def __init__(self, env_fn: Callable[[], Any], sizes: Tuple[int, int], announce: Callable[[str, int], None]) -> None:
        self.env_fn, (self.steps, self.cycles), self._announce = env_fn, sizes, announce
        self._start = {kind: footprint()[kind] for kind in (PROCESSES, SHARED_MEMORY)}

    def call(self, name: str, function: Callable, *args: Any, patience: int = 1) -> Any:
        """Call the environment, for at most ``patience`` time limits; what it raises becomes an ``Outcome``."""
        self._announce(name, patience)
        try:
            return function(*args)
        except BaseException as error:
            trace: Any = error.__traceback__
            while trace.tb_next:
                trace = trace.tb_next
            where = f'{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}'
            text = f'{type(error).__name__}: {str(error)[:300]} ({where})'
            error.__traceback__ = trace = None  # its frames would keep the environment alive
        raise Outcome(f'{name} raised {text}', key=(name, text))

    def make(self) -> 'Instance':
        """A new instance."""
        return Instance(self)

    def played(self, steps: int = 5) -> 'Instance':
        """A new instance that has played."""
        env = self.make()
        env.play(steps)
        return env

    def expect_level(self, what: str, action: Callable[[], Any]) -> str:
        """Do something ``cycles`` times; it fails where each half leaves more behind."""
        before = half = footprint()
        for index in range(self.cycles):
            half = settled(before) if index == self.cycles // 2 else half
            action()
        after = settled(half)
        kinds = [kind for kind in after if len(before[kind]) < len(half[kind]) < len(after[kind])]
        if kinds:
            raise Outcome(f'{more(before, after, kinds)} after {self.cycles} {what}')
        return f'nothing more after {self.cycles} {what}'

    def expect_none_left(self, when: str) -> None:
        """Fails for processes and shared memory since the check began: they are nobody's caches."""
        left = more(self._start, settled(self._start))
        if left:
            raise Outcome(f'{left} {when}')


class Instance(object):
    """An environment; its calls are named after the state it is in."""

    def __init__(self, probe: Probe) -> None:
        self._call, self._state = probe.call, 'new'
        self.env = probe.call('the constructor', probe.env_fn)

    def reset(self) -> Any:
        """Begin an episode."""
        state, self._state = self._state, 'open'
        return self._call('reset after close' if state == 'closed' else 'reset', self.env.reset)

    def step(self, action: Any = None) -> Any:
        """A step, at random by default."""
        name = 'step after close' if self._state == 'closed' else 'step'
        return self._call(name, self.env.step, self.action() if action is None else copy.deepcopy(action))

    def close(self) -> None:
        """Close it."""
        state, self._state = self._state, 'closed'
        name = {'new': 'close before the first reset', 'closed': 'close once more'}.get(state, 'close')
        self._call(name, self.env.close)

    def close_after_error(self, name: str, function: Callable, *args: Any) -> bool:
        """A call that may raise, and a close; whether it did raise."""
        self._state, raised = 'closed', True
        with contextlib.suppress(Outcome):
            self._call(f'{name} with an error', function, *args)
            raised = False
        self._call(f'close after an error in {name}', self.env.close)
        return raised

    def action(self) -> Any:
        """A random action; of the action space where the environment has no ``random_action``."""
        action = None
        with contextlib.suppress(AttributeError, NotImplementedError):
            action = self.env.random_action()
        return self.env.action_space.sample() if action is None else action

    def timesteps(self, steps: int) -> Iterator[Tuple[Any, Any, bool, Any]]:
        """What a reset and some steps return, without reward and info for a reset."""
        yield self.reset(), None, False, None
        for _ in range(steps):
            obs, reward, done, info = self.step()
            yield obs, reward, done, info
            if done:
                yield self.reset(), None, False, None

    def play(self, steps: int = 5) -> None:
        """A reset and some steps."""
        for _ in self.timesteps(steps):
            pass
