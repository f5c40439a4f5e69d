"""The start of a run: one error for whatever ends it, and the name of a run that did not begin is free again."""

import contextlib
import os
import shutil
from typing import Iterator, Optional

from ..compat.ding_registry_hint import without_registry_hint
from ..utils.child_process import HelperError


class StartError(HelperError):
    """The environments of a run could not be started; the message says why, and how busy the machine is."""


@contextlib.contextmanager
def starting(new_folder: Optional[str]) -> Iterator[None]:
    """
    Overview:
        Around the start of a run's environments. Where it fails, the folder of a new run is removed, so that the next
        one gets its name.
    Arguments:
        - new_folder (:obj:`Optional[str]`): The folder that was made for this run; None if the run is resumed.
    Raises:
        - StartError: For any error of the start.
    """
    try:
        with without_registry_hint():
            yield
    except BaseException as error:
        if new_folder is not None:
            shutil.rmtree(new_folder, ignore_errors=True)
        if isinstance(error, Exception):
            raise StartError(f'the environments did not start: {_last_line(error)}. {_load()}') from error
        raise


def _last_line(error: Exception) -> str:
    """What happened, without the traceback that errors of worker processes carry in their message."""
    lines = str(error).strip().splitlines()
    return lines[-1].rstrip('.') if lines else repr(error)


def _load() -> str:
    return f'The load average is {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores'
