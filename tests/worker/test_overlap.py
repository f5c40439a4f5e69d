"""``Overlap``: a fragment is collected while the previous one is learned from, in the ratio of the config."""

import threading
import time
from pathlib import Path
from typing import Any, Callable, List

import pytest
import torch
from ding.framework import task
from ding.policy import DQNPolicy
from ding.worker import SampleSerialCollector

from breakout_env.replay import FrameReplayBuffer
from breakout_env.run.budget import Budget
from breakout_env.worker.overlap import Overlap
from helpers.runs import (  # noqa: F401
    N_SAMPLE,
    NAME,
    RANDOM,
    UPDATES,
    as_before,
    check_saves,
    config_in,
    entry,
)

IN_THIS_PROCESS = (r"type='subprocess', shared_memory=True, reset_inplace=True", "type='base'")
# weights that change much with each update, and actions that depend on them
GREEDY = [(r'learning_rate=[\d.]+', 'learning_rate=0.05'), (r'start=1.0, end=0.05', 'start=0.1, end=0.1')]

# ---------------------------------------------------------------- the order of calls, with numbers for fragments


class Numbers(object):
    """A pipeline whose fragments are numbers, and its calls."""

    def __init__(self, fragments: int) -> None:
        self.left = list(range(1, fragments + 1))
        self.calls = []
        self.buffer = []

    def next_collection(self) -> Any:
        self.calls.append('next')
        return self.collect if self.left else None

    def collect(self) -> int:
        return self.left.pop(0)

    def push(self, fragment: int) -> None:
        self.buffer.append(fragment)
        self.calls.append(f'push {fragment}')

    def learn(self) -> None:
        self.calls.append(f'learn {self.buffer[-1]}')

    def report(self) -> None:
        self.calls.append('report')

    def run(self) -> None:
        Overlap(self.next_collection, self.push, self.learn, self.report).run()


@pytest.mark.parametrize('fragments', [0, 1, 5])
def test_each_fragment_is_pushed_and_then_learned_from_once(fragments):
    pipeline = Numbers(fragments)
    pipeline.run()
    expected = ['next', 'report']
    for fragment in range(1, fragments + 1):
        expected += ['next', f'push {fragment}', f'learn {fragment}', 'report']
    assert pipeline.calls == expected


def test_it_collects_while_it_learns():
    """Each of the two waits until the other has begun, too."""
    pipeline = Numbers(4)
    meeting = threading.Barrier(2, timeout=20)
    met = []
    collect, learn = pipeline.collect, pipeline.learn

    def collecting() -> int:
        if pipeline.buffer:  # nothing to learn from before that
            meeting.wait()
        return collect()

    def learning() -> None:
        if pipeline.left or len(pipeline.buffer) == 3:  # the last fragment is learned from alone
            meeting.wait()
            met.append(pipeline.buffer[-1])
        learn()

    pipeline.collect, pipeline.learn = collecting, learning
    pipeline.run()
    assert met == [1, 2, 3]


@pytest.mark.parametrize('part, other', [('collect', 'learn'), ('learn', 'collect')])
def test_an_error_is_raised_after_the_other_thread_has_finished(part, other):
    pipeline = Numbers(9)
    error = ValueError('broken')
    broken, ended = threading.Event(), []

    def breaks() -> Any:
        if pipeline.buffer:
            broken.set()
            raise error
        return pipeline.left.pop(0)

    def takes_long() -> Any:
        if pipeline.buffer:
            assert broken.wait(20)
            time.sleep(0.1)  # time to notice the error too early
            ended.append(True)
        return pipeline.left.pop(0)

    setattr(pipeline, part, breaks)
    setattr(pipeline, other, takes_long)
    threads = threading.active_count()
    with pytest.raises(ValueError) as raised:
        pipeline.run()
    assert raised.value is error and ended == [True] and threading.active_count() == threads


