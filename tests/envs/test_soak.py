"""Nothing grows, however often environments, managers and trainings are opened, used and closed.

``SOAK_SHARE=4`` makes each section four times as long; 1, the default, is most of an hour in all.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch
from ding.worker import BaseLearner
from ding.worker.learner import LearnerHook, register_learner_hook

from breakout_env import BreakoutEnv
from breakout_env.env_manager import GroupEnvManager
from breakout_env.run.budget import Budget
from breakout_env.run.pipeline import train
from helpers.managers import kill_worker_of
from helpers.processes import ROOT
from helpers.resources import children, footprint
from helpers.runs import SMALL_DQN, with_values

pytestmark = pytest.mark.release

SHARE = float(os.environ.get('SOAK_SHARE', '1'))
STEPS = 4  # of a game; closing does not depend on how long it was played
Look = Callable[[int], None]  # called with the number of cycles that are done, when all is closed again
SAMPLES = 200
MEMORY_LIMIT_BYTES = 10_000_000

# The recipe for the CPU in fast-forward: a tiny network, a small buffer, evaluations and saves all the time.
FAST = {
    **SMALL_DQN,
    'env.evaluator.max_episode_frames': 600,
    'policy.learn.learner.hook.save_ckpt_after_iter': 10**9,
    'policy.learn.learner.hook.resume.ext_args.save_every_s': 0.25,
    'policy.learn.learner.hook.soak': dict(type='soak', name='soak', position='after_iter'),
    'policy.eval.evaluator.eval_freq': 640,
    'policy.other.eps.decay': 10_000,
    'policy.other.replay_buffer.replay_buffer_size': 4000,
}


class SoakHook(LearnerHook):
    """Calls ``look`` after updates: the pipeline runs until it ends, and nothing else of it can be observed."""

    look: Look = staticmethod(lambda env_steps: None)

    def __call__(self, engine: BaseLearner) -> None:
        SoakHook.look(engine.collector_envstep)


register_learner_hook('soak', SoakHook)


def play(env: BreakoutEnv) -> BreakoutEnv:
    env.reset()
    for _ in range(STEPS):
        if env.step(env.random_action()).done:
            env.reset()
    return env


def environments(cycles: int, look: Look) -> None:
    """Each way to open and close; one that is dropped is expected to be gone without the garbage collector."""
    used_again = BreakoutEnv({})
    for cycle in range(cycles):
        env = BreakoutEnv(dict(repeat_action_probability=0.25 * (cycle % 2)))
        env.seed(cycle)
        if cycle % 6 == 0:
            env.close()  # before the first reset
            play(env).close()
        elif cycle % 6 == 1:
            play(used_again).close()
        elif cycle % 96 == 3:
            env.enable_save_replay('videos')
            play(env).close()
            (video,) = Path('videos').iterdir()  # the user's from now on
            video.unlink()
        elif cycle % 192 == 4:
            play(BreakoutEnv(dict(render_mode='human'))).close()
        else:
            play(env)
        del env
        look(cycle)


def step(manager: GroupEnvManager) -> None:
    for _ in range(STEPS):
        manager.step({env_id: 1 for env_id in manager.ready_obs})


def managers(cycles: int, look: Look) -> None:
    """Launch, step, close; closed twice, dropped, launched again, and with a worker that is killed meanwhile."""
    for cycle in range(cycles):
        manager = GroupEnvManager([partial(BreakoutEnv, {})] * 3, dict(worker_num=2))
        manager.seed(cycle)
        manager.launch()
        step(manager)
        if cycle % 5 == 1:
            manager.reset()
            manager.close()
        elif cycle % 5 == 2:
            kill_worker_of(manager, 0)
            if cycle % 10 == 2:
                manager.reset()
            step(manager)
        elif cycle % 5 == 3:
            manager.close()
            manager.launch()
            step(manager)
        if cycle % 5 != 4:
            manager.close()
        del manager
        look(cycle)


def training(cycles: int, look: Look) -> None:
    """The pipeline of ``breakout train`` in this process; a cycle is an env step."""
    SoakHook.look = look
    config = with_values(ROOT / 'configs' / 'breakout_dqn_cpu_config.py', Path(), FAST)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    train(str(config), 0, Budget(env_steps=cycles))
    for number, handler in handlers.items():
        signal.signal(number, handler)


def holdings(folder: Path) -> dict[str, int]:
    """What this process and all below it hold."""
    memory = 0
    for process in (psutil.Process(), *children()):
        with contextlib.suppress(psutil.Error):  # it has just ended
            memory += process.memory_info().rss
    return dict(footprint(), memory_bytes=memory, files=sum(len(files) for _, _, files in os.walk(folder)))


@pytest.mark.timeout(0)
@pytest.mark.parametrize('run, cycles', [(environments, 10_000), (training, 300_000), (managers, 200)])
def test_nothing_grows(run, cycles, tmp_path, monkeypatch, display):
    cycles, folder, samples = max(40, round(SHARE * cycles)), tmp_path / 'section', {}
    folder.mkdir()
    monkeypatch.chdir(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def look(cycle):
        number = cycle * SAMPLES // cycles
        if number not in samples:
            samples[number] = holdings(folder)

    try:
        run(cycles, look)
    finally:
        torch.set_num_threads(threads)
    # Allocators, first batches and buffers that fill are not judged. The lowest values of the first and of the last
    # quarter are, because allocators go back and forth, and a process that was told to end exists for a moment.
    judged = [sample for number, sample in samples.items() if number > SAMPLES / 5]
    size = len(judged) // 4
    assert size, f'{len(judged)} samples after the warm-up are too few to judge'
    growth = {
        name: min(sample[name] for sample in judged[-size:]) - min(sample[name] for sample in judged[:size])
        for name in judged[0]
    }
    assert growth.pop('memory_bytes') < MEMORY_LIMIT_BYTES
    assert not any(value >= 1 for value in growth.values()), growth
