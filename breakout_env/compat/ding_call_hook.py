"""DI-engine 0.5.3: a learner hook has one position; several need a hook for each."""

from collections.abc import Callable

from ding.worker.learner import BaseLearner, LearnerHook


class CallHook(LearnerHook):
    """A learner hook that calls a function without arguments."""

    def __init__(self, name: str, priority: float, function: Callable[[], object], position: str) -> None:
        super().__init__(name, priority, position=position)
        self._function = function

    def __call__(self, engine: BaseLearner) -> None:
        self._function()
