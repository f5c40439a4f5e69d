"""The option `mirror`: a network that plays the mirror image of a screen as the mirror image of its play."""

import pytest
import torch

from breakout_env import PixelActorCritic
from breakout_env.policy.mirror import Mirror
from helpers.policies import ppo, rollout

MIRRORED = [0, 1, 3, 2]  # LEFT for RIGHT


def outputs_of_both(model, width=84):
    screens = torch.randint(0, 256, (5, 4, 84, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(screens), model(screens.flip(3))


@pytest.mark.parametrize('options', [dict(head='paper', rows=[12, 79], columns=[4, 79]), dict(head='ding')])
def test_learning_keeps_the_play_of_mirror_images_mirrored(options, tmp_path):
    sizes = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[8, 8, 8, 16])
    torch.manual_seed(0)
    policy = ppo(mirror=True, model=PixelActorCritic(**sizes, **options))
    before = outputs_of_both(policy._model)[0]
    for _ in range(5):
        policy.learn_mode.forward(policy.collect_mode.get_train_sample(rollout()))
    there, back = outputs_of_both(policy._model)
    assert (there['logit'] - before['logit']).abs().max() > 0.01
    assert (there['logit'][:, 2] - there['logit'][:, 3]).abs().max() > 0.001  # not by playing both sides alike
    torch.testing.assert_close(there['logit'], back['logit'][:, MIRRORED], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(there['value'], back['value'], atol=1e-4, rtol=1e-4)

    # a checkpoint has ordinary weights, and resuming changes none of them
    torch.save(policy.learn_mode.state_dict(), tmp_path / 'ckpt.pth.tar')
    policy.learn_mode.load_state_dict(torch.load(tmp_path / 'ckpt.pth.tar', weights_only=True))
    assert torch.equal(outputs_of_both(policy._model)[0]['logit'], there['logit'])


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
        (dict(obs_shape=[4, 84, 86]), '86 columns'),
        (dict(columns=[4, 80]), r'columns \[4, 80\] of 84'),
    ],
)
def test_other_networks_are_refused(sizes, message):
    model = PixelActorCritic(**{**dict(obs_shape=[4, 84, 84], action_shape=4), **sizes})
    with pytest.raises(ValueError, match=message):
        ppo(mirror=True, model=model)
