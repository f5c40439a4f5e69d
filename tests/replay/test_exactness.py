"""The replay memory beside a plain twin: a sample is what was pushed, and nothing is kept longer than needed."""

import math
import mmap
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import Phase, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from breakout_env.replay import ReplayMemory, row_ring
from breakout_env.replay.frames import device as device_frames
from breakout_env.replay.frames import store as frame_store
from breakout_env.replay.frames.compressed import CompressedFrames
from breakout_env.replay.snapshot import snapshot
from helpers.replay import SIDE, STORAGES, Play, examples, frames_in, other_keys, same, screen


def frames_of(transition: dict) -> list:
    stacks = (np.asarray(transition[key]) for key in ('obs', 'next_obs') if key in transition)
    return [frame.tobytes() for stack in stacks for frame in stack]


@pytest.fixture(autouse=True)
def everything_happens_often(monkeypatch, frequent_training):
    """Small blocks, segments and chunks: rows are compacted, segments cleaned, dictionaries trained, frames sent."""
    monkeypatch.setattr(row_ring, '_BLOCK', 4)
    monkeypatch.setitem(
        frame_store.STORAGES, 'compressed', lambda frame_bytes, *_: CompressedFrames(frame_bytes, mmap.PAGESIZE)
    )
    monkeypatch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 8 * SIDE * SIDE)
    monkeypatch.setattr(device_frames, '_STAGED_FRAMES', 20)


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
        self.twin = {}  # insertion id -> transition, in the order of pushing
        self.weights = {}  # insertion id -> priority, once priorities are tracked
        self.acquired = []
        self.pushed = 0

    def make(self, capacity, storage):
        folder = self.folder if storage == 'memmap' else None
        return ReplayMemory(capacity, storage, self.eviction, folder, seed=0, device='cpu')

    def teardown(self):
        if not hasattr(self, 'memory'):
            return
        for selection, expected in self.acquired:
            self.compare(self.memory.decode(selection), expected)
        self.acquired = []
        self.nothing_is_lost_and_nothing_leaks()
        assert self.memory.remove(list(self.twin)) == len(self.twin)
        assert (self.memory.count, self.memory.frames, self.memory.usage().stored_frame_bytes) == (0, 0, 0)
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

    @rule(count=st.one_of(st.integers(1, 6), st.integers(1, 160)), at_once=st.booleans(), reset=st.booleans())
    def push(self, count, at_once, reset):
        if reset:
            self.plays[0].reset()
        transitions = [self.new(env) for env in self.rng.integers(3, size=count).tolist()]
        for part in [transitions] if at_once else [[t] for t in transitions]:
            weights = self.rng.random(len(part)) + 0.1
            insertion_ids = self.memory.push(part, weights)
            assert len(set(insertion_ids)) == len(part) and not set(insertion_ids) & set(self.twin)
            self.twin.update(zip(insertion_ids, part))
            self.weights.update(zip(insertion_ids, weights.astype(np.float32).tolist()))
            survivors = self.memory.insertion_ids(self.memory.rows())
            assert len(survivors) == min(self.memory.capacity, len(self.twin))
            if self.eviction == 'fifo':
                assert survivors == list(self.twin)[-len(survivors) :]
            self.twin = {insertion_id: self.twin[insertion_id] for insertion_id in survivors}

    @precondition(lambda self: self.twin)
    @rule(share=st.floats(0, 1))
    def remove(self, share):
        removed = [insertion_id for insertion_id in self.twin if self.rng.random() < share]
        assert self.memory.remove(removed + [10**9]) == len(removed)
        assert self.memory.remove(removed) == 0
        for insertion_id in removed:
            del self.twin[insertion_id]

    @precondition(lambda self: self.twin)
    @rule()
    def replace(self):
        insertion_id = int(self.rng.choice(list(self.twin)))
        other = self.new(0)
        self.memory.replace(self.memory.find(insertion_id), other)
        self.twin[insertion_id] = other

    @precondition(lambda self: self.twin)
    @rule()
    def prioritise(self):
        if not self.memory.has_priorities:
            self.weights = dict.fromkeys(self.twin, 1.0)
        self.memory.track_priorities()
        some = self.rng.permutation(list(self.twin))[:20].tolist()
        weights = (self.rng.random(len(some)) * 5 + 0.01).astype(np.float32)
        self.memory.set_priorities(np.array([self.memory.find(insertion_id) for insertion_id in some]), weights)
        self.weights.update(zip(some, weights.tolist()))

    @precondition(lambda self: self.twin)
    @rule(size=st.integers(1, 40), newest=st.integers(1, 50), replace=st.booleans(), at_once=st.booleans())
    def sample(self, size, newest, replace, at_once):
        among = list(self.twin)[-newest:]
        size = size if replace else min(size, len(among))
        samples = [self.memory.sample(size, replace, slice(-newest, None))]
        assert set(self.memory.insertion_ids(samples[0])) <= set(among)
        assert replace or len(set(samples[0].tolist())) == size
        if self.memory.has_priorities:
            samples += [self.memory.sample_by_priority(size, part) for part in (slice(-newest, None), None)]
            assert set(self.memory.insertion_ids(samples[1])) <= set(among)
        for rows in samples:
            expected = [self.twin[insertion_id] for insertion_id in self.memory.insertion_ids(rows)]
            self.compare(self.memory.decode(self.memory.select(rows), at_once=at_once), expected)

    @precondition(lambda self: self.twin and len(self.acquired) < 4)
    @rule(size=st.integers(1, 10))
    def acquire(self, size):
        rows = self.memory.sample(size, replace=True)
        expected = [self.twin[insertion_id] for insertion_id in self.memory.insertion_ids(rows)]
        self.acquired.append((self.memory.select(rows), expected))

    @precondition(lambda self: self.acquired)
    @rule(decode=st.booleans())
    def release(self, decode):
        selection, expected = self.acquired.pop(0)
        if decode:
            self.compare(self.memory.decode(selection), expected)
        else:
            self.memory.release(selection)

    @rule(storage=st.sampled_from(STORAGES), size=st.sampled_from([0.5, 1, 2]), in_a_file=st.booleans())
    def save_and_continue_with_the_save(self, storage, size, in_a_file):
        while self.acquired:
            self.memory.release(self.acquired.pop()[0])
        capacity = max(1, int(self.memory.capacity * size))
        before = frames_in(self.memory)
        other = self.make(capacity, storage)
        if in_a_file:
            path = f'{self.folder}/saved.npz'
            snapshot.save(self.memory, path, dict(more=1))
            assert snapshot.load(other, path, print) == dict(more=1)
        else:
            assert snapshot.restore(other, snapshot.state_dict(self.memory, {}), 'the arrays') == {}
        assert frames_in(self.memory) == before  # the snapshot's frames are released
        assert other.push_count == self.memory.push_count and other.has_priorities == self.memory.has_priorities
        self.memory.close()
        self.memory = other
        self.twin = dict(list(self.twin.items())[-capacity:])

    @rule()
    def clear(self):
        while self.acquired:
            self.memory.release(self.acquired.pop()[0])
        self.memory.clear()
        self.twin = {}

    @invariant()
    def nothing_is_lost_and_nothing_leaks(self):
        if not hasattr(self, 'memory'):
            return
        memory = self.memory
        rows = memory.rows()
        assert memory.count == len(self.twin)
        assert memory.insertion_ids(rows) == list(self.twin)
        assert memory.rows_at(range(memory.count)).tolist() == rows.tolist()
        assert [memory.find(insertion_id) for insertion_id in self.twin] == rows.tolist()
        if len(rows):
            self.compare(memory.fetch(rows), list(self.twin.values()))
            assert memory.column(('id',), rows, None) == [t['id'] for t in self.twin.values()]
        expected = Counter(frame for t in self.twin.values() for frame in frames_of(t))
        assert memory.usage().frame_references == sum(expected.values())
        expected.update(frame for _, transitions in self.acquired for t in transitions for frame in frames_of(t))
        assert frames_in(memory) == expected
        texts = {t['name'] for t in self.twin.values() if 'name' in t}
        assert {text for _, text in memory._table.strings.items()} == texts
        if memory.has_priorities:
            weights, smallest = memory.priorities(rows)
            assert weights.tolist() == [self.weights[insertion_id] for insertion_id in self.twin]
            assert smallest == min(weights, default=math.inf)


