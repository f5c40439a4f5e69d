"""All collectors of a run, as the learner sees them: one source of play, each piece of it counted once."""

import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set

import numpy as np

from ..utils import run_registry
from ..worker.collector import GAMES_IN_MEAN
from . import compact
from .link import Link
from .members import Member, Members
from .recorder import Call

# A collector has the next order before it is through with one, so that it never waits for the answer to a piece.
_ORDERS_EACH = 2
# Pieces that lie ready when no more are ordered: the learner is the slower side then, and play would only become older.
_READY = 2


class Piece(NamedTuple):
    """A piece of play that has arrived."""

    transitions: List[Dict[str, Any]]  # empty until it is handed over: a hundred of them unpacked take 1.5 GB
    payload: bytes
    env_steps: int
    is_random: bool
    weights: int  # updates that those weights had seen that played it
    games: List[float]  # points of the games that ended in it
    episodes: int
    records: List[Call]
    order: Dict[str, Any]
    sender: str


class Collectors(object):
    """
    Overview:
        Orders pieces of play from whoever collects, as many as the learner can use, and hands them over in the order \
        of their arrival. Env steps, episodes and games count when a piece is handed over: what lies ready when a run \
        ends, or is on its way from a collector that is given up, is neither counted nor learned from.
    Interfaces:
        ``open``, ``next_piece``, ``close``, ``state``, ``load_state``.
    Properties:
        ``envstep``, ``episodes``, ``games``, ``game_return_mean``, ``epsilon``, ``settings``, ``number``.
    """

    def __init__(
        self,
        link: Link,
        members: Members,
        exp_name: str,
        n_sample: int,
        say: Callable[[str], None],
    ) -> None:
        """
        Arguments:
            - link (:obj:`Link`): To the others.
            - members (:obj:`Members`): Who they are.
            - exp_name (:obj:`str`): Folder of the experiment.
            - n_sample (:obj:`int`): Transitions of a piece.
            - say (:obj:`Callable`): Told, in a sentence, what is lost.
        """
        # as DI-engine's collectors have it
        self.envstep = 0
        self.episodes = 0
        self.games = 0
        self.settings: Dict[str, Any] = {}  # the policy's, for the next orders
        self._game_returns: Deque[float] = deque(maxlen=GAMES_IN_MEAN)
        self._members = members
        self._n_sample = n_sample
        self._say = say
        self._is_open = False
        self._random_steps = 0  # of random play that are not ordered yet
        self._step_limit: Optional[int] = None
        self._ready: Deque[Piece] = deque()
        self._answered: Set[int] = set()  # numbers of orders; 30 MB after 100 million env steps
        self._arrived = threading.Condition(members.lock)
        members.on_join.append(lambda member: self._order())
        members.on_leave.append(self._give_up)
        link.on('piece', self._take_piece)
        run_registry.register(exp_name, 'collector', self)

    # ---------------------------------------------------------------- ordering

    def open(self, random_steps: int, step_limit: Optional[int]) -> None:
        """
        Overview:
            Begin to order.
        Arguments:
            - random_steps (:obj:`int`): Env steps of random play, before all others.
            - step_limit (:obj:`Optional[int]`): Env steps of the run, after which there are no more orders.
        """
        with self._members.lock:
            self._is_open = True
            self._random_steps = random_steps
            self._step_limit = step_limit
            self._order()

    def _steps_under_way(self) -> int:
        ordered = [order['n_sample'] for member in self._collectors() for order in member.orders.values()]
        return sum(ordered) + sum(piece.env_steps for piece in self._ready)

    def _collectors(self) -> List[Member]:
        return self._members.of_role('collector')

    @property
    def number(self) -> int:
        """Collectors that take part now."""
        return len(self._collectors())

    def _order(self) -> None:
        """
        Give orders to those who have the fewest, while more are wanted: in all at most one a collector and two more, \
        a second one to a collector only if nothing lies ready. With the lock held.
        """
        changed = {}
        while self._is_open and len(self._ready) < _READY:
            collectors = self._collectors()
            open_orders = [order for member in collectors for order in member.orders.values()]
            member = min(collectors, key=lambda member: len(member.orders), default=None)
            if member is None or len(member.orders) >= (1 if self._ready else _ORDERS_EACH):
                break
            if len(open_orders) + len(self._ready) >= len(collectors) + _READY:
                break
            if self._step_limit is not None and self._step_limit <= self.envstep + self._steps_under_way():
                break
            is_random = self._random_steps > 0
            if is_random:
                self._random_steps -= self._n_sample
            elif any(order['is_random'] for order in open_orders):
                break  # random play comes before all other, also where who plays it may yet be lost
            self._members.give(
                member,
                dict(
                    is_random=is_random,
                    n_sample=self._n_sample,
                    settings={} if is_random else self.settings,
                    env_step=self.envstep,
                ),
            )
            changed[member.name] = member
        if changed:
            self._members.tell(changed.values())

    def _give_up(self, member: Member) -> None:
        self._random_steps += sum(order['n_sample'] for order in member.orders.values() if order.get('is_random'))
        self._order()

    # ---------------------------------------------------------------- arriving

    def _take_piece(self, message: dict) -> None:
        with self._members.lock:
            if message['session'] != self._members.session:
                return  # played for a learner that is gone; its collector says so
            order = self._members.close_order(message)
            member = self._members.get(message['name'])
            if order is None:
                if message['number'] not in self._answered:  # else it is sent again, as its sender does not know yet
                    self._answered.add(message['number'])
                    self._say(
                        f'A piece by collector {message["name"]} came after it was given up: {message["env_steps"]} '
                        'env steps, not counted.'
                    )
                if member is not None:
                    self._members.tell([member])
                return
            self._answered.add(message['number'])
            member.received_steps += message['env_steps']
            if self._is_open:
                self._ready.append(self._piece(order, message))
                self._arrived.notify_all()
            else:
                self._say_too_late(message['env_steps'])
            self._order()
            self._members.tell([member])

    @staticmethod
    def _piece(order: dict, message: dict) -> Piece:
        return Piece(
            [],
            message['payload'],
            message['env_steps'],
            order['is_random'],
            message['weights'],
            message['games'],
            message['episodes'],
            message['records'],
            order,
            message['name'],
        )

    def next_piece(self, timeout_s: float) -> Optional[Piece]:
        """
        Overview:
            The piece that arrived first, which counts from now on.
        Arguments:
            - timeout_s (:obj:`float`): Seconds to wait for one.
        Returns:
            - piece (:obj:`Optional[Piece]`): None if none came, or what came is damaged.
        """
        end_s = time.monotonic() + timeout_s
        with self._members.lock:
            while not self._ready:
                left_s = end_s - time.monotonic()
                if left_s <= 0 or not self._arrived.wait(left_s):
                    return None
            piece = self._ready.popleft()
            try:
                piece = piece._replace(transitions=compact.unpack(piece.payload))
            except ValueError as error:
                self._say(f'A piece by collector {piece.sender} is lost, {piece.env_steps} env steps: {error}.')
                self._random_steps += piece.order['n_sample'] if piece.is_random else 0
                self._order()
                return None
            self.envstep += piece.env_steps
            self.episodes += piece.episodes
            self.games += len(piece.games)
            self._game_returns.extend(piece.games)
            self._order()
            return piece

    def close(self) -> None:
        """Order no more; what is under way is given up."""
        with self._members.lock:
            self._is_open = False
            if self._ready:
                self._say_too_late(sum(piece.env_steps for piece in self._ready))
            self._ready.clear()

    def _say_too_late(self, env_steps: int) -> None:
        self._say(f'{env_steps} env steps came too late to be learned from; they are not counted.')

    # ---------------------------------------------------------------- what others ask of a collector

    @property
    def epsilon(self) -> Optional[float]:
        """Of the newest orders."""
        return self.settings.get('eps')

    @property
    def game_return_mean(self) -> Optional[float]:
        """Mean points of the last 100 games; None before the first has ended."""
        return float(np.mean(self._game_returns)) if self._game_returns else None

    def state(self) -> Dict[str, Any]:
        """What a save of the run keeps."""
        return dict(games=self.games, game_returns=list(self._game_returns), episodes=self.episodes)

    def load_state(self, state: Dict[str, Any]) -> None:
        """Take over what ``state`` gave, of a run on one machine, too."""
        self.games = state['games']
        self.episodes = state.get('episodes', 0)
        self._game_returns = deque(state['game_returns'], maxlen=GAMES_IN_MEAN)
