"""Parts of a run find each other here by the name of the experiment, because DI-engine shows a learner hook only the
learner: buffer, collector and evaluator register, the learner hooks look them up.
"""

import weakref
from typing import Any

_parts: 'weakref.WeakValueDictionary[tuple[str, str], Any]' = weakref.WeakValueDictionary()


def register(exp_name: str, role: str, part: object) -> None:
    """Register a part of a run; the registry does not keep it alive."""
    _parts[exp_name, role] = part


def forget(exp_name: str) -> None:
    """Forget a run that is over, so that the next one of this name in this process does not find its parts."""
    for key in [key for key in _parts.keys() if key[0] == exp_name]:
        _parts.pop(key, None)


def look_up(exp_name: str, role: str) -> Any | None:
    """The part that has a role in a run; None if there is none."""
    return _parts.get((exp_name, role))


def after_env_step(exp_name: str) -> None:
    """Renew the progress line, and end the run if a stop was requested: collectors and evaluators call this after each
    step of their environments. What it raises is for the run's pipeline.
    """
    progress = look_up(exp_name, 'progress')
    if progress is not None:
        progress.poll()
    stop_if_requested(exp_name)


def stop_if_requested(exp_name: str) -> None:
    """End the run by an exception for its pipeline, if a stop was requested."""
    stop = look_up(exp_name, 'stop')
    if stop is not None:
        stop.raise_if_requested()
