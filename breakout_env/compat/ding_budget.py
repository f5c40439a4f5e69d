"""
Upstream behaviour worked around (DI-engine 0.5.3): ``serial_pipeline(..., max_train_iter=..., max_env_step=...)`` keeps
its budget to itself: neither the config nor the learner that it hands to hooks has it. A percentage of a number in the
config, and what is annealed over it, would be wrong for a run with another budget. The pipelines call the hooks, so the
number is in a frame that still runs.
"""

import sys
from types import FrameType
from typing import Optional

NO_LIMIT = 10**10  # the pipelines' default


def limit_of_pipeline(name: str) -> Optional[int]:
    """
    ``'max_env_step'`` or ``'max_train_iter'`` of the serial pipeline that has called, at whatever depth; None without
    one, or a limit.
    """
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        names = frame.f_globals.get('__name__', ''), frame.f_code.co_name
        if names[0].startswith('ding.entry.') and names[1].startswith('serial_pipeline'):
            limit = frame.f_locals.get(name)
            return int(limit) if limit is not None and 0 < limit < NO_LIMIT else None
        frame = frame.f_back
    return None
