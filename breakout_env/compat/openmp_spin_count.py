"""libgomp in PyTorch's wheels for Linux: a thread spins for milliseconds before it sleeps. Beside other programs it
keeps the core from the very thread that it waits for. A shorter time costs an idle machine nothing
(https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html).
"""

import os
import sys

SPIN_COUNT = 10_000  # turns of a loop: tens of microseconds, longer than most waits within an update


def set_spin_count() -> None:
    """Set the environment variable for this process and its children. libgomp reads it when it is loaded, so this does
    nothing if PyTorch was imported before, as in DI-engine's command. What a user has set stays.
    """
    is_set = 'GOMP_SPINCOUNT' in os.environ or 'OMP_WAIT_POLICY' in os.environ
    if 'torch' not in sys.modules and not is_set:
        os.environ['GOMP_SPINCOUNT'] = str(SPIN_COUNT)