def test_only_collecting_and_learning_run_in_threads():
    """Signals, evaluation and saving need the main thread."""
    pipeline = Numbers(3)
    threads = {}

    def noted(name: str, function: Callable) -> Callable:
        def call(*args: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread() is threading.main_thread())
            return function(*args)

        return call

    for name in ('next_collection', 'collect', 'push', 'learn', 'report'):
        setattr(pipeline, name, noted(name, getattr(pipeline, name)))
    pipeline.run()
    assert threads == dict(next_collection={True}, push={True}, report={True}, collect={False}, learn={False})


def test_it_runs_repeatedly_and_within_di_engines_global_task():
    pipelines = []

    def runs(ctx: Any) -> None:
        pipelines.append(Numbers(2))
        pipelines[-1].run()

    with task.start(async_mode=False):
        task.use(runs)
        task.run(max_step=2)
    assert [pipeline.buffer for pipeline in pipelines] == [[1, 2]] * 2


# ---------------------------------------------------------------- real games and updates


def weights_hash(policy: Any) -> int:
    return hash(b''.join(value.cpu().numpy().tobytes() for value in policy._model.state_dict().values()))


class Recorded(object):
    """A training in this process: what was pushed, and the weights before each update and in each collection."""

    def __init__(self, folder: Path) -> None:
        self.updates: List[int] = []
        self.collections: List[tuple] = []  # weights, iteration
        self.pushed: List[int] = []
        weights = set()

        def collects(collector: Any, *args: Any, **kwargs: Any) -> Any:
            weights.clear()
            result = collect(collector, *args, **kwargs)
            self.collections.append((set(weights), kwargs.get('train_iter')))
            return result

        collect = SampleSerialCollector.collect
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(SampleSerialCollector, 'collect', collects)
            before(patch, DQNPolicy, '_forward_collect', lambda policy, *args: weights.add(weights_hash(policy)))
            before(patch, DQNPolicy, '_forward_learn', lambda policy, *args: self.updates.append(weights_hash(policy)))
            before(patch, FrameReplayBuffer, 'push', lambda buffer, data, *args: self.pushed.append(len(data)))
            config = config_in(folder, 900, IN_THIS_PROCESS, *GREEDY)
            entry().train(str(config), 0, Budget(env_steps=500), None, True)
            self.saved = check_saves(Path(NAME))[0]
            self.weights = torch.load(Path(NAME, self.saved['checkpoint']), weights_only=True)['model']
        del self.collections[0]  # random play


def before(patch: pytest.MonkeyPatch, owner: type, name: str, record: Callable) -> None:
    function = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        record(*args)
        return function(*args, **kwargs)

    patch.setattr(owner, name, call)


@pytest.fixture(scope='module')
def overlapped(tmp_path_factory):
    torch.set_num_threads(1)
    return Recorded(tmp_path_factory.mktemp('overlapped'))


def test_the_ratio_of_updates_to_env_steps_is_that_of_the_config(overlapped):
    assert overlapped.pushed == [RANDOM] + [N_SAMPLE] * len(overlapped.collections)
    assert len(overlapped.updates) == UPDATES * len(overlapped.collections) > 50
    assert overlapped.saved['iteration'] == len(overlapped.updates) and 500 <= overlapped.saved['env_step'] < 520


def test_each_fragment_is_collected_with_the_weights_before_the_previous_updates(overlapped):
    """The weights that the learner begins the previous fragment with, the same for the whole fragment."""
    for number, (weights, iteration) in enumerate(overlapped.collections):
        begun = UPDATES * max(0, number - 1)
        assert (weights, iteration) == ({overlapped.updates[begun]}, begun)
    assert len(set(overlapped.updates)) == len(overlapped.updates)


def test_the_same_seed_gives_the_same_weights(overlapped, tmp_path):
    again = Recorded(tmp_path)
    assert all(torch.equal(value, again.weights[name]) for name, value in overlapped.weights.items())
