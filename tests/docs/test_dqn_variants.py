"""The targets that the search tries beside those of `lean_dqn`."""

import numpy as np
import pytest
import torch

from benchmarks.training.dqn_variants import (
    LOWEST,
    QUANTILES,
    SHARE,
    TEMPERATURE,
    MunchausenDQNPolicy,
    PixelQuantileDQN,
    QuantileDQNPolicy,
)
from breakout_env.agent.agent import load_agent, save_agent
from helpers.policies import SIZES, policy, transitions


def values_of(learner, batch):
    """Of a batch: the online network's output, the target network's for both states, first rewards, discounts, ends."""
    obs, next_obs = (torch.stack([each[key] for each in batch]) for key in ('obs', 'next_obs'))
    with torch.no_grad():
        online, target = learner._model(obs), learner._target_model.forward(obs)
        after = learner._model(next_obs), learner._target_model.forward(next_obs)
    returns = torch.stack([(each['reward'] * 0.99 ** torch.arange(3)).sum() for each in batch])
    discounts = torch.stack([each['value_gamma'] * (not each['done']) for each in batch])
    return online, target, after, returns, discounts, torch.cat([each['action'] for each in batch])


def test_munchausen_learns_the_soft_value_and_a_bonus_for_likely_actions():
    learner, batch = policy(MunchausenDQNPolicy), transitions(16)
    online, target, (_, after), returns, discounts, action = values_of(learner, batch)
    errors = []
    for i, now, then in zip(range(16), target['logit'].double().numpy(), after['logit'].double().numpy()):
        chances = [np.exp(q / TEMPERATURE) / np.exp(q / TEMPERATURE).sum() for q in (now, then)]
        bonus = SHARE * max(LOWEST, TEMPERATURE * np.log(chances[0][action[i]]))
        soft = (chances[1] * (then - TEMPERATURE * np.log(chances[1]))).sum()
        errors.append(online['logit'][i, action[i]].item() - returns[i].item() - bonus - discounts[i].item() * soft)
    assert learner._forward_learn(batch)['total_loss'] == pytest.approx(np.mean(np.square(errors)), rel=1e-4)


def test_quantiles_follow_those_of_the_best_action():
    shapes = dict(type='pixel_quantile_dqn', import_names=['benchmarks.training.dqn_variants'])
    learner, batch = policy(QuantileDQNPolicy, model=shapes), transitions(16)
    online, _, (best, after), returns, discounts, action = values_of(learner, batch)
    torch.testing.assert_close(online['quantiles'].mean(dim=-1), online['logit'])
    loss = 0.0
    for i in range(16):
        wanted = returns[i] + discounts[i] * after['quantiles'][i, best['logit'][i].argmax()]
        for share, quantile in zip((np.arange(QUANTILES) + 0.5) / QUANTILES, online['quantiles'][i, action[i]]):
            error = (wanted - quantile).double().numpy()
            huber = np.where(abs(error) < 1, error**2 / 2, abs(error) - 0.5)
            loss += (abs(share - (error <= 0)) * huber).sum() / QUANTILES / 16
    assert learner._forward_learn(batch)['total_loss'] == pytest.approx(loss, rel=1e-4)


def test_an_agent_of_quantiles_plays_by_their_mean(tmp_path):
    network = PixelQuantileDQN([4, 84, 84], 4, encoder_hidden_size_list=SIZES)
    save_agent(tmp_path / 'agent', network.state_dict(), {})
    obs = np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), dtype=np.uint8)
    expected = network(torch.from_numpy(obs))['quantiles'].mean(dim=-1).detach().numpy()
    np.testing.assert_allclose(load_agent(tmp_path / 'agent').q_values(obs), expected, atol=1e-6)
