"""A full disk ends no training and leaves the checkpoint of the best score as it was."""

import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from ding.worker.learner.learner_hook import SaveCkptHook
from easydict import EasyDict

from breakout_env.compat.ding_checkpoint_files import keep_checkpoints_whole
from breakout_env.policy.learner import check_finite
from breakout_env.run.paths import numbered_checkpoint

BEST = 'ckpt_best.pth.tar'
finite = partial(check_finite, 'weight')


@pytest.fixture
def learner(small_disk, monkeypatch):
    """One with DI-engine's hook, a small best checkpoint on a disk, and weights that are too large for it by now."""
    monkeypatch.chdir(small_disk)
    hooks = [SaveCkptHook('save_ckpt', 20, position='after_iter', ext_args=EasyDict(freq=5))]
    names = dict(rank=0, instance_name='learner', exp_name='run', collector_envstep=40, info=print)
    found = SimpleNamespace(**names, last_iter=SimpleNamespace(val=10), policy=SimpleNamespace())
    vars(found).update(hooks=hooks, _hooks=dict(after_iter=hooks))
    found.policy.state_dict = lambda: dict(weights=torch.zeros(10))
    save(found, BEST)
    found.policy.state_dict = lambda: dict(weights=torch.zeros(10**7))
    return found


def save(learner, name):
    learner.ckpt_name = name
    learner.hooks[0](learner)


def best():
    return torch.load(f'run/ckpt/{BEST}', weights_only=True)


def test_upstream_still_loses_the_best_checkpoint_to_a_full_disk(learner):
    with pytest.raises((RuntimeError, OSError)):
        save(learner, BEST)
    with pytest.raises((RuntimeError, OSError, EOFError)):
        best()


def test_the_best_checkpoint_outlasts_a_full_disk_with_an_error(learner):
    keep_checkpoints_whole(learner, numbered_checkpoint, finite)
    with pytest.raises(OSError, match='No space left'):
        save(learner, BEST)
    assert len(best()['weights']) == 10 and (best()['last_iter'], best()['last_step']) == (10, 40)
    assert learner.ckpt_name is None, 'the next checkpoint would get its name'


def test_a_training_continues_without_a_checkpoint_and_saves_the_next_one(learner, caplog):
    keep_checkpoints_whole(learner, numbered_checkpoint, finite)
    save(learner, None)
    assert 'iteration_10.pth.tar was not saved, the training continues' in caplog.text
    learner.policy.state_dict = lambda: dict(weights=torch.zeros(10))
    for learner.last_iter.val in (14, 15):
        save(learner, None)
    learner.policy.state_dict = lambda: dict(weights=torch.full([10], math.nan))
    learner.last_iter.val = 20
    with pytest.raises(ValueError, match='weight `weights` is infinite'):
        save(learner, None)
    assert sorted(path.name for path in Path('run/ckpt').iterdir()) == [BEST, 'iteration_15.pth.tar']
