"""``--overlap``: one piece is played while another is learned from; the ratio is kept, and so is the way to stop."""

import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List

import pytest
import torch
from ding.framework import task
from ding.policy import DQNPolicy
from ding.utils import EasyTimer
from ding.worker import SampleSerialCollector

from breakout_env.compat.ding_timers import use_plain_timers
from breakout_env.replay import FrameReplayBuffer
from breakout_env.run.budget import Budget
from breakout_env.run.saver import pairs_in
from breakout_env.worker.overlap import Overlap
from helpers.processes import Command
from helpers.runs import (  # noqa: F401
    ENTRY,
    N_SAMPLE,
    NAME,
    RANDOM,
    UPDATES,
    as_before,
    check_pairs,
    config_in,
    curves,
    entry,
    expected_transitions,
)

IN_THIS_PROCESS = (r"type='subprocess', shared_memory=True, reset_inplace=True", "type='base'")
# weights that change much from one update to the next, and are played with
GREEDY = [(r'learning_rate=[\d.]+', 'learning_rate=0.05'), (r'start=1.0, end=0.05', 'start=0.1, end=0.1')]

# ---------------------------------------------------------------- the order of things, with pieces made up


class Numbers(object):
    """A pipeline whose pieces are numbers, and what it did."""

    def __init__(self, pieces: int) -> None:
        self.left = list(range(1, pieces + 1))
        self.done = []
        self.buffer = []

    def next_collection(self) -> Any:
        self.done.append('next')
        return self.play if self.left else None

    def play(self) -> int:
        return self.left.pop(0)

    def push(self, piece: int) -> None:
        self.buffer.append(piece)
        self.done.append(f'push {piece}')

    def learn(self) -> None:
        self.done.append(f'learn {self.buffer[-1]}')

    def report(self) -> None:
        self.done.append('report')

    def run(self) -> None:
        Overlap(self.next_collection, self.push, self.learn, self.report).run()


@pytest.mark.parametrize('pieces', [0, 1, 5])
def test_each_piece_is_learned_from_once_after_it_was_pushed_and_the_last_one_too(pieces):
    pipeline = Numbers(pieces)
    pipeline.run()
    expected = ['next', 'report']
    for piece in range(1, pieces + 1):
        expected += ['next', f'push {piece}', f'learn {piece}', 'report']
    assert pipeline.done == expected


def test_it_plays_while_it_learns():
    """Each waits in the midst of its part until the other is in the midst of its own."""
    pipeline = Numbers(4)
    meeting = threading.Barrier(2, timeout=20)
    met = []
    play, learn = pipeline.play, pipeline.learn

    def playing() -> int:
        if pipeline.buffer:  # before that there is nothing to learn from
            meeting.wait()
        return play()

    def learning() -> None:
        if pipeline.left or len(pipeline.buffer) == 3:  # the last piece is learned from alone
            meeting.wait()
            met.append(pipeline.buffer[-1])
        learn()

    pipeline.play, pipeline.learn = playing, learning
    pipeline.run()
    assert met == [1, 2, 3]


@pytest.mark.parametrize('part, other', [('play', 'learn'), ('learn', 'play')])
def test_an_error_is_raised_when_the_other_thread_is_through(part, other):
    pipeline = Numbers(9)
    error = ValueError('broken')
    ended = []

    def breaks() -> Any:
        if pipeline.buffer:
            raise error
        return pipeline.left.pop(0)

    def takes_long() -> Any:
        if pipeline.buffer:
            time.sleep(0.3)
            ended.append(True)
        return pipeline.left.pop(0)

    setattr(pipeline, part, breaks)
    setattr(pipeline, other, takes_long)
    threads = threading.active_count()
    with pytest.raises(ValueError) as raised:
        pipeline.run()
    assert raised.value is error and ended == [True] and threading.active_count() == threads


def test_what_is_not_done_in_threads_is_done_by_the_caller():
    """Signals, evaluation and saving belong there."""
    pipeline = Numbers(3)
    threads = {}

    def noted(name: str, function: Callable) -> Callable:
        def call(*args: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread() is threading.main_thread())
            return function(*args)

        return call

    for name in ('next_collection', 'play', 'push', 'learn', 'report'):
        setattr(pipeline, name, noted(name, getattr(pipeline, name)))
    pipeline.run()
    assert threads == dict(next_collection={True}, push={True}, report={True}, play={False}, learn={False})


