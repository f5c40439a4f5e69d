"""
Logs and counts of DI-engine's workers on several ranks.

Upstream behaviour worked around (DI-engine 0.5.3): the learner's ``log_reduce`` hook sends each number on its own,
through a GPU, and fails without one (``learner_place``, ``average_logs``); a collector averages its counts through a
GPU, also where one rank has failed (``count_alone``).
"""

from typing import Any, Callable, List, Tuple

from ding.worker import BaseLearner

from .ding_call_hook import CallHook

# DI-engine's log averages the values of its last 10 updates.
LOG_LOOKS_BACK_UPDATES = 10


def learner_place(rank: int) -> Tuple[int, int]:
    """``dist_info`` of a learner: its rank, as only the first writes; a size of 1, so that it reduces no logs."""
    return rank, 1


def average_logs(learner: BaseLearner, average: Callable[[List[float]], List[float]], show_every: int) -> None:
    """
    Let the learner's log, with a line every ``show_every`` updates, and curves show averages over all ranks; one
    message for all numbers.
    """

    def average_log() -> None:
        if -learner.train_iter % show_every < LOG_LOOKS_BACK_UPDATES:
            values = learner.log_buffer['scalar']
            names = sorted(name for name, value in values.items() if isinstance(value, (int, float)))
            values.update(dict(zip(names, average([values[name] for name in names]))))

    learner.register_hook(CallHook('average_logs', 10, average_log, position='after_iter'))  # before log_show


def count_alone(collector: Any) -> None:
    """Let a collector count its own env steps only; the pipeline adds those of the others."""
    collector._world_size = 1
