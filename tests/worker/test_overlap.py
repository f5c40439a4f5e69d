"""``Overlap``: a fragment is collected while the previous one is learned from, in the ratio of the config."""

import signal
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
    """The times and weights of all forwards, updates and collections of a training in this process."""

    def __init__(self, folder: Path, *arguments: Any) -> None:
        self.moves: List[tuple] = []  # start, weights
        self.updates: List[tuple] = []  # start, end, weights before
        self.fragments: List[tuple] = []  # start, end, iteration
        self.pushed: List[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            move, update = DQNPolicy._forward_collect, DQNPolicy._forward_learn
            collect, push = SampleSerialCollector.collect, FrameReplayBuffer.push

            def moves(policy: Any, *args: Any, **kwargs: Any) -> Any:
                self.moves.append((time.monotonic(), weights_hash(policy)))
                return move(policy, *args, **kwargs)

            def updates(policy: Any, *args: Any, **kwargs: Any) -> Any:
                start, before = time.monotonic(), weights_hash(policy)
                result = update(policy, *args, **kwargs)
                self.updates.append((start, time.monotonic(), before))
                return result

            def collects(collector: Any, *args: Any, **kwargs: Any) -> Any:
                start = time.monotonic()
                result = collect(collector, *args, **kwargs)
                self.fragments.append((start, time.monotonic(), kwargs.get('train_iter')))
                return result

            def pushes(buffer: Any, data: Any, *args: Any, **kwargs: Any) -> None:
                self.pushed.append(len(data))
                push(buffer, data, *args, **kwargs)

            patch.setattr(DQNPolicy, '_forward_collect', moves)
            patch.setattr(DQNPolicy, '_forward_learn', updates)
            patch.setattr(SampleSerialCollector, 'collect', collects)
            patch.setattr(FrameReplayBuffer, 'push', pushes)
            config = config_in(folder, 900, IN_THIS_PROCESS, *GREEDY)
            handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
            entry().train(str(config), *arguments)
            for number, handler in handlers.items():  # the entry handles them to the end of its process
                signal.signal(number, handler)
            self.random_collection, *self.fragments = self.fragments
            self.saved = check_saves(Path(NAME))[0]
            self.weights = torch.load(Path(NAME, self.saved['checkpoint']), weights_only=True)['model']


@pytest.fixture(scope='module')
def overlapped(tmp_path_factory):
    torch.set_num_threads(1)
    return Recorded(tmp_path_factory.mktemp('overlapped'), 0, Budget(env_steps=500), None, True)


def test_the_ratio_of_updates_to_env_steps_is_that_of_the_config(overlapped):
    assert overlapped.pushed == [RANDOM] + [N_SAMPLE] * len(overlapped.fragments)
    assert len(overlapped.updates) == UPDATES * len(overlapped.fragments) > 50
    assert overlapped.saved['iteration'] == len(overlapped.updates) and 500 <= overlapped.saved['env_step'] < 520


def test_each_fragment_is_collected_with_the_weights_before_the_previous_updates(overlapped):
    """The weights that the learner begins the previous fragment with, the same for the whole fragment."""
    weights_of = []
    for number, (start, end, iteration) in enumerate(overlapped.fragments):
        (weights,) = {weights for at, weights in overlapped.moves if start <= at <= end}
        begun = UPDATES * max(0, number - 1)
        assert (weights, iteration) == (overlapped.updates[begun][2], begun)
        weights_of.append(weights)
    assert len(set(weights_of)) == len(overlapped.fragments) - 1  # the first two have the initial weights


def test_the_same_seed_gives_the_same_weights(overlapped, tmp_path):
    again = Recorded(tmp_path, 0, Budget(env_steps=500), None, True)
    assert all(torch.equal(value, again.weights[name]) for name, value in overlapped.weights.items())
