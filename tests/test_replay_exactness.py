"""The replay memory beside a plain twin: what is drawn is what was pushed, and nothing is kept longer than needed."""

import math
import mmap
from collections import Counter, deque

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from breakout_env.replay import ReplayMemory, row_ring
from breakout_env.replay.frames import compressed as compressed_frames
from breakout_env.replay.frames import device as device_frames
from breakout_env.replay.frames import store as frame_store
from breakout_env.replay.frames.compressed import CompressedFrames
from breakout_env.replay.row_ring import RowRing
from breakout_env.replay.snapshot import array_file
from breakout_env.replay.snapshot.snapshot import MemoryImage, restore

SIDE = 20  # pixels; zstd finds something to learn in frames of this size
STORAGES = ['compressed', 'ring', 'memmap', 'device']
REPEATABLE = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def screen(rng: np.random.Generator, variety: int = 300) -> np.ndarray:
    """A wall, bricks, noise, a paddle; one of a limited number, so that some come up again."""
    content = np.random.default_rng(int(rng.integers(variety)))
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    pixels[:2] = 142
    pixels[4:8] = content.integers(0, 2, SIDE) * 200
    pixels[9:18] = content.integers(256, size=(9, SIDE))  # a few fill a segment
    pixels[-1, 3:8] = content.integers(1, 255)
    return pixels


class Play(object):
    """An env: stacks that overlap, from an episode's first screen on, and the ``nstep`` steps of its transitions."""

    def __init__(self, depth: int, nstep: int, rng: np.random.Generator) -> None:
        self._nstep, self._rng = nstep, rng
        self._screens = deque(maxlen=depth)
        self._stacks = deque(maxlen=nstep + 1)
        self.reset()

    def reset(self) -> None:
        self._stacks.clear()
        self._screens.extend([screen(self._rng)] * self._screens.maxlen)
        self._stacks.append(np.stack(self._screens))

    def transition(self) -> dict:
        while True:
            self._screens.append(screen(self._rng))
            self._stacks.append(np.stack(self._screens))
            if len(self._stacks) > self._nstep:
                return dict(obs=self._stacks[0].copy(), next_obs=self._stacks[-1].copy())


def other_keys(number: int) -> dict:
    """The rest of a transition: its number, and one of three make-ups with values that depend on it."""
    values = dict(id=number, done=number % 7 == 0, reward=torch.tensor([number / 3]), action=torch.tensor([number % 4]))
    if number % 3 == 1:
        values.update(name=f'policy {number % 5}', pair=dict(half=torch.tensor(number / 7, dtype=torch.bfloat16)))
    if number % 3 == 2:
        values.update(nothing=None, table=np.full((2, 3), number, '>i2'), scalar=np.float32(number / 9), more={})
    return values


def same(one, other) -> bool:
    """Equal in type, dtype, shape, order of keys and value; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        if one.dtype is torch.bfloat16 and other.dtype is torch.bfloat16:
            one, other = one.view(torch.int16), other.view(torch.int16)
        return one.dtype == other.dtype and same(one.numpy(), other.numpy())
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


def frames_of(transition: dict) -> list:
    stacks = (np.asarray(transition[key]) for key in ('obs', 'next_obs') if key in transition)
    return [frame.tobytes() for stack in stacks for frame in stack]


def frames_in(memory: ReplayMemory) -> Counter:
    """The content of each frame that is stored, and the number of references to it."""
    if memory._store is None:
        return Counter()
    references = memory._store.references
    numbers = np.flatnonzero(references)
    pixels = np.empty((len(numbers), memory.frame_bytes), np.uint8)
    if len(numbers):
        memory._store.read(numbers, pixels)
    contents = [row.tobytes() for row in pixels]
    assert len(set(contents)) == len(contents) == memory.frames, 'a frame is stored twice, or one is stored for nobody'
    return Counter(dict(zip(contents, references[numbers].tolist())))


@pytest.fixture(autouse=True, scope='module')
def everything_happens_often():
    """Small blocks, segments and chunks: rows are compacted, segments cleaned, dictionaries trained, frames sent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ring, '_BLOCK', 4)
        patch.setitem(
            frame_store.STORAGES, 'compressed', lambda frame_bytes, *_: CompressedFrames(frame_bytes, mmap.PAGESIZE)
        )
        patch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 8 * SIDE * SIDE)
        patch.setattr(device_frames, '_STAGED_FRAMES', 20)
        patch.setattr(compressed_frames, '_FIRST_TRAINING_FRAMES', 60)
        patch.setattr(compressed_frames, '_TRAINING_FRAMES', 40)
        patch.setattr(compressed_frames, '_FRAMES_BETWEEN_LOOKS', 70)
        patch.setattr(compressed_frames, '_HELD_OUT_FRAMES', 8)
        patch.setattr(compressed_frames, '_WORTHWHILE', 3.0)
        yield


