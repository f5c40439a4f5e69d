"""``TaskFrameBuffer`` behind ``ding.data.Buffer``, beside DI-engine's ``DequeBuffer``."""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
from ding.data import DequeBuffer
from ding.data.buffer.middleware import (
    PriorityExperienceReplay,
    sample_range_view,
    staleness_check,
    use_time_check,
)

from breakout_env import TaskFrameBuffer
from helpers.replay import is_exact, transition


def both(size=20):
    return TaskFrameBuffer(size), DequeBuffer(size)


def plain(item):
    return item.data['id'], item.meta


def test_the_task_buffer_answers_as_the_deque_buffer_does():
    buffers = ours, theirs = both()
    indices = []
    for i in range(30):
        pushed = [buffer.push(transition(i), dict(env=i % 3, name=f'p{i % 2}')) for buffer in buffers]
        assert plain(pushed[0]) == plain(pushed[1])
        indices.append([p.index for p in pushed])
        assert ours.count() == theirs.count()
    for position in (0, 5, 19, -1, -20):
        assert plain(ours.get(position)) == plain(theirs.get(position))
    some = [20, 12, 29, 12]
    for k, buffer in enumerate(buffers):
        with pytest.raises(IndexError):
            buffer.get(20)
        with pytest.raises(KeyError):
            buffer.get_by_index('abcdef')
        assert buffer.update('abcdef', None, {}) is False
        assert plain(buffer.get_by_index(indices[25][k])) == (25, dict(env=1, name='p1'))
        assert buffer.update(indices[25][k], None, dict(env=7, name='p')) and buffer.update(indices[27][k], None, {})
        assert [plain(item)[0] for item in buffer.sample(indices=[indices[i][k] for i in some])] == some
    assert [plain(item) for item in ours] == [plain(item) for item in theirs]
    for k, buffer in enumerate(buffers):
        buffer.delete([indices[i][k] for i in (12, 13, 29, 0)])
    assert [plain(item) for item in ours] == [plain(item) for item in theirs]
    ours.delete(indices[15][0])  # their own loses track of its indices in the first call
    assert [plain(item)[0] for item in ours] == [10, 11, 14, *range(16, 29)]
    for buffer in buffers:
        buffer.clear()
        assert buffer.count() == 0 and list(buffer) == []
    ours.close()


@pytest.mark.parametrize('index', ['', 'xyz', '-1', 'f' * 40, '14', None])
def test_an_index_of_another_buffer_is_not_there(index):
    buffer = TaskFrameBuffer(20)
    for i in range(20):
        buffer.push(transition(i))
    assert buffer.update(index, None, dict(env=1)) is False
    buffer.delete([index, '3', index])
    if isinstance(index, str):
        buffer.delete(index)
    with pytest.raises(KeyError, match='no transition has the index'):
        buffer.get_by_index(index)
    with pytest.raises(ValueError, match='there are less than 2'):
        buffer.sample(indices=['1', index])
    assert buffer.sample(indices=['1', index], ignore_insufficient=True) == []
    assert [plain(item) for item in buffer] == [(i, {}) for i in range(20) if i != 3]


def test_samples_have_the_requested_size_and_range():
    ours, theirs = both(30)
    for i in range(40):
        for buffer in (ours, theirs):
            buffer.push(transition(i), dict(env=i % 3))
    for buffer in (ours, theirs):
        assert len(set(plain(item)[0] for item in buffer.sample(30))) == 30
        assert len(buffer.sample(60, replace=True)) == 60
        assert {plain(item)[0] for item in buffer.sample(5, sample_range=slice(25, 30))} == set(range(35, 40))
        with pytest.raises(ValueError, match=r'There are less than 31|there are less than 31'):
            buffer.sample(31)
        assert buffer.sample(31, ignore_insufficient=True) == []
    assert all(is_exact(item.data) for item in ours.sample(30))


@pytest.mark.parametrize('grouped', [dict(groupby='env'), dict(groupby='env', unroll_len=4), dict(unroll_len=4)])
def test_groups_are_refused_in_the_log_too(grouped, caplog):
    """DI-engine's data fetcher catches any ValueError, as if there were too few transitions."""
    buffer = TaskFrameBuffer(20)
    buffer.push(transition(0), dict(env=0))
    with pytest.raises(ValueError, match="sample: groupby is .*unroll_len is .*DI-engine's DequeBuffer"):
        buffer.sample(1, **grouped)
    assert 'DequeBuffer' in caplog.text


