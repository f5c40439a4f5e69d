"""What the kernel is asked for, so that nothing that the soak starts outlives it unseen. Linux only."""

import contextlib
import ctypes
import signal

import psutil

_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of <sys/prctl.h>


def end_with_parent() -> None:
    """The calling process is killed when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Processes below the calling one that lose their parent become its children, and not those of process 1."""
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def end_tree(process: psutil.Process) -> None:
    """End a process and all below it, at once."""
    with contextlib.suppress(psutil.Error):
        for each in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.Error):
                each.kill()
