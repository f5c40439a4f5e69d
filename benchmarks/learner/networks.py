"""
What do other networks cost a PPO on the CPU? Updates a second of configs/breakout_ppo_config.py with each of them.

    python -m benchmarks.learner.networks --out docs/results/bench_networks.json

All have the config's minibatch, precision and optimizer, and learn from random numbers. The networks that this module
registers are for measurements: an agent file holds DI-engine's encoder alone, so that those with other weights can be
trained but not played.
"""

from functools import partial
from typing import Any, Dict, List, Optional, Tuple

# first, as in trainings: it keeps PyTorch's threads from spinning for long
import breakout_env  # noqa: F401

# isort: split
import torch
from ding.policy import create_policy
from ding.utils import MODEL_REGISTRY
from torch import nn

from breakout_env.policy.pixel_models import PixelActorCritic
from breakout_env.run.config import checked_config

from ..common.cli import THREADS, chosen, command, rounds
from ..common.processes import ROOT
from ..common.rounds import Result, Throughput, interleaved, section

REFERENCE = 'half width: the config'
SHIFT_PIXELS = 4


@MODEL_REGISTRY.register('shifted_actor_critic')
class ShiftedActorCritic(PixelActorCritic):
    """It learns from screens that are shifted at random, all of an observation alike (Yarats et al. 2021, DrQ)."""

    def forward_scaled(self, x: torch.Tensor) -> Dict[str, torch.Tensor]:
        """As the base's; shifts in training mode only."""
        if self.training:
            height, width = x.shape[2:]
            padded = nn.functional.pad(x, (SHIFT_PIXELS,) * 4, mode='replicate')
            windows = padded.unfold(2, height, 1).unfold(3, width, 1)
            down, right = torch.randint(2 * SHIFT_PIXELS + 1, (2, len(x)), device=x.device)
            x = windows[torch.arange(len(x), device=x.device), :, down, right]
        return super().forward_scaled(x)


@MODEL_REGISTRY.register('rms_norm_actor_critic')
class RMSNormActorCritic(PixelActorCritic):
    """An RMSNorm (Zhang and Sennrich 2019) where ``layer_norm`` has a LayerNorm."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, layer_norm=True, **kwargs)
        for block in [module for module in self.modules() if isinstance(module, nn.Sequential)]:
            if isinstance(block[0], nn.LayerNorm):
                block[0] = nn.RMSNorm(block[0].normalized_shape)


class Residual(nn.Module):
    """Two convolutions beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        self.block = nn.Sequential(nn.ReLU(), convolutions[0], nn.ReLU(), convolutions[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both."""
        return x + self.block(x)


@MODEL_REGISTRY.register('impala_actor_critic')
class ImpalaActorCritic(PixelActorCritic):
    """The residual encoder of Espeholt et al. 2018 (IMPALA), with 16, 32 and 32 channels."""

    def __init__(self, obs_shape: List[int], *args: Any, **kwargs: Any) -> None:
        super().__init__(obs_shape, *args, **kwargs)
        width, layers, channels = self.encoder.output_size, [], obs_shape[0]
        for wanted in (16, 32, 32):
            layers += [nn.Conv2d(channels, wanted, 3, padding=1), nn.MaxPool2d(3, 2, 1)]
            layers += [Residual(wanted), Residual(wanted)]
            channels = wanted
        pixels = -(-obs_shape[1] // 8) * -(-obs_shape[2] // 8)
        self.encoder = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(channels * pixels, width), nn.ReLU())


class Updating(Throughput):
    """A policy that learns from random minibatches."""

    figure = 'updates_per_s'

    def __init__(self, model: Dict[str, Any], threads: int) -> None:
        torch.set_num_threads(threads)
        changes = {f'policy.model.{key}': value for key, value in model.items()}
        changes['policy.model.import_names'] = [__name__]
        cfg = checked_config(str(ROOT / 'configs' / 'breakout_ppo_config.py'), 0, changes)
        self._learner = create_policy(cfg.policy, enable_field=['learn']).learn_mode
        self._batch = random_batch(cfg.policy.learn.batch_size, cfg.policy.model.obs_shape)

    def step(self) -> int:
        self._learner.forward(self._batch)
        return 1


def random_batch(size: int, obs_shape: Tuple[int, ...]) -> Dict[str, torch.Tensor]:
    """A minibatch of PPO."""
    batch = {key: torch.randn(size) for key in ('advantage', 'return')}
    batch.update(log_prob=torch.full((size,), 0.25).log(), weight=torch.ones(size))
    batch['obs'] = torch.randint(256, (size, *obs_shape), dtype=torch.uint8)
    return {**batch, 'action': torch.randint(4, (size,))}


CONTESTANTS: Dict[str, Dict[str, Any]] = {
    REFERENCE: {},
    "Nature's width": dict(encoder_hidden_size_list=[32, 64, 64, 512]),
    'half width, LayerNorm': dict(layer_norm=True),
    'half width, RMSNorm': dict(type='rms_norm_actor_critic'),
    'half width, random shifts': dict(type='shifted_actor_critic'),
    'IMPALA blocks, 16, 32 and 32 channels': dict(type='impala_actor_critic'),
}


@command(*rounds(repeats=5, seconds=5.0), THREADS)
def main(repeats: int, seconds: float, only: tuple, threads: List[int], out: Optional[str]) -> None:
    """Measure how many updates a second PPO makes with other networks."""
    result = Result(out, ['torch'], repeats=repeats, seconds=seconds)
    for thread_num in threads:
        factories = {name: partial(Updating, model, thread_num) for name, model in CONTESTANTS.items()}
        runs, failures = interleaved(chosen(factories, only), repeats, keep=True, seconds=seconds)
        title = f'PPO, batch of 64, {thread_num} thread{"s" * (thread_num > 1)}'
        result.add(section(title, runs, failures, 'updates_per_s', REFERENCE), threads=thread_num)


if __name__ == '__main__':
    main()
