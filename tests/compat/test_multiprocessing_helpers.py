"""The helper processes of multiprocessing, which a fork must not share."""

import os
from multiprocessing import resource_tracker

import psutil

from breakout_env.compat.multiprocessing_helpers import helper_pids, use_own_tracker


def test_the_resource_tracker_is_known_and_a_fork_starts_another():
    resource_tracker.ensure_running()
    tracker, _ = helper_pids()
    assert psutil.Process(tracker).ppid() == os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            use_own_tracker()
            resource_tracker.ensure_running()
            os.write(writer, str(helper_pids()[0]).encode())
        finally:
            os._exit(0)
    assert int(os.read(reader, 20)) != tracker
    os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)
