"""Hooks of DI-engine's learner; its pipeline, which keeps its budget to itself, and may have made no evaluation."""

import inspect
import re

import pytest
from ding.entry import serial_pipeline
from ding.worker.learner.learner_hook import add_learner_hook

from breakout_env.compat.ding_budget import limit_of_pipeline
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


@pytest.mark.parametrize('name', ['max_env_step', 'max_train_iter'])
def test_upstream_still_hands_its_limit_to_nobody(name):
    scope = dict(__name__='ding.entry.serial_entry', limit_of_pipeline=limit_of_pipeline)
    exec(f'def serial_pipeline({name}): return limit_of_pipeline({name!r})', scope)  # noqa: S102
    assert [scope['serial_pipeline'](limit) for limit in (5000, 10**10)] == [5000, None] and not limit_of_pipeline(name)
    uses = re.findall(rf'^ .*{name}.*', inspect.getsource(serial_pipeline), re.M)
    assert len(uses) == 3, f'argument, docstring and loop; if upstream hands it on now, remove the workaround: {uses}'
