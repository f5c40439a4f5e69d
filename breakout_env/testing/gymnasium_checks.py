"""The checks by gymnasium's contract: the common ones with fixes in its words, and those where it differs."""

import os
import time
from collections.abc import Callable
from functools import partial

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from .checks import CHECKS, expect_clean_end
from .contract import Check, Contract, register
from .gymnasium_env import GymnasiumFactory, GymnasiumInstance
from .probe import CheckResult, Probe
from .windows import XDisplay

# gymnasium opens in the constructor, and nothing closes an environment whose constructor raised
_DING_ONLY = ('lazy_constructor', 'close_half_built', 'managers')
# a wrong result of `reset`, or an error that does not say that the environment is closed
_NOT_ON_PURPOSE = ('returned', 'info', 'AttributeError', 'TypeError', 'NameError', 'KeyError', 'IndexError')
_OWN: dict[str, Check] = {}
_check = partial(register, _OWN)


@_check('the constructor', 'reset', 'step', 'a random action')
def works(probe: Probe) -> str:
    """Let the constructor, `reset` and `step` return without an error: `reset(*, seed=None, options=None)` returns obs
    and info, `step(action)` obs, reward, terminated, truncated and info.
    """
    env = probe.make()
    if not isinstance(env.env, gymnasium.Env):
        raise CheckResult(f'it is a {type(env.env).__name__}; expected a gymnasium.Env')
    env.play()
    return 'it was made, reset and stepped'


@_check()
def spaces_before_reset(probe: Probe) -> str:
    """Set both spaces in the constructor: wrappers and vector environments read them before the first `reset`."""
    env = probe.make().env
    for name in ('observation_space', 'action_space'):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            raise CheckResult(f'{name} is a {type(space).__name__} before the first reset; expected a gymnasium.Space')
    return 'both spaces are there'


@_check('close before')
def close_before_reset(probe: Probe) -> str:
    """Raise nothing in `close` before the first `reset`, and release there what the constructor opened:
    `AsyncVectorEnv` makes and closes one more environment, to read the spaces.
    """
    return probe.expect_released('instances that were closed before reset', probe.make)


@_check('reset after close')
def reset_after_close(probe: Probe) -> str:
    """Let `reset` after `close` open everything again, or raise `gymnasium.error.ClosedEnvironmentError`."""
    try:
        return CHECKS['reset_after_close'].run(probe)
    except CheckResult as outcome:
        call, failure = outcome.key or ('', '')
        if not call.startswith('reset after close') or failure.split()[0] in _NOT_ON_PURPOSE:
            raise
        return f'{outcome}, as gymnasium allows'


@_check('step after close')
def step_after_close(probe: Probe) -> str:
    """Raise `gymnasium.error.ClosedEnvironmentError` in `step` after `close`; open nothing there."""
    env = probe.played()
    action = env.action()
    env.close()
    said = ['step after close raised nothing']

    def step() -> None:
        try:
            probe.call('step after close', env.env.step, action)
        except CheckResult as outcome:
            said.append(str(outcome))

    opened = probe.opened_by(step)
    if opened:
        raise CheckResult(f'step after close opened {opened}')
    return f'{said[-1]}, as gymnasium allows'


@_check()
def forgotten_close(probe: Probe) -> str:
    """Release by `weakref.finalize` what `close` releases; neither its function nor a thread may hold `self`."""
    try:
        return CHECKS['forgotten_close'].run(probe)
    except CheckResult as outcome:
        if outcome.key:
            raise
        return f'{outcome}; gymnasium asks the caller to close'


@_check('reset with an error', 'step with an error', 'close after an error')
def close_after_error(probe: Probe) -> str:
    """Let `close` expect nothing that an interrupted `reset` or `step` may not have done: Ctrl-C raises at any line,
    and `with gymnasium.make(...)` closes then. The check does the same, and gives `step` a wrong action.
    """
    return CHECKS['close_after_error'].run(probe)


@_check('reset(seed')
def same_seed_same_episode(probe: Probe) -> str:
    """Begin `reset(self, *, seed=None, options=None)` with `super().reset(seed=seed)`, and draw all random numbers from
    `self.np_random`: all environments of a process share the generators of numpy and of `random`.
    """
    return CHECKS['same_seed_same_episode'].run(probe)


