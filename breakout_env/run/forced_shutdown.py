"""A forced shutdown: the second Ctrl-C ends a command within moments, whatever its threads and workers do."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading

from ..compat.ding_command_line import is_command

# The time for closing what is open.
_CLOSING_S = 1.2


def force_shutdown(number: int) -> None:
    """Raise ``SystemExit``, and end a command after a moment; the next Ctrl-C ends it at once. In a notebook or a
    multiprocessing child only the exception is raised.
    """
    with contextlib.suppress(OSError):  # the terminal may be gone
        os.write(2, b'stopped\n')
    if is_command():
        let_ctrl_c_kill()
        timer = threading.Timer(_CLOSING_S, _end_now, (128 + number,))
        timer.daemon = True
        timer.start()
    sys.exit(128 + number)


def let_ctrl_c_kill() -> None:
    """Have the next Ctrl-C end a command silently: nothing catches a KeyboardInterrupt while a command unwinds."""
    if is_command():
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_now(code: int) -> None:
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(code)
