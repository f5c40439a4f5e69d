"""Nothing grows, however often the parts of the package are opened, used and closed.

``SOAK_SHARE=4`` makes each section four times as long; 1, the default, is an hour in all.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from ding.worker import BaseLearner
from ding.worker.learner import LearnerHook, register_learner_hook

from breakout_env import BreakoutEnv
from breakout_env.env_manager import GroupEnvManager
from breakout_env.run.budget import Budget
from breakout_env.run.pipeline import train
from helpers.processes import ROOT, is_there, wait_until
from helpers.replay import make, set_priorities, transitions
from helpers.runs import SMALL_DQN, with_values

pytestmark = pytest.mark.release

SHARE = float(os.environ.get('SOAK_SHARE', '1'))
STEPS = 4  # of a game; closing does not depend on how long it was played
Look = Callable[..., None]
SAMPLES = 200
MEMORY_LIMIT_BYTES = 10_000_000
# Cycles at the start that are not judged: allocators, first batches, buffers that fill, the first evaluation.
WARM_UP_SHARE = 0.2
# Allocators go back and forth between levels, and a process that was told to end exists for a moment: the lowest value
# in the first and in the last quarter of the samples is judged.
QUARTER = 4

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
        elif cycle % 6 == 2:
            play(env)
            with pytest.raises(ValueError):
                env.step(99)
            env.close()
        elif cycle % 6 == 3 and cycle % 96 == 3:
            env.enable_save_replay('videos')
            play(env).close()
            (video,) = Path('videos').iterdir()  # the user's from now on
            video.unlink()
        elif cycle % 6 == 4 and cycle % 192 == 4:
            play(BreakoutEnv(dict(render_mode='human'))).close()
        else:
            play(env)
        del env
        look()


def managers(cycles: int, look: Look) -> None:
    """Launch, step, close; closed twice, dropped, launched again, and with a worker that is killed meanwhile."""

    def step(manager: GroupEnvManager) -> dict[int, Any]:
        for _ in range(STEPS):
            timesteps = manager.step({env_id: 1 for env_id in manager.ready_obs})
        return timesteps

    for cycle in range(cycles):
        manager = GroupEnvManager([partial(BreakoutEnv, {})] * 3, dict(worker_num=2))
        manager.seed(cycle)
        others = {process.pid for process in psutil.Process().children()}
        manager.launch()
        step(manager)
        if cycle % 5 == 1:
            manager.reset()
            manager.close()
        elif cycle % 5 == 2:
            (worker, _) = [process for process in psutil.Process().children() if process.pid not in others]
            worker.kill()
            wait_until(lambda: not is_there(worker))  # noqa: B023
            if cycle % 10 == 2:
                timesteps = manager.step({env_id: 1 for env_id in manager.ready_obs})
                lost = [env_id for env_id, timestep in timesteps.items() if timestep.info.get('abnormal', False)]
                manager.reset({env_id: {} for env_id in lost})
                step(manager)
        elif cycle % 5 == 3:
            manager.close()
            manager.launch()
            step(manager)
        if cycle % 5 != 4:
            manager.close()
        del manager
        look()


CAPACITY, ROUND, FRAGMENT, BATCH = 1000, 1500, 100, 32


def buffer(cycles: int, look: Look, is_prioritised: bool = False, **options: Any) -> None:
    """1,500 transitions a cycle are pushed into room for 1,000, and sampled. As no screen comes again, the buffer has
    as many frames after each round as after any other: one more is a leak.
    """
    memory = make(replay_buffer_size=CAPACITY, **options)
    for cycle in range(cycles):
        for start in range(cycle * ROUND, (cycle + 1) * ROUND, FRAGMENT):
            memory.push(transitions(start, start + FRAGMENT), cycle)
            if memory.count() < BATCH:
                continue
            batch = memory.sample(BATCH, cycle)
            if is_prioritised:
                set_priorities(memory, batch, np.random.random(len(batch)).tolist())
        frames = memory.memory_report()['distinct_frames'] if 'type' not in options else 0
        look(transitions=memory.count(), frames=frames)
    memory.close()


def training(cycles: int, look: Look) -> None:
    """The pipeline of ``breakout train`` in this process; a cycle is an env step."""
    SoakHook.look = look
    config = with_values(ROOT / 'configs' / 'breakout_dqn_cpu_config.py', Path(), FAST)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    train(str(config), 0, Budget(env_steps=cycles))
    for number, handler in handlers.items():
        signal.signal(number, handler)


class Watch:
    """Takes samples of this process and all below it, to be called after each cycle, when all is closed again."""

    def __init__(self, folder: Path, cycles: int) -> None:
        self.folder, self.cycles = folder, cycles
        self.samples: list[dict[str, float]] = []
        self.cycle = 0

    def __call__(self, cycle: int | None = None, **own: float) -> None:
        """``cycle`` cycles are done, one more than before by default; ``own`` is what else is counted."""
        before, self.cycle = self.cycle, self.cycle + 1 if cycle is None else cycle
        every = -(-self.cycles // SAMPLES)
        if self.cycle // every == before // every:
            return
        this = psutil.Process()
        below, memory = this.children(recursive=True), 0
        for process in (this, *below):
            with contextlib.suppress(psutil.Error):  # it has just ended
                memory += process.memory_info().rss
        sample = dict(
            cycle=self.cycle,
            memory_bytes=memory,
            descriptors=this.num_fds(),
            threads=this.num_threads(),
            # windows and encoders too, and those that have ended and that nobody has waited for
            processes=len(below),
            shared_memory=sum(not name.startswith('sem.') for name in os.listdir('/dev/shm')),
            files=sum(len(files) for _, _, files in os.walk(self.folder)),
        )
        self.samples.append({**sample, **own})

    def check(self) -> None:
        """Nothing has grown after the warm-up."""
        judged = [sample for sample in self.samples if sample.pop('cycle') > WARM_UP_SHARE * self.cycles]
        size = len(judged) // QUARTER
        assert size, f'{len(judged)} samples after the warm-up are too few to judge'
        growth = {
            name: min(sample[name] for sample in judged[-size:]) - min(sample[name] for sample in judged[:size])
            for name in judged[0]
        }
        assert growth.pop('memory_bytes') < MEMORY_LIMIT_BYTES
        assert not any(value >= 1 for value in growth.values()), growth


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    'run, cycles',
    [
        pytest.param(environments, 10_000, id='environments'),
        pytest.param(training, 300_000, id='training'),
        pytest.param(managers, 200, id='managers'),
        pytest.param(buffer, 200, id='buffer, compressed'),
        pytest.param(partial(buffer, is_prioritised=True, prefetch=True), 100, id='buffer, prioritised, prefetched'),
        pytest.param(partial(buffer, storage='memmap'), 200, id='buffer, raw, on disk'),
        pytest.param(partial(buffer, type='torchrl', storage='tensor'), 50, id='buffer, TorchRL'),
    ],
)
def test_nothing_grows(run, cycles, tmp_path, monkeypatch, display):
    cycles, folder = max(40, round(SHARE * cycles)), tmp_path / 'section'
    folder.mkdir()
    monkeypatch.chdir(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    watch = Watch(folder, cycles)
    try:
        run(cycles, watch)
    finally:
        torch.set_num_threads(threads)
    watch.check()