def test_threads_that_push_and_sample_at_once_get_exact_transitions():
    """A task may run its parts in threads."""
    buffer, numbers = TaskFrameBuffer(300), count()

    def push():
        buffer.push(transition(next(numbers)))

    def sample():
        items = buffer.sample(16, ignore_insufficient=True)
        assert all(is_exact(item.data) for item in items), 'a transition is not what was pushed'
        if items:
            buffer.update(items[0].index, meta=dict(seen=True))
            buffer.delete(items[1].index)

    def repeat(action):
        for _ in range(200):
            action()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet in the middle of everything
    try:
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(repeat, (push, push, push, sample, lambda: list(buffer))))
    finally:
        sys.setswitchinterval(interval)
    assert all(is_exact(item.data) for item in buffer)
    buffer.close()


def test_priority_experience_replay_samples_the_same_from_both():
    courses = []
    for buffer in both():
        buffer.use(PriorityExperienceReplay(buffer, IS_weight=True))
        np.random.seed(0)
        for i in range(30):
            buffer.push(transition(i))
        course = []
        for _ in range(5):
            batch = buffer.sample(8)
            course.append([(t.data['id'], t.meta['priority_idx'], t.data['priority_IS'].item()) for t in batch])
            for t in batch:
                t.meta['priority'] = float(t.data['id'] % 7)
                buffer.update(index=t.index, data=None, meta=t.meta)
        courses.append(course)
    assert courses[0] == courses[1] and len({i for batch in courses[0] for i, _, _ in batch}) > 8


def test_priority_experience_replay_is_refused_with_random_eviction():
    buffer = TaskFrameBuffer(20, eviction='random')
    with pytest.raises(ValueError, match="assumes that the oldest are evicted; expected eviction='fifo'"):
        buffer.use(PriorityExperienceReplay(buffer))


def test_di_engines_middleware_works_on_the_task_buffer():
    used, stale, view = (TaskFrameBuffer(20) for _ in range(3))
    used.use(use_time_check(used, max_use=2))
    stale.use(staleness_check(stale, max_staleness=5))
    view.use(sample_range_view(view, -5, None))
    for i in range(20):
        for buffer in (used, stale, view):
            buffer.push(transition(i), meta=dict(train_iter_data_collected=i))
    assert [item.meta['use_count'] for item in used.sample(20)] == [1] * 20
    assert [item.meta['use_count'] for item in used.sample(20)] == [2] * 20 and used.count() == 0
    assert {plain(item)[0] for item in stale.sample(20, 5)} == set(range(15, 20)) and stale.count() == 5
    assert {plain(item)[0] for item in view.sample(5)} == set(range(15, 20))


def test_the_task_buffer_saves_loads_and_closes(same_footprint):
    buffer, other = TaskFrameBuffer(20), TaskFrameBuffer(20, storage='ring')
    for i in range(30):
        buffer.push(transition(i), dict(env=i % 3))
    buffer.save_data('saves/buffer.npz')
    other.load_data('saves/buffer.npz')
    assert [plain(item) for item in other] == [plain(item) for item in buffer]
    assert all(is_exact(item.data) and item.index == mine.index for item, mine in zip(other, buffer))
    report = buffer.memory_report()
    assert (report['transitions'], report['distinct_frames']) == (20, 100) and report['bytes'] > 0
    for each in (buffer, other, buffer):
        each.close()
    assert buffer.memory_report()['bytes'] == 0
    with pytest.raises(RuntimeError, match='the replay buffer is closed'):
        buffer.push(transition(30))
    assert buffer.count() == 0


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(alpha=0.6), '`alpha` is unknown; expected one of eviction, folder, size, storage$'),
        (dict(replay_buffer_size=20), '`replay_buffer_size` is unknown; expected one of'),
        (dict(storag='ring'), '`storag` is unknown; did you mean `storage`'),
        (dict(size=0), r'`size` is 0 \(int\); expected a whole number from 1'),
        (dict(eviction='lifo'), "`eviction` is 'lifo' .*; expected one of 'fifo', 'random'"),
        (dict(folder='there'), "`folder` is 'there' .*; expected '' where storage='compressed'"),
    ],
)
def test_options_that_the_task_buffer_does_not_take_are_refused(arguments, message, same_footprint):
    with pytest.raises(ValueError, match=f'TaskFrameBuffer option {message}'):
        TaskFrameBuffer(**{'size': 20, **arguments})