def test_the_memory_equals_a_list_of_copies_after_any_sequence_of_calls(tmp_path):
    class Machine(BesideATwin):
        folder = str(tmp_path)

    # without a search for the shortest sequence, which may take minutes: add Phase.shrink to look into a failure
    Machine.TestCase.settings = examples(15, stateful_step_count=25, phases=[Phase.generate])
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
STRUCTURES = st.dictionaries(st.text(max_size=5).filter(lambda key: key not in ('obs', 'next_obs')), TREES, max_size=5)


@examples(60)
@given(transitions=st.lists(STRUCTURES, min_size=1, max_size=6), with_screens=st.lists(st.booleans(), min_size=6))
def test_every_value_comes_back_in_its_type_and_place(transitions, with_screens):
    rng = np.random.default_rng(0)
    for i, transition in enumerate(transitions):
        if with_screens[i]:
            transition['obs'] = torch.from_numpy(screen(rng)[None])
    memory, loaded = ReplayMemory(10, 'ring'), ReplayMemory(10, 'compressed')
    for _ in range(2):  # structures that are new to the memory, then known to it
        memory.push(transitions)
        assert same(list(memory.fetch(memory.rows()[-len(transitions) :])), transitions)
    snapshot.restore(loaded, snapshot.state_dict(memory, {}), 'the arrays')
    assert same(list(loaded.fetch(loaded.rows()[-len(transitions) :])), transitions)


