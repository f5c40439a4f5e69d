"""What a library expects of an environment."""

from collections.abc import Callable
from typing import NamedTuple

from .probe import IN_ANOTHER_PROCESS, Instance, Probe

RunCheck = Callable[[Probe], str]  # returns what it saw or raises a ``CheckResult``


class Check(NamedTuple):
    """A check, what to do if it fails, and the beginnings of the names of the calls that it is about."""

    run: RunCheck
    fix: str
    calls: tuple[str, ...]


class Contract(NamedTuple):
    """The checks of a library, in order, and how they use an environment."""

    checks: dict[str, Check]
    instance: type[Instance]
    in_workers: str  # the check that works in other processes
    hint: str  # for an environment that does not work at all

    def fix_for(self, check: str, call: str, failure: str) -> str:
        """What to do: if a call failed, the fix of the check that is about this call, whichever check made it."""
        about = {begin: name for name, each in self.checks.items() for begin in each.calls if call.startswith(begin)}
        closest = about[max(about, key=len)] if about else check
        if call.endswith(IN_ANOTHER_PROCESS) and closest != check:
            closest = self.in_workers
        elif call.startswith('close') and failure == 'hangs':
            closest = 'close_in_time'
        return self.checks[closest].fix


def register(checks: dict[str, Check], *calls: str) -> Callable[[RunCheck], RunCheck]:
    """Add a function to the checks. Its docstring is the fix that is printed if it fails."""

    def add(function: RunCheck) -> RunCheck:
        checks[function.__name__] = Check(function, ' '.join((function.__doc__ or '').split()), calls)
        return function

    return add
