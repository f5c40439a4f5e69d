"""The checks by gymnasium's contract: the common ones with fixes in its words, and those where it differs."""

import os
import time

import gymnasium
import numpy as np

from .checks import CHECKS, Check, Contract, expect_clean_end
from .gymnasium_env import GymnasiumFactory, GymnasiumInstance
from .probe import CheckResult, Instance, Probe
from .windows import XDisplay


def works(probe: Probe) -> str:
    """Make an environment, reset and step it."""
    env = probe.make()
    if not isinstance(env.env, gymnasium.Env):
        raise CheckResult(f'it is a {type(env.env).__name__}; expected a gymnasium.Env')
    env.play()
    return 'it was made, reset and stepped'


def spaces_before_reset(probe: Probe) -> str:
    """Read the spaces of an environment that was never reset."""
    env = probe.make().env
    for name in ('observation_space', 'action_space'):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            raise CheckResult(f'{name} is a {type(space).__name__} before the first reset; expected a gymnasium.Space')
    return 'both spaces are there'


def close_before_reset(probe: Probe) -> str:
    """Close environments that were never reset: vector environments do it to read the spaces."""
    kept: list[Instance] = []

    def cycle() -> None:
        kept.append(probe.make())
        kept[-1].close()

    return probe.expect_level('instances that were closed before reset', cycle)


def reset_after_close(probe: Probe) -> str:
    """Reset a closed environment: it works or raises, but it does not hang, crash, or stop in the middle."""
    env = probe.played()
    for _ in range(3):
        env.close()
        try:
            env.reset()
        except CheckResult as outcome:
            if outcome.key and outcome.key[1] == 'returned':
                raise
            return f'{outcome}, as gymnasium allows'
        env.play()
    return 'closed and reset 3 times'


def step_after_close(probe: Probe) -> str:
    """Step a closed environment: it works or raises, but it opens nothing."""
    kept: list[Instance] = []
    said = set()

    def cycle() -> None:
        env = probe.played()
        action = env.action()
        env.close()
        kept.append(env)
        outcome = 'step after close raised nothing'
        try:
            probe.call('step after close', env.env.step, action)
        except CheckResult as raised:
            outcome = str(raised)
        said.add(outcome)

    probe.expect_level('steps after close', cycle)
    return f'{said.pop()}, as gymnasium allows'


def forgotten_close(probe: Probe) -> str:
    """Delete environments that nobody closed: gymnasium asks the caller to close, so a leak is a warning."""
    try:
        return CHECKS['forgotten_close'].run(probe)
    except CheckResult as outcome:
        raise CheckResult(str(outcome), 'fail' if outcome.key else 'warning', outcome.key) from None


def matches_spaces(probe: Probe) -> str:
    """Compare observations with their space, and rewards with numbers."""
    env = probe.played()
    space = env.env.observation_space
    for obs, reward, _, info in env.timesteps(probe.steps):
        if not space.contains(obs):
            dtype = getattr(obs, 'dtype', type(obs).__name__)
            raise CheckResult(f'the observation {str(obs)[:100]} ({dtype}) is not in {str(space)[:200]}')
        if info is not None and (not isinstance(reward, (int, float, np.number)) or np.isnan(reward)):
            raise CheckResult(f'the reward is {str(reward)[:100]} ({type(reward).__name__}); expected a number')
    return f'{probe.steps} observations and rewards match'


def info_at_the_end(probe: Probe) -> str:
    """Play an episode: each info is a dict, and the last one has what all others have."""
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


def human_window(probe: Probe) -> str:
    """Open windows, reset and close: a window is reused by `reset` and gone after `close`."""
    if 'human' not in probe.make().env.metadata.get('render_modes', ()):
        return "it has no render_mode 'human'"
    if not os.environ.get('DISPLAY'):
        raise CheckResult('DISPLAY is not set: use a display, such as of xvfb-run', 'skipped')
    assert isinstance(probe.env_fn, GymnasiumFactory)
    factory = probe.env_fn.with_window()
    if factory is None:
        raise CheckResult("the function takes no render_mode; expected one, to pass 'human'", 'skipped')
    probe.env_fn, display = factory, XDisplay()
    env = probe.played()
    env.play()
    opened = len(display.windows())
    if opened > 1:
        raise CheckResult(f'{opened} windows are open after two resets; expected 1')
    env.close()
    _expect_no_window(display)
    kept: list[Instance] = []

    def cycle() -> None:
        kept.append(probe.played())
        kept[-1].close()
        _expect_no_window(display)

    said = probe.expect_level('instances with a window that were closed', cycle)
    return f'{opened} window was open and closed; {said}'


def _expect_no_window(display: XDisplay) -> None:
    deadline = time.monotonic() + 2
    while (left := display.windows()) and time.monotonic() < deadline:
        time.sleep(0.02)
    if left:
        raise CheckResult(f'{len(left)} windows are open after close')


