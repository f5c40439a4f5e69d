"""Runs each check in another process with a time limit, so that an environment that hangs or crashes is a finding."""

import os
import signal
import tempfile
import time
import unittest
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..compat.multiprocessing_helpers import use_own_tracker
from ..utils.check_process import CheckProcess
from .checks import DING, works
from .contract import Contract
from .gymnasium_checks import GYMNASIUM
from .gymnasium_env import GymnasiumFactory
from .probe import CheckResult, MakeEnv, Probe, described

_KNOWN_HANG_S = 2.0  # the time limit of a call that has been found to hang


class Finding(NamedTuple):
    """What a check saw: ``state`` is ``'pass'``, ``'warning'``, ``'fail'`` or ``'skipped'``."""

    check: str
    state: str
    found: str
    fix: str


class Report(list[Finding]):
    """The findings, in order; it prints as a table. If the environment does not work at all, that is the only one."""

    total = len(DING.checks)

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
    if not callable(env_fn) or steps < 1 or cycles < 2 or time_limit_s <= 0:
        raise ValueError(
            f'env_fn={env_fn!r}, steps={steps!r}, cycles={cycles!r}, time_limit_s={time_limit_s!r}; expected a '
            'class or a function, at least 1 step, at least 2 cycles, and more than 0 seconds'
        )
    seen: dict[tuple[str, str], str] = {}
    report = Report()
    report.total = len(_contract(env_fn).checks)
    for check in _contract(env_fn).checks:
        report.append(_run(check, env_fn, (steps, cycles), time_limit_s, seen))
        if report.failed == [works.__name__]:
            break
    return report


def lifecycle_checks(gymnasium: bool = False) -> list[Callable[..., None]]:
    """The checks as functions, for pytest's ``parametrize``. Each takes what ``check_lifecycle`` takes and raises an
    AssertionError that says what it found. If the environment does not work at all, only ``works`` fails, and the
    others are skipped.

    Arguments:
        gymnasium: The checks for ``gymnasium_env(function)``.
    """
    return [_as_test(check) for check in (GYMNASIUM if gymnasium else DING).checks]


def _contract(env_fn: MakeEnv) -> Contract:
    return GYMNASIUM if isinstance(env_fn, GymnasiumFactory) else DING


def _as_test(check: str) -> Callable[..., None]:
    def test(env_fn: MakeEnv, steps: int = 50, cycles: int = 5, time_limit_s: float = 10.0) -> None:
        arguments = env_fn, (steps, cycles), time_limit_s
        seen: dict[tuple[str, str], str] = {}
        finding = _run(check, *arguments, seen)
        if seen:  # a call failed: does any work?
            basic = _run(works.__name__, *arguments, {})
            if basic.state == 'fail' and check != works.__name__:
                finding = basic._replace(state='skipped')
        if finding.state == 'skipped':
            raise unittest.SkipTest(finding.found)
        if finding.state == 'warning':
            warnings.warn(f'{finding.found}: {finding.fix}', stacklevel=2)
        assert finding.state != 'fail', f'{finding.found}: {finding.fix}'

    test.__name__ = check
    return test


def _run(check: str, env_fn: Callable, sizes: tuple[int, int], limit_s: float, seen: dict) -> Finding:
    """One check; ``seen`` are the calls that failed in earlier ones, with the check that reported them."""
    contract = _contract(env_fn)
    with tempfile.TemporaryDirectory(prefix='check-', ignore_cleanup_errors=True) as folder:
        process = CheckProcess(partial(_work, check, env_fn, sizes, folder), f'{folder}/output')
        message: Any = ('the start of the check', 1)
        try:
            while not isinstance(message, CheckResult):
                call, patience = message
                allowed_s = min(limit_s, _KNOWN_HANG_S) if (call, 'hangs') in seen else limit_s * patience
                try:
                    message = process.receive(allowed_s)
                except (TimeoutError, EOFError):
                    message = _without_an_answer(process, allowed_s, call, folder)
        finally:
            process.end()
    call, failure = message.key or ('', '')
    for (earlier, earlier_failure), reported_by in seen.items() if message.key else ():
        # `close once more` fails as `close` does; a manager makes the same calls
        is_related = call.startswith(earlier) or earlier.startswith(call) or check == contract.in_workers
        if is_related and failure == earlier_failure:
            seen[call, failure] = reported_by
            return Finding(check, 'skipped', f'as {reported_by}: {message}', '')
    if message.key:
        seen[call, failure] = check
    found = str(message)
    fix = contract.fix_for(check, call, failure) if message.state in ('fail', 'warning') else ''
    if fix and check == works.__name__:
        found, fix = f'the environment does not work at all: {found}', f'{fix} {contract.hint}'
    return Finding(check, message.state, found, fix)


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
    return CheckResult(found, key=(call, 'hangs' if code is None else 'crashes'))


def _work(check: str, env_fn: Callable, sizes: tuple[int, int], folder: str, connection: Connection) -> None:
    """Run a check in its process; send the name of each call before it is made, and in the end the result."""
    tempfile.tempdir = os.environ['TMPDIR'] = f'{folder}/tmp'
    os.mkdir(tempfile.tempdir)
    torch.set_num_threads(1)  # as DI-engine's workers: OpenMP's threads do not live on in a fork
    use_own_tracker()
    contract = _contract(env_fn)
    probe = Probe(env_fn, sizes, connection.send, contract.instance)
    try:
        outcome = CheckResult(contract.checks[check].run(probe), 'pass')
    except CheckResult as found:
        outcome = found
    except BaseException as error:
        outcome = CheckResult(described(error)[1])
    for path in probe.shared_memory():
        os.unlink(path)
    connection.send(outcome)
    while True:
        signal.pause()  # the parent ends this process and all that it has started
