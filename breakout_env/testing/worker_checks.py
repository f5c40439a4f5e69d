"""The checks that play two environments at once, also in worker processes. Their docstrings are the fixes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from ding.utils import ENV_MANAGER_REGISTRY
from easydict import EasyDict
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from .probe import CheckResult, Probe

# in the output of a manager's processes: something was left behind
_COMPLAINTS = ('Traceback', 'ResourceWarning', 'leaked', 'Exception ignored')


def managers(probe: Probe) -> str:
    """See the other checks. Then make it work beside other instances and in the worker processes of the env managers
    `subprocess` and `breakout`: these are daemons, which may not start a process by `multiprocessing`.
    """
    probe.make().seed()  # where it raises, a worker only logs that
    actions = probe.random_actions(50)

    def begin(manager: Any) -> None:
        manager.seed(0, dynamic_seed=True)  # as `serial_pipeline` for collectors
        manager.launch()

    def step(manager: Any, count: int) -> int:
        timesteps = manager.step({env_id: actions[(count + env_id) % 50] for env_id in manager.ready_obs})
        return sum(bool(timestep.done) for timestep in timesteps.values())

    said = ''
    for name in ('subprocess', 'breakout', 'base'):
        cls = ENV_MANAGER_REGISTRY.get(name)
        cfg = EasyDict(cls.default_config(), **({} if name == 'base' else dict(reset_inplace=True)))
        said += _play_two(probe, f'the {name} manager', partial(cls, cfg=cfg), begin, step)
    return said


def vector_envs(probe: Probe) -> str:
    """See the other checks. Then make it work beside other instances and in the worker processes of `AsyncVectorEnv`.
    By default, these are daemons, which may not start a process by `multiprocessing`, and spaces of other classes than
    gymnasium's have to be registered with `gymnasium.vector.utils.create_shared_memory`.
    """

    def begin(vector: Any) -> None:
        vector.reset(seed=[0, 1])

    def step(vector: VectorEnv, count: int) -> int:
        _, _, terminated, truncated, _ = vector.step(vector.action_space.sample())
        return int(np.sum(terminated | truncated))

    options = 'daemon=False, shared_memory=False'
    with_options = partial(AsyncVectorEnv, daemon=False, shared_memory=False)
    said = _play_two(probe, 'the vector environment SyncVectorEnv', SyncVectorEnv, begin, step)
    said += _play_two(probe, f'the vector environment AsyncVectorEnv({options})', with_options, begin, step)
    try:
        return said + _play_two(probe, 'the vector environment AsyncVectorEnv', AsyncVectorEnv, begin, step)
    except CheckResult as outcome:
        raise CheckResult(f'{outcome}; it works with {options}', 'warning') from None


def _play_two(probe: Probe, name: str, make: Callable, begin: Callable, step: Callable[[Any, int], int]) -> str:
    """Play up to two episodes, close, and look for what stays behind; ``step`` returns how many episodes ended."""
    call, before = partial(probe.call, patience=3), probe.lasting()
    both = call(f'the constructor of {name}', make, [probe.env_fn] * 2)
    call(f'reset of {name}', begin, both)
    ended = count = 0
    while ended < 2 and count < 300:
        ended += call(f'step of {name}', step, both, count)
        count += 1
    call(f'close of {name}', both.close)
    probe.expect_no_more(before, f'after close of {name}')
    for line in open('/proc/self/fd/2', errors='replace'):
        if any(map(line.count, _COMPLAINTS)):
            raise CheckResult(f'with {name}, the output has: {line[:200]}')
    return f'{ended} episodes in {name}. '
