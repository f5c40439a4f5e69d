"""DQN and PPO of other libraries as whole trainings with a limit of time, each with what its authors publish for Atari,
on its own environments. benchmarks/recipes.py runs them.

Stable-Baselines3's DQN and PPO have the settings of RL Zoo; that of CleanRL is in cleanrl.py, that of rl_games in
rl_games_ppo.py; ``DI-engine dqn`` is its serial pipeline with its policy, ``subprocess`` manager and buffer
(stock_config.py). In the end they play in our environments; PPO draws its actions, as in RL Zoo's own evaluation.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from breakout_env.agent.evaluation import evaluate

from ..common.rounds import ROOT, measured_commit
from ..common.trainings import GAMES, GAMES_SEED, Point, judged_run, last_of, training_row
from . import cleanrl
from .rl_games_ppo import RLGames
from .speed import StableBaselines3

POINT_EVERY_S = 10.0
ALL_STEPS = 10_000_000  # of the published trainings; where epsilon, learning rate and clipping end
# of an agent, for `evaluate`
SCREENS: dict[str, Any] = dict(frame_stack=4, screen_size=84, full_action_space=False, obs_dtype='uint8')


class Recorder:
    """The curve of a training, by the scores of its last 100 full games, and whether its time is over."""

    def __init__(self, minutes: float, scores: Callable[[], Sequence[float]]) -> None:
        self._scores, self._begin_s = scores, time.perf_counter()
        self._limit_s, self._due_s = minutes * 60, 0.0
        self.curve: list[Point] = []
        self.updates = 0

    def running(self, env_steps: int, updates: int) -> bool:
        """To be called all the time, with what was done so far."""
        run_s = time.perf_counter() - self._begin_s
        if run_s >= min(self._due_s, self._limit_s):
            self._due_s, self.updates, scores = run_s + POINT_EVERY_S, updates, self._scores()
            self.curve.append((env_steps, run_s / 3600, float(np.mean(scores)) if len(scores) else 0.0))
        return run_s < self._limit_s


def train_peer(make: Callable, act: Callable, about: tuple, name: str, seed: int, minutes: float, out: Path) -> dict:
    """The row of a training of benchmarks/training/speed.py; its weights are in ``out``."""
    torch.manual_seed(seed)
    peer = make(seed=seed)
    try:
        recorder = Recorder(minutes, peer.scores)
        peer.run(recorder.running)
        torch.save(peer.network.state_dict(), out / f'{name.replace(" ", "_")}_{seed}.pt')
        player: Any = SimpleNamespace(name=name, env_options=SCREENS, act=partial(act, peer))
        games = evaluate(player, 'nature', GAMES, GAMES_SEED).scores.tolist()
    finally:
        peer.close()
    return dict(changes=about, **training_row(measured_commit(), recorder.updates, recorder.curve, games))


def train_stock(name: str, seed: int, minutes: float, out: Path) -> dict[str, Any]:
    """DI-engine's serial pipeline, which knows no limit of time: it is stopped as by SIGTERM, and saves."""
    config = 'benchmarks/training/stock_config.py'
    folder = out.resolve() / f'stock_{seed}_{time.strftime("%y%m%d_%H%M%S")}'
    folder.mkdir(parents=True)
    ding = Path(sys.executable).with_name('ding')
    words = [ding, '-m', 'serial', '-c', str(ROOT / config), '-s', str(seed)]
    process = subprocess.Popen(words, cwd=folder, env={**os.environ, 'PYTHONPATH': str(ROOT)})
    try:
        while process.poll() is None and last_of(folder / 'run', 'hours') < minutes / 60:
            time.sleep(1)
    finally:
        process.terminate()
        process.wait()
    return dict(changes=[config], **judged_run(folder / 'run'))


def sb3(algorithm: str, seed: int, **options: Any) -> StableBaselines3:
    """One of its algorithms; the schedules among the options fall from a value to 0."""
    for name in set(options) & {'learning_rate', 'clip_range'} if algorithm == 'PPO' else ():
        options[name] = partial(lambda begin, remaining: begin * remaining, options[name])
    options.update(algorithm=algorithm, seed=seed, all_steps=ALL_STEPS)
    return StableBaselines3(threads=torch.get_num_threads(), **options)


def predict(samples: bool, peer: StableBaselines3, obs: np.ndarray) -> np.ndarray:
    return peer.model.predict(obs, deterministic=not samples)[0]


def drawn(peer: cleanrl.PPO, obs: np.ndarray) -> np.ndarray:
    return peer.choose(torch.from_numpy(np.ascontiguousarray(obs)))[0].numpy()


DQN = dict(learning_rate=1e-4, batch_size=32, buffer_size=100_000, target_update_interval=1000, train_freq=4)
DQN.update(gradient_steps=1, exploration_fraction=0.1, exploration_final_eps=0.01)
PPO = dict(n_steps=128, n_epochs=4, batch_size=256, vf_coef=0.5, ent_coef=0.01, learning_rate=2.5e-4, clip_range=0.1)
ZOO = "RL Zoo's settings"
# trained by name, seed, minutes and folder; each returns its row
PEERS: dict[str, Callable[..., dict[str, Any]]] = {
    'SB3 DQN': partial(
        train_peer, partial(sb3, 'DQN', env_num=1, random_steps=100_000, **DQN), partial(predict, False), (ZOO,)
    ),
    'SB3 PPO': partial(
        train_peer, partial(sb3, 'PPO', env_num=8, random_steps=0, **PPO), partial(predict, True), (ZOO, '8 envs')
    ),
    'CleanRL PPO': partial(
        train_peer, partial(cleanrl.PPO, ALL_STEPS), drawn, ('its settings, in plain PyTorch on EnvPool',)
    ),
    'rl_games PPO': partial(train_peer, RLGames, RLGames.act, ('its settings, on EnvPool',)),
    'DI-engine dqn': train_stock,
}