def test_it_runs_again_and_within_a_task_of_the_user():
    """DI-engine's `task` is one for the whole process."""
    pipelines = []

    def runs(ctx: Any) -> None:
        pipelines.append(Numbers(2))
        pipelines[-1].run()

    with task.start(async_mode=False):
        task.use(runs)
        task.run(max_step=2)
    assert [pipeline.buffer for pipeline in pipelines] == [[1, 2]] * 2


# ---------------------------------------------------------------- real games and updates, in this process


def numbers_of(policy: Any) -> int:
    return hash(b''.join(value.cpu().numpy().tobytes() for value in policy._model.state_dict().values()))


class Recorded(object):
    """What was done when, and with which weights."""

    def __init__(self, folder: Path, *arguments: Any) -> None:
        self.moves: List[tuple] = []  # start, weights
        self.updates: List[tuple] = []  # start, end, weights before
        self.pieces: List[tuple] = []  # start, end, iteration
        self.pushed: List[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            move, update = DQNPolicy._forward_collect, DQNPolicy._forward_learn
            collect, push = SampleSerialCollector.collect, FrameReplayBuffer.push

            def moves(policy: Any, *args: Any, **kwargs: Any) -> Any:
                self.moves.append((time.monotonic(), numbers_of(policy)))
                return move(policy, *args, **kwargs)

            def updates(policy: Any, *args: Any, **kwargs: Any) -> Any:
                start, before = time.monotonic(), numbers_of(policy)
                result = update(policy, *args, **kwargs)
                self.updates.append((start, time.monotonic(), before))
                return result

            def collects(collector: Any, *args: Any, **kwargs: Any) -> Any:
                start = time.monotonic()
                result = collect(collector, *args, **kwargs)
                self.pieces.append((start, time.monotonic(), kwargs.get('train_iter')))
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
            for number, handler in handlers.items():  # the entry listens to the end of its process, which goes on here
                signal.signal(number, handler)
            self.random_play, *self.pieces = self.pieces
            self.saved = check_pairs(Path(NAME))[0]
            self.weights = torch.load(Path(NAME, self.saved['checkpoint']), weights_only=True)['model']

    @property
    def moves_while_learning(self) -> int:
        return sum(any(start < at < end for start, end, _ in self.updates) for at, _ in self.moves)


@pytest.fixture(scope='module')
def overlapped(tmp_path_factory):
    torch.set_num_threads(1)
    return Recorded(tmp_path_factory.mktemp('overlapped'), 0, Budget(env_steps=500), None, True)


def test_the_ratio_of_updates_to_env_steps_is_that_of_the_config(overlapped):
    assert overlapped.pushed == [RANDOM] + [N_SAMPLE] * len(overlapped.pieces)
    assert len(overlapped.updates) == UPDATES * len(overlapped.pieces) > 50
    assert overlapped.saved['iteration'] == len(overlapped.updates) and 500 <= overlapped.saved['env_step'] < 520


def test_each_piece_is_played_with_the_weights_of_the_moment_before(overlapped):
    """Those that the learner has when it begins with the piece before: whole, and the same for all of the piece."""
    played_with = []
    for number, (start, end, iteration) in enumerate(overlapped.pieces):
        (weights,) = {weights for at, weights in overlapped.moves if start <= at <= end}
        begun = UPDATES * max(0, number - 1)
        assert (weights, iteration) == (overlapped.updates[begun][2], begun)
        played_with.append(weights)
    assert len(set(played_with)) == len(overlapped.pieces) - 1  # the first two are played with those of the start


def test_games_go_on_during_updates(overlapped, tmp_path):
    # the machine may be busy with other things; in serial order there is not a single one
    assert overlapped.moves_while_learning > len(overlapped.moves) // 20
    assert Recorded(tmp_path, 0, Budget(env_steps=200)).moves_while_learning == 0


def test_the_same_seed_gives_the_same_weights(overlapped, tmp_path):
    again = Recorded(tmp_path, 0, Budget(env_steps=500), None, True)
    assert all(torch.equal(value, again.weights[name]) for name, value in overlapped.weights.items())


# ---------------------------------------------------------------- real processes


@pytest.mark.parametrize(
    'number, whole_group', [(signal.SIGINT, False), (signal.SIGTERM, True), (signal.SIGKILL, True)]
)
def test_a_run_that_is_ended_goes_on_with_the_same_ratio(tmp_path, number, whole_group):
    """A kill may come in the midst of a save, which the learner's thread begins while games go on."""
    folder = tmp_path / NAME
    config = config_in(tmp_path, 0.2)
    command = [*ENTRY, '-c', str(config), '--overlap']
    first = Command(command, tmp_path)
    first.wait_for(lambda: pairs_in(folder))
    code = first.end(number, whole_group)
    assert code == (-number if number == signal.SIGKILL else 0) and 'Traceback' not in first.text, first.text
    stopped = check_pairs(folder)[0]
    assert number == signal.SIGKILL or f'--overlap --resume {NAME}' in first.text

    second = Command([*command, '--env-step', str(stopped['env_step'] + 100), '--resume'], tmp_path)
    assert second.process.wait(120) == 0, second.text
    transitions = expected_transitions(stopped['iteration'])
    assert f'at {stopped["iteration"]:,} updates' in second.text and f'{transitions:,} transitions' in second.text
    ended = check_pairs(folder)[0]
    assert ended['iteration'] >= stopped['iteration'] + UPDATES * (100 // N_SAMPLE - 2)
    assert curves(folder)[-1] == list(range(stopped['iteration'], ended['iteration']))


BREAKS = """
import os, runpy, signal, sys, time
from ding.policy import DQNPolicy
role, what = sys.argv.pop(1), sys.argv.pop(1)
whole, calls = getattr(DQNPolicy, role), 0
def broken(*args, **kwargs):
    global calls
    calls += 1
    if calls == 41 and what == 'error':
        raise ValueError(role + ' is broken')
    if calls == 41:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
    return whole(*args, **kwargs)
setattr(DQNPolicy, role, broken)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def breaking(config: Path, role: str, what: str) -> Command:
    """Our entry, in which a function of the policy fails at its 41st call, or is stopped twice in it."""
    arguments = [role, what, *ENTRY[1:], '-c', str(config), '--overlap']
    return Command([sys.executable, '-c', BREAKS, *arguments], config.parent)


@pytest.mark.parametrize('role', ['_forward_collect', '_forward_learn'])
def test_an_error_in_either_part_ends_the_run_and_is_the_last_thing_on_the_screen(tmp_path, role):
    config = config_in(tmp_path, 0)
    command = Command(
        [sys.executable, '-c', BREAKS, role, 'error', *ENTRY[1:], '-c', str(config), '--overlap'], tmp_path
    )
    assert command.process.wait(120) == 1, command.text
    assert command.text.rstrip().endswith(f'ValueError: {role} is broken')
    assert command.text.count('Traceback') == 1
    newest = check_pairs(tmp_path / NAME)[0]
    # all that was whole: a collection is 4 moves of 2 environments; of an update's collection nothing is kept
    assert newest['iteration'] == (40 if role == '_forward_learn' else UPDATES * (40 * 2 // N_SAMPLE - 1))


@pytest.mark.parametrize('role', ['_forward_collect', '_forward_learn'])
def test_a_second_ctrl_c_ends_it_at_once_and_leaves_no_half_save(tmp_path, role):
    config = config_in(tmp_path, 0)
    command = Command(
        [sys.executable, '-c', BREAKS, role, 'stop', *ENTRY[1:], '-c', str(config), '--overlap'], tmp_path
    )
    assert command.process.wait(120) == 128 + signal.SIGINT, command.text
    assert command.text.rstrip().endswith('stopped')
    assert 'Traceback' not in command.text and 'destroyed' not in command.text
    assert check_pairs(tmp_path / NAME)


def test_clocks_of_two_workers_do_not_share_a_start():
    first, second = SimpleNamespace(timer=EasyTimer()), SimpleNamespace(timer=EasyTimer())
    use_plain_timers(first, second)
    with first.timer:
        time.sleep(0.05)
        with second.timer:  # with DI-engine's own, the first one would begin again here
            pass
    assert second.timer.value < 0.05 <= first.timer.value
