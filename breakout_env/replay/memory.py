"""The memory itself: transitions in rows, their screens in a frame store, who is drawn, who is evicted."""

from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .batch import BatchPart, Extras, FrameBatch
from .frames.store import FrameStore
from .memory_lock import MemoryLock
from .row_ring import RowRing
from .schema import Leaf, StringTable, TransitionSchema, make_up_of, signature_of, values_of
from .sum_tree import PriorityTree

EVICTIONS = ('fifo', 'random')
_MAX_SCHEMAS = 256
_CHUNK = 64

# what a memory holds, as opposed to how it is set up
_CONTENT = ('_store', '_frame_shape', '_schemas', '_schema_number', '_number_of_make_up', '_strings', '_ring')
_CONTENT += ('_schema_of', '_uses', '_tree')


class Drawn(NamedTuple):
    """Transitions that were drawn: all about them but the screens, which are held until ``decode`` reads them."""

    size: int
    parts: List[Tuple[np.ndarray, TransitionSchema, np.ndarray, list]]  # positions, schema, frame numbers, columns
    holds_in: Optional[FrameStore]

    def numbers(self, key: str) -> Optional[np.ndarray]:
        """The whole numbers under a key; None if not all transitions have one."""
        out = np.empty(self.size, np.int64)
        for positions, schema, _, columns in self.parts:
            for leaf, column in zip(schema.others, columns):
                if leaf[0] == (key,) and leaf[1] == 'int':
                    out[positions] = column
                    break
            else:
                return None
        return out


