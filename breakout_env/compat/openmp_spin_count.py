"""
How long PyTorch's threads wait for each other by spinning.

On Linux they are libgomp's, GCC's OpenMP, which has a thread spin for milliseconds before it sleeps. Where other
programs want the cores as well, one that spins keeps the core from the thread that it waits for, and a training in two
threads is slower than in one. Spinning for a shorter time costs an idle machine nothing (benchmarks/bench_busy.py).
"""

import os
import sys

VARIABLE = 'GOMP_SPINCOUNT'
# Turns of a loop: tens of microseconds, longer than most waits within an update.
SPINS = 10_000
# Who has set one of these has thought about it.
_RELATED = (VARIABLE, 'OMP_WAIT_POLICY')


def wait_briefly() -> None:
    """
    Overview:
        Have the threads of this process and of those it starts spin for a short time only. libgomp reads the variable
        when it is loaded, so nothing is done where PyTorch has been imported before, as in DI-engine's own command.
    """
    if 'torch' not in sys.modules and not any(name in os.environ for name in _RELATED):
        os.environ[VARIABLE] = str(SPINS)
