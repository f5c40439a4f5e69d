"""What the soak does again and again: each section opens, uses and closes one part of the package, in every way."""

import contextlib
import importlib.util
import itertools
import os
import signal
import time
import weakref
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import psutil
import torch
from ding.config import compile_config, read_config
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, create_buffer, create_serial_evaluator
from ding.worker.learner import LearnerHook, register_learner_hook
from easydict import EasyDict
from tensorboardX import SummaryWriter
from watching import Look

from breakout_env import BreakoutEnv, FrameReplayBuffer, PixelDQN
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.evaluation import evaluate
from breakout_env.cli.common import shipped
from breakout_env.env_manager import GroupEnvManager
from breakout_env.run.budget import Budget

CONFIG = Path(__file__).resolve().parent / 'soak_config.py'
Notes = Dict[str, Any]


@dataclass(frozen=True)
class Section:
    """
    Overview:
        A part of the soak: what it does in a cycle, and how many of them make a quarter of an hour with the others.
    """

    name: str
    what: str
    cycles: int
    least_cycles: int
    # that nobody judges, however few cycles there are
    least_warm_up: int
    # given the cycles, a seed, and what to call after each cycle; what it returns are notes for the reader
    run: Callable[[int, int, Look], Notes]
    # what has to be installed besides
    needs: Tuple[str, ...] = ()
    # whether it opens windows
    draws: bool = False


# ---------------------------------------------------------------- environments

STEPS = 4  # of a game; closing does not depend on how long it was played
ENV_NUM = 3


def _play(env: BreakoutEnv, steps: int = STEPS) -> None:
    env.reset()
    for _ in range(steps):
        if env.step(env.random_action()).done:
            env.reset()


