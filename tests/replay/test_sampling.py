"""Which transitions are sampled, and how often."""

import math
import sys
import threading
from collections import Counter
from itertools import count

import numpy as np
import pytest
import torch

from breakout_env.replay import ReplayMemory
from helpers.replay import (
    filled,
    frames_in,
    ids,
    is_exact,
    make,
    references_add_up,
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


def test_samples_follow_priorities_and_weights_correct_for_them():
    buffer = make(replay_buffer_size=60, alpha=0.7, beta=0.5, anneal_step=0)
    buffer.push(transitions(60, side=2), 0)
    batch = list(buffer.sample(60, 0))
    priorities = np.array([0.0 if t['id'] == 7 else 0.5 + t['id'] % 10 for t in batch])
    set_priorities(buffer, batch, torch.tensor(priorities))
    weight = {t['id']: (p + 1e-5) ** 0.7 for t, p in zip(batch, priorities)}
    total, least = sum(weight.values()), min(weight.values())
    sampled = Counter()
    for _ in range(600):
        batch = buffer.sample(32, 0)
        sampled.update(ids(batch))
        for t in batch:
            assert t['IS'] == pytest.approx((weight[t['id']] / least) ** -0.5, rel=1e-4)
            assert t['priority'] == pytest.approx(weight[t['id']] ** (1 / 0.7), rel=1e-4)
    likely = [i for i in weight if i != 7]
    assert chi_square([sampled[i] for i in likely], [600 * 32 * weight[i] / total for i in likely]) < 4
    assert sampled[7] <= 25


def weights_of(buffer):
    """What transitions are sampled in proportion to, the oldest first."""
    return buffer._sampler.state()[1][buffer._memory.order()]


def test_a_pushed_priority_counts_and_a_new_transition_gets_the_highest():
    buffer = make(alpha=1.0)
    set_priorities(buffer, [], [])
    buffer.push(
        [transition(0, priority=3.0), transition(1, priority=None), transition(2, priority=torch.tensor(0.5))], 0
    )
    buffer.push(transition(3), 0)
    buffer.update(dict(replay_unique_id=[0], replay_buffer_idx=[0], priority=[8.0]))
    buffer.push(transition(4), 0)
    assert weights_of(buffer) == pytest.approx([8, 1, 0.5, 3, 8], rel=1e-4)


def test_an_update_passes_over_transitions_that_are_gone():
    buffer = filled(10, replay_buffer_size=10)
    batch = list(buffer.sample(10, 0)) + [dict(replay_unique_id=9999, replay_buffer_idx=3)]
    buffer.push(transitions(10, 17), 0)
    set_priorities(buffer, batch, [100.0] * 11)
    assert weights_of(buffer) == pytest.approx([(100 + 1e-5) ** 0.6] * 3 + [1.0] * 7, rel=1e-5)
    with pytest.raises(ValueError, match='a priority is -1'):
        set_priorities(buffer, batch, [1.0] * 10 + [-1.0])
    assert weights_of(buffer) == pytest.approx([(100 + 1e-5) ** 0.6] * 3 + [1.0] * 7, rel=1e-5)
    buffer.update(dict(no_priority=1))


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


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize('options', [dict(), dict(prefetch=True), dict(eviction='random'), dict(storage='ring')])
def test_threads_that_push_and_sample_at_once_get_exact_transitions(options):
    buffer = filled(100, replay_buffer_size=300, **options)
    errors, numbers = [], count(100)

    def push():
        buffer.push([transition(next(numbers)) for _ in range(5)], 0)

    def sample():
        batch = list(buffer.sample(16, 0))
        assert all(is_exact(t) for t in batch), 'a transition is not what was pushed'
        set_priorities(buffer, batch, [t['id'] % 7 + 0.5 for t in batch])
        assert buffer.memory_report()['transitions'] <= 300

    def repeat(action):
        try:
            for _ in range(60):
                action()
        except Exception as error:
            errors.append(error)

    threads = [
        threading.Thread(target=repeat, args=(what,)) for what in (push, push, sample, sample, buffer.state_dict)
    ]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet in the middle of everything
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors, errors
    buffer._prefetcher.close()  # a batch that was begun is released by then
    assert references_add_up(buffer._memory)
    buffer.close()


def test_a_prefetched_batch_is_sampled_one_call_earlier():
    buffer = filled(10, prefetch=True)
    first = buffer.sample(10, 0)
    buffer.push(transitions(10, 500), 0)
    second, third = buffer.sample(10, 0), buffer.sample(10, 0)
    assert set(ids(first)) == set(ids(second)) == set(range(10)) and max(ids(third)) >= 10
    assert len(buffer.sample(7, 0)) == 7  # another request is sampled at once
    buffer.close()


@pytest.mark.parametrize('then', ['close', 'clear', 'load', 'another request'])
@pytest.mark.parametrize('is_begun', [False, True])
def test_a_prefetched_batch_is_released_once(then, is_begun, same_footprint):
    buffer, saved = filled(60, prefetch=True), filled(60, start=100)
    executor, gate = buffer._prefetcher._executor, threading.Event()
    if not is_begun:
        executor.submit(gate.wait, 20)  # the thread is busy with something else
    buffer.sample(32, 0)
    if is_begun:
        buffer._prefetcher._pending[1].result()
    if then == 'close':
        threading.Timer(0.05, gate.set).start()
        buffer.close()
        assert buffer.count() == 0
    elif then == 'clear':
        buffer.clear()
        buffer.push(transitions(100, 160), 0)
    elif then == 'load':
        buffer.load_state_dict(saved.state_dict())
    else:
        buffer.sample(5, 0)
    gate.set()
    if then == 'another request':
        buffer._prefetcher._pending[1].result()
        assert references_add_up(buffer._memory)
    elif then != 'close':
        executor.submit(lambda: None).result()
        assert frames_in(buffer._memory) == frames_in(saved._memory)
        assert all(is_exact(t) and t['id'] >= 100 for t in buffer.sample(32, 0))
    buffer.close()
