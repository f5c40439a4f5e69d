"""
What goes over the wire, counted where DI-engine hands it to its message queue: topics, messages and bytes.

``count(path)`` puts a queue that counts in the place of DI-engine's ``nng``, by its registry, before a process takes
part in anything. The place has to be that name: ``Parallel.runner`` knows the arguments of two names only, ``nng`` and
``redis``. Counts are written to a file of JSON, a process each, about four times a second.
"""

import json
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import psutil
from ding.framework.message_queue.nng import NNGMQ
from ding.utils import MQ_REGISTRY

WRITE_EVERY_S = 0.25
# More bytes that go beside the queue, as by a storage loader that writes them to files, for the same table.
BESIDE = 'files'


class Counts(object):
    """
    Overview:
        Messages and bytes by topic, since the process began.
    Interfaces:
        ``sent``, ``received``, ``write``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._started_s = psutil.Process().create_time()
        self._sent: Dict[str, Dict[str, float]] = defaultdict(dict)
        self._received: Dict[str, Dict[str, float]] = defaultdict(dict)

    def sent(self, topic: str, nbytes: int, receivers: int) -> None:
        """Note a message that is sent to so many."""
        self._note(self._sent[topic], nbytes, copies_bytes=nbytes * receivers)

    def received(self, topic: str, nbytes: int) -> None:
        """Note a message that has come."""
        self._note(self._received[topic], nbytes)

    def _note(self, counts: Dict[str, float], nbytes: int, **more: float) -> None:
        with self._lock:
            for name, value in dict(messages=1, bytes=nbytes, **more).items():
                counts[name] = counts.get(name, 0) + value
            counts.setdefault('first_after_s', time.time() - self._started_s)

    def write(self) -> None:
        """Write what has been counted so far."""
        with self._lock:
            text = json.dumps(dict(pid=os.getpid(), time=time.time(), sent=self._sent, received=self._received))
        beside = self._path.with_suffix('.new')
        beside.write_text(text)
        beside.replace(self._path)  # whoever reads it finds it whole


def count(path: Path) -> Counts:
    """
    Overview:
        From now on, count what this process sends and receives by DI-engine's ``nng`` queue.
    Arguments:
        - path (:obj:`Path`): The file to write.
    Returns:
        - counts (:obj:`Counts`): For those who send by other ways, too.
    """
    counts = Counts(path)

    class CountedNNG(NNGMQ):
        """DI-engine's, which counts. A message goes to each process that this one is connected to."""

        def publish(self, topic: str, data: bytes) -> None:
            if self._running:
                counts.sent(topic, len(topic) + 2 + len(data), len(self._sock.pipes))
            super().publish(topic, data)

        def recv(self) -> Optional[Tuple[str, bytes]]:
            message = super().recv()
            if message:
                topic, data = message
                counts.received(topic, len(topic) + 2 + len(data))
            return message

    MQ_REGISTRY.register('nng', CountedNNG, force_overwrite=True)

    def write_again_and_again() -> None:
        while True:
            time.sleep(WRITE_EVERY_S)
            counts.write()

    threading.Thread(target=write_again_and_again, daemon=True).start()
    return counts


def read(path: Path) -> Dict[str, Any]:
    """What a process has written last; nothing if it has not come to that."""
    return json.loads(path.read_text()) if path.exists() else dict(time=time.time(), sent={}, received={})
