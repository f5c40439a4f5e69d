"""
Where does the time of an environment's step, of a learner's update and of a rollout by PPO go, part by part?

    python -m benchmarks.training.time_shares --out docs/results/profile.json

The environment: a group of four as it runs in a worker of the manager ``breakout``, random play, by cProfile, whose own
time is included: read the shares. The learner: updates with the network and options of
configs/breakout_lean_dqn_config.py, by torch.profiler, for DI-engine's policy and for ours, from batches of one buffer.
PPO: configs/breakout_ppo_config.py, collecting a rollout by the clock, its updates as the learner's.
"""

import cProfile
import multiprocessing
import os
import pstats
import statistics
import tempfile
import time
from functools import partial
from typing import Any, Callable, Dict, Optional

# first, as in trainings: it keeps PyTorch's threads from spinning for long
import breakout_env  # noqa: F401

# isort: split
import click
import cv2
import numpy as np
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.worker import create_buffer, create_serial_collector
from tabulate import tabulate
from torch.profiler import ProfilerActivity, profile

from breakout_env import BreakoutEnv, FrameReplayBuffer
from breakout_env.env_manager.shared_buffers import SharedSteps
from breakout_env.env_manager.worker_main import EnvGroup
from breakout_env.run.config import checked_config

from ..common import recording as play
from ..common.cli import command
from ..common.ding_pipeline import merged_config
from ..common.processes import ROOT
from ..common.rounds import Result

PACKAGES = ['DI-engine', 'torch', 'numpy', 'ale-py', 'opencv-python']
GROUP = 4
# functions of the environment by part, with all they call; the remainder is a part of its own
ENV_PARTS = {
    'playing frames: ALE.act, screens, maximum': 'advance',
    'starting games': 'reset_game',
    'resizing and stacking': 'push_frame',
    'shared memory': 'put_timestep',
}
# operations of PyTorch by part, with what they take themselves
LEARNER_PARTS = {
    'convolutions, forward': ('mkldnn_convolution', 'thnn_conv2d', '_slow_conv2d_forward'),
    'convolutions, backward': ('convolution_backward',),
    'linear layers': ('addmm', 'mm'),
    'scaling, copies and casts': tuple('copy_ div div_ mul cat stack clone to _to_copy contiguous'.split()),
    'ReLU': ('clamp_min', 'clamp_min_', 'threshold_backward', 'relu', 'relu_'),
}
LEARNERS = {
    'DI-engine dqn': ('dqn', None),
    'lean_dqn': ('lean_dqn', None),
    'lean_dqn, bfloat16': ('lean_dqn', dict(autocast='bfloat16')),
}


def env_shares(seconds: float) -> Dict[str, float]:
    """Shares of a worker's time."""
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


def update_ms(update: Callable[[], Any], updates: int) -> Dict[str, float]:
    """Milliseconds of each part of an update, and of all of it, measured without the profiler."""
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
    total = statistics.median(elapsed)
    return {**parts, 'Python between them, batch': max(total - sum(parts.values()), 0.0), 'an update': total}


def learners_ms(updates: int, transitions: int) -> Dict[str, Dict[str, float]]:
    """``update_ms`` of each learner, the sampling of its batch included."""
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, 'random.play')
        play.record('random', transitions + 1000, recording)
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
            found[name] = update_ms(lambda learner=learner: learner.forward(buffer.sample(32, 0)), updates)
        buffer.close()
    return found


def rollout_ms(updates: int, rollouts: int) -> Dict[str, float]:
    """Milliseconds of a rollout by PPO: collecting it, and each part of its updates."""
    cfg = checked_config(str(ROOT / 'configs' / 'breakout_ppo_config.py'), 0)
    env_class, env_cfgs, _ = get_vec_env_setting(cfg.env)
    policy = create_policy(cfg.policy, enable_field=['learn', 'collect'])
    envs = create_env_manager(cfg.env.manager, [partial(env_class, cfg=one) for one in env_cfgs])
    envs.seed(0)
    with tempfile.TemporaryDirectory() as folder:
        named = dict(exp_name=os.path.join(folder, 'run'))
        collector = create_serial_collector(
            cfg.policy.collect.collector, env=envs, policy=policy.collect_mode, tb_logger=None, **named
        )
        buffer, elapsed = create_buffer(cfg.policy.other.replay_buffer, **named), []
        for _ in range(rollouts):
            start = time.perf_counter()
            buffer.push(collector.collect(), 0)
            elapsed.append(1e3 * (time.perf_counter() - start))
        parts = update_ms(lambda: policy.learn_mode.forward(buffer.sample(cfg.policy.learn.batch_size, 0)), updates)
        collector.close()
    count = cfg.policy.learn.update_per_collect
    in_updates = {f'{count} updates: {part}': count * ms for part, ms in parts.items() if part != 'an update'}
    return {'collecting it': statistics.median(elapsed), **in_updates}


@command(
    click.option('--seconds', default=10.0, help='Of play.'),
    click.option('--updates', default=100, type=click.IntRange(min=1), help='Of each learner.'),
    click.option('--transitions', default=20_000, type=click.IntRange(min=100), help='In the buffer.'),
    click.option('--rollouts', default=20, type=click.IntRange(min=1), help='Of PPO.'),
)
def main(seconds: float, updates: int, transitions: int, rollouts: int, out: Optional[str]) -> None:
    """Profile an environment's step, a learner's update and a rollout by PPO."""
    result = Result(out, PACKAGES)
    env, learners, ppo = env_shares(seconds), learners_ms(updates, transitions), rollout_ms(updates, rollouts)
    click.echo(tabulate([[part, f'{share:.0%}'] for part, share in env.items()], ['a step of a group', 'share']))
    rows = [[part, *(f'{parts[part]:.2f}' for parts in learners.values())] for part in learners['lean_dqn']]
    click.echo('\n' + tabulate(rows, ['an update, ms', *learners], disable_numparse=True))
    click.echo('\n' + tabulate(ppo.items(), ['a rollout by PPO', 'ms'], floatfmt='.0f'))
    result.content.update(env=env, learners=learners, ppo=ppo)
    result.write()


if __name__ == '__main__':
    main()
