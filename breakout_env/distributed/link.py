"""Messages by DI-engine's router, in a form in which nothing that arrives can end the listening."""

import ipaddress
import logging
import sys
import time
import uuid
from typing import Any, Callable, List

from ding.framework import Parallel, Task

logger = logging.getLogger(__name__)
# It shows a traceback where a learner is not there yet, and goes on trying. Before any router dials, so here: under
# `ditask` that is before our first line, but not before this import.
logging.getLogger('pynng').setLevel(logging.CRITICAL)

_START_S = 10.0


class LinkError(Exception):
    """This process can not be reached, or must not be."""


class Link(object):
    """
    Overview:
        One process of a run, as the others know it: a name, and messages to and from whoever is on the same channel. \
        What arrives comes in a thread of DI-engine's, in any order.

        Upstream behaviour worked around (DI-engine 0.5.3): an error in a function that takes a message ends the \
        thread that listens, and nothing arrives any more; here it is logged. A queue that can not listen at its \
        address says so nowhere; here it is an error. One that can not reach its server raises in whoever sends; here \
        the message is lost, as messages may be.
    Interfaces:
        ``on``, ``send``, ``check``.
    Properties:
        ``name``, ``where``, ``attached``.
    """

    def __init__(self, channel: str) -> None:
        """
        Arguments:
            - channel (:obj:`str`): What the processes of one run have in common, and those of another have not.
        Raises:
            - LinkError: If nothing can be received, as when the address is taken.
        """
        self.name = uuid.uuid4().hex[:12]
        self._channel = channel.replace('::', '..')  # what separates topic and message in DI-engine's queues
        self._router = Parallel()
        self._is_lost = False
        self._wait_until_listening()

    def _wait_until_listening(self) -> None:
        end_s = time.monotonic() + _START_S
        while not self._router._mq._running:
            if not self._router._listener.is_alive() or time.monotonic() > end_s:
                raise LinkError(self._why_not())
            time.sleep(0.01)

    def _why_not(self) -> str:
        if self.where.startswith('redis://'):
            return f'no Redis server answers at {self.where[8:]}; expected one there (--redis-host, --redis-port)'
        return (
            f'this process can not listen on {self.where}; expected an address of this machine with a port that no '
            'other process uses (--address, --port)'
        )

    def check(self) -> None:
        """
        Overview:
            Notice that nothing can arrive any more: DI-engine's thread ends at a message that is none of its own.
        Raises:
            - LinkError: If it has ended.
        """
        if not self._router._listener.is_alive():
            raise LinkError(f'this process can not hear the others any more, at {self.where}; what ended that is above')

    @property
    def where(self) -> str:
        """Where it listens, or the server that it meets others at."""
        queue = self._router._mq
        return getattr(queue, 'listen_to', None) or f'redis://{queue.host}:{queue.port}'

    @property
    def attached(self) -> List[str]:
        """Whom it has been attached to, by address."""
        return list(getattr(self._router._mq, 'attach_to', ()))

    def on(self, kind: str, take: Callable[[dict], None]) -> None:
        """
        Overview:
            Have messages of a kind taken.
        Arguments:
            - kind (:obj:`str`): The kind.
            - take (:obj:`Callable`): Called with each message, in another thread; it should be quick.
        """

        def guarded(message: dict) -> None:
            try:
                take(message)
            except Exception:  # whatever it is, the next message is to be heard
                logger.exception('a message %r could not be taken', kind)

        self._router.on(self._topic(kind), guarded)

    def send(self, kind: str, message: dict) -> None:
        """
        Overview:
            Send to all who listen; from any thread.
        Arguments:
            - kind (:obj:`str`): The kind.
            - message (:obj:`dict`): Of plain values and bytes.
        """
        try:
            self._router.emit(self._topic(kind), message)
            self._is_lost = False
        except Exception as error:  # each kind of queue has errors of its own
            if not self._is_lost:
                logger.warning('messages can not be sent by %s: %s', self.where, error)
            self._is_lost = True

    def _topic(self, kind: str) -> str:
        return f'breakout.{self._channel}.{kind}'


class ElasticTask(Task):
    """
    Overview:
        DI-engine's task, whose processes may leave. Upstream behaviour worked around (DI-engine 0.5.3): a task that \
        stops tells all others to finish, too, so that a run would end with the first collector that leaves.
    Interfaces:
        As the base's.
    """

    def emit(self, event: str, *args: Any, **kwargs: Any) -> None:
        """As the base's, but for the event 'finish'."""
        if event != 'finish':
            super().emit(event, *args, **kwargs)


def refuse_foreign_address(link: Link) -> None:
    """
    Overview:
        End a process that ``ditask`` has let listen where other machines reach it, without anybody having asked for it.
    Arguments:
        - link (:obj:`Link`): The process.
    Raises:
        - LinkError: If it listens on no loopback address, and neither ``--address`` nor ``--platform`` was given.
    """
    if not link.where.startswith('tcp://'):
        return
    host = link.where[len('tcp://') :].rsplit(':', 1)[0].strip('[]')
    asked = any(argument.split('=')[0] in ('--address', '--platform') for argument in sys.argv)
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        is_loopback = host == 'localhost'
    if not (is_loopback or asked):
        raise LinkError(
            f'ditask listens on {host}, where other machines reach it, and whoever sends a message there can run code '
            f'here (messages are pickles). Expected --address 127.0.0.1, or --address {host} in a network you trust'
        )