def environments(cycles: int, seed: int, look: Look) -> Notes:
    """
    Overview:
        Open, reset, step, close; in the ways in which this is done. An environment that is dropped is expected to be \
        gone at once, without the garbage collector: whatever still lives after a cycle is counted.
    """
    shown_every, recorded_every = (max(least, min(most, cycles // 25)) for least, most in ((8, 400), (5, 100)))
    emulators: 'weakref.WeakSet[Any]' = weakref.WeakSet()
    made: 'weakref.WeakSet[BreakoutEnv]' = weakref.WeakSet()
    ids: List[int] = []
    shows = os.environ.get('DISPLAY') is not None

    def new(**options: Any) -> BreakoutEnv:
        env = BreakoutEnv(options)
        made.add(env)
        ids.append(id(env))
        env.seed(seed + len(ids))
        return env

    def played(env: BreakoutEnv) -> BreakoutEnv:
        _play(env)
        emulators.add(env._env)
        return env

    def closed() -> None:
        played(new()).close()

    def dropped() -> None:
        played(new())

    def closed_twice() -> None:
        env = played(new(obs_dtype='float32'))
        env.close()
        env.close()

    def closed_before_the_first_reset() -> None:
        env = new()
        env.close()
        played(env).close()

    def with_sticky_actions() -> None:
        played(new(repeat_action_probability=0.25)).close()

    def after_an_error() -> None:
        env = played(new())
        with contextlib.suppress(ValueError):
            env.step(99)
        env.close()
        with contextlib.suppress(RuntimeError):
            env.step(0)

    def shown() -> None:
        played(new(render_mode='human')).close()

    def recorded() -> None:
        env = new()
        env.enable_save_replay('videos')
        played(env).close()
        (video,) = Path('videos').iterdir()  # the user's from now on
        video.unlink()

    used_again = new()
    ways = [closed, lambda: played(used_again).close(), dropped, closed_twice, closed_before_the_first_reset]
    ways += [with_sticky_actions, after_an_error]
    counts = dict(shown=0, recorded=0)
    for cycle in range(cycles):
        if shows and cycle % shown_every == 1:
            shown()
            counts['shown'] += 1
        elif cycle % recorded_every == 2:
            recorded()
            counts['recorded'] += 1
        else:
            ways[cycle % len(ways)]()
        look(cycle + 1, lambda: dict(living_environments=len(made) - 1, living_emulators=len(emulators)))
    return dict(counts, environments_made=len(ids), different_object_ids=len(set(ids)))


def _manager(seed: int, **options: Any) -> GroupEnvManager:
    manager = GroupEnvManager([partial(BreakoutEnv, {})] * ENV_NUM, dict(worker_num=2, **options))
    manager.seed(seed)
    return manager


def _step(manager: GroupEnvManager, steps: int = STEPS) -> None:
    for _ in range(steps):
        manager.step({env_id: 1 for env_id in manager.ready_obs})


def _kill_one() -> None:
    """End one of the worker processes of this process, as a machine that is short of memory does."""
    worker = psutil.Process().children()[-1]
    worker.kill()
    with contextlib.suppress(psutil.Error):
        while worker.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)


def managers(cycles: int, seed: int, look: Look) -> Notes:
    """
    Overview:
        Launch, step, reset, close; sometimes with a worker that is killed meanwhile.
    """

    def launched(cycle: int) -> GroupEnvManager:
        manager = _manager(seed + cycle)
        manager.launch()
        _step(manager)
        return manager

    def closed(cycle: int) -> None:
        launched(cycle).close()

    def closed_twice(cycle: int) -> None:
        manager = launched(cycle)
        manager.reset()
        manager.close()
        manager.close()

    def dropped(cycle: int) -> None:
        launched(cycle)

    def launched_again(cycle: int) -> None:
        manager = launched(cycle)
        manager.close()
        manager.launch()
        _step(manager)
        manager.close()

    def closed_after_a_kill(cycle: int) -> None:
        manager = launched(cycle)
        _kill_one()
        manager.close()

    def going_on_after_a_kill(cycle: int) -> None:
        manager = launched(cycle)
        _kill_one()
        timesteps = manager.step({env_id: 1 for env_id in manager.ready_obs})
        lost = [env_id for env_id, timestep in timesteps.items() if timestep.info.get('abnormal', False)]
        manager.reset({env_id: {} for env_id in lost})
        _step(manager)
        manager.close()

    ways = [closed, closed_twice, dropped, launched_again]
    killed = 0
    for cycle in range(cycles):
        if cycle % 5 == 2:
            (closed_after_a_kill, going_on_after_a_kill)[killed % 2](cycle)
            killed += 1
        else:
            ways[cycle % len(ways)](cycle)
        look(cycle + 1)
    return dict(workers_killed=killed)


# ---------------------------------------------------------------- evaluations


def _compiled(seed: int) -> EasyDict:
    """The soak's config, as the pipelines read it."""
    cfg, create_cfg = read_config(str(CONFIG))
    create_cfg.policy.type += '_command'
    del cfg.policy.learn.learner.hook['soak']
    cfg = compile_config(cfg, seed=seed, auto=True, create_cfg=create_cfg, save_cfg=False, renew_dir=False)
    set_pkg_seed(seed, use_cuda=False)
    return cfg


def evaluations(cycles: int, seed: int, look: Look) -> Notes:
    """
    Overview:
        An evaluation as ``breakout eval`` makes it, with environments of its own, and one as a training does, whose \
        environments stay.
    """
    cfg = _compiled(seed)
    save_agent('agent.safetensors', PixelDQN(**_model(cfg)).state_dict(), {})
    agent = load_agent('agent.safetensors')
    policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
    env_class, _, env_cfgs = get_vec_env_setting(cfg.env)
    games = 0
    with SummaryWriter('log') as tb_logger:
        evaluator = create_serial_evaluator(
            cfg.policy.eval.evaluator,
            env=create_env_manager(cfg.env.manager, [partial(env_class, cfg=each) for each in env_cfgs]),
            policy=policy.eval_mode,
            tb_logger=tb_logger,
            exp_name=cfg.exp_name,
        )
        for cycle in range(cycles):
            games += len(evaluate(agent, 'nature', 2, seed + cycle, env_num=2, max_episode_frames=300).games)
            _, info = evaluator.eval(None, cycle, cycle)
            games += len(info['eval_episode_return'])
            look(cycle + 1)
        evaluator.close()
    return dict(games=games)


def _model(cfg: EasyDict) -> Dict[str, Any]:
    return {key: value for key, value in cfg.policy.model.items() if key not in ('type', 'import_names')}


# ---------------------------------------------------------------- replay buffers

CAPACITY = 1000
# Transitions of play that are pushed again and again, with another stamp on all screens each time. A buffer that holds
# fewer has only those of the last round at the end of each, and as many frames as at the end of any other: one more is
# a leak, and as no frame comes again, none is hidden by being found again.
ROUND = 1500
PIECE, BATCH = 100, 32


class _Play(object):
    """Real play, in the form that DI-engine's collectors hand to a buffer."""

    def __init__(self, seed: int, nstep: int = 1) -> None:
        self._obs, self._next_obs = np.empty((2, ROUND, 4, 84, 84), np.uint8)
        self._transitions = []
        env = BreakoutEnv({})
        env.seed(seed)
        obs = env.reset()
        for step in range(ROUND):
            action = env.random_action()
            timestep = env.step(action)
            self._obs[step], self._next_obs[step] = obs, timestep.obs
            self._transitions.append(
                dict(
                    obs=torch.from_numpy(self._obs[step]),
                    next_obs=torch.from_numpy(self._next_obs[step]),
                    action=torch.from_numpy(action),
                    reward=torch.from_numpy(timestep.reward).repeat(nstep),
                    done=timestep.done,
                    value_gamma=torch.tensor([0.97]),
                    collect_iter=step,
                )
            )
            obs = env.reset() if timestep.done else timestep.obs
        env.close()

    def pieces(self, number: int) -> Iterator[List[dict]]:
        """All transitions, in pieces, with the number of the round on their screens."""
        for screens in (self._obs, self._next_obs):
            screens[..., 0, :4] = np.frombuffer(number.to_bytes(4, 'little'), np.uint8)
        for start in range(0, ROUND, PIECE):
            yield self._transitions[start : start + PIECE]

    def pieces_for_ever(self) -> Iterator[List[dict]]:
        """Rounds without an end."""
        for number in itertools.count():
            yield from self.pieces(number)


def _buffer(cycles: int, seed: int, look: Look, priority: bool = False, **options: Any) -> Notes:
    """
    Overview:
        Push and sample far past the capacity.
    """
    play = _Play(seed)
    np.random.seed(seed)
    buffer = FrameReplayBuffer(dict(replay_buffer_size=CAPACITY, **options), exp_name='run')

    def own() -> Dict[str, float]:
        report = buffer.memory_report()
        held = report['bytes'] + report['device_bytes'] + report['file_bytes']
        return dict(frames=report['distinct_frames'], transitions=report['transitions'], buffer_bytes=held)

    _churn(buffer, play, cycles, priority, lambda cycle: look(cycle, own))
    report = buffer.memory_report()
    pushed = buffer.push_count
    buffer.close()
    return dict(pushed=pushed, capacity=CAPACITY, bytes_per_transition=report['bytes_per_transition'])


def _churn(buffer: Any, play: _Play, cycles: int, priority: bool, after: Callable[[int], None]) -> None:
    for cycle in range(cycles):
        for piece in play.pieces(cycle):
            buffer.push(piece, cycle)
            batch = buffer.sample(BATCH, cycle) if buffer.count() >= BATCH else None
            if priority and batch is not None:
                names, rows = ([t[key] for t in batch] for key in ('replay_unique_id', 'replay_buffer_idx'))
                priorities = np.random.random(len(names)).tolist()
                buffer.update(dict(replay_unique_id=names, replay_buffer_idx=rows, priority=priorities))
        after(cycle + 1)


def _torchrl_buffer(cycles: int, seed: int, look: Look, storage: str) -> Notes:
    """
    Overview:
        The same with TorchRL's.
    """
    from breakout_env import TorchRLReplayBuffer

    play = _Play(seed)
    buffer = TorchRLReplayBuffer(dict(replay_buffer_size=CAPACITY, storage=storage), exp_name='run')
    _churn(buffer, play, cycles, False, lambda cycle: look(cycle, lambda: dict(transitions=buffer.count())))
    buffer.close()
    return dict(pushed=cycles * ROUND, capacity=CAPACITY)


# ---------------------------------------------------------------- saves


def buffer_saves(cycles: int, seed: int, look: Look) -> Notes:
    """
    Overview:
        Save a buffer to a file, in the background and as a state dict; load each into one that is there, and the file \
        into a new one.
    """
    np.random.seed(seed)
    storages = ('compressed', 'ring', 'memmap')

    def new(storage: str) -> FrameReplayBuffer:
        return FrameReplayBuffer(dict(replay_buffer_size=CAPACITY, storage=storage), exp_name='run')

    buffer, other = new('compressed'), new('ring')
    for cycle, piece in zip(range(cycles), _Play(seed).pieces_for_ever()):
        buffer.push(piece, cycle)
        buffer.start_saving('saves/background.npz', lambda: None)
        error = buffer.wait_for_saving()
        if error is not None:
            raise error
        buffer.save_data('saves/buffer.npz')
        other.load_data('saves/buffer.npz')
        other.load_state_dict(buffer.state_dict())
        third = new(storages[cycle % len(storages)])
        third.load_data('saves/background.npz')
        if third.count() != buffer.count() or other.count() != buffer.count():
            raise RuntimeError(f'{buffer.count()} transitions were saved, {other.count()}, {third.count()} were loaded')
        third.close()
        look(cycle + 1)
    buffer.close()
    other.close()
    return dict(saves=2 * cycles, loads=3 * cycles)


def run_saves(cycles: int, seed: int, look: Look) -> Notes:
    """
    Overview:
        Save a whole run, and go on with it, in one process: checkpoint, buffer, random states.
    """
    cfg = _compiled(seed)
    policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
    with SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial')) as tb_logger:
        learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, tb_logger, exp_name=cfg.exp_name)
        buffer = create_buffer(cfg.policy.other.replay_buffer, tb_logger=tb_logger, exp_name=cfg.exp_name)
        learner.call_hook('before_run')
        for cycle, piece in zip(range(cycles), _Play(seed, cfg.policy.nstep).pieces_for_ever()):
            buffer.push(piece, cycle * PIECE)
            for _ in range(cfg.policy.learn.update_per_collect):
                learner.train(buffer.sample(cfg.policy.learn.batch_size, learner.train_iter), cycle * PIECE)
            error = learner.run_saver.save(learner.last_iter.val, wait=True)
            if error is not None:
                raise error
            if not learner.run_saver.resume():
                raise RuntimeError(f'the run that was saved {cycle + 1} times has no save that can be used')
            look(cycle + 1)
        learner.call_hook('after_run')
        learner.close()
        updates = learner.last_iter.val
        buffer.close()
    return dict(saves=cycles, resumes=cycles, updates=updates)


# ---------------------------------------------------------------- a training


class SoakHook(LearnerHook):
    """
    Overview:
        Calls the look of this process after updates: the pipeline runs until it ends, and has no other door.
    """

    look: Callable[[int], None] = staticmethod(lambda env_steps: None)

    def __call__(self, engine: BaseLearner) -> None:
        SoakHook.look(engine.collector_envstep)


register_learner_hook('soak', SoakHook)


def training(cycles: int, seed: int, look: Look) -> Notes:
    """
    Overview:
        The pipeline of ``breakout train`` in this process, with a network so small that it is all collection; a cycle \
        is an env step.
    """
    spec = importlib.util.spec_from_file_location('breakout_dqn_main', shipped('entry/breakout_dqn_main.py'))
    entry = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(entry)
    SoakHook.look = look
    folder = entry.train(str(CONFIG), seed, Budget(env_steps=cycles))
    capacity = read_config(str(CONFIG))[0].policy.other.replay_buffer.replay_buffer_size
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    return dict(env_steps=cycles, buffer_turns=cycles / capacity, files_of_the_run=len(list(Path(folder).rglob('*'))))


SECTIONS = (
    Section('environments', 'open, reset, step, close', 10_000, 24, 4, environments, draws=True),
    Section('training', 'a training, by env steps', 300_000, 12_000, 6000, training),
    Section('managers', 'launch, step, reset, close', 200, 12, 4, managers),
    Section('evaluations', 'an evaluation of each kind', 80, 16, 4, evaluations),
    Section('run saves', 'save a whole run, go on with it', 100, 12, 4, run_saves),
    Section('buffer saves', 'save and load a buffer, each way', 200, 12, 4, buffer_saves),
    Section('buffer compressed', '1,500 transitions into room for 1,000', 200, 12, 4, _buffer),
    Section(
        'buffer prioritised',
        'the same, prioritised, prefetched',
        100,
        12,
        4,
        partial(_buffer, priority=True, prefetch=True),
    ),
    Section('buffer raw', 'the same, as they are', 200, 12, 4, partial(_buffer, storage='ring')),
    Section('buffer on disk', 'the same, in a file', 200, 12, 4, partial(_buffer, storage='memmap')),
    Section('buffer on device', 'the same, as tensors', 100, 12, 4, partial(_buffer, storage='device', device='cpu')),
    Section(
        'buffer torchrl', "TorchRL's, in memory", 50, 24, 10, partial(_torchrl_buffer, storage='tensor'), ('torchrl',)
    ),
    Section(
        'buffer torchrl on disk',
        "TorchRL's, in files",
        50,
        24,
        10,
        partial(_torchrl_buffer, storage='memmap'),
        ('torchrl',),
    ),
)
