"""tensorboardX 2.6: the thread that writes the events ends at the first error, and the training waits for ever when it
logs the eleventh event after it.
"""

import contextlib
import logging
import os
from typing import BinaryIO

from tensorboardX import SummaryWriter

logger = logging.getLogger(__name__)


class RetryingWriter:
    """A file that keeps what a full disk does not take, and writes it once there is room, so that no event is torn."""

    def __init__(self, file: BinaryIO) -> None:
        file.flush()
        self._file = file
        self._pending = bytearray()
        self._has_warned = False

    def write(self, data: bytes) -> None:
        self._pending += data
        self.flush()

    def flush(self) -> None:
        """Write what the disk takes."""
        try:
            while self._pending:
                del self._pending[: os.write(self._file.fileno(), self._pending)]
        except OSError as error:
            if not self._has_warned:
                name = getattr(self._file, 'name', 'log')
                logger.warning("TensorBoard's %s has to wait, the training continues: %s", name, error)
            self._has_warned = True

    def close(self) -> None:
        self.flush()
        self._file.close()


def retry_writes(writer: SummaryWriter) -> None:
    """Let a writer of TensorBoard's log outlast a full disk. One of another structure stays as it is."""
    with contextlib.suppress(AttributeError):
        record_writer = writer.file_writer.event_writer._ev_writer._py_recordio_writer
        if not isinstance(record_writer._writer, RetryingWriter):
            record_writer._writer = RetryingWriter(record_writer._writer)
