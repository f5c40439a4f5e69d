"""Who takes part in a run, seen from the learner, and what each of them is to do."""

import itertools
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional

from .link import Link

# All of these are of the protocol: nodes count on hearing from the learner as often as it does on hearing from them.
HELLO_EVERY_S = 1.0
LOST_AFTER_S = 10.0
# Between two turns of a thread that wants one each second: the process was stopped, or the machine slept.
ASLEEP_S = 4.0
_FAREWELL_S = 5.0


@dataclass
class Member(object):
    """A collector or evaluator."""

    name: str
    role: str
    place: str  # host and process, for people
    heard_s: float
    weights: Optional[int] = None  # updates that the weights it plays with have seen; None for no weights
    played_steps: int = 0  # env steps it has played in this session, as it said last
    received_steps: int = 0  # those of them that came
    lacking: List[int] = field(default_factory=list)  # numbers of orders whose own weights have not come
    orders: Dict[int, Dict[str, Any]] = field(default_factory=dict)  # what it has not answered yet, by number

    def __str__(self) -> str:
        return f'{self.role} {self.name} ({self.place})'


class Members(object):
    """
    Overview:
        Takes in whoever says hello, gives up whoever is silent or says goodbye, and tells each of them once a second \
        what it is to do. That list is all there is: what is not on it need not be done, or kept, any more.
    Interfaces:
        ``of_role``, ``get``, ``give``, ``close_order``, ``tell``, ``finish``, ``close``.
    Properties:
        ``session``, ``lock``.
    """

    def __init__(
        self, link: Link, fingerprint: str, say: Callable[[str], None], lost_after_s: float = LOST_AFTER_S
    ) -> None:
        """
        Arguments:
            - link (:obj:`Link`): To the others.
            - fingerprint (:obj:`str`): What a member's must be equal to; see ``fingerprint``.
            - say (:obj:`Callable`): Told, in a sentence, who comes and goes.
            - lost_after_s (:obj:`float`): Seconds of silence after which a member is given up.
        """
        # one for each life of a learner: what was played for another is not this one's
        self.session = uuid.uuid4().hex
        self.lock = threading.RLock()  # of members, their orders, and all that follows from them
        self.on_join: List[Callable[[Member], None]] = []
        self.on_leave: List[Callable[[Member], None]] = []
        self._link = link
        self._fingerprint = fingerprint
        self._say = say
        self._lost_after_s = lost_after_s
        self._members: Dict[str, Member] = {}
        self._refused: Dict[str, str] = {}
        self._learners_told_of = {self.session}
        self._numbers = itertools.count(1)
        self._messages = itertools.count(1)
        self._is_finished = False
        self._is_paused = False
        self._closing = threading.Event()
        link.on('hello', self._take_hello)
        link.on('bye', self._take_bye)
        link.on('orders', self._take_orders)
        self._ticker = threading.Thread(target=self._tick, name='members', daemon=True)
        self._ticker.start()

    # ---------------------------------------------------------------- coming and going

    def _take_hello(self, message: dict) -> None:
        name = message['name']
        with self.lock:
            if self._is_finished or self._is_paused:
                self._send()
                return
            member = self._members.get(name)
            if member is None:
                if message['fingerprint'] != self._fingerprint:
                    self._refuse(message)
                    return
                member = Member(name, message['role'], message['place'], time.monotonic())
                self._members[name] = member
                self._say(f'{member} has joined; {self._count(member.role)}.')
                for call in self.on_join:
                    call(member)
            member.heard_s = time.monotonic()
            is_ours = message['session'] == self.session
            member.weights = message['weights'] if is_ours else None
            member.lacking = message['lacking'] if is_ours else []
            self._note_played(member, message)

    def _refuse(self, message: dict) -> None:
        if message['name'] not in self._refused:
            reason = (
                f"its version or config ({message['fingerprint']}) is not the learner's ({self._fingerprint}); "
                'expected the same version of breakout_env and the same env, model and returns in the config'
            )
            self._refused[message['name']] = reason
            self._say(f'{message["role"]} {message["name"]} ({message["place"]}) is refused: {reason}.')
        self._send()

    def _take_bye(self, message: dict) -> None:
        with self.lock:
            member = self._members.get(message['name'])
            if member is not None:
                self._note_played(member, message)
                self._leave(member, message['reason'])

    def _note_played(self, member: Member, message: dict) -> None:
        if message['session'] == self.session:
            member.played_steps = max(member.played_steps, message['played_steps'])  # one may overtake another

    def _take_orders(self, message: dict) -> None:
        """Another learner's, to whom our members listen as well: neither run would be what it seems."""
        other = message['session']
        if other not in self._learners_told_of and not self._is_finished:
            self._learners_told_of.add(other)
            self._say(
                f'Another learner ({message["place"]}) is on this channel; expected one. End it, or give each run a '
                '--channel of its own.'
            )

    def _leave(self, member: Member, reason: str) -> None:
        del self._members[member.name]
        came = f' Of {member.played_steps} env steps that it said it played, {member.received_steps} came.'
        is_player = member.role == 'collector'
        self._say(f'{member} is gone ({reason}); {self._count(member.role)}.{came if is_player else ""}')
        for call in self.on_leave:
            call(member)

    def _count(self, role: str) -> str:
        count = len(self.of_role(role))
        return f'{count} {role}{"" if count == 1 else "s"} now'

    def of_role(self, role: str) -> List[Member]:
        """Members of a role, those that came first at the front. With ``lock`` held, if they are to be changed."""
        with self.lock:
            return [member for member in self._members.values() if member.role == role]

    def get(self, name: str) -> Optional[Member]:
        """A member; None if it is none."""
        return self._members.get(name)

    # ---------------------------------------------------------------- what is to be done

    def give(self, member: Member, order: Dict[str, Any]) -> int:
        """
        Overview:
            Give an order; it is told with ``tell``, or within a second.
        Arguments:
            - member (:obj:`Member`): Who is to do it.
            - order (:obj:`Dict[str, Any]`): Plain values.
        Returns:
            - number (:obj:`int`): The order's.
        """
        with self.lock:
            number = next(self._numbers)
            member.orders[number] = dict(order, number=number)
            return number

    def close_order(self, answer: dict) -> Optional[Dict[str, Any]]:
        """The order that an answer is to; None if it is answered already, or given up."""
        with self.lock:
            member = self._members.get(answer['name'])
            if member is None:
                return None
            member.heard_s = time.monotonic()
            self._note_played(member, answer)
            return member.orders.pop(answer['number'], None)

    def tell(self, members: Iterable[Member]) -> None:
        """Tell some members what they are to do, now."""
        self._send({member.name: list(member.orders.values()) for member in members})

    def _send(self, orders: Dict[str, list] = {}) -> None:
        with self.lock:  # in the order of their numbers
            self._link.send(
                'orders',
                dict(
                    session=self.session,
                    message=next(self._messages),
                    place=self._link.where,
                    orders=orders,
                    refused=self._refused,
                    finished=self._is_finished,
                    paused=self._is_paused,
                ),
            )

    def _tick(self) -> None:
        ticked_s = time.monotonic()
        while not self._closing.wait(HELLO_EVERY_S):
            with self.lock:
                now_s = time.monotonic()
                # this process was asleep itself, and so deaf
                asleep_s = now_s - ticked_s if now_s - ticked_s > ASLEEP_S else 0.0
                ticked_s = now_s
                for member in list(self._members.values()):
                    member.heard_s += asleep_s
                    silent_s = now_s - member.heard_s
                    if silent_s > self._lost_after_s:
                        self._leave(member, f'no word from it for {silent_s:.0f} seconds')
                self.tell(self._members.values())

    # ---------------------------------------------------------------- the end

    def finish(self) -> None:
        """Send all members home, and wait a few seconds for them to say goodbye."""
        with self.lock:
            self._is_finished = True
        end_s = time.monotonic() + _FAREWELL_S
        while True:
            with self.lock:
                self._send()
                if time.monotonic() > end_s:
                    for member in list(self._members.values()):
                        self._leave(member, 'it did not say goodbye')
                if not self._members:
                    break
            time.sleep(0.2)

    def close(self) -> None:
        """End the thread. Without ``finish`` before, the members wait for a learner that goes on."""
        self._closing.set()
        self._ticker.join()
        with self.lock:
            self._is_paused = not self._is_finished
            if self._is_paused:
                for member in list(self._members.values()):
                    self._leave(member, 'the run is stopped')
            self._send()
        time.sleep(0.1)  # the queue sends in the background, and drops what is left when it is closed
