"""The start of a run: one error for whatever ends it, and the folder of a run that did not begin is removed."""

import contextlib
import os
import shutil
from collections.abc import Iterator

from ..compat.ding_registry_hint import without_registry_hint
from ..utils.child_process import HelperError
from .paths import MERGED_CONFIG


@contextlib.contextmanager
def environments_start() -> Iterator[None]:
    """Around what starts a run's environments. Raises ``HelperError`` for any error, which keeps it as its cause."""
    try:
        with without_registry_hint():
            yield
    except Exception as error:
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        busy = f'The load average is {load:.1f} on {cores} cores'
        raise HelperError(f'the environments did not start: {last_line(error).rstrip(".")}. {busy}') from error


def remove_unless_begun(folder: str) -> None:
    """Remove the folder of a new run that ended before it began, so that the next run gets its name."""
    if not os.path.exists(os.path.join(folder, MERGED_CONFIG)):
        shutil.rmtree(folder, ignore_errors=True)


def last_line(error: Exception) -> str:
    """What happened, without the traceback that errors of other processes carry in their message."""
    return (str(error).strip().splitlines() or [repr(error)])[-1].strip()
