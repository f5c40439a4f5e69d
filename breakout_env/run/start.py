"""The start of a run: one error for whatever ends it, and the folder of a run that did not begin is removed."""

import contextlib
import os
import shutil
from collections.abc import Iterator

from ..compat.ding_registry_hint import without_registry_hint
from ..utils.child_process import HelperError


class StartError(HelperError):
    """The environments of a run could not be started; the message says why, and how busy the machine is."""


@contextlib.contextmanager
def environments_start() -> Iterator[None]:
    """Around what starts a run's environments. Raises ``StartError`` for any error, which keeps it as its cause."""
    try:
        with without_registry_hint():
            yield
    except Exception as error:
        load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
        busy = f'The load average is {load:.1f} on {cores} cores'
        raise StartError(f'the environments did not start: {last_line(error).rstrip(".")}. {busy}') from error


class NewFolder(contextlib.AbstractContextManager):
    """The folder of a new run, which is removed where the run ends before it has begun, so that the next run gets its
    name.

    Arguments:
        folder: The folder.
        begun: Whether the run has begun; set it when nothing of the start can fail any more.
    """

    def __init__(self, folder: str, begun: bool) -> None:
        self._folder, self.begun = folder, begun

    def __exit__(self, *error: object) -> None:
        if not self.begun:
            shutil.rmtree(self._folder, ignore_errors=True)


def last_line(error: Exception) -> str:
    """What happened, without the traceback that errors of other processes carry in their message."""
    return (str(error).strip().splitlines() or [repr(error)])[-1].strip()