# ---------------------------------------------------------------- any sequence of calls


class BesideATwin(RuleBasedStateMachine):
    """Whatever is called in whatever order, the memory holds what a list of plain copies holds."""

    folder: str

    @initialize(
        capacity=st.one_of(st.integers(1, 12), st.integers(13, 90), st.integers(91, 300)),
        storage=st.sampled_from(STORAGES),
        eviction=st.sampled_from(['fifo', 'random']),
        depth=st.integers(1, 5),
        nstep=st.integers(1, 4),
        seed=st.integers(0, 10**6),
    )
    def begin(self, capacity, storage, eviction, depth, nstep, seed):
        self.rng = np.random.default_rng(seed)
        self.eviction = eviction
        self.memory = self.make(capacity, storage)
        self.plays = [Play(depth, nstep, self.rng) for _ in range(3)]
        self.twin = {}  # ticket -> transition, in the order of pushing
        self.weights = {}  # ticket -> what it is drawn in proportion to, once that matters
        self.held = []
        self.pushed = 0

    def make(self, capacity, storage):
        folder = self.folder if storage == 'memmap' else None
        return ReplayMemory(capacity, storage, self.eviction, folder, seed=0, device='cpu')

    def teardown(self):
        if not hasattr(self, 'memory'):
            return
        for drawn, expected in self.held:
            self.compare(self.memory.decode(drawn), expected)
        self.held = []
        self.nothing_is_lost_and_nothing_leaks()
        assert self.memory.remove(list(self.twin)) == len(self.twin)
        assert (self.memory.count, self.memory.frames, self.memory.stored_frame_bytes) == (0, 0, 0)
        self.memory.close()

    @staticmethod
    def compare(batch, expected):
        batch = list(batch)
        assert len(batch) == len(expected)
        for one, other in zip(batch, expected):
            assert same(one, other), (one['id'], other['id'])

    def new(self, env):
        self.pushed += 1
        return {**self.plays[env].transition(), **other_keys(self.pushed)}

    @rule(
        count=st.one_of(st.integers(1, 6), st.integers(1, 160)),
        at_once=st.booleans(),
        reset=st.booleans(),
    )
    def push(self, count, at_once, reset):
        if reset:
            self.plays[0].reset()
        transitions = [self.new(env) for env in self.rng.integers(3, size=count).tolist()]
        for part in [transitions] if at_once else [[t] for t in transitions]:
            weights = self.rng.random(len(part)) + 0.1
            tickets = self.memory.push(part, weights)
            assert len(set(tickets)) == len(part) and not set(tickets) & set(self.twin)
            self.twin.update(zip(tickets, part))
            self.weights.update(zip(tickets, weights.astype(np.float32).tolist()))
            survivors = self.memory.tickets_of(self.memory.rows())
            assert len(survivors) == min(self.memory.capacity, len(self.twin))
            if self.eviction == 'fifo':
                assert survivors == list(self.twin)[-len(survivors) :]
            self.twin = {ticket: self.twin[ticket] for ticket in survivors}

    @precondition(lambda self: self.twin)
    @rule(share=st.floats(0, 1))
    def remove(self, share):
        gone = [ticket for ticket in self.twin if self.rng.random() < share]
        assert self.memory.remove(gone + [10**9]) == len(gone)
        assert self.memory.remove(gone) == 0
        for ticket in gone:
            del self.twin[ticket]

    @precondition(lambda self: self.twin)
    @rule()
    def replace(self):
        ticket = int(self.rng.choice(list(self.twin)))
        other = self.new(0)
        self.memory.replace(self.memory.find(ticket), other)
        self.twin[ticket] = other

    @precondition(lambda self: self.twin)
    @rule()
    def prioritise(self):
        if not self.memory.has_priorities:
            self.weights = dict.fromkeys(self.twin, 1.0)
        self.memory.track_priorities()
        some = self.rng.permutation(list(self.twin))[:20].tolist()
        weights = (self.rng.random(len(some)) * 5 + 0.01).astype(np.float32)
        self.memory.set_priorities(np.array([self.memory.find(ticket) for ticket in some]), weights)
        self.weights.update(zip(some, weights.tolist()))

    @precondition(lambda self: self.twin)
    @rule(size=st.integers(1, 40), newest=st.integers(1, 50), replace=st.booleans(), one_go=st.booleans())
    def draw(self, size, newest, replace, one_go):
        among = list(self.twin)[-newest:]
        size = size if replace else min(size, len(among))
        for rows in (
            self.memory.draw(size, replace, slice(-newest, None)),
            self.memory.draw_by_priority(size, slice(-newest, None)) if self.memory.has_priorities else None,
            self.memory.draw_by_priority(size) if self.memory.has_priorities else None,
        ):
            if rows is None:
                continue
            tickets = self.memory.tickets_of(rows)
            assert set(tickets) <= set(self.twin)
            self.compare(
                self.memory.decode(self.memory.select(rows), in_one_go=one_go), [self.twin[t] for t in tickets]
            )
        among_rows = self.memory.draw(size, replace, slice(-newest, None))
        assert set(self.memory.tickets_of(among_rows)) <= set(among)
        assert replace or len(set(among_rows.tolist())) == size

    @precondition(lambda self: self.twin and len(self.held) < 4)
    @rule(size=st.integers(1, 10))
    def hold(self, size):
        rows = self.memory.draw(size, replace=True)
        expected = [self.twin[ticket] for ticket in self.memory.tickets_of(rows)]
        self.held.append((self.memory.select(rows, hold=True), expected))

    @precondition(lambda self: self.held)
    @rule(decode=st.booleans())
    def let_go(self, decode):
        drawn, expected = self.held.pop(0)
        if decode:
            self.compare(self.memory.decode(drawn), expected)
        else:
            self.memory.release(drawn)

    @rule(storage=st.sampled_from(STORAGES), smaller=st.booleans(), in_a_file=st.booleans())
    def save_and_go_on_with_what_was_saved(self, storage, smaller, in_a_file):
        while self.held:
            self.memory.release(self.held.pop()[0])
        capacity = max(1, self.memory.capacity // 2) if smaller else self.memory.capacity
        before = frames_in(self.memory)
        image = MemoryImage(self.memory, dict(more=1))
        other = self.make(capacity, storage)
        if in_a_file:
            path = f'{self.folder}/saved.npz'
            array_file.write(path, image.arrays())
            assert array_file.read_newest(path, lambda arrays: restore(other, arrays, path), print) == path
        else:
            assert restore(other, dict(image.arrays()), 'the arrays') == dict(more=1)
        assert frames_in(self.memory) == before  # what was held for the image is let go of
        assert other.push_count == self.memory.push_count and other.has_priorities == self.memory.has_priorities
        self.memory.close()
        self.memory = other
        self.twin = dict(list(self.twin.items())[-capacity:])

    @rule()
    def clear(self):
        while self.held:
            self.memory.release(self.held.pop()[0])
        self.memory.clear()
        self.twin = {}

    @invariant()
    def nothing_is_lost_and_nothing_leaks(self):
        if not hasattr(self, 'memory'):
            return
        memory = self.memory
        rows = memory.rows()
        assert memory.count == len(self.twin)
        assert memory.tickets_of(rows) == list(self.twin)
        assert memory.rows_at(range(memory.count)).tolist() == rows.tolist()
        assert [memory.find(ticket) for ticket in self.twin] == rows.tolist()
        if len(rows):
            self.compare(memory.fetch(rows), list(self.twin.values()))
            assert memory.column(('id',), rows, None) == [t['id'] for t in self.twin.values()]
        expected = Counter(frame for t in self.twin.values() for frame in frames_of(t))
        assert memory.frame_references == sum(expected.values())
        expected.update(frame for _, transitions in self.held for t in transitions for frame in frames_of(t))
        assert frames_in(memory) == expected
        texts = {t['name'] for t in self.twin.values() if 'name' in t}
        assert {text for _, text in memory._strings.items()} == texts
        if memory.has_priorities:
            weights, total, smallest = memory.priorities(rows)
            assert weights.tolist() == [self.weights[ticket] for ticket in self.twin]
            assert total == pytest.approx(sum(weights)) and (smallest == min(weights, default=math.inf))


def test_whatever_is_called_in_whatever_order_the_memory_equals_a_list_of_copies(tmp_path):
    class Machine(BesideATwin):
        folder = str(tmp_path)

    # without a search for the shortest sequence, which may take minutes: add Phase.shrink to look into a failure
    Machine.TestCase.settings = settings(REPEATABLE, max_examples=60, stateful_step_count=25, phases=[Phase.generate])
    Machine.TestCase('runTest').runTest()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith('.unfinished')] == []


