"""PPO: advantages, the loss, actions, and what becomes of its options and saves."""

import copy

import numpy as np
import pytest
import torch
from ding.rl_utils import ppo_data, ppo_error
from stable_baselines3.common.utils import explained_variance

from breakout_env import PixelActorCritic
from breakout_env.policy.mirror import Mirror
from breakout_env.worker.overlap import own_collect_policy
from helpers.policies import ENVS, GAMMA, SMALL_SIZES, STEPS, parameters, part, ppo, rollout


def advantage_of(rollout, t, env, gae_lambda):
    """The definition: the discounted sum of the one-step errors up to the end of the episode or of the rollout."""
    total, discount = 0.0, 1.0
    for k in range(t, STEPS):
        ends = bool(rollout['done'][k, env])
        following = 0.0 if ends else GAMMA * float(rollout['value'][k + 1, env])
        total += discount * (float(rollout['reward'][k, env]) + following - float(rollout['value'][k, env]))
        if ends:
            break
        discount *= GAMMA * gae_lambda
    return total


@pytest.mark.parametrize('gae_lambda', [0.0, 0.95, 1.0])
def test_advantages_are_the_discounted_sum_of_errors(gae_lambda):
    made = rollout()
    samples = ppo(gae_lambda=gae_lambda).collect_mode.get_train_sample(made)
    advantages = samples.advantage.view(STEPS, ENVS)
    for t in range(STEPS):
        for env in range(ENVS):
            assert advantages[t, env] == pytest.approx(advantage_of(made, t, env, gae_lambda), abs=1e-5)
    torch.testing.assert_close(samples.returns, (advantages + made['value'][:-1]).flatten())


def test_a_lost_step_neither_counts_nor_spoils_the_steps_before_it():
    made = rollout()
    made['done'][:] = False
    made['weight'][3, 0] = 0
    policy = ppo()
    before = policy.collect_mode.get_train_sample(made)
    made['reward'][3:, 0] = 1e6  # it has none, and what follows is another game
    after = policy.collect_mode.get_train_sample(made)
    earlier = torch.arange(STEPS * ENVS).view(STEPS, ENVS)[:3].flatten()
    assert torch.equal(before.advantage[earlier], after.advantage[earlier])
    after.weight[:] = 0  # a minibatch of lost steps
    start = parameters(policy)
    policy.learn_mode.forward(after)
    assert torch.equal(parameters(policy), start)


@pytest.mark.parametrize('clip_ratio', [0.1, 0.3])
def test_the_loss_is_di_engines_of_the_steps_that_were_played(clip_ratio):
    """A lost step, whose weight is 0, does not enter the normalisation of the advantages either."""
    policy = ppo(clip_ratio=clip_ratio, value_weight=0.5)
    batch = policy.collect_mode.get_train_sample(rollout())
    batch.weight[::3], batch.advantage[::3] = 0, 1e6
    played = batch.weight > 0
    logit, old = torch.randn(STEPS * ENVS, 4), torch.randn(STEPS * ENVS, 4)
    value = torch.randn(STEPS * ENVS)
    batch.log_prob[:] = old.log_softmax(1).gather(1, batch.action[:, None])[:, 0]
    advantage = batch.advantage[played]
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    chosen = [tensor[played] for tensor in (logit, old, batch.action, value, value)]
    data = ppo_data(*chosen, advantage, batch.returns[played], None)
    expected, _ = ppo_error(data, clip_ratio, use_value_clip=False)
    found = policy._loss(dict(logit=logit, value=value), batch)
    # DI-engine's loss of the values is half of their mean squared error
    torch.testing.assert_close(
        found.total, expected.policy_loss + 0.5 * 2 * expected.value_loss - 0.01 * expected.entropy_loss
    )
    torch.testing.assert_close(found.value, value[played].mean())
    torch.testing.assert_close(found.entropy, expected.entropy_loss)


@pytest.mark.parametrize('grad_clip', [None, 0.01])
def test_diagnostics_equal_stable_baselines3_and_leave_out_lost_steps(grad_clip):
    policy = ppo(grad_clip=grad_clip)
    made = rollout()
    made['weight'][2, 1] = 0
    batch = policy.collect_mode.get_train_sample(made)
    batch.returns[batch.weight == 0] = 1e6
    played = batch.weight > 0
    before = part(policy, 'model')(batch.obs)['logit'].log_softmax(1).gather(1, batch.action[:, None])[:, 0]
    info = policy.learn_mode.forward(batch)
    # as in its PPO.train and OnPolicyAlgorithm.train
    log_ratio = (before - batch.log_prob)[played].detach()
    ratio = log_ratio.exp()
    assert info['approx_kl'] == pytest.approx(torch.mean((ratio - 1) - log_ratio).item(), rel=1e-4)
    assert info['clip_fraction'] == pytest.approx(torch.mean((torch.abs(ratio - 1) > 0.1).float()).item())
    returns, values = batch.returns[played].numpy(), made['value'][:-1].flatten()[played].numpy()
    assert info['explained_variance'] == pytest.approx(explained_variance(values, returns), rel=1e-4)
    norm = torch.cat([weight.grad.flatten() for weight in part(policy, 'model').parameters()]).norm()
    if grad_clip is None:
        assert info['grad_norm'] == pytest.approx(float(norm), rel=1e-4)
    else:
        assert info['grad_norm'] > 0.1 and float(norm) == pytest.approx(grad_clip, rel=1e-3)
    assert set(policy.learn_mode.monitor_vars()) == set(info)


