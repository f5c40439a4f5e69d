"""
Nothing grows, however often the parts of the package are opened, used and closed.

``SOAK_SHARE=4`` makes each section four times as long; 1, the default, is an hour in all.
"""

import importlib.util
import itertools
import os
import signal
import weakref
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import psutil
import pytest
import torch
from ding.worker import BaseLearner
from ding.worker.learner import LearnerHook, register_learner_hook

from breakout_env import BreakoutEnv, FrameReplayBuffer, TorchRLReplayBuffer
from breakout_env.env_manager import GroupEnvManager
from breakout_env.run.budget import Budget
from helpers.growth import Watch
from helpers.processes import ROOT, is_there, wait_until

SHARE = float(os.environ.get('SOAK_SHARE', '1'))
LEAST_CYCLES = 15
STEPS = 4  # of a game; closing does not depend on how long it was played
Look = Callable[..., None]

# The recipe for the CPU in fast-forward: a tiny network, a small buffer, evaluations and saves all the time.
CONFIG = """
from ding.config import read_config

main_config, create_config = read_config({recipe!r})
main_config.exp_name = 'run'
main_config.env.update(evaluator_env_num=2, n_evaluator_episode=2)
main_config.env.evaluator.update(max_episode_frames=600)
main_config.policy.random_collect_size = 256
main_config.policy.model.encoder_hidden_size_list = [4, 4, 4, 8]
main_config.policy.learn.update(update_per_collect=16, batch_size=16)
main_config.policy.learn.learner.hook.update(
    save_ckpt_after_iter=10**9, soak=dict(type='soak', name='soak', position='after_iter')
)
main_config.policy.learn.learner.hook.resume.ext_args.save_every_s = 0.25
main_config.policy.eval.evaluator.eval_freq = 640
main_config.policy.other.eps.decay = 10_000
main_config.policy.other.replay_buffer.replay_buffer_size = 4000
"""


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
    """Each way to open and close. One that is dropped is expected to be gone at once, without the garbage collector."""
    emulators: 'weakref.WeakSet[Any]' = weakref.WeakSet()
    made: 'weakref.WeakSet[BreakoutEnv]' = weakref.WeakSet()
    seeds = itertools.count()

    def new(**options: Any) -> BreakoutEnv:
        env = BreakoutEnv(options)
        made.add(env)
        env.seed(next(seeds))
        return env

    def played(env: BreakoutEnv) -> BreakoutEnv:
        emulators.add(play(env)._env)
        return env

    def closed_before_the_first_reset() -> None:
        env = new()
        env.close()
        played(env).close()

    def after_an_error() -> None:
        env = played(new(obs_dtype='float32'))
        with pytest.raises(ValueError):
            env.step(99)
        env.close()
        env.close()

    def recorded() -> None:
        env = new()
        env.enable_save_replay('videos')
        played(env).close()
        (video,) = Path('videos').iterdir()  # the user's from now on
        video.unlink()

    used_again = new()
    ways = [
        lambda: played(new(repeat_action_probability=0.25)).close(),
        lambda: played(used_again).close(),
        lambda: played(new()) and None,
        *(closed_before_the_first_reset, after_an_error),
    ]
    for cycle in range(cycles):
        if cycle % max(8, cycles // 25) == 1 and os.environ.get('DISPLAY'):
            played(new(render_mode='human')).close()
        elif cycle % max(5, cycles // 100) == 2:
            recorded()
        else:
            ways[cycle % len(ways)]()
        look(living_environments=len(made) - 1, living_emulators=len(emulators))


def managers(cycles: int, look: Look) -> None:
    """Launch, step, close; closed twice, dropped, launched again, and with a worker that is killed meanwhile."""

    def step(manager: GroupEnvManager) -> Dict[int, Any]:
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


ROUND, FRAGMENT = 1500, 100


def fragments() -> Iterator[List[dict]]:
    """
    Transitions as DI-engine's collectors hand them to a buffer. As no screen comes again, a smaller buffer has as many
    frames after each round as after any other: one more is a leak.
    """
    for number in itertools.count():
        screens = torch.zeros(FRAGMENT + 4, 84, 84, dtype=torch.uint8)
        first = number * len(screens)
        stamps = torch.arange(first, first + len(screens), dtype=torch.int64).view(torch.uint8)
        screens[:, 0, :8] = stamps.view(-1, 8)
        yield [
            dict(
                obs=screens[step : step + 4],
                next_obs=screens[step + 1 : step + 5],
                action=torch.tensor([step % 4]),
                reward=torch.ones(1),
                done=step == FRAGMENT - 1,
                value_gamma=torch.tensor([0.97]),
                collect_iter=number,
            )
            for step in range(FRAGMENT)
        ]


CAPACITY, BATCH = 1000, 32


def buffer(
    cycles: int, look: Look, kind: type = FrameReplayBuffer, is_prioritised: bool = False, **options: Any
) -> None:
    """1,500 transitions a cycle are pushed into room for 1,000, and sampled."""
    played = fragments()
    np.random.seed(0)
    memory = kind(dict(replay_buffer_size=CAPACITY, **options), exp_name='run')
    for cycle in range(cycles):
        for fragment in itertools.islice(played, ROUND // FRAGMENT):
            memory.push(fragment, cycle)
            if memory.count() < BATCH:
                continue
            batch = memory.sample(BATCH, cycle)
            if is_prioritised:
                names, rows = ([t[key] for t in batch] for key in ('replay_unique_id', 'replay_buffer_idx'))
                priorities = np.random.random(len(names)).tolist()
                memory.update(dict(replay_unique_id=names, replay_buffer_idx=rows, priority=priorities))
        frames = memory.memory_report()['distinct_frames'] if kind is FrameReplayBuffer else 0
        look(transitions=memory.count(), frames=frames)
    memory.close()


def training(cycles: int, look: Look) -> None:
    """The pipeline of ``breakout train`` in this process; a cycle is an env step."""
    spec = importlib.util.spec_from_file_location('serial', ROOT / 'entry' / 'serial.py')
    entry = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(entry)
    SoakHook.look = look
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    entry.train('config.py', 0, Budget(env_steps=cycles))
    for number, handler in handlers.items():
        signal.signal(number, handler)


def section(function: Callable, cycles: int, name: str, cycle: str, least: int = LEAST_CYCLES) -> Any:
    mark = pytest.mark.promise('soak', name, cycle, 'nothing grows')
    return pytest.param(function, max(least, round(SHARE * cycles)), id=name, marks=mark)


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    'run, cycles',
    [
        section(environments, 10_000, 'environments', 'open, reset, step, close', 40),
        section(training, 300_000, 'training', 'an env step', 12_000),
        section(managers, 200, 'managers', 'launch, step, reset, close'),
        section(buffer, 200, 'buffer, compressed', '1,500 transitions into room for 1,000'),
        section(
            partial(buffer, is_prioritised=True, prefetch=True), 100, 'buffer, prioritised', 'the same, prefetched'
        ),
        section(partial(buffer, storage='ring'), 200, 'buffer, raw', 'the same, not compressed'),
        section(partial(buffer, storage='memmap'), 200, 'buffer, on disk', 'the same, in a file'),
        section(partial(buffer, kind=TorchRLReplayBuffer, storage='tensor'), 50, 'buffer, TorchRL', 'the same', 24),
    ],
)
def test_nothing_grows(run, cycles, tmp_path, monkeypatch, request, record_property):
    display = request.getfixturevalue('display') and os.environ['DISPLAY'] if run is environments else None
    folder = tmp_path / 'section'
    folder.mkdir()
    monkeypatch.chdir(folder)
    recipe = str(ROOT / 'configs' / 'breakout_dqn_cpu_config.py')
    Path('config.py').write_text(CONFIG.format(recipe=recipe))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    watch = Watch(folder, cycles, display)
    try:
        run(cycles, watch)
    finally:
        torch.set_num_threads(threads)
        watch.close()
    record_property('figures', watch.check())
