"""A full disk does not end a training, and TensorBoard's events are complete once there is room again."""

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboardX import SummaryWriter

from breakout_env.compat.tensorboardx_disk_full import RetryingWriter, retry_writes
from helpers.processes import wait_until


def test_events_wait_for_room_on_a_full_disk_and_none_is_torn(tmp_path, caplog):
    writer = SummaryWriter(str(tmp_path))
    retry_writes(writer)
    file = writer.file_writer.event_writer._ev_writer._py_recordio_writer._writer
    assert isinstance(file, RetryingWriter)
    writer.add_scalar('before', 1.0, 0)
    writer.flush()
    disk, full = file._file, open('/dev/full', 'wb', buffering=0)
    file._file = full
    for step in range(2000):
        writer.add_scalar('meanwhile', float(step), step)
    writer.flush()
    assert sum('has to wait' in record.message for record in caplog.records) == 1
    file._file = disk
    full.close()
    writer.close()
    (path,) = [path for path in tmp_path.iterdir() if 'tfevents' in path.name]
    tags = [value.tag for event in EventFileLoader(str(path)).Load() for value in event.summary.value]
    assert tags == ['before'] + ['meanwhile'] * 2000


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_upstream_still_ends_its_thread_at_the_first_error(tmp_path):
    writer = SummaryWriter(str(tmp_path))
    events = writer.file_writer.event_writer
    file = events._ev_writer._py_recordio_writer
    with open('/dev/full', 'wb', buffering=0) as full:
        disk, file._writer = file._writer, full
        writer.add_scalar('lost', 1.0, 0)
        assert wait_until(lambda: not events._worker.is_alive()), 'upstream outlasts a full disk now'
    disk.close()
    events.close = lambda: None  # at the interpreter's exit it would wait for its thread for ever
