"""DI-engine 0.5.3: ``serial_pipeline`` ends in an ``UnboundLocalError`` if a resumed run is over before an evaluation
is due.
"""

from functools import partial
from typing import TYPE_CHECKING

from ..utils import run_registry
from .ding_call_hook import CallHook

if TYPE_CHECKING:
    from ding.worker import BaseLearner


def evaluate_first(learner: 'BaseLearner') -> None:
    """Have the pipeline of a resumed run evaluate before its first collection. For DI-engine's own evaluators this sets
    ``eval_freq``, which policy and evaluator share, to 1 until the first update.
    """
    evaluator = run_registry.look_up(learner.exp_name, 'evaluator')
    if evaluator is not None:
        evaluator.evaluate_first()
        return
    options = learner.policy.get_attribute('cfg').eval.get('evaluator', {})
    if 'eval_freq' in options:
        restore = partial(setattr, options, 'eval_freq', options.eval_freq)
        options.eval_freq = 1
        learner.register_hook(CallHook('resume_evaluate_first', 0, restore, position='before_iter'))
