"""What DI-engine's workers write to TensorBoard, written down to be sent to the learner, which has the log."""

from typing import Any, List, Tuple

from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

Call = Tuple[str, tuple]


class Recorder(object):
    """
    Overview:
        Stands where a ``SummaryWriter`` would, and notes what it is told.
    Interfaces:
        ``add_scalar``, ``add_summary``, ``take``, ``flush``, ``close``.
    Properties:
        ``file_writer``.
    """

    def __init__(self) -> None:
        self._calls: List[Call] = []

    @property
    def file_writer(self) -> 'Recorder':
        """Takes summaries."""
        return self

    def add_scalar(self, tag: str, value: Any, step: int) -> None:
        """As ``SummaryWriter``'s."""
        self._calls.append(('scalar', (tag, float(value), int(step))))

    def add_summary(self, summary: Summary, step: int) -> None:
        """As the writer's behind a ``SummaryWriter``."""
        self._calls.append(('summary', (summary.SerializeToString(), int(step))))

    def take(self) -> List[Call]:
        """
        Overview:
            What was noted since the last time, for ``replay``.
        """
        calls, self._calls = self._calls, []
        return calls

    def flush(self) -> None:
        """Nothing is to be flushed."""

    def close(self) -> None:
        """Nothing is to be closed."""


def replay(calls: List[Call], writer: SummaryWriter) -> None:
    """
    Overview:
        Write what was noted.
    Arguments:
        - calls (:obj:`List[Call]`): From ``Recorder.take``.
        - writer (:obj:`SummaryWriter`): Where to.
    """
    for kind, values in calls:
        if kind == 'scalar':
            writer.add_scalar(*values)
        elif kind == 'summary':
            writer.file_writer.add_summary(Summary.FromString(values[0]), values[1])
