"""Hooks of DI-engine's learner."""

import pytest
from ding.worker.learner.learner_hook import add_learner_hook

from breakout_env.compat.ding_call_hook import CallHook


def test_a_hook_of_upstream_still_has_one_position():
    hooks = dict(before_iter=[], after_iter=[])
    add_learner_hook(hooks, CallHook('one', 0, print, position='after_iter'))
    assert [hook.name for hook in hooks['after_iter']] == ['one'] and not hooks['before_iter']
    with pytest.raises(AssertionError):  # else one hook could have several: remove the workaround
        CallHook('two', 0, print, position=['before_iter', 'after_iter'])
