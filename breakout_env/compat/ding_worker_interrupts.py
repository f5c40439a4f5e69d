"""DI-engine 0.5.3: a terminal sends Ctrl-C to all of its processes, and each worker of ``subprocess`` managers ends
with a traceback, before the trainer can save and close the manager.
"""

import contextlib
import multiprocessing
import signal

from ..utils.signals import is_free

# How the names of the processes begin. Not all workers: gymnasium's AsyncVectorEnv waits for ever for workers that
# outlive a Ctrl-C.
WORKERS = 'subprocess_env_manager'


def leave_ctrl_c_to_manager() -> None:
    """In a worker of DI-engine's managers, ignore Ctrl-C, unless the program handles it in its own way."""
    if multiprocessing.current_process().name.startswith(WORKERS) and is_free(signal.SIGINT):
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)
