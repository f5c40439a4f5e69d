"""A process that serves a learner: what collectors and evaluators have in common."""

import hashlib
import json
import logging
import os
import socket
import threading
import time
from collections import OrderedDict
from typing import Any, Callable, Dict, Optional, Tuple

from .. import __version__
from .link import Link
from .members import ASLEEP_S, HELLO_EVERY_S

logger = logging.getLogger(__name__)

# Silence after which a word is said about it, long before a node gives up.
_SILENT_S = 5.0
# An answer that is still waited for is sent again after so long; the learner's list, which names it, may be that old.
_SEND_AGAIN_S = 3.0
# Where nothing is to be done; the next order wakes it up.
_IDLE_S = 0.5


class LearnerGone(Exception):
    """No word from the learner for as long as a node waits for one."""


class Refused(Exception):
    """The learner does not take this node."""


def fingerprint(cfg: 'EasyDict') -> str:  # noqa: F821
    """
    Overview:
        What must be equal for play to be of use to a learner: the version, the environment, the model, how returns \
        are made. How many environments play is each host's own.
    Arguments:
        - cfg (:obj:`EasyDict`): The merged config.
    """
    env = {key: value for key, value in cfg.env.items() if key not in ('manager', 'collector_env_num')}
    policy = {key: cfg.policy.get(key) for key in ('type', 'model', 'nstep', 'discount_factor', 'priority')}
    policy['n_sample'] = cfg.policy.collect.get('n_sample')
    text = json.dumps([env, policy], sort_keys=True, default=str)
    return f'{__version__}, config {hashlib.sha256(text.encode()).hexdigest()[:8]}'


