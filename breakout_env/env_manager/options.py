"""The options of the env manager."""

import math
from typing import Annotated, Literal

from ..utils.options import DAY_S, Between, Flag, Options

Seconds = Annotated[float, Between(0.0, DAY_S, above=True)]


class EnvManagerOptions(Options):
    """``cfg.env.manager``: what DI-engine's managers offer by the same names, and how the worker processes are run."""

    _owner = 'env_manager option'
    # What DI-engine puts into the section, or its other managers read there; this one always shares memory.
    _passed_over = frozenset(
        ['type', 'import_names', 'cfg_type', 'manager', 'copy_on_get', 'max_retry_times', 'wait_num']
        + ['step_wait_timeout', 'shared_memory']
    )

    episode_num: Annotated[float, Between(1.0)] = math.inf
    """(float) Episodes each environment plays before it is done."""
    max_retry: Annotated[int, Between(0, 1_000_000)] = 1
    """(int) Attempts at a reset before the manager gives up."""
    retry_type: Literal['reset', 'renew'] = 'reset'
    """(str) What the next attempt does: ``reset`` the environment again, or ``renew`` it, which makes a new one."""
    auto_reset: Flag = True
    """(bool) Whether the step that ends an episode begins the next one."""
    reset_inplace: Flag = True
    """(bool) Whether the timestep that ends an episode has the first observation of the next one, as in DI-engine's \
    process managers with this option; without it, the last observation of the episode, as in its ``base``."""
    step_timeout: Seconds | None = 60.0
    """(float | None) Seconds without progress in a step of a process's environments, after which the process is
    lost. A call of an environment that returns is progress; while the process computes, or waits for a core, a second
    counts a tenth. None for no limit."""
    reset_timeout: Seconds | None = None
    """(float | None) Seconds without progress in a reset, likewise; None for the value of ``connect_timeout``."""
    retry_waiting_time: Annotated[float, Between(0.0, DAY_S)] = 0.1
    """(float) Seconds between two attempts at a reset."""
    worker_num: Annotated[int, Between(1, 4096)] | None = None
    """(int | None) Processes, at most one for each environment; None for one for each core that this process may \
    use."""
    nice: Annotated[int, Between(0, 19)] = 0
    """(int) Niceness added to the processes. With 10 they leave a core to the learner in this process; with 0 it \
    shares the cores with all of them. It is 0 in any case where other programs keep the cores so busy that this \
    process has waited longer for one than it computed."""
    # not forkserver: a worker checks that its parent is still there, and its parent would be the server
    context: Literal['fork', 'spawn', 'inline'] = 'fork'
    """(str) How processes are started. With ``inline`` there are none: environments run in the caller's process, one \
    after the other and without time limits, for a debugger or a profiler."""
    connect_timeout: Seconds = 60.0
    """(float) Seconds without progress while a process starts and makes its environments, and in all else but steps
    and resets, likewise."""
    close_timeout: Seconds = 5.0
    """(float) Seconds that a process has to close an environment (finish a video, close a window) before it is killed.
    """
