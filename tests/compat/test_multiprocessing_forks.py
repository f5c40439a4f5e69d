"""A forked process that exits leaves its parent's workers alone; envs/test_exit.py does it with environments."""

import sys

import pytest

from helpers.processes import completed

PROGRAM = """
import multiprocessing, os, sys, time
worker = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60,), daemon=True)
worker.start()
if not (pid := os.fork()):
    sys.exit()
os.waitpid(pid, 0)
worker.join(0 if {lives} else None)
print(worker.is_alive())
"""


@pytest.mark.parametrize('lives', [False, True])
def test_worker_survives_the_exit_of_a_fork_which_upstream_still_prevents(lives):
    """If this fails without the workaround, remove it."""
    first = 'import breakout_env.compat.multiprocessing_forks' if lives else ''
    result = completed([sys.executable, '-c', first + PROGRAM.format(lives=lives)])
    assert result.stdout == f'{lives}\n' and ('AssertionError' in result.stderr) != lives, result.stderr
