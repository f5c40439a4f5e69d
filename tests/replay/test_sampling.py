"""Which transitions are sampled, and how often."""

import math
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from ding.utils.data import default_collate

from breakout_env.replay import ReplayMemory
from helpers.replay import (
    filled,
    ids,
    make,
    set_priorities,
    stored,
    transition,
    transitions,
)


def chi_square(counts, expected):
    """How far counts are from what is expected, in standard deviations of the statistic."""
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    statistic = ((counts - expected) ** 2 / expected).sum()
    return (statistic - len(counts)) / math.sqrt(2 * len(counts))


@pytest.mark.parametrize('size', [3, 30], ids=['few of many', 'many of few'])
@pytest.mark.parametrize('eviction', ['fifo', 'random'])
def test_every_transition_is_sampled_equally_often_and_once_in_a_batch(size, eviction):
    buffer = make(replay_buffer_size=100, eviction=eviction)
    buffer.push(transitions(130, side=2), 0)
    there = sorted(ids(buffer.sample(100, 0)))
    assert there == list(range(30, 130)) or eviction == 'random'
    sampled = Counter()
    for _ in range(12000 // size):
        batch = buffer.sample(size, 0).collated()['id'].tolist()
        assert len(set(batch)) == size
        sampled.update(batch)
    assert sorted(sampled) == there
    # without replacement counts vary less than independent samples do
    assert chi_square([sampled[i] for i in there], [sum(sampled.values()) / len(there)] * len(there)) < 4


PRIORITISED = [dict(type='frame'), dict(type='torchrl', sampler='prioritized')]


@pytest.mark.parametrize('options', PRIORITISED)
def test_samples_follow_priorities_and_weights_correct_for_them(options):
    buffer = make(**options, replay_buffer_size=60, alpha=0.7, beta=0.5, anneal_step=2)
    torch.manual_seed(0)
    buffer.push(transitions(60, side=2), 0)
    priorities, counts = 0.5 + np.arange(60) % 10, np.zeros(60)
    priorities[7] = 0
    buffer.update(dict(replay_unique_id=range(60), replay_buffer_idx=range(60), priority=priorities))
    weights = (priorities + 1e-5) ** 0.7
    for step in range(600):
        batch = default_collate(list(buffer.sample(32, 0)))
        numbers, beta = batch['id'].numpy(), min(1, 0.5 + step / 4)  # beta rises to 1
        assert np.allclose(batch['IS'], (weights[numbers] / weights.min()) ** -beta, rtol=1e-3)
        assert np.allclose(batch['priority'], priorities[numbers] + 1e-5, rtol=1e-3)
        counts += np.bincount(numbers, minlength=60)
    likely = np.arange(60) != 7
    assert chi_square(counts[likely], counts.sum() * weights[likely] / weights.sum()) < 4 and counts[7] <= 25


def every_transition(buffer, count):
    found = {}
    while len(found) < count:
        found.update((int(t['id']), t) for t in buffer.sample(count, 0))
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize('options', PRIORITISED)
def test_an_update_passes_over_gone_transitions_and_new_ones_come_first(options):
    buffer = make(**options, replay_buffer_size=4)
    buffer.push(transitions(3), 0)
    buffer.update(dict(replay_unique_id=[0, 2, 1], replay_buffer_idx=[-1, -1, 9], priority=[50.0] * 3))
    buffer.push([transition(3)], 0)
    batch = every_transition(buffer, 4)
    buffer.push([transition(4)], 0)  # replaces the first
    set_priorities(buffer, batch, [100.0, 7.0, 2.0, 2.0])
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f'priorit.* {wrong}.*; expected'):
            set_priorities(buffer, batch, [1.0, 1.0, 1.0, wrong])
    assert [float(t['priority']) for t in every_transition(buffer, 4)] == pytest.approx([7, 2, 2, 1], rel=1e-3)
    buffer.push([transition(5)], 0)  # replaces the second
    assert [float(t['priority']) for t in every_transition(buffer, 4)] == pytest.approx([2, 2, 1, 7], rel=1e-3)
    buffer.push([transition(6, priority=3.0), transition(7, priority=torch.tensor(0.5))], 0)  # they may come with one
    assert [float(t['priority']) for t in every_transition(buffer, 4)] == pytest.approx([1, 7, 3, 0.5], rel=1e-3)
    buffer.update({})
    buffer.clear()
    buffer.push(transitions(8, 12), 0)
    set_priorities(buffer, batch, [100.0] * 4)  # all are gone
    assert [float(t['priority']) for t in every_transition(buffer, 4)] == pytest.approx([1] * 4, rel=1e-3)


@pytest.mark.parametrize('options', [*PRIORITISED, dict(type='torchrl', sampler='uniform')])
@pytest.mark.parametrize('together', [True, False])
def test_a_push_of_more_than_fits_counts_all_of_them(options, together):
    buffer = make(**options, replay_buffer_size=64)
    for part in [transitions(200)] if together else [[transition(i)] for i in range(200)]:
        buffer.push(part, 0)
    assert (buffer.count(), buffer.push_count) == (64, 200)
    buffer.push((transition(200),), 0)
    batch = every_transition(buffer, 64)
    assert [int(t['replay_unique_id']) for t in batch] == [int(t['id']) for t in batch] == list(range(137, 201))
    assert buffer.push_count == 201


def test_random_eviction_keeps_a_share_that_halves_with_age():
    ages = []
    for seed in range(6):
        memory = ReplayMemory(200, 'ring', 'random', seed=seed)
        for i in range(1600):
            memory.push([dict(id=i)])
        ages += [1599 - t['id'] for t in stored(memory)]
        assert memory.count == 200
    # each push evicts one of 200: after a pushes (1 - 1/200) ** a are left
    for age in (100, 200, 400, 600):
        left = sum(a >= age for a in ages) / len(ages)
        expected = (1 - 1 / 200) ** age
        assert abs(left - expected) < 5 * math.sqrt(expected * (1 - expected) / len(ages))


def test_a_prefetched_batch_is_sampled_one_call_earlier():
    buffer = filled(10, prefetch=True)
    first = buffer.sample(10, 0)
    buffer.push(transitions(10, 500), 0)
    second, third = buffer.sample(10, 0), buffer.sample(10, 0)
    assert set(ids(first)) == set(ids(second)) == set(range(10)) and max(ids(third)) >= 10
    assert len(buffer.sample(7, 0)) == 7  # another request is sampled at once
    buffer.close()


@pytest.mark.parametrize('change', ['push', 'update', 'clear', 'load', 'close'])
def test_a_change_waits_for_the_batch_that_is_being_made(change, monkeypatch, same_footprint):
    """So what batches have follows from the seed, however fast the thread is, and nothing is read that is gone."""
    buffer, state = filled(60, prefetch=True), filled(60, start=100).state_dict()
    fetch, gate, made = ReplayMemory.fetch, threading.Event(), []

    def fetch_slowly(*args):
        is_prefetch = threading.current_thread() is not threading.main_thread()
        assert not is_prefetch or gate.wait(20)
        made.append(fetch(*args))
        return made[-1]

    monkeypatch.setattr(ReplayMemory, 'fetch', fetch_slowly)
    batch = list(buffer.sample(32, 0))
    threading.Timer(0.05, gate.set).start()
    changes = dict(
        push=lambda: buffer.push(transitions(160, 200), 0),
        update=lambda: set_priorities(buffer, batch, range(1, 33)),
        clear=buffer.clear,
        load=lambda: buffer.load_state_dict(state),
        close=buffer.close,
    )
    changes[change]()
    assert len(made) == 2 and len(made[1]) == 32
    buffer.close()
