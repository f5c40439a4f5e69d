"""What a worker writes to TensorBoard, kept to be written elsewhere: on Ray the learner has the log."""

from typing import Any, List, Tuple

from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

Event = Tuple[str, tuple]


class EventRecorder(object):
    """Stands where DI-engine's workers expect a ``SummaryWriter``, and keeps what they write."""

    def __init__(self) -> None:
        self._events: List[Event] = []
        self.file_writer = self  # which takes summaries

    def add_scalar(self, tag: str, value: Any, step: int) -> None:
        self._events.append(('scalar', (tag, float(value), int(step))))

    def add_summary(self, summary: Summary, step: int) -> None:
        self._events.append(('summary', (summary.SerializeToString(), int(step))))

    def take(self) -> List[Event]:
        """What was written since the last call."""
        events, self._events = self._events, []
        return events

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """Nothing is open."""


def write_events(events: List[Event], writer: SummaryWriter) -> None:
    """Write what an ``EventRecorder`` kept."""
    for kind, values in events:
        if kind == 'scalar':
            writer.add_scalar(*values)
        else:
            writer.file_writer.add_summary(Summary.FromString(values[0]), values[1])