# ---------------------------------------------------------------- values

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.float32, torch.float64, torch.bfloat16, torch.bool]
NUMPY_DTYPES = ['u1', 'i8', '<u2', '>i4', 'f2', 'f4', '>f8', 'c8', '?', 'U3', 'S2', 'M8[s]', 'm8[ms]']


@st.composite
def tensors(draw):
    """Any dtype and shape, with the bits of any numbers."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = int(np.prod(shape))
    if dtype is torch.bool:
        return torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=dtype).view(shape)
    bits = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    return torch.frombuffer(bytearray(bits), dtype=dtype).view(shape) if bits else torch.empty(shape, dtype=dtype)


@st.composite
def arrays(draw):
    dtype = np.dtype(draw(st.sampled_from(NUMPY_DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=2))
    numbers = np.array(draw(st.lists(st.integers(0, 1), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))))
    return numbers.astype(np.int64).astype(dtype).reshape(shape)


VALUES = st.one_of(
    tensors(),
    arrays(),
    arrays().filter(lambda a: a.size).map(lambda a: a.reshape(-1)[0]),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=5),
    st.none(),
)
TREES = st.recursive(VALUES, lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=5)
MAKE_UPS = st.dictionaries(st.text(max_size=5).filter(lambda key: key not in ('obs', 'next_obs')), TREES, max_size=5)


@settings(REPEATABLE, max_examples=150)
@given(transitions=st.lists(MAKE_UPS, min_size=1, max_size=6), with_screens=st.lists(st.booleans(), min_size=6))
def test_every_value_comes_back_in_its_type_and_place(transitions, with_screens):
    rng = np.random.default_rng(0)
    for i, transition in enumerate(transitions):
        if with_screens[i]:
            transition['obs'] = torch.from_numpy(screen(rng)[None])
    memory = ReplayMemory(10, 'ring')
    for _ in range(2):  # what is new to the memory, and what is known to it
        memory.push(transitions)
        for got, pushed in zip(memory.fetch(memory.rows()[-len(transitions) :]), transitions):
            assert same(got, pushed)
    loaded = ReplayMemory(10, 'compressed')
    restore(loaded, dict(MemoryImage(memory, {}).arrays()), 'the arrays')
    for got, pushed in zip(loaded.fetch(loaded.rows()[-len(transitions) :]), transitions):
        assert same(got, pushed)


@pytest.mark.parametrize('kind', ['array', 'tensor', 'part of a graph', 'strided array', 'strided tensor'])
def test_screens_come_back_as_they_came(kind):
    rng = np.random.default_rng(1)
    stack = np.stack([screen(rng) for _ in range(8)])[::2] if 'strided' in kind else np.stack([screen(rng)] * 3)
    values = dict(obs=stack if 'array' in kind else torch.from_numpy(np.ascontiguousarray(stack)), weight=0.5)
    if kind == 'strided tensor':
        values['obs'] = values['obs'].transpose(1, 2)
    if kind == 'part of a graph':
        values['weight'] = torch.ones(3, dtype=torch.bfloat16, requires_grad=True) * 2
    memory = ReplayMemory(5, 'compressed')
    memory.push([values])
    (got,) = memory.fetch(memory.rows())
    assert same(got['obs'], values['obs'])
    weight = values['weight']
    assert same(got['weight'], weight.detach() if isinstance(weight, torch.Tensor) else weight)


@pytest.mark.parametrize('storage', STORAGES)
def test_what_is_drawn_is_a_copy(storage, tmp_path):
    memory = ReplayMemory(5, storage, folder=str(tmp_path), device='cpu')
    pushed = {**Play(4, 1, np.random.default_rng(0)).transition(), **other_keys(2)}
    expected = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in pushed.items()}
    memory.push([pushed])
    for values in (pushed, memory.fetch(memory.rows())[0]):
        for key in ('obs', 'next_obs', 'table'):
            values[key][...] = 0
    assert same(memory.fetch(memory.rows())[0], expected)


@settings(REPEATABLE, max_examples=60)
@given(
    contents=st.lists(st.integers(0, 8), min_size=1, max_size=80),
    order=st.randoms(use_true_random=False),
    depth=st.integers(1, 5),
)
def test_equal_frames_are_stored_once_in_whatever_order_they_come(contents, order, depth):
    shuffled = list(contents)
    order.shuffle(shuffled)
    screens = [np.full((SIDE, SIDE), content * 7, np.uint8) for content in contents + shuffled]
    stacks = [np.stack([screens[(i + k) % len(screens)] for k in range(depth)]) for i in range(len(screens))]
    for at_once in (True, False):
        memory = ReplayMemory(1000)
        for part in [stacks] if at_once else [[stack] for stack in stacks]:
            memory.push([dict(obs=stack) for stack in part])
        assert memory.frames == len(set(contents))
        assert memory.frame_references == len(stacks) * depth


@pytest.mark.parametrize('seed', range(6))
def test_compressed_frames_outlive_their_segments_and_dictionaries(seed):
    rng = np.random.default_rng(seed)
    store, twin, free = CompressedFrames(SIDE * SIDE, mmap.PAGESIZE), {}, list(range(2000, 0, -1))
    dictionaries, cleaned, clean = 0, Counter(), store._clean

    def counted_clean():
        cleaned[len(store._segments_of) > 1] += 1
        clean()

    store._clean = counted_clean
    for step in range(40):
        for _ in range(rng.integers(1, 60)):
            frame, pixels = free.pop(), screen(rng, 10**6).tobytes()
            store.put(frame, memoryview(pixels))
            twin[frame] = pixels
        numbers = rng.permutation(sorted(twin))
        gone = numbers[: int(len(numbers) * (rng.random() * 0.4 if step % 10 else 0.9))].tolist()
        for frame in gone:
            store.drop([frame])
            del twin[frame]
        free += gone
        wanted = rng.permutation(list(twin) * 2)
        for in_one_go in (False, True):
            out = np.empty((len(wanted), SIDE * SIDE), np.uint8)
            store.read(wanted, out, in_one_go)
            assert [row.tobytes() for row in out] == [twin[frame] for frame in wanted.tolist()]
        dictionaries = max(dictionaries, len(store._segments_of))
        assert store.stored_bytes == sum(store._lengths[frame] for frame in twin)
    assert dictionaries > 2 and cleaned[True] > 2, 'this test does not see what it is to test'
    # an eighth of it may be dead, two segments, and one for each dictionary is being filled
    segments = len(store._used) - len(store._free)
    assert segments * mmap.PAGESIZE < store.stored_bytes * 1.3 + (4 + dictionaries) * mmap.PAGESIZE
    store.drop(list(twin))
    assert store.stored_bytes == 0 and len(store._used) - len(store._free) <= 1
    store.close()


# ---------------------------------------------------------------- rows in the order of pushing


@settings(REPEATABLE, max_examples=150)
@given(
    capacity=st.integers(1, 40),
    steps=st.lists(st.one_of(st.just('push'), st.floats(0, 1, exclude_max=True)), max_size=250),
)
def test_rows_stay_in_the_order_of_pushing_whatever_is_removed(capacity, steps):
    ring = RowRing(capacity)
    twin = []  # (ticket, row)
    for step in steps:
        if step == 'push':
            if len(twin) == capacity:
                ring.remove(twin.pop(0)[1])
            if not ring.room:
                order = ring.live()
                assert order.tolist() == [row for _, row in twin]
                ring.compacted(ring.tickets[order])
                twin = [(ticket, row) for row, (ticket, _) in enumerate(twin)]
            row = ring.append()
            assert row not in [other for _, other in twin]
            twin.append((ring.next_ticket - 1, row))
        elif twin:
            ring.remove(twin.pop(int(step * len(twin)))[1])
        rows = [row for _, row in twin]
        assert ring.count == len(twin)
        assert ring.nth(np.arange(len(twin))).tolist() == rows == ring.live().tolist() == list(ring)
        assert not twin or ring.oldest == rows[0]
        for ticket in range(max(0, ring.next_ticket - 60), ring.next_ticket + 2):
            for guess in (-1, ticket % ring.rows):
                assert ring.find(ticket, guess) == dict(twin).get(ticket, -1)


def test_tickets_are_right_beyond_two_to_the_32(tmp_path):
    memory = ReplayMemory(6)
    memory._ring.next_ticket = 2**32 - 20
    play = Play(2, 1, np.random.default_rng(0))
    tickets = []
    for number in range(40):
        tickets += memory.push([{**play.transition(), 'id': number}])
        if number % 3 == 0:
            memory.remove([tickets[-2:][0]])
        there = memory.tickets_of(memory.rows())
        assert there == [2**32 - 20 + t['id'] for t in memory.fetch(memory.rows())]
        assert [memory.find(ticket) for ticket in there] == memory.rows().tolist()


# ---------------------------------------------------------------- what goes wrong half-way


@pytest.mark.parametrize('storage', STORAGES)
@pytest.mark.parametrize('fails_at', range(8))
def test_a_push_that_fails_half_way_leaves_no_frame_behind(storage, fails_at, tmp_path, monkeypatch):
    """The disk is full (or Ctrl-C comes) while a stack's third frame is put away."""
    memory = ReplayMemory(20, storage, folder=str(tmp_path), device='cpu')
    rng = np.random.default_rng(0)
    memory.push([dict(obs=np.stack([screen(rng)] * 4), next_obs=np.stack([screen(rng)] * 4), id=0)])
    before = frames_in(memory)
    put, calls = memory._store._storage.put, []

    def put_or_fail(frame, pixels):
        calls.append(frame)
        if len(calls) > fails_at:
            raise OSError('the disk is full')
        put(frame, pixels)

    monkeypatch.setattr(memory._store._storage, 'put', put_or_fail)
    stacks = np.arange(8 * SIDE * SIDE).astype(np.uint8).reshape(2, 4, SIDE, SIDE) ^ 77
    stacks[:, :, 0, 0] = np.arange(8).reshape(2, 4)
    with pytest.raises(OSError, match='the disk is full'):
        memory.push([dict(obs=stacks[0], next_obs=stacks[1], id=1)])
    assert frames_in(memory) == before and memory.count == 1
    with pytest.raises(OSError, match='the disk is full'):
        memory.replace(memory.find(0), dict(obs=stacks[0], next_obs=stacks[1], id=1))
    assert frames_in(memory) == before
    monkeypatch.undo()
    memory.push([dict(obs=stacks[0], next_obs=stacks[1], id=2)])
    assert [t['id'] for t in memory.fetch(memory.rows())] == [0, 2]
    assert np.array_equal(memory.fetch(memory.rows())[1]['next_obs'], stacks[1])


def test_what_was_stored_before_the_disk_was_full_is_drawn_by_priority_too(monkeypatch):
    memory = ReplayMemory(20)
    memory.track_priorities()
    play = Play(1, 1, np.random.default_rng(0))
    write, calls = memory._store_one, []

    def store_or_fail(*args):
        calls.append(args)
        if len(calls) == 4:
            raise OSError('the disk is full')
        return write(*args)

    monkeypatch.setattr(memory, '_store_one', store_or_fail)
    with pytest.raises(OSError, match='the disk is full'):
        memory.push([{**play.transition(), 'id': number} for number in range(6)], np.full(6, 2.0))
    drawn = memory.fetch(memory.draw_by_priority(30))
    assert {t['id'] for t in drawn} == {0, 1, 2}