@_check()
def matches_spaces(probe: Probe) -> str:
    """Return observations that `observation_space.contains` accepts (shape, dtype, range), and a number as reward;
    `gymnasium.utils.env_checker.check_env` checks more of spaces and types.
    """
    env = probe.played()
    space = env.env.observation_space
    for obs, reward, _, info in env.timesteps(probe.steps):
        if not space.contains(obs):
            dtype = getattr(obs, 'dtype', type(obs).__name__)
            raise CheckResult(f'the observation {str(obs)[:100]} ({dtype}) is not in {str(space)[:200]}')
        if info is not None and (not isinstance(reward, (int, float, np.number)) or np.isnan(reward)):
            raise CheckResult(f'the reward is {str(reward)[:100]} ({type(reward).__name__}); expected a number')
    return f'{probe.steps} observations and rewards match'


@_check()
def info_at_the_end(probe: Probe) -> str:
    """Return an info dict from each `step`, also the last one of an episode, with the same keys."""
    begin = time.monotonic()
    always: set[object] = set()
    for count, (_, reward, done, info) in enumerate(probe.make().timesteps(20 * probe.steps)):
        if reward is None:
            continue
        if not isinstance(info, dict):
            when = 'the last step' if done else 'a step'
            raise CheckResult(f'the info of {when} is a {type(info).__name__}; expected a dict')
        if done and always - info.keys():
            lost = ', '.join(sorted(map(str, always - info.keys())))
            raise CheckResult(f'the info of the last step lacks what each earlier one has: {lost}', 'warning')
        if done:
            return f'each of {count} steps has an info'
        always = always & info.keys() if count > 1 else set(info)
        if time.monotonic() - begin > 10:
            break
    raise CheckResult(f'no episode ended in {20 * probe.steps} steps, or 10 s', 'skipped')


@_check()
def human_window(probe: Probe) -> str:
    """With `render_mode='human'`, open one window, reuse it in `reset`, and end it in `close`, such as by
    `pygame.display.quit()` and `pygame.quit()`.
    """
    unused = probe.make()
    unused.close()
    human = 'human' in unused.env.metadata.get('render_modes', ())
    if not os.environ.get('DISPLAY'):
        raise CheckResult('DISPLAY is not set: use a display, such as of xvfb-run', 'skipped' if human else 'pass')
    if human and isinstance(probe.env_fn, GymnasiumFactory):
        probe.env_fn = probe.env_fn.with_window(unused.env)
    display = XDisplay()
    opened = 0
    for _ in range(2):
        env = probe.played()
        env.play()
        opened = len(display.windows())
        if opened > 1:
            raise CheckResult(f'{opened} windows are open after two resets; expected 1')
        env.close()
        deadline = time.monotonic() + 2
        while (left := display.windows()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if left:
            raise CheckResult(f'{len(left)} of its windows still open after close')
    return 'the window was gone after close' if opened else 'it opens no window'


@_check('the vector', 'reset of the vector', 'step of the vector', 'close of the vector')
def vector_envs(probe: Probe) -> str:
    """See the other checks. Then make it work beside other instances and in the worker processes of `AsyncVectorEnv`.
    By default, these are daemons, which may not start a process by `multiprocessing`, and spaces of other classes than
    gymnasium's have to be registered with `gymnasium.vector.utils.create_shared_memory`.
    """
    said = _play_two(probe, SyncVectorEnv, 'SyncVectorEnv')
    options = 'daemon=False, shared_memory=False'
    made = partial(AsyncVectorEnv, daemon=False, shared_memory=False)
    said += _play_two(probe, made, f'AsyncVectorEnv({options})')
    try:
        return said + _play_two(probe, AsyncVectorEnv, 'AsyncVectorEnv')
    except CheckResult as outcome:
        raise CheckResult(f'{outcome}; it works with {options}', 'warning') from None


def _play_two(probe: Probe, make: Callable[..., VectorEnv], name: str) -> str:
    name = f'the vector environment {name}'
    vector = probe.call(name, make, [probe.env_fn] * 2, patience=3)
    probe.call(f'reset of {name}', partial(vector.reset, seed=[0, 1]), patience=3)
    ended = steps = 0
    while ended < 2 and steps < 300:
        values = probe.call(f'step of {name}', vector.step, vector.action_space.sample(), patience=3)
        ended, steps = ended + int(np.sum(values[2] | values[3])), steps + 1
    probe.call(f'close of {name}', vector.close, patience=3)
    expect_clean_end(probe, name)
    return f'{ended} episodes in {name}. '


GYMNASIUM = Contract(
    {name: check for name, check in (CHECKS | _OWN).items() if name not in _DING_ONLY},
    GymnasiumInstance,
    in_workers=vector_envs.__name__,
    hint='If it needs arguments, the function passes them: `gymnasium_env(lambda: gymnasium.make(ENV_ID, ...))`.',
)
