"""``breakout train`` with faults in it::

    python faulty_program.py '{"failing_disk": {"first": 8, "times": 2}}' train --env-steps 100 ...

The first argument names functions of this file, and the arguments that they are called with before the run begins.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from breakout_cli import main
from breakout_env.env_manager import GroupEnvManager
from breakout_env.envs.emulator import Emulator

# In the current folder; the first is made by the process that meets the fault.
PLANTED = Path('planted')
MOMENT = Path('moment')


def moment(steps: int) -> None:
    """Make a file at a step of the env managers, so that the test acts at a moment of the run, not of the clock."""
    step, count = GroupEnvManager.step, [0]

    def counted(manager: GroupEnvManager, actions: Any) -> Any:
        count[0] += 1
        if count[0] == steps:
            MOMENT.touch()
        return step(manager, actions)

    GroupEnvManager.step = counted


def broken_emulator(method: str, call: int, hangs: bool) -> None:
    """Have one call of an emulator's method raise or hang, in the process that reaches it first. The process that
    replaces a lost worker is a fork of the same parent, and does not fail again.
    """
    function, count = getattr(Emulator, method), [0]

    def faulty(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] >= call:
            with contextlib.suppress(FileExistsError):  # another process was first
                PLANTED.touch(exist_ok=False)
                if hangs:
                    time.sleep(10**6)
                raise RuntimeError('planted')
        return function(*args, **kwargs)

    setattr(Emulator, method, faulty)


def failing_disk(first: int, times: int) -> None:
    """Have some flushes to the disk fail, one after the other; then print that it works again."""
    fsync, count = os.fsync, [0]

    def failing(descriptor: int) -> None:
        count[0] += 1
        if first <= count[0] < first + times:
            raise OSError(5, 'planted')
        if count[0] == first + times:
            print('the disk works again', flush=True)
        fsync(descriptor)

    os.fsync = failing


def killed_while_saving(moment: int) -> None:
    """SIGKILL at a moment of those right before and right after the system calls that make a save."""
    left = [moment]

    def pass_a_moment() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(function: Callable) -> Callable:
        def faulty(*args: Any, **kwargs: Any) -> Any:
            pass_a_moment()
            result = function(*args, **kwargs)
            pass_a_moment()
            return result

        return faulty

    for name in ('fsync', 'replace', 'link', 'unlink'):
        setattr(os, name, counted(getattr(os, name)))


def changed_clock(hours: float) -> None:
    """Set back the clock that all processes of the run see, when the test makes ``MOMENT``."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() - 3600 * hours * MOMENT.exists()
    time.time_ns = lambda: now_ns() - int(3600e9 * hours) * MOMENT.exists()


if __name__ == '__main__':
    for function, arguments in json.loads(sys.argv[1]).items():
        globals()[function](**arguments)
    main(sys.argv[2:], prog_name='breakout')