class ReplayMemory(object):
    """
    Overview:
        A bounded memory of transitions whose stacks of screens (``obs``, ``next_obs``) are taken apart into frames, \
        each distinct frame kept once, and put together again when drawn, bit for bit. Knows nothing of pipelines.

        All of it lies in flat arrays: no Python object is kept for a transition or a frame, so memory is what the \
        arrays take, and nothing is left for the garbage collector to walk over.

        Safe to use from several threads, and beside signals: what has begun is finished before one is handled.
    Interfaces:
        ``push``, ``remove``, ``replace``, ``clear``, ``draw``, ``draw_by_priority``, ``select``, ``decode``, \
        ``fetch``, ``set_priorities``, ``close``.
    Properties:
        ``count``, ``push_count``, ``nbytes``.
    """

    def __init__(
        self,
        capacity: int,
        storage: str = 'compressed',
        eviction: str = 'fifo',
        folder: Optional[str] = None,
        seed: Optional[int] = None,
        before_first_frame: Callable[[int], None] = lambda frame_bytes: None,
        device: str = 'cuda',
    ) -> None:
        """
        Arguments:
            - capacity (:obj:`int`): Transitions it holds at most.
            - storage (:obj:`str`): 'compressed', 'ring', 'memmap' or 'device'.
            - eviction (:obj:`str`): Who goes when it is full: 'fifo', the oldest, or 'random', anyone.
            - folder (:obj:`Optional[str]`): Where storage 'memmap' keeps its file.
            - seed (:obj:`Optional[int]`): Seed of the draws and of random eviction.
            - before_first_frame (:obj:`Callable`): Told the size of a frame before the first is stored; may refuse.
            - device (:obj:`str`): Where storage 'device' keeps frames, and its batches are.
        """
        self.capacity = capacity
        self.storage = storage
        self.eviction = eviction
        self.lock = MemoryLock()
        self.random = np.random.default_rng(seed)
        self._folder = folder
        self._device = device
        self._before_first_frame = before_first_frame
        self._reset()

    def _reset(self) -> None:
        self._store: Optional[FrameStore] = None
        self._frame_shape: Optional[Tuple[int, int]] = None
        self._schemas: List[TransitionSchema] = []
        self._schema_number: Dict[Tuple[Leaf, ...], int] = {}
        self._number_of_make_up: Dict[tuple, int] = {}
        self._strings = StringTable()
        self._ring = RowRing(self.capacity)
        self._schema_of = np.zeros(self._ring.rows, np.uint8)
        self._uses = np.zeros(self._ring.rows, np.uint32)
        self._tree: Optional[PriorityTree] = None

    @property
    def count(self) -> int:
        """Transitions in it."""
        return self._ring.count

    @property
    def push_count(self) -> int:
        """Transitions ever pushed."""
        return self._ring.next_ticket

    @property
    def frames(self) -> int:
        """Distinct frames in it."""
        return self._store.count if self._store else 0

    @property
    def frame_references(self) -> int:
        """Frames its transitions are made of, each counted as often as it occurs."""
        with self.lock:
            rows = np.bincount(self._schema_of[self._ring.live()], minlength=len(self._schemas)) if self.count else []
            return sum(int(n) * schema.frames.shape[1] for n, schema in zip(rows, self._schemas))

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use, everything counted; a file of frames is not memory, nor is a device's."""
        with self.lock:
            rows = self._ring.touched
            of_schema = np.bincount(self._schema_of[:rows], minlength=len(self._schemas)).tolist()
            total = rows * (1 + 4 + 1 + 4) + (self._tree.nbytes if self._tree else 0)
            total += sum(n * schema.row_bytes for n, schema in zip(of_schema, self._schemas))
            return total + (self._store.nbytes if self._store else 0)

    @property
    def stored_frame_bytes(self) -> int:
        """Bytes that the frames themselves take, as stored."""
        return self._store.stored_bytes if self._store else 0

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame as it is."""
        return self._store.frame_bytes if self._store else 0

    @property
    def device_bytes(self) -> int:
        """Bytes on the device of storage 'device'."""
        return self._store.device_bytes if self._store else 0

    @property
    def file_bytes(self) -> int:
        """Bytes on the disk."""
        return self._store.file_bytes if self._store else 0

    # ---------------------------------------------------------------- in and out

    def push(self, transitions: Sequence[Mapping], priorities: Optional[Sequence[float]] = None) -> List[int]:
        """
        Overview:
            Store transitions, evicting others where there is no room. Either all are acceptable or none is stored.
        Arguments:
            - transitions (:obj:`Sequence[Mapping]`): Dicts of tensors, arrays, numbers, strings, and dicts of these.
            - priorities (:obj:`Optional[Sequence[float]]`): What each is drawn in proportion to, once there is a tree.
        Returns:
            - tickets (:obj:`List[int]`): A number for each, never used again, to find it by.
        Raises:
            - TypeError, ValueError: If a transition can not be stored; nothing is stored then.
            - OSError: If the disk is full. What was stored before that transition stays.
        """
        with self.lock:
            schemas = [self._schema_for(transition) for transition in transitions]
            tickets: List[int] = []
            chunk = min(_CHUNK, self.capacity)
            for start in range(0, len(transitions), chunk):
                part = slice(start, start + chunk)
                # room for all of the chunk first: then nothing is released while its frames are being looked up
                for _ in range(self.count + len(transitions[part]) - self.capacity):
                    self._evict()
                # and rows for all of it: then none of these moves before it has its priority
                if self._ring.room < len(transitions[part]):
                    self._compact()
                known: Dict[bytes, int] = {}
                rows: List[int] = []
                try:
                    for transition, number in zip(transitions[part], schemas[part]):
                        rows.append(self._store_one(transition, number, known))
                finally:  # on a full disk, those that are there already are to be drawn, too
                    tickets.extend(range(self._ring.next_ticket - len(rows), self._ring.next_ticket))
                    if self._tree is not None and rows:
                        weights = np.ones(len(rows)) if priorities is None else priorities[part][: len(rows)]
                        self._tree.set(np.array(rows), weights)
            return tickets

    def _schema_for(self, transition: Mapping) -> int:
        make_up = make_up_of(transition)
        number = self._number_of_make_up.get(make_up)
        if number is None:
            number = self._number_of(signature_of(transition))
            if make_up is not None and len(self._number_of_make_up) < 4 * _MAX_SCHEMAS:
                self._number_of_make_up[make_up] = number
        return number

    def _number_of(self, signature: Tuple[Leaf, ...]) -> int:
        number = self._schema_number.get(signature)
        if number is not None:
            return number
        if len(self._schemas) == _MAX_SCHEMAS:
            raise ValueError(
                f'the replay buffer holds transitions of {_MAX_SCHEMAS} different make-ups (keys, dtypes, shapes) '
                'already; pad arrays of varying length to one length'
            )
        schema = TransitionSchema(signature, self._ring.rows)
        if schema.frame_shape is not None:
            self._expect_frames_of(schema.frame_shape)
        number = self._schema_number[signature] = len(self._schemas)
        self._schemas.append(schema)
        return number

    def _expect_frames_of(self, shape: Tuple[int, int]) -> None:
        if self._store is None:
            frame_bytes = shape[0] * shape[1]
            self._before_first_frame(frame_bytes)
            self._frame_shape = shape
            self._store = FrameStore(frame_bytes, self.capacity, self.storage, self._folder, self._device)
        elif shape != self._frame_shape:
            raise ValueError(
                f'the replay buffer holds screens of {self._frame_shape[0]}x{self._frame_shape[1]} pixels; a '
                f'transition has {shape[0]}x{shape[1]} (env option screen_size)'
            )

    def _store_one(self, transition: Mapping, number: int, known: Dict[bytes, int]) -> int:
        schema = self._schemas[number]
        frames = self._frames_of(transition, schema, known)
        row = self._ring.append()
        schema.write(row, transition, frames, self._strings)
        self._schema_of[row] = number
        self._uses[row] = 0
        return row

    def _frames_of(self, transition: Mapping, schema: TransitionSchema, known: Dict[bytes, int]) -> List[int]:
        frames: List[int] = []
        try:
            for pixels in schema.pixels(transition):
                frames += self._store.add(pixels, known)
        except BaseException:  # a full disk, or Ctrl-C
            self._store.release(frames)
            raise
        return frames

    def _evict(self) -> None:
        if self.eviction == 'fifo':
            self._remove_row(self._ring.oldest)
        else:
            self._remove_row(int(self._ring.nth(self.random.integers(self.count, size=1))[0]))

    def _remove_row(self, row: int) -> None:
        frames = self._schemas[self._schema_of[row]].clear(row, self._strings)
        if self._tree is not None:
            self._tree.set(np.array([row]), np.zeros(1))
        self._ring.remove(row)
        if frames:
            self._store.release(frames)

    def _compact(self) -> None:
        order = self._ring.live()
        kept = len(order)
        for schema in self._schemas:
            schema.table[:kept] = schema.table[order]
        for column in (self._schema_of, self._uses):
            column[:kept] = column[order]
        if self._tree is not None:
            leaves = self._tree.get(order)
            self._tree = PriorityTree(self._ring.rows)
            self._tree.set(np.arange(kept), leaves)
        self._ring.compacted(self._ring.tickets[order])

    def find(self, ticket: int, guess: int = -1) -> int:
        """The row of a transition by its ticket, or -1 if it is gone; ``guess`` is where it was."""
        with self.lock:
            return self._ring.find(ticket, guess)

    def tickets_of(self, rows: np.ndarray) -> List[int]:
        """The tickets of rows."""
        # the ring keeps the low half; all that are alive were pushed within the last 2**32
        with self.lock:
            behind = (self._ring.next_ticket - self._ring.tickets[rows].astype(np.int64)) & 0xFFFFFFFF
            return (self._ring.next_ticket - behind).tolist()

    def remove(self, tickets: Iterable[int]) -> int:
        """Remove transitions; those that are gone already are passed over. How many were there."""
        with self.lock:
            removed = 0
            for ticket in tickets:
                row = self._ring.find(ticket)
                if row >= 0:
                    self._remove_row(row)
                    removed += 1
            return removed

    def replace(self, row: int, transition: Mapping) -> None:
        """Store other content in a row; it keeps its place, its ticket and its priority."""
        with self.lock:
            number = self._schema_for(transition)
            frames = self._frames_of(transition, self._schemas[number], {})
            old = self._schemas[self._schema_of[row]].clear(row, self._strings)
            self._schemas[number].write(row, transition, frames, self._strings)
            self._schema_of[row] = number
            if old:
                self._store.release(old)

    def rewrite(self, row: int, values: Mapping) -> bool:
        """Write some values of a row anew, if they are made up as those that are there; whether they were."""
        with self.lock:
            return self._schemas[self._schema_of[row]].rewrite(row, values, self._strings)

    def clear(self) -> None:
        """Forget everything and give the memory back. Tickets go on counting."""
        with self.lock:
            next_ticket, tree = self._ring.next_ticket, self._tree
            self.close()
            self._reset()
            self._ring.next_ticket = next_ticket
            if tree is not None:
                self._tree = PriorityTree(self._ring.rows)

    def close(self) -> None:
        """Give memory and file back. It can be called at any time, any number of times."""
        with self.lock:
            if self._store is not None:
                self._store.close()
                self._store = None
            self._reset()

    def like_this(self) -> 'ReplayMemory':
        """An empty memory with the same options."""
        return ReplayMemory(
            self.capacity,
            self.storage,
            self.eviction,
            self._folder,
            before_first_frame=self._before_first_frame,
            device=self._device,
        )

    def take_over(
        self, schemas: List[TransitionSchema], numbers: np.ndarray, uses: np.ndarray, tickets: np.ndarray, meta: Mapping
    ) -> None:
        """Fill the first rows of an empty memory with what a save holds; see ``memory_image``."""
        count = len(numbers)
        for number, schema in enumerate(schemas):
            self._schemas.append(schema)
            self._schema_number[schema.signature] = number
            for leaf, column in zip(schema.others, schema.columns):
                if leaf[1] == 'str':
                    texts = {int(k): str(v) for k, v in meta['strings'].items()}
                    self._strings.restore(texts, column[:count][numbers == number].tolist())
        self._schema_of[:count] = numbers
        self._uses[:count] = uses
        self._ring.next_ticket = int(meta['next_ticket'])
        self._ring.compacted(tickets)
        self.random.bit_generator.state = meta['random']

    def become(self, other: 'ReplayMemory') -> None:
        """Take over all that another memory holds, and give back what this one held; the other is empty then."""
        with self.lock:
            self.close()
            for name in _CONTENT:
                setattr(self, name, getattr(other, name))
            self.random.bit_generator.state = other.random.bit_generator.state
            other._reset()

    # ---------------------------------------------------------------- drawing

    def draw(self, size: int, replace: bool = False, sample_range: Optional[slice] = None) -> np.ndarray:
        """
        Overview:
            Rows, each transition with the same chance; O(size) however many there are.
        Arguments:
            - size (:obj:`int`): How many.
            - replace (:obj:`bool`): Whether one may be drawn twice.
            - sample_range (:obj:`Optional[slice]`): Only among these, in the order of pushing: ``slice(-1000, None)`` \
                are the last thousand.
        Raises:
            - ValueError: If there are not as many.
        """
        with self.lock:
            among = range(self.count) if sample_range is None else range(self.count)[sample_range]
            if not among or (len(among) < size and not replace):
                raise ValueError(f'{size} transitions are to be drawn, but there are {len(among)} to draw from')
            picks = self.random.integers(len(among), size=size)
            # No pick twice: where that is rare, all are drawn again until it is so, ten times faster than `choice`.
            if not replace and len(among) < 4 * size * size:
                picks = self.random.choice(len(among), size, replace=False, shuffle=False)
            while not replace and len(set(picks.tolist())) < size:
                picks = self.random.integers(len(among), size=size)
            return self._ring.nth(among.start + among.step * picks)

    def track_priorities(self) -> None:
        """Draw by priority from now on; transitions that are there already get priority 1."""
        with self.lock:
            if self._tree is None:
                self._tree = PriorityTree(self._ring.rows)
                rows = self._ring.live()
                self._tree.set(rows, np.ones(len(rows)))

    @property
    def has_priorities(self) -> bool:
        return self._tree is not None

    def draw_by_priority(self, size: int, sample_range: Optional[slice] = None) -> np.ndarray:
        """
        Overview:
            Rows in proportion to their priorities, one from each of ``size`` equal shares of the sum (Schaul et al. \
            2016, appendix B.2.1). A transition may occur twice.
        """
        with self.lock:
            if not self.count:
                raise ValueError(f'{size} transitions are to be drawn, but there is none')
            shares = (np.arange(size) + self.random.random(size)) / size
            if sample_range is None:
                return self._tree.find(shares * self._tree.total)
            rows = self._ring.nth(np.arange(self.count)[sample_range])
            sums = np.cumsum(self._tree.get(rows), dtype=np.float64)
            if not len(rows):
                raise ValueError(f'{size} transitions are to be drawn, but there are none in {sample_range}')
            return rows[np.minimum(np.searchsorted(sums, shares * sums[-1], side='right'), len(rows) - 1)]

    def set_priorities(self, rows: np.ndarray, priorities: np.ndarray) -> None:
        """What rows are drawn in proportion to; all above 0."""
        with self.lock:
            self._tree.set(rows, priorities)

    def priorities(self, rows: np.ndarray) -> Tuple[np.ndarray, float, float]:
        """Of these rows, the sum over all, and the smallest of all."""
        with self.lock:
            return self._tree.get(rows).astype(np.float64), self._tree.total, self._tree.smallest

    def count_uses(self, rows: np.ndarray, distinct: bool = False) -> np.ndarray:
        """Note that rows were used once more; how often each was. Quicker for rows that are known to be distinct."""
        with self.lock:
            if distinct:
                uses = self._uses[rows] + 1
                self._uses[rows] = uses
                return uses
            np.add.at(self._uses, rows, 1)
            return self._uses[rows]

    def column(self, path: Tuple[str, ...], rows: np.ndarray, default: Any) -> list:
        """The values under a key (and keys below it) in rows; ``default`` where a transition has none."""
        with self.lock:
            values = np.full(len(rows), None, object)
            values[:] = default
            for number in np.unique(self._schema_of[rows]).tolist():
                schema = self._schemas[number]
                for leaf, column in zip(schema.others, schema.columns):
                    if leaf[0] == path:
                        of_this = np.flatnonzero(self._schema_of[rows] == number)
                        cells = values_of(leaf, column[rows[of_this]])
                        for i, cell in zip(of_this.tolist(), cells):
                            values[i] = self._strings[cell] if leaf[1] == 'str' else cell
            return list(values)

    def oldest(self) -> np.ndarray:
        """The row pushed first, as an array of one."""
        with self.lock:
            return np.array([self._ring.oldest])

    def rows_at(self, positions: Sequence[int]) -> np.ndarray:
        """Rows by position in the order of pushing."""
        with self.lock:
            return self._ring.nth(np.asarray(positions, np.int64))

    def rows(self) -> np.ndarray:
        """All rows, in the order of pushing."""
        with self.lock:
            return self._ring.live()

    # ---------------------------------------------------------------- reading

    def select(self, rows: np.ndarray, hold: bool = True) -> Drawn:
        """
        Overview:
            All about some rows but the screens, whose frames are held, so that ``decode`` finds them whatever happens \
            to the rows meanwhile. What is held has to be decoded, or let go by ``release``.
        """
        with self.lock:
            rows = np.asarray(rows, np.int64)
            numbers = self._schema_of[rows]
            drawn = Drawn(len(rows), [], self._store if hold else None)
            different = set(numbers.tolist())
            for number in different:
                schema = self._schemas[number]
                positions = np.arange(len(rows)) if len(different) == 1 else np.flatnonzero(numbers == number)
                frames, columns = schema.taken_out(rows[positions])
                for i, leaf in enumerate(schema.others):
                    if leaf[1] == 'str':
                        columns[i] = [self._strings[cell] for cell in columns[i].tolist()]
                drawn.parts.append((positions, schema, frames, columns))
                if hold and frames.size:
                    self._store.hold(frames.ravel().tolist())
            return drawn

    def release(self, drawn: Drawn) -> None:
        """Let go of what ``select`` held."""
        with self.lock:
            for _, _, frames, _ in drawn.parts:
                # after a clear or a load it is another store, whose frames of these numbers are others
                if frames.size and drawn.holds_in is not None and drawn.holds_in is self._store:
                    self._store.release(frames.ravel().tolist())

    def decode(
        self, drawn: Drawn, extras: Optional[Extras] = None, pinned: bool = False, in_one_go: bool = False
    ) -> FrameBatch:
        """
        Overview:
            The batch of a draw.
        Arguments:
            - drawn (:obj:`Drawn`): From ``select``; let go of here.
            - extras (:obj:`Optional[Extras]`): More to put into each transition, by key.
            - pinned (:obj:`bool`): Whether the screens go into pinned memory, from where a GPU copies without \
                waiting; storage 'device' gives them where they lie.
            - in_one_go (:obj:`bool`): Whether to release the GIL once for all frames, as suits a thread of its own.
        """
        # the order of the frames in the batch: one key after the other, so that each becomes a tensor of its own
        pieces = []
        for _, schema, frames, _ in drawn.parts:
            begin = 0
            for depth in schema.depths:
                pieces.append(frames[:, begin : begin + depth].ravel())
                begin += depth
        pixels = None
        try:
            if pieces:
                frames = np.concatenate(pieces)
                with self.lock:
                    if drawn.holds_in not in (None, self._store):
                        raise ValueError('the memory was cleared or loaded after this was drawn')
                    pixels = self._store.gather(frames, pinned, in_one_go)
        finally:
            if drawn.holds_in is not None:
                self.release(drawn)
        parts, start = [], 0
        for positions, schema, _, columns in drawn.parts:
            stacks = {}
            for (key,), _, _, (depth, height, width) in schema.stacks:
                end = start + len(positions) * depth
                stacks[key] = pixels[start:end].view(len(positions), depth, height, width)
                start = end
            parts.append(BatchPart(positions, schema, stacks, columns))
        return FrameBatch(drawn.size, parts, extras)

    def fetch(self, rows: np.ndarray, extras: Optional[Extras] = None, pinned: bool = False) -> FrameBatch:
        """The transitions in rows."""
        with self.lock:  # all at once, so nothing has to be held
            return self.decode(self.select(rows, hold=False), extras, pinned)
