"""The learner's weights, sent to whoever plays: now and then, and to those who have none."""

import time
from typing import Callable, Mapping

import torch

from . import weights
from .link import Link
from .members import Members

# A node that joins hears of the learner within a second; only then can it take weights.
_REPEAT_S = 1.0


class Broadcast(object):
    """
    Overview:
        Sends the weights to play with, to all collectors at once; again if one of them has none.
    Interfaces:
        ``send``.
    Properties:
        ``sent_bytes``.
    """

    def __init__(
        self,
        link: Link,
        members: Members,
        state_dict: Callable[[], Mapping[str, torch.Tensor]],
        every_s: float,
    ) -> None:
        """
        Arguments:
            - link (:obj:`Link`): To the others.
            - members (:obj:`Members`): Who they are.
            - state_dict (:obj:`Callable`): The model's.
            - every_s (:obj:`float`): Least seconds between two sendings.
        """
        self.sent_bytes = 0
        self._link = link
        self._members = members
        self._state_dict = state_dict
        self._every_s = every_s
        self._sent_s = self._repeated_s = float('-inf')
        self._message: dict = {}

    def send(self, train_iter: int) -> None:
        """
        Overview:
            Send the weights as they are now, unless that was done a moment ago.
        Arguments:
            - train_iter (:obj:`int`): Updates they have seen.
        """
        now_s = time.monotonic()
        if now_s - self._sent_s >= self._every_s and train_iter != self._message.get('version'):
            self._sent_s = now_s
            self._message = dict(
                session=self._members.session,
                to=None,
                purpose='play',
                version=train_iter,
                payload=weights.to_bytes(self._state_dict()),
            )
            self._send()
            return
        has_none = any(member.weights is None for member in self._members.of_role('collector'))
        if has_none and now_s - self._repeated_s >= _REPEAT_S:
            self._send()

    def _send(self) -> None:
        self._repeated_s = time.monotonic()
        if self._members.of_role('collector'):
            self.sent_bytes += len(self._message['payload'])
            self._link.send('weights', self._message)
