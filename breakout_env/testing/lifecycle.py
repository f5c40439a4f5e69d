"""Runs each check in another process with a time limit, so that an environment that hangs or crashes is a finding."""

import os
import signal
import tempfile
import time
import unittest
import warnings
from collections.abc import Callable, Collection
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..compat.multiprocessing_helpers import use_own_tracker
from ..utils.check_process import CheckProcess
from . import checks
from .checks import close_half_built, forgotten_close, lazy_constructor, works
from .gymnasium_env import GymnasiumFactory, GymnasiumInstance
from .probe import CheckResult, Instance, MakeEnv, Probe, result_of
from .windows import human_window
from .worker_checks import managers, vector_envs

Check = Callable[[Probe], str]
Failures = dict[tuple[str, str], str]  # a call and how it failed: the check that reported it

_FUNCTIONS: list[Check] = [each for each in vars(checks).values() if getattr(each, '__module__', '') == checks.__name__]
_CHECKS = [each for each in _FUNCTIONS if not each.__name__.startswith('_')]
_DING_ONLY = (lazy_constructor, close_half_built, forgotten_close)  # gymnasium opens at once, and the caller closes
DING = [*_CHECKS, managers]
GYMNASIUM = [*(each for each in _CHECKS if each not in _DING_ONLY), human_window, vector_envs]


class Finding(NamedTuple):
    """What a check saw: ``state`` is ``'pass'``, ``'warning'``, ``'fail'`` or ``'skipped'``."""

    check: str
    state: str
    found: str
    fix: str