def test_collection_draws_actions_and_evaluation_takes_the_most_probable():
    policy = ppo()
    with torch.no_grad():
        part(policy, 'model').head.Q[1][0].bias.copy_(torch.tensor([0.4, 0.1, 0.3, 0.2]).log())
        part(policy, 'model').head.Q[1][0].weight.zero_()
    obs = torch.zeros(4, 84, 84, dtype=torch.uint8)
    drawn = policy.collect_mode.forward(dict.fromkeys(range(4000), obs)).values()
    shares = np.bincount([int(step['action']) for step in drawn], minlength=4) / 4000
    np.testing.assert_allclose(shares, [0.4, 0.1, 0.3, 0.2], atol=0.04)
    for step in list(drawn)[:20]:
        assert step['log_prob'] == pytest.approx(np.log([0.4, 0.1, 0.3, 0.2][int(step['action'])]), abs=1e-5)
    assert policy.eval_mode.forward({0: obs.float()})[0]['action'] == 0


def test_annealed_options_reach_their_ends_also_in_resumed_runs():
    options = dict(learning_rate=0.001, lr_end=0.0002, entropy_weight=0.01, entropy_end=0.002, discount_end=0.999)
    policy, resumed, collecting = (ppo(anneal=True, **options) for _ in range(3))
    batch = policy.collect_mode.get_train_sample(rollout())
    still = batch._replace(advantage=torch.zeros_like(batch.advantage))
    rates, coefficients, discounts = [], [], []
    for used in (0.0, 0.5, 1.0, 1.0):
        policy.learn_mode.set_attribute('budget_used', used)
        found = policy._loss(dict(logit=torch.zeros(STEPS * ENVS, 4), value=batch.returns), still)
        coefficients.append(float(-found.total / found.entropy))
        collecting.collect_mode.load_state_dict(policy.collect_mode.state_dict())
        discounts.append(collecting.collect_mode.get_attribute('discount'))
        rates.append(policy.learn_mode.forward(batch)['cur_lr'])
        resumed.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))
        policy, resumed = resumed, policy
    np.testing.assert_allclose(rates, [0.001, 0.0006, 0.0002, 0.0002])
    np.testing.assert_allclose(coefficients, [0.01, 0.006, 0.002, 0.002], rtol=1e-5)
    np.testing.assert_allclose(discounts, [0.9, 0.99, 0.999, 0.999])
    with pytest.raises(ValueError, match='discount_end is 1.0 and policy.discount_factor is 0.9; expected both below'):
        ppo(discount_end=1.0)
    with pytest.raises(ValueError, match='anneal is True, and the run has no budget; expected a limit'):
        ppo(anneal=True).learn_mode.forward(batch)


def test_a_critic_of_normalised_returns_learns_the_same_returns():
    """Also of returns around 100: the units change, so that the values stay."""
    policy = ppo(normalize_returns=True, learning_rate=0.0)
    batch = policy.collect_mode.get_train_sample(rollout())
    batch.returns.add_(100)
    before = policy.collect_mode.get_attribute('act_on_batch')(batch.obs)['value']
    for _ in range(3):
        policy.learn_mode.forward(batch)
    after = policy.collect_mode.get_attribute('act_on_batch')(batch.obs)['value']
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)
    returns, output = batch.returns, part(policy, 'model')(batch.obs)['value'].detach()
    torch.testing.assert_close(after, output * returns.std(correction=0) + returns.mean(), rtol=1e-3, atol=1e-3)
    exact = (returns - returns.mean()) / returns.std(correction=0)
    still = batch._replace(advantage=torch.zeros_like(returns))
    found = policy._loss(dict(logit=torch.zeros(STEPS * ENVS, 4), value=exact), still)
    assert float(found.total) == pytest.approx(-0.01 * float(found.entropy), abs=1e-5)
    assert float(found.value) == pytest.approx(float(returns.mean()), rel=1e-4)