class Node(object):
    """
    Overview:
        Says hello once a second, keeps the newest weights, takes orders, and keeps each answer until the learner has \
        it. A learner that is silent is waited for; one that has been started again begins anew with this node.
    Interfaces:
        ``next_order``, ``answer``, ``weights``, ``leave``.
    Properties:
        ``is_over``, ``name``.
    """

    def __init__(
        self,
        link: Link,
        role: str,
        fingerprint: str,
        learner_timeout_s: float,
        say: Callable[[str], None],
        stop_requested: Callable[[], bool],
    ) -> None:
        """
        Arguments:
            - link (:obj:`Link`): To the learner.
            - role (:obj:`str`): 'collector' or 'evaluator'.
            - fingerprint (:obj:`str`): See ``fingerprint``.
            - learner_timeout_s (:obj:`float`): Seconds that a silent learner is waited for.
            - say (:obj:`Callable`): Told, in a sentence, what happens.
            - stop_requested (:obj:`Callable`): Whether this process is to end.
        """
        self.name = link.name
        self.role = role
        self.is_over = False
        self._link = link
        self._fingerprint = fingerprint
        self._learner_timeout_s = learner_timeout_s
        self._say = say
        self._stop_requested = stop_requested
        self._place = f'{socket.gethostname()}, process {os.getpid()}'
        self._session: Optional[str] = None
        self._played_steps = 0  # for this session
        self._last_message = 0
        self._heard_s = time.monotonic()
        self._has_said_silent = False
        self._is_paused = False
        self._refusal: Optional[str] = None
        self._orders: 'OrderedDict[int, Dict[str, Any]]' = OrderedDict()  # not begun
        self._under_way: Optional[int] = None
        self._answers: Dict[int, Tuple[str, dict]] = {}
        self._sent_s: Dict[int, float] = {}
        self._weights: Dict[str, Tuple[int, bytes]] = {}  # by what they are for: 'play', or an order's number
        self._changed = threading.Condition()
        self._closing = threading.Event()
        link.on('orders', self._take_orders)
        link.on('weights', self._take_weights)
        self._greeter = threading.Thread(target=self._greet, name='hello', daemon=True)
        self._greeter.start()

    # ---------------------------------------------------------------- what the learner says

    def _take_orders(self, message: dict) -> None:
        with self._changed:
            self._note_session(message['session'])
            if message['message'] <= self._last_message:  # it was overtaken
                return
            self._last_message = message['message']
            self._heard_s = time.monotonic()
            self._refusal = message['refused'].get(self.name)
            self.is_over = self.is_over or message['finished']
            self._is_paused = self._is_paused or message['paused']
            if self.name in message['orders']:
                self._take_list({order['number']: order for order in message['orders'][self.name]})
            self._changed.notify_all()

    def _note_session(self, session: str) -> None:
        if session == self._session:
            return
        if self._session is not None:
            unsent = f'; {len(self._answers)} answers to the one before are dropped' if self._answers else ''
            self._say(f'A learner has been started anew{unsent}.')
        self._session, self._last_message = session, 0
        self._is_paused = False
        self._played_steps = 0
        self._orders.clear()
        self._answers.clear()
        self._weights.clear()
        self._under_way = None

    def _take_list(self, orders: Dict[int, dict]) -> None:
        """What the learner waits for: the rest it has, or has given up."""
        for number in [number for number in self._answers if number not in orders]:
            del self._answers[number], self._sent_s[number]
        now_s = time.monotonic()
        for number in self._answers:
            if now_s - self._sent_s[number] > _SEND_AGAIN_S:
                self._send_answer(number)
        new = {n: order for n, order in orders.items() if n != self._under_way and n not in self._answers}
        self._orders = OrderedDict(sorted(new.items()))

    def _take_weights(self, message: dict) -> None:
        with self._changed:
            if message['to'] in (None, self.name):
                self._note_session(message['session'])
                self._heard_s = time.monotonic()
                held = self._weights.get(message['purpose'])
                if held is None or message['version'] >= held[0]:
                    self._weights[message['purpose']] = (message['version'], message['payload'])
                self._changed.notify_all()

    def _greet(self) -> None:
        greeted_s = time.monotonic()
        while True:
            with self._changed:
                now_s = time.monotonic()
                if now_s - greeted_s > ASLEEP_S:  # this process was asleep itself, and so deaf
                    self._heard_s += now_s - greeted_s
                greeted_s = now_s
                held = self._weights.get('play')
                message = dict(
                    name=self.name,
                    role=self.role,
                    place=self._place,
                    fingerprint=self._fingerprint,
                    session=self._session,
                    weights=None if held is None else held[0],
                    played_steps=self._played_steps,
                    lacking=[number for number in self._orders if str(number) not in self._weights],
                )
            self._link.send('hello', message)
            if self._closing.wait(HELLO_EVERY_S):
                break

    # ---------------------------------------------------------------- what this process does

    def next_order(self, purpose: Callable[[dict], str]) -> Optional[Dict[str, Any]]:
        """
        Overview:
            Wait a moment for an order whose weights are here.
        Arguments:
            - purpose (:obj:`Callable`): What weights an order takes: 'play', its own number as a string, or '' for \
                none.
        Returns:
            - order (:obj:`Optional[Dict[str, Any]]`): None if there is none yet; then ask again.
        Raises:
            - LearnerGone: If the learner is silent for longer than it is waited for.
            - Refused: If the learner does not take this node.
        """
        with self._changed:
            if not self._is_ready(purpose):
                self._changed.wait(_IDLE_S)
            self._check()
            if not self._is_ready(purpose):
                return None
            self._under_way, order = self._orders.popitem(last=False)
            return dict(order, session=self._session)

    def _is_ready(self, purpose: Callable[[dict], str]) -> bool:
        order = next(iter(self._orders.values()), None)
        return order is not None and (not purpose(order) or purpose(order) in self._weights)

    def _check(self) -> None:
        self._link.check()
        if self._refusal is not None:
            raise Refused(f'the learner refuses this {self.role}: {self._refusal}')
        silent_s = time.monotonic() - self._heard_s
        if silent_s > self._learner_timeout_s:
            raise LearnerGone(
                f'no word from a learner at {", ".join(self._link.attached) or self._link.where} for {silent_s:.0f} '
                'seconds; expected one there, with the same --channel (--learner-timeout)'
            )
        if silent_s > _SILENT_S and not self._has_said_silent:
            # not before: one that its learner's launcher started is ended with it
            what = 'The run is stopped' if self._is_paused else 'No word from the learner'
            yet = ' yet' if self._session is None else ''
            self._say(f'{what}{yet}; waiting {self._learner_timeout_s:.0f} seconds for it.')
            self._has_said_silent = True
        elif silent_s < _SILENT_S and self._has_said_silent:
            self._say('The learner is there again.')
            self._has_said_silent = False

    def weights(self, purpose: str) -> Tuple[int, bytes]:
        """The newest weights for a purpose, and how many updates they have seen."""
        with self._changed:
            return self._weights[purpose]

    def answer(self, order: Dict[str, Any], kind: str, message: dict) -> None:
        """
        Overview:
            Send what an order asked for, and keep it until the learner has it.
        Arguments:
            - order (:obj:`Dict[str, Any]`): From ``next_order``.
            - kind (:obj:`str`): Of the message.
            - message (:obj:`dict`): The answer.
        """
        with self._changed:
            self._under_way = None
            if order['session'] != self._session:
                self._say('What was being played was for a learner that is gone; it is dropped.')
                return
            number = order['number']
            self._played_steps += message.get('env_steps', 0)
            self._weights.pop(str(number), None)
            whose = dict(name=self.name, session=self._session, number=number, played_steps=self._played_steps)
            self._answers[number] = (kind, dict(message, **whose))
            self._send_answer(number)

    def _send_answer(self, number: int) -> None:
        self._sent_s[number] = time.monotonic()
        self._link.send(*self._answers[number])

    def should_end(self) -> bool:
        """Whether the run is over, or this process is asked to end."""
        return self.is_over or self._stop_requested()

    def leave(self, reason: str) -> None:
        """
        Overview:
            Say goodbye, so that nobody waits for this node. It can be called at any time, any number of times.
        Arguments:
            - reason (:obj:`str`): Why, for the learner's log.
        """
        if not self._closing.is_set():
            self._closing.set()
            self._greeter.join()
            with self._changed:
                message = dict(name=self.name, session=self._session, played_steps=self._played_steps, reason=reason)
            self._link.send('bye', message)
            time.sleep(0.1)  # the queue sends in the background, and drops what is left when it is closed