class Report(list[Finding]):
    """The findings, in order; it prints as a table. If the environment does not work at all, that is the only one."""

    total = len(DING)

    @property
    def passed(self) -> bool:
        """Whether nothing failed; there may be warnings."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [finding.check for finding in self if finding.state == 'fail']

    def __str__(self) -> str:
        rows = [(f'{check:24}{state:9}{found}', f'{"":33}{fix}') for check, state, found, fix in self]
        skipped = self.total - sum(finding.state != 'skipped' for finding in self)
        summary = f'{len(self.failed)} of {self.total} checks failed' + f', {skipped} were skipped' * (skipped > 0)
        return '\n'.join([line for row in rows for line in row if line.strip()] + [summary])


def check_lifecycle(env_fn: MakeEnv, steps: int = 50, cycles: int = 5, time_limit_s: float = 10.0) -> Report:
    """Check how an environment is reset, reused and closed, and what it leaves behind. Each check runs in a fork of
    this process.

    Arguments:
        env_fn: Makes an environment of DI-engine's ``BaseEnv`` interface: a class, or any function without arguments.
            For an environment of gymnasium's, ``gymnasium_env(function)``.
        steps: Steps in the checks of observations and memory.
        cycles: Resets, or instances, over which a check looks for growth; 2 or more.
        time_limit_s: Seconds that one call of the environment may take.
    Returns:
        A list of findings, with ``passed`` and ``failed``. It prints as a table.

    Examples:
        >>> from breakout_env import BreakoutEnv
        >>> from breakout_env.testing import check_lifecycle
        >>> check_lifecycle(BreakoutEnv, steps=20, cycles=2).failed
        []
    """
    return _report(GYMNASIUM if isinstance(env_fn, GymnasiumFactory) else DING, env_fn, steps, cycles, time_limit_s)


def lifecycle_checks(gymnasium: bool = False) -> list[Callable[..., None]]:
    """The checks as functions, for pytest's ``parametrize``. Each takes what ``check_lifecycle`` takes and raises an
    AssertionError that says what it found. If the environment does not work at all, only ``works`` fails, and the
    others are skipped.

    Arguments:
        gymnasium: The checks for ``gymnasium_env(function)``.
    """
    return [_as_test(check) for check in (GYMNASIUM if gymnasium else DING)]


def _as_test(check: Check) -> Callable[..., None]:
    def test(env_fn: MakeEnv, steps: int = 50, cycles: int = 5, time_limit_s: float = 10.0) -> None:
        finding = _report(dict.fromkeys((works, check)), env_fn, steps, cycles, time_limit_s)[-1]
        if finding.state == 'skipped' or finding.check != check.__name__:
            raise unittest.SkipTest(finding.found)
        if finding.state == 'warning':
            warnings.warn(f'{finding.found}: {finding.fix}', stacklevel=2)
        assert finding.state != 'fail', f'{finding.found}: {finding.fix}'

    test.__name__ = check.__name__
    return test


def _report(checks: Collection[Check], env_fn: MakeEnv, steps: int, cycles: int, time_limit_s: float) -> Report:
    """The findings of these checks; the first is ``works``."""
    if not callable(env_fn) or steps < 1 or cycles < 2 or time_limit_s <= 0:
        raise ValueError(
            f'env_fn={env_fn!r}, steps={steps!r}, cycles={cycles!r}, time_limit_s={time_limit_s!r}; expected a '
            'class or a function, at least 1 step, at least 2 cycles, and more than 0 seconds'
        )
    report = Report()
    reported: Failures = {}
    report.total = len(checks)
    for check in checks:
        result = _run(check, env_fn, (steps, cycles), time_limit_s, reported)
        report.append(_finding(check, result, isinstance(env_fn, GymnasiumFactory), reported))
        if report.failed == [works.__name__]:
            break
    return report


def _finding(check: Check, result: CheckResult, by_gymnasium: bool, reported: Failures) -> Finding:
    """What a check found. A call that failed is reported once, by the first check."""
    name, found = check.__name__, str(result)
    for (call, failure), earlier in reported.items():
        # `close once more` fails as `close` does; a manager makes all calls
        is_the_same = call.startswith(result.call) or result.call.startswith(call) or check in (managers, vector_envs)
        if is_the_same and failure == result.failure:
            reported[result.call, failure] = earlier
            return Finding(name, 'skipped', f'as {earlier}: {found}', '')
    if result.failure:
        reported[result.call, result.failure] = name
    if result.state not in ('fail', 'warning'):
        return Finding(name, result.state, found, '')
    if check is works:
        found = f'the environment does not work at all: {found}'
    if result.call in ('the constructor', 'reset', 'step', 'a random action'):
        check = works
    paragraphs = (check.__doc__ or '').split('\n\n')
    return Finding(name, result.state, found, ' '.join(paragraphs[-1 if by_gymnasium else 0].split()))


def _run(check: Check, env_fn: MakeEnv, sizes: tuple[int, int], limit_s: float, reported: Failures) -> CheckResult:
    """Run a check in another process. It does not wait again for a call that hangs."""
    with tempfile.TemporaryDirectory(prefix='check-', ignore_cleanup_errors=True) as folder:
        process = CheckProcess(partial(_work, check, env_fn, sizes, folder), f'{folder}/output')
        message: Any = ('the start of the check', 1)
        try:
            while not isinstance(message, CheckResult):
                call, patience = message
                if (call, 'hangs') in reported:
                    return CheckResult(f'{call} hangs', 'fail', call, 'hangs')
                try:
                    message = process.receive(limit_s * patience)
                except (TimeoutError, EOFError):
                    return _without_an_answer(process, limit_s * patience, call, folder)
        finally:
            process.end()
    return message


def _without_an_answer(process: CheckProcess, allowed_s: float, call: str, folder: str) -> CheckResult:
    """The result of a check that hangs or has ended its process: about its last call."""
    if process.exit_code() is None:
        os.kill(process.pid, signal.SIGUSR1)  # faulthandler writes where it is
        time.sleep(0.2)
    code = process.exit_code()
    happened = f'did not return in {allowed_s:g} s' if code is None else f'ended the process ({code})'
    _, dumped, stack = Path(folder, 'output').read_text(errors='replace').rpartition('(most recent call first):')
    lines = map(str.strip, stack.splitlines() if dumped else ())
    frames = [line for line in lines if line.startswith('File "') and str(Path(__file__).parent) not in line][:3]
    found = f'{call} {happened}' + (f'; it is in {", called by ".join(frames)}' if frames else '')
    return CheckResult(found, 'fail', call, 'hangs' if code is None else 'crashes')


def _work(check: Check, env_fn: MakeEnv, sizes: tuple[int, int], folder: str, connection: Connection) -> None:
    """Run a check in its process; send the name of each call before it is made, and in the end the result."""
    tempfile.tempdir = os.environ['TMPDIR'] = f'{folder}/tmp'
    os.mkdir(tempfile.tempdir)
    torch.set_num_threads(1)  # as DI-engine's workers: OpenMP's threads do not live on in a fork
    use_own_tracker()
    instance = GymnasiumInstance if isinstance(env_fn, GymnasiumFactory) else Instance
    probe = Probe(env_fn, sizes, connection.send, instance)
    result = result_of(partial(check, probe))
    for path in probe.shared_memory():
        os.unlink(path)
    connection.send(result if isinstance(result, CheckResult) else CheckResult(result, 'pass'))
    while True:
        signal.pause()  # the parent ends this process and all that it has started
