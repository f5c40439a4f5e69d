"""
Upstream behaviour worked around (libgomp, GCC's OpenMP, which PyTorch's wheels for Linux bring): a thread spins for
milliseconds (``GOMP_SPINCOUNT`` 300,000) before it sleeps. Beside other programs it keeps the core from the very thread
that it waits for, and a training in two threads is slower than in one. A shorter time costs an idle machine nothing.
libgomp documents the variable:
https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
"""

import os
import sys

# Turns of a loop: tens of microseconds, longer than most waits within an update.
SPIN_COUNT = 10_000


def set_spin_count() -> None:
    """
    Set the environment variable for this process and those it starts. libgomp reads it when it is loaded, so this
    does nothing if PyTorch was imported before, as in DI-engine's own command. What a user has set stays.
    """
    if 'torch' not in sys.modules and 'OMP_WAIT_POLICY' not in os.environ:
        os.environ.setdefault('GOMP_SPINCOUNT', str(SPIN_COUNT))
