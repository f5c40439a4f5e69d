"""The options of ``GroupEnvManager``: what each may be. What they mean stands in its ``config``."""

import math
from typing import Any, Dict, Mapping

from ..utils import option_checks

# How its errors begin.
OPTION = 'env_manager option'
# What DI-engine puts into the section, or its other managers read there, as ``shared_memory`` in other forms.
DI_ENGINE_KEYS = frozenset(
    ['type', 'import_names', 'cfg_type', 'manager', 'copy_on_get', 'max_retry_times', 'wait_num', 'step_wait_timeout']
)
# Beyond a day nothing is waited for, and beyond some hundred processes a machine is not helped by more.
_DAY_S = 86_400.0
_CHECKS: Dict[str, option_checks.Check] = dict(
    episode_num=option_checks.number(1.0, math.inf),
    max_retry=option_checks.whole_number(0, 1_000_000),
    retry_type=option_checks.one_of('reset', 'renew'),
    auto_reset=option_checks.true_or_false,
    reset_inplace=option_checks.true_or_false,
    step_timeout=option_checks.number(0.0, _DAY_S, or_none=True, above=True),
    reset_timeout=option_checks.number(0.0, _DAY_S, or_none=True, above=True),
    retry_waiting_time=option_checks.number(0.0, _DAY_S),
    worker_num=option_checks.whole_number(1, 4096, or_none=True),
    shared_memory=option_checks.true_or_false,
    # not forkserver: a worker looks whether its parent is still there, and that would be the server
    context=option_checks.one_of('fork', 'spawn'),
    connect_timeout=option_checks.number(0.0, _DAY_S, above=True),
)


def read_options(cfg: Any) -> Dict[str, Any]:
    """
    Overview:
        Check ``cfg.env.manager``.
    Arguments:
        - cfg (:obj:`Any`): What was found there.
    Returns:
        - options (:obj:`Dict[str, Any]`): Those that are set.
    Raises:
        - ValueError: If an option is unknown or its value is not allowed; the message names the option.
    """
    return option_checks.read(OPTION, cfg, _CHECKS, DI_ENGINE_KEYS)


def names() -> Mapping[str, option_checks.Check]:
    """The options there are."""
    return dict(_CHECKS)
