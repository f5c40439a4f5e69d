"""What this process and its children hold."""

import multiprocessing
import os
import re
from multiprocessing import forkserver, resource_tracker

import psutil


def footprint() -> dict[str, int]:
    """What this process holds besides memory, and its children hold for it."""
    process, started = psutil.Process(), children()
    ours = {str(one.pid) for one in [process, *started]}
    return dict(
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        children=len(started),
        # segments have their maker's process id in their name; other tests run at the same time
        shared_memory=sum(not ours.isdisjoint(re.findall(r'\d+', name)) for name in os.listdir('/dev/shm')),
    )


def children() -> list[psutil.Process]:
    """The processes started from this one that have not ended."""
    multiprocessing.active_children()  # joins those that have ended: DI-engine's managers do not
    # multiprocessing starts these with the first process that needs them; they stay until the interpreter exits
    staying = (resource_tracker._resource_tracker._pid, forkserver._forkserver._forkserver_pid)
    return [process for process in psutil.Process().children(recursive=True) if process.pid not in staying]


def newest_child() -> psutil.Process:
    """The process that was started last; not the one with the highest number, as numbers start over."""
    return max(children(), key=psutil.Process.create_time)


def grown_since(before: dict[str, int]) -> dict[str, int]:
    """What there is more of now. Less is allowed: Python may have collected what an earlier test left."""
    return {what: now - before[what] for what, now in footprint().items() if now > before[what]}


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss
