"""PPO of rl_games 1.6.5 with its ``ppo_breakout_envpool.yaml``, as it is but for EnvPool's interface and the device.

It asks for an older psutil than this package: ``pip install --no-deps rl-games==1.6.5 setproctitle watchdog``.
"""

import tempfile
from importlib.resources import files
from typing import Any

import numpy as np
import torch
import yaml

from .speed import Running, Training


class RLGames(Training):
    """Its epochs are rollouts with their updates."""

    def __init__(self, seed: int) -> None:
        from rl_games.common.algo_observer import DefaultAlgoObserver
        from rl_games.torch_runner import Runner

        super().__init__(torch.get_num_threads(), random_steps=0)
        params = yaml.safe_load((files('rl_games') / 'configs/atari/ppo_breakout_envpool.yaml').read_text())['params']
        self._logs = tempfile.TemporaryDirectory()
        params['config'].update(device='cpu', train_dir=self._logs.name, save_best_after=10**9)
        params['config']['env_config'].update(env_type='gymnasium')
        self._observer = DefaultAlgoObserver()
        runner = Runner(self._observer)
        runner.load(dict(params=dict(params, seed=seed + 1)))  # for 0 it draws one
        self._agent = runner.algo_factory.create(runner.algo_name, base_name='run', params=runner.params)
        self.network = self._agent.model
        self._agent.model = torch.compile(self.network)  # as its command does

    def scores(self) -> list[float]:
        """The mean of the last 100 full games."""
        return [float(self._observer.game_scores.get_mean().mean())]

    def run(self, running: Running) -> None:
        agent, updates_each = self._agent, self._agent.mini_epochs_num * self._agent.num_minibatches

        def look(env_steps: int, epoch: int, seconds: float) -> None:
            if not running(env_steps, epoch * updates_each):
                agent.max_epochs = epoch

        self._observer.after_print_stats = look
        if running(0, 0):
            agent.train()

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Actions drawn from its policy."""
        asked: dict[str, Any] = dict(is_train=False, prev_actions=None, rnn_states=None)
        with torch.no_grad():
            return self.network.eval()(dict(asked, obs=torch.tensor(obs) / 255.0))['actions'].numpy()

    def close(self) -> None:
        self._agent.vec_env.env.close()
        self._logs.cleanup()
