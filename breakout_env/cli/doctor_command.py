"""``breakout doctor``: what works on this machine, and how to fix the rest.

Each check has a process of its own and a time limit: a driver that hangs, a display that does not answer and a network
disk that is gone are what a check is to find, so none of them may stop the other checks.
"""

import contextlib
import faulthandler
import json
import logging
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator

import click

from .doctor_checks import CHECKS, FAILS, OK, WARNING, Answer, Check

COLOURS = {OK: 'green', WARNING: 'yellow', FAILS: 'red'}


@click.command()
@click.option('--json', 'as_json', is_flag=True, help='For programs: a list of checks, their states and answers.')
def command(as_json: bool) -> None:
    """Try whether everything works on this machine, and say how to fix the rest.

    Exit code 1 if something fails that training needs.

    \b
    Examples:
      breakout doctor
      breakout doctor --json > doctor.json
    """
    rows = []
    for row in run_checks(CHECKS):
        rows.append(row)
        if not as_json:  # each when it is there
            click.echo(f'{click.style(f"{row.state:9}", fg=COLOURS[row.state])}{row.name:16}{row.found}')
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows], indent=2))
    elif fixes := [f'  {row.name}: {row.fix}' for row in rows if row.fix]:
        click.echo('\n'.join(['How to fix it:', *fixes]))
    sys.exit(any(row.state == FAILS for row in rows))


def run_checks(checks: Iterable[Check]) -> Iterator[Answer]:
    """Run checks, one after the other; one that raises, crashes or hangs has failed. multiprocessing would wait for
    such a process when the interpreter exits, and one in a call to a hanging driver does not even obey SIGKILL.
    """
    for check in checks:
        reader, writer = multiprocessing.Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()  # so that the processes it starts can be ended with it
                writer.send(_look_silently(check))
            finally:
                os._exit(0)  # never run the parent's code
        writer.close()
        answer = Answer(FAILS, f'did not end within {check.timeout_s:g} s and was ended', check.fix)
        try:
            if reader.poll(check.timeout_s):
                answer = reader.recv()
        except EOFError:
            answer = Answer(FAILS, 'ended its process without an answer, as a crash in compiled code does', check.fix)
        finally:
            reader.close()
            _kill(pid)
        is_optional = answer.state == FAILS and not check.needed
        yield answer._replace(name=check.name, state=WARNING if is_optional else answer.state)


def _look_silently(check: Check) -> Answer:
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
        return Answer(FAILS, f'{type(error).__name__}: {text}'[:500], check.fix)


def _kill(pid: int) -> None:
    """End a check's process and those it started; give up after a second on a process that SIGKILL does not end."""
    for kill in (os.killpg, os.kill):  # it may have died before it had a session of its own
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 1
    while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < deadline:
        time.sleep(0.005)
