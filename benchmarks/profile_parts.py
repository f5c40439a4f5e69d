"""
Where the time of an environment's step and of a learner's update goes, part by part.

    python benchmarks/profile_parts.py --out docs/results/profile.json

The environment: a group of four as it runs in a worker of the manager ``breakout``, random play, by cProfile, whose own
time is in the figures; shares are what to look at. The learner: updates with the network and options of
configs/breakout_dqn_config.py, by torch.profiler, for DI-engine's policy and for ours, from batches of one buffer.
"""

import cProfile
import multiprocessing
import os
import pstats
import statistics
import tempfile
import time
from functools import partial
from typing import Any, Callable, Dict, List, Optional

import click
import cv2
import numpy as np
import play
from ding.policy import create_policy
from ding_parts import merged_config
from tabulate import tabulate
from torch.profiler import ProfilerActivity, profile
from turns import show_surroundings, surroundings, write

from breakout_env import BreakoutEnv, FrameReplayBuffer
from breakout_env.env_manager.shared_buffers import SharedSteps
from breakout_env.env_manager.worker_main import EnvGroup

PACKAGES = ['DI-engine', 'torch', 'numpy', 'ale-py', 'opencv-python']
GROUP = 4
# functions of the environment by part, with all they call; what is left is the rest
ENV_PARTS = {
    'playing frames: ALE.act, screens, maximum': 'advance',
    'starting games': 'reset_game',
    'shrinking and stacking': 'push_frame',
    'handing over through shared memory': 'put_timestep',
}
# operations of torch by part, with what they take themselves
LEARNER_PARTS = {
    'convolutions, forward': ('mkldnn_convolution', 'thnn_conv2d', '_slow_conv2d_forward'),
    'convolutions, backward': ('convolution_backward',),
    'linear layers': ('addmm', 'mm'),
    'scaling, copies and casts': (
        'copy_',
        'div',
        'div_',
        'mul',
        'cat',
        'stack',
        'clone',
        'to',
        '_to_copy',
        'contiguous',
    ),
    'ReLU': ('clamp_min', 'clamp_min_', 'threshold_backward', 'relu', 'relu_'),
}
LEARNERS = {
    'DI-engine dqn': ('dqn', None),
    'lean_dqn': ('lean_dqn', None),
    'lean_dqn, bfloat16': ('lean_dqn', dict(autocast='bfloat16')),
}


def profile_env(seconds: float) -> Dict[str, float]:
    """
    Overview:
        Shares of a worker's time.
    """
    cv2.setNumThreads(1)
    env = BreakoutEnv({})
    shared = SharedSteps(multiprocessing.get_context('fork'), GROUP, env.observation_space, env.reward_space)
    group = EnvGroup({env_id: partial(BreakoutEnv, {}) for env_id in range(GROUP)}, shared, True, True)
    group.open()
    group.reset(dict.fromkeys(range(GROUP)), {env_id: (env_id,) for env_id in range(GROUP)})
    random = np.random.default_rng(0)

    def steps(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            shared.put_actions({env_id: np.array([random.integers(4)]) for env_id in range(GROUP)})
            group.step(list(range(GROUP)), (1,))

    steps(seconds / 2)
    profiler = cProfile.Profile()
    profiler.runcall(steps, seconds)
    group.close()
    functions: Dict[str, float] = {}
    total = 0.0
    for (_, _, name), (_, _, own, cumulated, _) in pstats.Stats(profiler).stats.items():
        functions[name] = cumulated
        total += own
    shares = {part: functions[name] / total for part, name in ENV_PARTS.items()}
    return {**shares, 'the rest: rules of an episode, actions, Python': 1 - sum(shares.values())}


def part_of(event: Any) -> str:
    """The part that an event of the profiler belongs to."""
    above: Optional[Any] = event
    while above is not None:
        if above.name.startswith('Optimizer.step'):
            return 'Adam'
        above = above.cpu_parent
    name = event.name.replace('aten::', '')
    return next((part for part, names in LEARNER_PARTS.items() if name in names), 'other operations')


def profile_update(update: Callable[[], Any], updates: int) -> Dict[str, float]:
    """
    Overview:
        Milliseconds of each part of an update, and of all of it, measured without the profiler.
    """
    for _ in range(10):
        update()
    elapsed = []
    for _ in range(updates):
        start = time.perf_counter()
        update()
        elapsed.append(1e3 * (time.perf_counter() - start))
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(updates):
            update()
    parts = dict.fromkeys([*LEARNER_PARTS, 'Adam', 'other operations'], 0.0)
    for event in profiler.events():
        parts[part_of(event)] += event.self_cpu_time_total / 1e3 / updates
    in_all = statistics.median(elapsed)
    return {**parts, 'Python between them, batch': max(in_all - sum(parts.values()), 0.0), 'an update': in_all}


def profile_learners(updates: int, transitions: int) -> Dict[str, Dict[str, float]]:
    """
    Overview:
        What ``profile_update`` finds for each learner, the drawing of its batch included.
    """
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, 'random.play')
        play.record('random', transitions + 1000, recording, 0)
        cfg = merged_config('lean_dqn', buffer='frame')
        buffer = FrameReplayBuffer(cfg.policy.other.replay_buffer, exp_name=os.path.join(folder, 'run'))
        feed = play.transitions(recording)
        while buffer.count() < transitions:
            buffer.push(next(feed), 0)
        feed.close()
        found = {}
        for name, (policy, learn) in LEARNERS.items():
            cfg = merged_config(policy, learn=learn)
            learner = create_policy(cfg.policy, enable_field=['learn']).learn_mode
            found[name] = profile_update(lambda learner=learner: learner.forward(buffer.sample(32, 0)), updates)
        buffer.close()
    return found


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--seconds', default=10.0, help='Of play.')
@click.option('--updates', default=100, type=click.IntRange(min=1))
@click.option('--transitions', default=20_000, type=click.IntRange(min=100), help='In the buffer.')
@click.option('--out', type=click.Path(dir_okay=False), help='JSON to write.')
def main(seconds: float, updates: int, transitions: int, out: Optional[str]) -> None:
    """Profile an environment's step and a learner's update."""
    result = surroundings(PACKAGES)
    show_surroundings(result)
    env, learners = profile_env(seconds), profile_learners(updates, transitions)
    click.echo(tabulate([[part, f'{share:.0%}'] for part, share in env.items()], ['a step of a group', 'share']))
    rows: List[list] = [[part, *(f'{parts[part]:.2f}' for parts in learners.values())] for part in learners['lean_dqn']]
    click.echo('\n' + tabulate(rows, ['an update, ms', *learners], disable_numparse=True))
    write(out, dict(result, env=env, learners=learners))


if __name__ == '__main__':
    main()
