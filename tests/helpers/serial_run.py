"""A training run in the test's own process, without environments."""

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import gym
import numpy as np
import torch
from ding.config import compile_config, read_config
from ding.envs import BaseEnvTimestep
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import BaseLearner, BaseSerialCommander, create_buffer, create_serial_evaluator
from easydict import EasyDict
from tensorboardX import SummaryWriter

from helpers import runs
from helpers.replay import transitions
from helpers.runs import N_SAMPLE, UPDATES

open_writers: list[SummaryWriter] = []
check_saves = partial(runs.check_saves, surplus=0)  # its collections have no surplus


class ScriptedGames:
    """Games of one step whose scores are given."""

    env_num = 1
    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)

    def __init__(self) -> None:
        self.scores: list[float] = []

    def launch(self) -> None:
        pass

    reset = close = launch

    @property
    def ready_obs(self) -> dict:
        return {0: np.zeros((4, 84, 84), np.uint8)}

    def step(self, actions: dict) -> dict:
        score = np.array([self.scores.pop(0)], np.float32)
        return {0: BaseEnvTimestep(self.ready_obs[0], score, True, {'eval_episode_return': score})}


class SerialRun:
    """The parts of DI-engine's serial pipeline, with random transitions in place of a collector's."""

    def __init__(self, config: Path, seed: int = 0) -> None:
        cfg, create_cfg = read_config(str(config))
        create_cfg.policy.type += '_command'
        cfg = compile_config(cfg, seed=seed, auto=True, create_cfg=create_cfg, save_cfg=False, renew_dir=False)
        set_pkg_seed(seed, use_cuda=False)
        self.policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
        tb_logger = SummaryWriter(os.path.join(cfg.exp_name, 'log', 'serial'))
        open_writers.append(tb_logger)
        logs = dict(tb_logger=tb_logger, exp_name=cfg.exp_name)
        self.learner = BaseLearner(cfg.policy.learn.learner, self.policy.learn_mode, **logs)
        self.games = ScriptedGames()
        self.evaluator = create_serial_evaluator(
            cfg.policy.eval.evaluator, env=self.games, policy=self.policy.eval_mode, **logs
        )
        self.buffer = create_buffer(cfg.policy.other.replay_buffer, **logs)
        self.collector = EasyDict(envstep=0)
        workers = (self.learner, self.collector, self.evaluator, self.buffer, self.policy.command_mode)
        self.commander = BaseSerialCommander(cfg.policy.other.commander, *workers)
        self.learner.call_hook('before_run')
        self.collector.envstep = self.learner.collector_envstep
        if cfg.policy.random_collect_size:
            self.push(cfg.policy.random_collect_size)

    def push(self, count: int) -> None:
        env_step = self.collector.envstep
        played = transitions(env_step, env_step + count, side=84, value_gamma=torch.tensor([0.9]), collect_iter=0)
        self.buffer.push(played, cur_collector_envstep=env_step)
        self.collector.envstep += count

    def update(self) -> None:
        self.learner.train(self.buffer.sample(8, self.learner.train_iter), self.collector.envstep)

    def train(self, collections: int) -> None:
        for _ in range(collections):
            if self.evaluator.should_eval(self.learner.train_iter):
                self.evaluate()
            self.push(N_SAMPLE)
            for _ in range(UPDATES):
                self.update()

    def evaluate(self, score: float = 0.0) -> None:
        self.games.scores.append(score)
        self.evaluator.eval(self.learner.save_checkpoint, self.learner.train_iter, self.collector.envstep)

    def save(self) -> None:
        assert self.learner.run_saver.save(self.learner.train_iter) is None

    def end(self) -> None:
        self.learner.call_hook('after_run')

    def state(self) -> dict:
        return self.policy.learn_mode.state_dict()

    @property
    def best_score(self) -> float:
        return self.evaluator.state()['best_score']

    @property
    def epsilon(self) -> float:
        return self.commander.step()['eps']


def stopped_run(config: Path, collections: int = 5) -> SerialRun:
    """A run with two saves, the newest of its end."""
    run = SerialRun(config)
    run.train(collections - 2)
    run.save()
    run.train(2)
    run.end()
    return run


def flat(state: Any) -> list:
    if isinstance(state, dict):
        return [number for key in state for number in flat(state[key])]
    if isinstance(state, (list, tuple)):
        return [number for part in state for number in flat(part)]
    return [state.tolist() if isinstance(state, torch.Tensor) else state]


def interrupt(number: int) -> None:
    """Send this process a signal, and let Python handle it."""
    os.kill(os.getpid(), number)
    time.sleep(0)  # handlers run between two steps of the interpreter
