"""Small policies, and play for them to learn from; and policies with Nature's network, on any device."""

from typing import Any

import numpy as np
import torch
from ding.utils import POLICY_REGISTRY, deep_merge_dicts
from easydict import EasyDict

from breakout_env.policy.lean_ppo import LeanPPOPolicy, Samples
from breakout_env.replay.buffer import FrameReplayBuffer

STEPS, ENVS, GAMMA = 6, 3, 0.9  # of a rollout
SMALL_SIZES = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[8, 8, 8, 16])


def policy(policy_class, **options):
    sizes = dict(SMALL_SIZES, encoder_hidden_size_list=[8, 16, 16, 64])
    changes = dict(
        cuda=False,
        discount_factor=0.99,
        nstep=3,
        model=dict(type='pixel_dqn', import_names=['breakout_env'], **sizes),
        learn=dict(learning_rate=0.0002, target_update_freq=10),
    )
    cfg = EasyDict(deep_merge_dicts(deep_merge_dicts(policy_class.default_config(), changes), options))
    if 'target_theta' in options.get('learn', {}):
        del cfg.learn['target_update_freq']
    torch.manual_seed(0)
    policy = policy_class(cfg, enable_field=['learn', 'collect', 'eval'])
    policy.start = parameters(policy)
    with torch.no_grad():  # different, as during a training, so that no test can mistake one for the other
        for weight in part(policy, 'target_model').parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return policy


def part(policy, name):
    """A part of a policy, such as its ``model``, by DI-engine's accessor."""
    return policy.learn_mode.get_attribute(name)


def transitions(count, nstep=3, seed=0):
    """Transitions as the collector makes them, with frequent rewards and ends."""
    make = torch.Generator().manual_seed(seed)

    def screens():
        return torch.randint(0, 256, (4, 84, 84), dtype=torch.uint8, generator=make)

    return [
        dict(
            obs=screens(),
            next_obs=screens(),
            action=torch.randint(0, 4, (1,), generator=make),
            reward=torch.randint(-1, 2, (nstep,), generator=make).float(),
            done=bool(torch.rand((), generator=make) < 0.2),
            value_gamma=0.99 ** torch.randint(1, nstep + 1, (), generator=make).float(),
            collect_iter=0,
        )
        for _ in range(count)
    ]


def parameters(policy):
    return torch.cat([parameter.detach().flatten() for parameter in part(policy, 'learn_model').parameters()])


def ppo(model=None, **learn):
    torch.manual_seed(0)
    changes = dict(
        discount_factor=GAMMA,
        model=dict(type='pixel_actor_critic', import_names=['breakout_env'], **SMALL_SIZES),
        learn=dict(dict(learning_rate=0.001, autocast=None, log_every_updates=1), **learn),
        collect=dict(n_sample=STEPS * ENVS),
    )
    cfg = EasyDict(deep_merge_dicts(LeanPPOPolicy.default_config(), changes))
    return LeanPPOPolicy(cfg, model=model, enable_field=['learn', 'collect', 'eval'])


def rollout():
    make = np.random.default_rng(0)
    return dict(
        obs=torch.from_numpy(make.integers(0, 256, (STEPS, ENVS, 4, 84, 84), dtype=np.uint8)),
        action=torch.from_numpy(make.integers(0, 4, (STEPS, ENVS))),
        reward=torch.from_numpy(make.normal(size=(STEPS, ENVS)).astype(np.float32)),
        done=torch.from_numpy(make.random((STEPS, ENVS)) < 0.25),
        value=torch.from_numpy(make.normal(size=(STEPS + 1, ENVS)).astype(np.float32)),
        weight=torch.ones(STEPS, ENVS),
        log_prob=torch.from_numpy(make.uniform(0.1, 0.9, (STEPS, ENVS)).astype(np.float32)).log(),
    )


POLICIES = ('dqn', 'lean_dqn', 'lean_ppo')
FROM_ROLLOUTS = ('lean_ppo',)
BATCH, NSTEP = 32, 3


def policy_on(device: str, kind: str, seed: int = 0, **learn: Any) -> Any:
    """A policy of DI-engine's registry; a seed gives the same weights on all devices."""
    policy_class = POLICY_REGISTRY.get(kind)
    model = dict(type='pixel_actor_critic' if kind in FROM_ROLLOUTS else 'pixel_dqn', import_names=['breakout_env'])
    options: dict[str, Any] = dict(
        cuda=torch.device(device).type == 'cuda',
        nstep=NSTEP,
        discount_factor=0.99,
        model=dict(model, obs_shape=[4, 84, 84], action_shape=4),
        learn={**dict(learning_rate=0.0001, target_update_freq=10, log_every_updates=1, autocast=None), **learn},
    )
    torch.manual_seed(seed)
    cfg = EasyDict(deep_merge_dicts(policy_class.default_config(), options))
    return policy_class(cfg, enable_field=['learn', 'collect'])


def batch_for(kind: str, seed: int) -> Samples | list[dict[str, Any]]:
    """A batch that a policy learns from."""
    made = transitions(BATCH, seed=seed)
    if kind not in FROM_ROLLOUTS:
        return made
    obs, action = (torch.stack([one[key] for one in made]) for key in ('obs', 'action'))
    learned, log_prob = torch.linspace(-1, 1, BATCH), torch.full([BATCH], 0.25).log()
    return Samples(obs, action[:, 0], log_prob, learned, learned.flip(0), torch.ones(BATCH))


def filled_buffer(count: int = 256, **options: Any) -> FrameReplayBuffer:
    """A buffer with the same transitions each time, which it samples in the same order."""
    np.random.seed(0)  # from which the buffer takes its own seed
    buffer = FrameReplayBuffer(dict(dict(replay_buffer_size=2 * count, pin_memory=False), **options))
    buffer.push(transitions(count))
    return buffer