def test_strided_screens_and_tensors_of_a_graph_come_back_as_plain_ones():
    stack = np.stack([screen(np.random.default_rng(i)) for i in range(8)])[::2]
    weight = torch.ones(3, dtype=torch.bfloat16, requires_grad=True) * 2
    memory = ReplayMemory(5, 'compressed')
    memory.push([dict(obs=stack, next_obs=torch.from_numpy(stack.copy()).transpose(1, 2), weight=weight)])
    expected = dict(obs=stack, next_obs=torch.from_numpy(stack.transpose(0, 2, 1).copy()), weight=weight.detach())
    assert same(memory.fetch(memory.rows())[0], expected)


def test_insertion_ids_are_right_beyond_two_to_the_32():
    memory = ReplayMemory(6)
    memory._ring.next_id = 2**32 - 20
    play = Play(2, 1, np.random.default_rng(0))
    pushed = []
    for number in range(40):
        pushed += memory.push([{**play.transition(), 'id': number}])
        if number % 3 == 0:
            memory.remove(pushed[-2:][:1])
        there = memory.insertion_ids(memory.rows())
        assert there == [2**32 - 20 + t['id'] for t in memory.fetch(memory.rows())]
        assert [memory.find(insertion_id) for insertion_id in there] == memory.rows().tolist()


@pytest.mark.parametrize('storage', STORAGES)
def test_a_sample_is_a_copy(storage, tmp_path):
    memory = ReplayMemory(5, storage, folder=str(tmp_path), device='cpu')
    pushed = {**Play(4, 1, np.random.default_rng(0)).transition(), **other_keys(2)}
    expected = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in pushed.items()}
    memory.push([pushed])
    for values in (pushed, memory.fetch(memory.rows())[0]):
        for key in ('obs', 'next_obs', 'table'):
            values[key][...] = 0
    assert same(memory.fetch(memory.rows())[0], expected)


# ---------------------------------------------------------------- failures in the middle of a push


@pytest.mark.parametrize('storage', STORAGES)
@pytest.mark.parametrize('fails_at', [0, 3, 7])
def test_a_failed_push_leaves_no_frame_behind(storage, fails_at, tmp_path, monkeypatch):
    """The disk is full (or Ctrl-C comes) at some frame of a transition."""
    memory = ReplayMemory(20, storage, folder=str(tmp_path), device='cpu')
    rng = np.random.default_rng(0)
    memory.push([dict(obs=np.stack([screen(rng)] * 4), next_obs=np.stack([screen(rng)] * 4), id=0)])
    before = frames_in(memory)
    put, calls = memory._store.storage.put, []

    def put_or_fail(frame, pixels):
        calls.append(frame)
        if len(calls) > fails_at:
            raise OSError('the disk is full')
        put(frame, pixels)

    monkeypatch.setattr(memory._store.storage, 'put', put_or_fail)
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
