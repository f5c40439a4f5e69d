"""
What works on this machine and what does not: each check in a process of its own, cut off where it hangs.

A driver that hangs, a display that does not answer and a disk over a network that is gone are what a check is to find,
so none of them may take the others along.
"""

import contextlib
import faulthandler
import json
import logging
import os
import select
import signal
import time
import warnings
from dataclasses import asdict, dataclass
from typing import Callable, Iterable, Iterator, Optional

TIMEOUT_S = 30.0  # a GPU's first use takes seconds, on a busy machine more
OK, WARNING, FAILS = 'ok', 'warning', 'fails'


@dataclass(frozen=True)
class Finding:
    """
    Overview:
        What a check found.
    """

    # (str) 'ok', 'warning' (something that can be done without), or 'fails'.
    state: str
    # (str) A sentence.
    found: str
    # (str) The command that mends it, or what to do; empty where nothing is to be done.
    mend: str = ''


@dataclass(frozen=True)
class Check:
    """
    Overview:
        A question about this machine.
    """

    # (str) What is looked at.
    name: str
    # (Callable) Answers it; may raise or hang.
    look: Callable[[], Finding]
    # (bool) Whether training needs it: without, what does not work is a warning.
    needed: bool = True
    # (float) Seconds before it is cut off.
    timeout_s: float = TIMEOUT_S
    # (str) What mends it where it raises or hangs.
    mend: str = ''


@dataclass(frozen=True)
class Row:
    """
    Overview:
        A check and what it found.
    """

    name: str
    state: str
    found: str
    mend: str


def run_checks(checks: Iterable[Check]) -> Iterator[Row]:
    """
    Overview:
        Run checks, one after the other.
    Arguments:
        - checks (:obj:`Iterable[Check]`): Such as ``breakout_env.cli.doctor_checks.CHECKS``.
    Yields:
        - row (:obj:`Row`): What each found. One that raises, dies or hangs has failed, and the sentence says how.
    """
    for check in checks:
        finding = _run_apart(check)
        state = WARNING if finding.state == FAILS and not check.needed else finding.state
        yield Row(check.name, state, finding.found, finding.mend)


def _run_apart(check: Check) -> Finding:
    """Run a check in a fork of this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            os.setsid()  # its own children can be ended with it
            _look_silently(check, writer)
        finally:
            os._exit(0)  # whatever happened: the parent's code is not to run twice
    os.close(writer)
    try:
        answer = _read_until(reader, time.monotonic() + check.timeout_s)
    finally:
        os.close(reader)
        _end(pid)
    if answer is None:
        return Finding(FAILS, f'did not end within {check.timeout_s:g} s and was cut off', check.mend)
    if not answer:
        return Finding(FAILS, 'ended its process without an answer, as a crash in compiled code does', check.mend)
    return Finding(**json.loads(answer))


def _look_silently(check: Check, writer: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # what libraries print belongs to no row of the table
        os.dup2(nowhere, descriptor)
    faulthandler.disable()  # it writes past our descriptors
    logging.disable()
    warnings.simplefilter('ignore')
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        finding = check.look()
    except Exception as error:  # any: that is what the check has found
        text = ' '.join(str(error).split()) or 'without a message'
        finding = Finding(FAILS, f'{type(error).__name__}: {text}'[:500], check.mend)
    with os.fdopen(writer, 'wb') as pipe:
        pipe.write(json.dumps(asdict(finding)).encode() + b'\n')


def _read_until(reader: int, deadline: float) -> Optional[bytes]:
    """A line, or nothing if the other side ends without one, or None if that takes too long."""
    answer = b''
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(reader, 65536)
        answer += data
        if not data or data.endswith(b'\n'):
            return answer
    return None


def _end(pid: int) -> None:
    """End a check's process and what it started, without waiting long for one that even SIGKILL does not reach."""
    for kill in (os.killpg, os.kill):  # it may not have got as far as a session of its own
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 1
    while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < deadline:
        time.sleep(0.005)
