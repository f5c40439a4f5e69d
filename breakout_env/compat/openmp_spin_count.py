"""libgomp in PyTorch's wheels for Linux: a thread spins for milliseconds before it sleeps. Beside other programs it
keeps the core from the very thread that it waits for. A shorter time costs an idle machine nothing
(https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html).
"""

import os
import shlex
import sys

SPIN_COUNT = 10_000  # turns of a loop: tens of microseconds, longer than most waits within an update
# A user may have set either of them.
_DECIDING = 'GOMP_SPINCOUNT', 'OMP_WAIT_POLICY'


def set_spin_count() -> None:
    """Set the environment variable for this process and its children. libgomp reads it when it is loaded, so this does
    nothing if PyTorch was imported before, as in DI-engine's command. What a user has set stays.
    """
    if 'torch' not in sys.modules and not _is_decided():
        os.environ['GOMP_SPINCOUNT'] = str(SPIN_COUNT)


def spinning_warning(threads: int) -> str | None:
    """A warning, with a better command, for a program that imported PyTorch before this package, learns with so many
    threads and shares the cores with other programs; else None.
    """
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if _is_decided() or threads < 2 or load <= cores:
        return None
    command = shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
    return (
        f"The load average is {load:.1f} on {cores} cores. PyTorch's {threads} threads then keep each other waiting: "
        f'updates take many times as long. To start the run without that: GOMP_SPINCOUNT={SPIN_COUNT} {command}'
    )


def _is_decided() -> bool:
    return any(name in os.environ for name in _DECIDING)
