"""Upstream behaviour worked around (DI-engine 0.5.3): ``serial_pipeline`` returns the result of the last evaluation of
its own process, and ends in an ``UnboundLocalError`` if a resumed run is over before one is due.
"""

from functools import partial
from typing import TYPE_CHECKING

from ..utils import run_registry
from .ding_call_hook import CallHook

if TYPE_CHECKING:
    from ding.worker import BaseLearner


def evaluate_first(learner: 'BaseLearner') -> None:
    """Have the pipeline of a resumed run evaluate before its first collection. For DI-engine's own evaluators it sets
    ``eval_freq``, which policy and evaluator share, to 1 until the first update.
    """
    ours = run_registry.look_up(learner.exp_name, 'evaluator')
    if ours is not None:
        ours.evaluate_first()
        return
    evaluator = learner.policy.get_attribute('cfg').eval.get('evaluator', {})
    if 'eval_freq' not in evaluator:
        return
    restore = partial(setattr, evaluator, 'eval_freq', evaluator.eval_freq)
    evaluator.eval_freq = 1
    learner.register_hook(CallHook('resume_evaluate_first', 0, restore, position='before_iter'))