@pytest.mark.parametrize('ema_decay', [None, 0.9])
def test_a_separate_collector_and_a_resumed_run_have_the_critics_units(ema_decay):
    options = dict(normalize_returns=True, ema_decay=ema_decay)
    policy, resumed = ppo(**options), ppo(**options)
    own = own_collect_policy(part(policy, 'cfg'), policy)
    batch = policy.collect_mode.get_train_sample(rollout())
    batch.returns.mul_(7).add_(100)
    for _ in range(3):
        policy.learn_mode.forward(batch)
    own.collect_mode.load_state_dict(policy.collect_mode.state_dict())
    resumed.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))
    values = [one.collect_mode.get_attribute('act_on_batch')(batch.obs)['value'] for one in (policy, own, resumed)]
    assert values[0].abs().max() > 0.1 and torch.equal(values[0], values[1]) and torch.equal(values[0], values[2])


@pytest.mark.parametrize('values', ['advantage', 'returns'])
def test_a_training_that_diverges_ends_with_an_error_that_names_options(values):
    policy = ppo()
    batch = policy.collect_mode.get_train_sample(rollout())
    getattr(batch, values)[0] = float('nan')
    with pytest.raises(ValueError, match='total_loss. is infinite or not a number.*learning_rate.*grad_clip.*autocast'):
        policy.learn_mode.forward(batch)


def test_a_collector_that_acts_with_broken_weights_says_the_same():
    """While collection and learning overlap, it may meet them before the learner looks at its losses."""
    policy = ppo()
    with torch.no_grad():
        part(policy, 'model').head.Q[1][0].bias.fill_(float('nan'))
    with pytest.raises(ValueError, match='the network that acts is infinite or not a number.*learning_rate'):
        policy.collect_mode.get_attribute('act_on_batch')(rollout()['obs'][0])


# ---- `mirror`: a network that plays the mirror image of a screen as the mirror image of its play

MIRRORED = [0, 1, 3, 2]  # LEFT for RIGHT


def outputs_of_both(model, width=84):
    screens = torch.randint(0, 256, (5, 4, 84, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(screens), model(screens.flip(3))


@pytest.mark.parametrize('options', [dict(head='paper', rows=[12, 79], columns=[4, 79]), dict(head='ding')])
def test_learning_keeps_the_play_of_mirror_images_mirrored(options, tmp_path):
    torch.manual_seed(0)
    policy = ppo(mirror=True, model=PixelActorCritic(**SMALL_SIZES, **options))
    before = outputs_of_both(part(policy, 'model'))[0]
    for _ in range(5):
        policy.learn_mode.forward(policy.collect_mode.get_train_sample(rollout()))
    there, back = outputs_of_both(part(policy, 'model'))
    assert (there['logit'] - before['logit']).abs().max() > 0.01
    assert (there['logit'][:, 2] - there['logit'][:, 3]).abs().max() > 0.001  # not by playing both sides alike
    torch.testing.assert_close(there['logit'], back['logit'][:, MIRRORED], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(there['value'], back['value'], atol=1e-4, rtol=1e-4)

    # a checkpoint has ordinary weights, and resuming changes none of them
    torch.save(policy.learn_mode.state_dict(), tmp_path / 'ckpt.pth.tar')
    policy.learn_mode.load_state_dict(torch.load(tmp_path / 'ckpt.pth.tar', weights_only=True))
    assert torch.equal(outputs_of_both(part(policy, 'model'))[0]['logit'], there['logit'])


def test_weights_begin_with_the_scale_that_they_had():
    model = PixelActorCritic([4, 84, 84], 4, head='paper')
    before = {name: weight.norm() for name, weight in model.named_parameters() if weight.ndim > 1}
    Mirror(model).begin()
    for name, weight in model.named_parameters():
        assert weight.ndim == 1 or 0.8 < weight.norm() / before[name] < 1.2, name


def test_weights_that_were_trained_without_it_are_refused():
    policy = ppo(mirror=True)
    with pytest.raises(ValueError, match='expected policy.learn.mirror=False'):
        policy.learn_mode.load_state_dict(ppo().learn_mode.state_dict())


@pytest.mark.parametrize(
    'sizes, message',
    [
        (dict(action_shape=18), 'expected .* 4 actions'),
        (dict(encoder_hidden_size_list=[8, 9, 8, 16]), 'layers of .8, 9, 8'),
        (dict(obs_shape=[4, 84, 86]), r'columns \[0, 85\] of 86'),
        (dict(columns=[4, 80]), r'columns \[4, 80\] of 84'),
    ],
)
def test_other_networks_are_refused(sizes, message):
    model = PixelActorCritic(**{**dict(obs_shape=[4, 84, 84], action_shape=4), **sizes})
    with pytest.raises(ValueError, match=message):
        ppo(mirror=True, model=model)
