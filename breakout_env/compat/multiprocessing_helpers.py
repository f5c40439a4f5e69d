"""Upstream behaviour worked around (Python 3.10 to 3.12): multiprocessing starts a resource tracker and a fork server
for the whole life of a process, and says nowhere which processes they are; a fork shares its parent's.
"""

from multiprocessing import forkserver, resource_tracker


def helper_pids() -> tuple[int | None, int | None]:
    """The process ids of this process's resource tracker and fork server."""
    return resource_tracker._resource_tracker._pid, forkserver._forkserver._forkserver_pid  # type: ignore


def use_own_tracker() -> None:
    """In a fork: start another resource tracker when one is needed, which ends with this process."""
    resource_tracker._resource_tracker._fd = resource_tracker._resource_tracker._pid = None  # type: ignore
