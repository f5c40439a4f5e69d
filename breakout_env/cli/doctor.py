"""
Checks of this machine, each in a process of its own, with a time limit: a driver that hangs, a display that does not
answer and a network disk that is gone are what a check is to find, so none of them may stop the other checks.
"""

import contextlib
import faulthandler
import logging
import multiprocessing
import os
import signal
import time
import warnings
from typing import Callable, Iterable, Iterator, NamedTuple

OK, WARNING, FAILS = 'ok', 'warning', 'fails'


class Finding(NamedTuple):
    """What a check found: ``state`` is 'ok', 'warning' (for what is optional) or 'fails'; ``fix`` says what to do."""

    state: str
    found: str
    fix: str = ''
    name: str = ''


class Check(NamedTuple):
    """
    A question about this machine. ``look`` answers it, and may raise, crash or hang. Where training does not need what
    is checked, a failure is a warning. ``fix`` says what to do if there is no answer.
    """

    name: str
    look: Callable[[], Finding]
    needed: bool = True
    timeout_s: float = 60.0  # a GPU's first use takes seconds, on a busy machine more
    fix: str = ''


def run_checks(checks: Iterable[Check]) -> Iterator[Finding]:
    """Run checks, one after the other. One that raises, crashes or hangs has failed."""
    for check in checks:
        finding = _run_in_fork(check)
        is_optional = finding.state == FAILS and not check.needed
        yield finding._replace(name=check.name, state=WARNING if is_optional else finding.state)


def _run_in_fork(check: Check) -> Finding:
    """
    Run a check in a fork of this process. multiprocessing would wait for it when the interpreter exits, and a process
    in a call to a hanging driver does not even obey SIGKILL.
    """
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            reader.close()
            os.setsid()  # so that the processes it starts can be ended with it
            writer.send(_look_silently(check))
        finally:
            os._exit(0)  # never run the parent's code
    writer.close()
    try:
        if not reader.poll(check.timeout_s):
            return Finding(FAILS, f'did not end within {check.timeout_s:g} s and was ended', check.fix)
        return reader.recv()
    except EOFError:
        return Finding(FAILS, 'ended its process without an answer, as a crash in compiled code does', check.fix)
    finally:
        reader.close()
        _kill(pid)


def _look_silently(check: Check) -> Finding:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # what libraries print does not belong in the table
        os.dup2(nowhere, descriptor)
    faulthandler.disable()  # it would write to descriptors of its own
    logging.disable()
    warnings.simplefilter('ignore')
    try:
        return check.look()
    except Exception as error:  # whatever it is, that is what the check has found
        text = ' '.join(str(error).split()) or 'without a message'
        return Finding(FAILS, f'{type(error).__name__}: {text}'[:500], check.fix)


def _kill(pid: int) -> None:
    """End a check's process and those it started; give up after a second on a process that SIGKILL does not end."""
    for kill in (os.killpg, os.kill):  # it may have died before it had a session of its own
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 1
    while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < deadline:
        time.sleep(0.005)
