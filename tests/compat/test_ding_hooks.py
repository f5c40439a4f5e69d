"""Hooks of DI-engine's learner; its pipeline, which may have made no evaluation."""

import inspect
import re

import pytest
from ding.entry import serial_pipeline
from ding.worker.learner.learner_hook import add_learner_hook

from breakout_env.compat.ding_call_hook import CallHook


def test_a_hook_of_upstream_still_has_one_position():
    hooks = dict(before_iter=[], after_iter=[])
    add_learner_hook(hooks, CallHook('one', 0, print, position='after_iter'))
    assert [hook.name for hook in hooks['after_iter']] == ['one'] and not hooks['before_iter']
    with pytest.raises(AssertionError):  # else one hook could have several: remove the workaround
        CallHook('two', 0, print, position=['before_iter', 'after_iter'])


def test_upstream_still_returns_an_evaluation_that_may_not_have_been():
    lines = re.findall(r'^.*\beval_info\b.*', inspect.getsource(serial_pipeline), re.M)
    assert len(lines) == 2, f'set in the loop, used after it; with a value before it, remove the workaround: {lines}'
