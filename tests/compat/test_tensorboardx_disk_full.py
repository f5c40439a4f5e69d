"""A full disk does not end a training, and TensorBoard's events are complete once there is room again."""

import contextlib
import os
import threading

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboardX import SummaryWriter

from breakout_env.compat.tensorboardx_disk_full import retry_writes
from helpers.processes import wait_until


@contextlib.contextmanager
def full_disk(path):
    """What this process writes to an open file finds no room."""
    (fd,) = (int(fd) for fd in os.listdir('/proc/self/fd') if os.path.realpath(f'/proc/self/fd/{fd}') == str(path))
    disk = os.dup(fd)
    with open('/dev/full', 'wb') as full:
        os.dup2(full.fileno(), fd)
    yield
    os.dup2(disk, fd)
    os.close(disk)


def test_events_wait_for_room_on_a_full_disk_and_none_is_torn(tmp_path, caplog):
    writer = SummaryWriter(str(tmp_path))
    retry_writes(writer)
    writer.add_scalar('before', 1.0, 0)
    writer.flush()
    (path,) = tmp_path.iterdir()
    with full_disk(path):
        for step in range(2000):
            writer.add_scalar('meanwhile', float(step), step)
        writer.flush()
    assert sum('has to wait' in record.message for record in caplog.records) == 1
    writer.close()
    tags = [value.tag for event in EventFileLoader(str(path)).Load() for value in event.summary.value]
    assert tags == ['before'] + ['meanwhile'] * 2000


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_upstream_still_ends_its_thread_at_the_first_error(tmp_path):
    threads = set(threading.enumerate())
    writer = SummaryWriter(str(tmp_path), flush_secs=1)
    (thread,) = set(threading.enumerate()) - threads
    (path,) = tmp_path.iterdir()
    with full_disk(path):
        writer.add_scalar('lost', 1.0, 0)
        assert wait_until(lambda: not thread.is_alive()), 'upstream outlasts a full disk now'
    writer.file_writer.event_writer.close = lambda: None  # at the interpreter's exit it would wait for its thread