def vector_envs(probe: Probe) -> str:
    """Play two environments in each of gymnasium's vector environments."""
    episodes = []
    for cls in (gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv):
        name = f'the vector environment {cls.__name__}'
        vector = probe.call(name, cls, [probe.env_fn] * 2, patience=3)
        probe.call(f'reset of {name}', lambda vector=vector: vector.reset(seed=[0, 1]), patience=3)
        ended = steps = 0
        while ended < 2 and steps < 300:
            *_, terminated, truncated, _ = probe.call(
                f'step of {name}', vector.step, vector.action_space.sample(), patience=3
            )
            ended, steps = ended + int(np.sum(terminated | truncated)), steps + 1
        probe.call(f'close of {name}', vector.close, patience=3)
        episodes.append(f'{ended} with {cls.__name__}')
        expect_clean_end(probe, name)
    return f'episodes: {", ".join(episodes)}'


def _common(name: str, fix: str) -> Check:
    return CHECKS[name]._replace(fix=fix)


GYMNASIUM = Contract(
    {
        'works': Check(
            works,
            'Let the constructor, `reset` and `step` return without an error: `reset(*, seed=None, options=None)` '
            'returns obs and info, `step(action)` obs, reward, terminated, truncated and info.',
            ('the constructor', 'reset', 'step', 'a random action'),
        ),
        'spaces_before_reset': Check(
            spaces_before_reset,
            'Set `observation_space` and `action_space` in the constructor: wrappers and vector environments read them '
            'before the first `reset`.',
        ),
        'close_in_time': CHECKS['close_in_time'],
        'close_before_reset': Check(
            close_before_reset,
            'Let `close` work before the first `reset`, and release what the constructor opened: `AsyncVectorEnv` '
            'makes and closes one more environment, to read the spaces.',
            ('close before',),
        ),
        'close_twice': _common(
            'close_twice', 'Let `close` do nothing the second time: gymnasium says that it "won\'t raise an error".'
        ),
        'reset_after_close': Check(
            reset_after_close,
            'Let `reset` after `close` open everything again or raise `gymnasium.error.ClosedEnvironmentError`.',
            ('reset after close',),
        ),
        'step_after_close': Check(
            step_after_close,
            'Raise `gymnasium.error.ClosedEnvironmentError` in `step` after `close`, and open nothing there.',
            ('step after close',),
        ),
        'close_after_error': _common(
            'close_after_error',
            'Let `close` expect nothing that an interrupted `reset` or `step` may not have done: Ctrl-C raises at any '
            'line, and `with gymnasium.make(...)` closes then. The check does the same, and gives `step` a wrong '
            'action.',
        ),
        'reset_reuses': CHECKS['reset_reuses'],
        'close_releases': _common(
            'close_releases',
            'Close in `close` all that the constructor, `reset` and `step` have opened, such as by '
            '`contextlib.ExitStack`; wait for its end.',
        ),
        'forgotten_close': Check(
            forgotten_close,
            'gymnasium asks the caller to close. To be safe without, release by `weakref.finalize` what `close` '
            'releases; neither its function nor a thread may hold `self`.',
        ),
        'memory_level': CHECKS['memory_level'],
        'same_seed_same_episode': _common(
            'same_seed_same_episode',
            'Begin `reset(self, *, seed=None, options=None)` with `super().reset(seed=seed)`, and draw all random '
            'numbers from `self.np_random`: environments of a process share the generators of numpy and of `random`.',
        )._replace(calls=('reset(seed',)),
        'observations_owned': _common(
            'observations_owned',
            'Return a new observation from each `reset` and `step`, such as `self._obs.copy()`: callers keep the '
            'earlier ones.',
        ),
        'matches_spaces': Check(
            matches_spaces,
            'Return observations that `observation_space.contains` accepts (shape, dtype and range), and a number as '
            'reward. `gymnasium.utils.env_checker.check_env` checks more of spaces and types.',
        ),
        'info_at_the_end': Check(
            info_at_the_end,
            'Return an info dict from each `step`, also from the last one of an episode, with the same keys.',
        ),
        'human_window': Check(
            human_window,
            "With `render_mode='human'`, open one window, reuse it in `reset`, and end it in `close`, such as by "
            '`pygame.display.quit()` and `pygame.quit()`.',
        ),
        'vector_envs': Check(
            vector_envs,
            'See the other checks. Then make it work beside other instances and in the worker processes of '
            '`gymnasium.vector.AsyncVectorEnv`: these are daemons, which may not start a process by '
            '`multiprocessing`.',
            ('the vector', 'reset of the vector', 'step of the vector', 'close of the vector'),
        ),
    },
    GymnasiumInstance,
    in_workers=vector_envs.__name__,
    hint='If it needs arguments, the function passes them: `gymnasium_env(lambda: gymnasium.make(ENV_ID, ...))`.',
)
