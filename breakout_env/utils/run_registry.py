"""
Who takes part in a run: buffer, collector and evaluator say so here, and the learner hooks find them.

Upstream behaviour worked around (DI-engine 0.5.3): a learner hook sees the learner alone, but a save of a run needs the
replay buffer and the evaluator, too. All of them are told the name of the experiment. And a hook has one position, so
what has something to do at several of them takes part by a ``CallHook`` for each.
"""

import weakref
from typing import Any, Optional

_parts: 'weakref.WeakValueDictionary[tuple, Any]' = weakref.WeakValueDictionary()


def register(exp_name: str, role: str, part: Any) -> None:
    """Say who plays a role in a run; forgotten when it is gone."""
    _parts[exp_name, role] = part


def forget(exp_name: str) -> None:
    """A run is over: the next one of this name, in the same process, must not find the parts of this one."""
    for key in [key for key in _parts.keys() if key[0] == exp_name]:
        _parts.pop(key, None)


def look_up(exp_name: str, role: str) -> Optional[Any]:
    """Who plays a role in a run; None if nobody does."""
    return _parts.get((exp_name, role))


def poll_progress(exp_name: str) -> None:
    """Who plays or evaluates gives the progress line its turn: no update comes by meanwhile."""
    progress = look_up(exp_name, 'progress')
    if progress is not None:
        progress.look()
