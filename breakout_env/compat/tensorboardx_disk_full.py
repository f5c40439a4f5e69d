"""
TensorBoard's log on a full disk.

Upstream behaviour worked around (tensorboardX 2.6): the thread that writes the events ends at the first error, and
whoever logs the eleventh event after it waits for ever: the training, and then its end.
"""

import contextlib
import logging
import os
from typing import BinaryIO

from tensorboardX import SummaryWriter

logger = logging.getLogger(__name__)
_AT_A_TIME_BYTES = 8192


class PatientFile(object):
    """
    Overview:
        A file that keeps what the disk has no room for, and writes it when there is room, so that no event is torn.
    Interfaces:
        ``write``, ``flush``, ``close``.
    """

    def __init__(self, file: BinaryIO) -> None:
        """
        Arguments:
            - file (:obj:`BinaryIO`): What to write to.
        """
        file.flush()
        self._file = file
        self._waiting = bytearray()
        self._is_told = False

    def write(self, data: bytes) -> int:
        """
        Overview:
            Take in data.
        """
        self._waiting += data
        if len(self._waiting) >= _AT_A_TIME_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """
        Overview:
            Hand to the operating system what it takes.
        """
        try:
            while self._waiting:
                del self._waiting[: os.write(self._file.fileno(), self._waiting)]
        except OSError as error:
            if not self._is_told:
                logger.warning("TensorBoard's log has to wait, the training goes on: %s", error)
            self._is_told = True

    def close(self) -> None:
        """
        Overview:
            The last try.
        """
        self.flush()
        self._file.close()


def make_patient(writer: SummaryWriter) -> None:
    """
    Overview:
        Have a writer of TensorBoard's outlast a full disk. One that is built in another way stays as it is.
    """
    with contextlib.suppress(AttributeError):
        record_writer = writer.file_writer.event_writer._ev_writer._py_recordio_writer
        if not isinstance(record_writer._writer, PatientFile):
            record_writer._writer = PatientFile(record_writer._writer)
