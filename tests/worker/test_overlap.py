"""``overlapped``: a fragment is collected while the previous one is learned from, in the ratio of the config."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ding.policy import DQNPolicy

from breakout_env.replay import FrameReplayBuffer
from breakout_env.run.budget import Budget
from breakout_env.run.pipeline import train
from breakout_env.worker.nstep_collector import NstepCollector
from breakout_env.worker.overlap import overlapped
from helpers.runs import N_SAMPLE, NAME, RANDOM, UPDATES, check_saves, config_in

IN_THIS_PROCESS = (r"type='subprocess', shared_memory=True, reset_inplace=True", "type='base'")
# weights that change much with each update, and actions that depend on them
GREEDY = [(r'learning_rate=[\d.]+', 'learning_rate=0.05'), (r'start=[\d.]+', 'start=0.1'), (r' end=[\d.]+', ' end=0.1')]


def test_it_collects_while_it_learns():
    """Each of the two waits until the other has begun, too. Fragments are numbers here."""
    meeting = threading.Barrier(2, timeout=20)
    left, pushed, met = [1, 2, 3, 4], [], []

    def collect() -> int:
        if pushed:  # nothing to learn from before that
            meeting.wait()
        return left.pop(0)

    collections = iter(lambda: collect if left else None, None)
    for fragment in overlapped(collections, pushed.append):
        if left or len(pushed) == 3:  # the last fragment is learned from alone
            meeting.wait()
            met.append(fragment)
    assert met == [1, 2, 3] and pushed == [1, 2, 3, 4]


def weights_hash(policy: Any) -> int:
    return hash(b''.join(value.cpu().numpy().tobytes() for value in policy._model.state_dict().values()))


class Recorded:
    """A training in this process: what was pushed, and the weights before each update and in each collection."""

    def __init__(self, folder: Path) -> None:
        self.updates: list[int] = []
        self.collections: list[tuple] = []  # weights, iteration
        self.pushed: list[int] = []
        weights = set()

        def collects(collector: Any, *args: Any, **kwargs: Any) -> Any:
            weights.clear()
            result = collect(collector, *args, **kwargs)
            self.collections.append((set(weights), kwargs.get('train_iter')))
            return result

        collect = NstepCollector.collect
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(NstepCollector, 'collect', collects)
            before(patch, DQNPolicy, '_forward_collect', lambda policy, *args: weights.add(weights_hash(policy)))
            before(patch, DQNPolicy, '_forward_learn', lambda policy, *args: self.updates.append(weights_hash(policy)))
            before(patch, FrameReplayBuffer, 'push', lambda buffer, data, *args: self.pushed.append(len(data)))
            config = config_in(folder, 900, IN_THIS_PROCESS, *GREEDY)
            train(str(config), 0, Budget(env_steps=500), overlap=True)
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
def recorded(tmp_path_factory):
    torch.set_num_threads(1)
    return Recorded(tmp_path_factory.mktemp('overlapped'))


def test_the_ratio_of_updates_to_env_steps_is_that_of_the_config(recorded):
    """What a collection returns beyond ``n_sample``, where an episode ended, is made up for by the next ones."""
    random, *pushed = recorded.pushed
    assert random >= RANDOM and len(pushed) == len(recorded.collections)
    assert 0 <= sum(pushed) - N_SAMPLE * len(pushed) < 2 * N_SAMPLE
    assert len(recorded.updates) == UPDATES * len(recorded.collections) > 50
    assert recorded.saved['iteration'] == len(recorded.updates) and 500 <= recorded.saved['env_step'] < 520


def test_each_fragment_is_collected_with_weights_one_fragment_older(recorded):
    """The weights that the learner begins the previous fragment with, the same for the whole fragment."""
    for number, (weights, iteration) in enumerate(recorded.collections):
        begun = UPDATES * max(0, number - 1)
        assert iteration == begun and weights in ({recorded.updates[begun]}, set())  # none where none was needed
    assert len(set(recorded.updates)) == len(recorded.updates)
    assert sum(bool(weights) for weights, _ in recorded.collections) > len(recorded.collections) / 2


def test_the_same_seed_gives_the_same_weights(recorded, tmp_path):
    again = Recorded(tmp_path)
    assert all(torch.equal(value, again.weights[name]) for name, value in recorded.weights.items())
