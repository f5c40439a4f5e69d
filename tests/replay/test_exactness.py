"""The replay memory beside a plain twin: a sample is what was pushed, and nothing is kept longer than needed."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import Phase, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from breakout_env.replay import ReplayMemory
from breakout_env.replay.saved_arrays import read_arrays, write_arrays
from breakout_env.replay.snapshot import restore, snapshot
from helpers.replay import (
    STORAGES,
    Play,
    examples,
    frames_in,
    other_keys,
    same,
    screen,
    stored,
)

pytestmark = pytest.mark.usefixtures('everything_happens_often')


def frames_of(transition: dict) -> list:
    return [frame.tobytes() for key in ('obs', 'next_obs') for frame in np.asarray(transition[key])]


class BesideATwin(RuleBasedStateMachine):
    """Whatever is called in whatever order, the memory holds what a dict of plain copies holds."""

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
        self.memory = ReplayMemory(capacity, storage, eviction, self.folder, seed=0)
        self.plays = [Play(depth, nstep, self.rng) for _ in range(3)]
        self.twin = {}  # insertion id -> transition, in the order of pushing
        self.pushed = 0

    def teardown(self):
        if hasattr(self, 'memory'):
            self.nothing_is_lost_and_nothing_leaks()
            self.memory.delete([self.memory.find(insertion_id) for insertion_id in self.twin])
            assert (self.memory.count, self.memory.frames) == (0, 0)
            self.memory.close()

    def new(self, env):
        self.pushed += 1
        return {**self.plays[env].transition(), **other_keys(self.pushed)}

    @rule(count=st.one_of(st.integers(1, 6), st.integers(1, 160)), together=st.booleans(), reset=st.booleans())
    def push(self, count, together, reset):
        if reset:
            self.plays[0].reset()
        transitions = [self.new(env) for env in self.rng.integers(3, size=count).tolist()]
        for part in [transitions] if together else [[t] for t in transitions]:
            first, slots = self.memory.next_id, self.memory.push(part)
            last_in_slot = dict(zip(slots, range(first, self.memory.next_id)))
            assert self.memory.ids(np.array(list(last_in_slot))).tolist() == list(last_in_slot.values())
            self.twin.update(zip(range(first, self.memory.next_id), part))
            survivors = self.memory.ids(self.memory.order()).tolist()
            assert len(survivors) == min(self.memory.capacity, len(self.twin))
            if self.eviction == 'fifo':
                assert survivors == list(self.twin)[-len(survivors) :]
            self.twin = {insertion_id: self.twin[insertion_id] for insertion_id in survivors}

    @precondition(lambda self: self.twin)
    @rule(share=st.floats(0, 1))
    def delete(self, share):
        gone = [insertion_id for insertion_id in self.twin if self.rng.random() < share]
        ids = self.memory.ids(np.arange(self.memory.count))
        moved_from = self.memory.delete([self.memory.find(insertion_id) for insertion_id in gone])
        assert self.memory.ids(np.arange(self.memory.count)).tolist() == ids[moved_from].tolist()
        for insertion_id in gone:
            del self.twin[insertion_id]

    @precondition(lambda self: self.twin)
    @rule(size=st.integers(1, 40))
    def fetch(self, size):
        chosen = self.rng.choice(list(self.twin), size).tolist()
        slots = np.array([self.memory.find(insertion_id) for insertion_id in chosen])
        fetched = list(self.memory.fetch(slots))
        assert same(fetched, [self.twin[insertion_id] for insertion_id in chosen])

    @rule(storage=st.sampled_from(STORAGES), size=st.sampled_from([0.5, 1, 2]), in_a_file=st.booleans())
    def save_and_continue_with_the_save(self, storage, size, in_a_file):
        capacity = max(1, int(self.memory.capacity * size))
        other = ReplayMemory(capacity, storage, self.eviction, self.folder, seed=0)
        arrays = snapshot(self.memory, dict(number=1))
        if in_a_file:
            write_arrays(f'{self.folder}/saved.npz', arrays)
            with read_arrays(f'{self.folder}/saved.npz') as read:
                more, order = restore(other, read, 'the file')
        else:
            more, order = restore(other, dict(arrays), 'the arrays')
        assert more == dict(number=1) and other.ids().tolist() == self.memory.ids(order).tolist()
        assert other.next_id == self.memory.next_id
        self.memory.close()
        self.memory = other
        self.twin = dict(list(self.twin.items())[-capacity:])

    @rule()
    def clear(self):
        self.memory.clear()
        self.twin = {}

    @invariant()
    def nothing_is_lost_and_nothing_leaks(self):
        if not hasattr(self, 'memory'):
            return
        memory, order = self.memory, self.memory.order()
        assert memory.count == len(self.twin) and memory.ids(order).tolist() == list(self.twin)
        assert [memory.find(insertion_id) for insertion_id in self.twin] == order.tolist()
        with pytest.raises(KeyError):
            memory.find(10**9)
        assert same(stored(memory), list(self.twin.values()))
        assert frames_in(memory) == Counter(frame for t in self.twin.values() for frame in frames_of(t))


def test_the_memory_equals_a_dict_of_copies_after_any_sequence_of_calls(tmp_path):
    class Machine(BesideATwin):
        folder = str(tmp_path)

    # without a search for the shortest sequence, which may take minutes: add Phase.shrink to look into a failure
    Machine.TestCase.settings = examples(15, stateful_step_count=25, phases=[Phase.generate])
    Machine.TestCase('runTest').runTest()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith('.unfinished')] == []


TENSOR_DTYPES = ['u1', 'i1', 'i2', 'i4', 'i8', 'f2', 'f4', 'f8', '?']  # numpy has no bfloat16
NUMPY_DTYPES = ['u1', 'i8', '<u2', '>i4', 'f2', 'f4', '>f8', 'c8', '?']


def arrays(dtypes):
    """Any dtype, shape and numbers."""
    return npst.arrays(
        st.sampled_from(dtypes).map(np.dtype), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    )


VALUES = st.one_of(
    arrays(TENSOR_DTYPES).map(torch.from_numpy),
    arrays(['i2']).map(lambda bits: torch.from_numpy(bits).view(torch.bfloat16)),
    arrays(NUMPY_DTYPES),
    arrays(NUMPY_DTYPES).filter(np.size).map(lambda a: a.flat[0]),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
)
KEYS = st.text(max_size=4)
TREES = st.recursive(VALUES, lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3), max_leaves=5)
STRUCTURES = st.dictionaries(st.text(max_size=5).filter(lambda key: key not in ('obs', 'next_obs')), TREES, max_size=5)


@examples(60)
@given(transition=STRUCTURES, with_screens=st.booleans())
def test_every_value_comes_back_in_its_type_and_place(transition, with_screens):
    if with_screens:
        transition['obs'] = torch.from_numpy(screen(np.random.default_rng(0))[None])
    memory, loaded = ReplayMemory(10, 'ring'), ReplayMemory(10, 'compressed')
    memory.push([transition, transition])
    assert same(stored(memory), [transition, transition])
    restore(loaded, dict(snapshot(memory, {})), 'the arrays')
    assert same(stored(loaded), [transition, transition])


def test_strided_screens_and_tensors_of_a_graph_come_back_as_plain_ones():
    stack = np.stack([screen(np.random.default_rng(i)) for i in range(8)])[::2]
    weight = torch.ones(3, dtype=torch.bfloat16, requires_grad=True) * 2
    memory = ReplayMemory(5, 'compressed')
    memory.push([dict(obs=stack, next_obs=torch.from_numpy(stack.copy()).transpose(1, 2), weight=weight)])
    expected = dict(obs=stack, next_obs=torch.from_numpy(stack.transpose(0, 2, 1).copy()), weight=weight.detach())
    assert same(stored(memory), [expected])


@pytest.mark.parametrize('storage', STORAGES)
def test_a_sample_is_a_copy(storage, tmp_path):
    memory = ReplayMemory(5, storage, folder=str(tmp_path))
    pushed = {**Play(4, 1, np.random.default_rng(0)).transition(), **other_keys(2)}
    expected = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in pushed.items()}
    memory.push([pushed])
    for values in (pushed, stored(memory)[0]):
        for key in ('obs', 'next_obs', 'table'):
            values[key][...] = 0
    assert same(stored(memory), [expected])
