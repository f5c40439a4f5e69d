"""The pixel models: DI-engine's templates, or one's own layers, on scaled pixels, whatever the dtype."""

import copy

import gymnasium
import numpy as np
import pytest
import torch
from ding.model import C51DQN, DQN, QRDQN, VAC, RainbowDQN, create_model
from ding.utils import MODEL_REGISTRY
from easydict import EasyDict

from breakout_env import (
    BreakoutEnv,
    PixelActorCritic,
    PixelC51DQN,
    PixelDQN,
    PixelInput,
    PixelQRDQN,
    PixelRainbowDQN,
    PixelVAC,
)
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.network import build_network, network_config
from breakout_env.policy.learner import cast_copy
from helpers.agents import config_of

SHAPE, ACTIONS = [4, 84, 84], 4
NATURE = [32, 64, 64, 512]
AS_WIDE_AS_THE_ENCODER = dict(actor_head_hidden_size=512, critic_head_hidden_size=512)
FAMILIES = [
    (PixelDQN, DQN, {}, {}),
    (PixelRainbowDQN, RainbowDQN, {}, {}),
    (PixelC51DQN, C51DQN, {}, {}),
    (PixelQRDQN, QRDQN, {}, {}),
    (PixelVAC, VAC, AS_WIDE_AS_THE_ENCODER, dict(mode='compute_actor_critic')),
]


@pytest.fixture(scope='module')
def pixels():
    env = BreakoutEnv({})
    env.seed(0)
    screens = [env.reset()] + [env.step(env.random_action()).obs for _ in range(3)]
    env.close()
    return torch.from_numpy(np.stack(screens))


@pytest.mark.parametrize('ours, template, sizes, mode', FAMILIES)
def test_a_pixel_model_is_its_template_on_scaled_pixels_of_any_dtype(ours, template, sizes, mode, pixels):
    """DI-engine's collector passes uint8, its evaluator float32. Parameters have the same names, so checkpoints are
    interchangeable.
    """
    torch.manual_seed(0)
    model = ours(SHAPE, gymnasium.spaces.Discrete(ACTIONS).n).eval()  # a number of numpy's
    theirs = template(SHAPE, ACTIONS, encoder_hidden_size_list=NATURE, **sizes).eval()
    theirs.load_state_dict(model.state_dict())
    expected = theirs(pixels.float() / 255, **mode)
    for same in (model(pixels, **mode), model(pixels.float(), **mode), copy.deepcopy(model)(pixels, **mode)):
        assert all(torch.equal(same[key], expected[key]) for key in ('logit', 'value') if key in expected)


class Mine(PixelInput, torch.nn.Module):
    def __init__(self, obs_shape, action_shape):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(obs_shape[0] * 9, action_shape))

    def forward_scaled(self, x):
        return dict(logit=self.layers(x))


MODEL_REGISTRY.register('of_own_layers', Mine)
INSERTED = [128, 128, 64]  # by DI-engine's Q-learning policies


def test_a_custom_network_gets_scaled_pixels_and_no_inserted_encoder():
    sizes = dict(obs_shape=[2, 3, 3], action_shape=4)
    model = create_model(EasyDict(type='of_own_layers', encoder_hidden_size_list=INSERTED, **sizes))
    pixels = torch.randint(0, 256, (5, 2, 3, 3), dtype=torch.uint8)
    expected = model.layers(pixels.float() / 255)
    assert torch.equal(model(pixels)['logit'], expected) and torch.equal(model(pixels.float())['logit'], expected)
    with pytest.raises(TypeError, match='encoder_hidden_size_list'):  # one that the config names is not dropped
        Mine(encoder_hidden_size_list=[8, 8, 8, 16], **sizes)


def test_an_agents_network_is_built_without_the_inserted_encoder():
    """The merged config of a run has it, and so an agent's file."""
    config = network_config(config_of(sizes=dict(encoder_hidden_size_list=INSERTED)))
    built = build_network(config, PixelDQN(SHAPE, ACTIONS).state_dict())
    assert built.network.encoder.mid.out_features == NATURE[-1]


def test_the_encoder_begins_with_orthogonal_weights_scaled_for_relu():
    """From PyTorch's, most units of the third convolution die, and the values of all states come to agree."""
    model = PixelDQN(SHAPE, ACTIONS)
    layers = [module for module in model.encoder.modules() if hasattr(module, 'weight')]
    assert len(layers) == 4
    for layer in layers:
        rows = layer.weight.detach().flatten(1)
        torch.testing.assert_close(rows @ rows.T, 2.0 * torch.eye(len(rows)), rtol=0, atol=1e-4)


@pytest.mark.parametrize('options', [dict(), dict(head='paper')])
def test_an_untrained_actor_plays_all_actions_about_equally_often(options, pixels):
    torch.manual_seed(0)
    probabilities = PixelActorCritic(SHAPE, ACTIONS, **options)(pixels)['logit'].softmax(1)
    assert 1 / ACTIONS - 0.02 < probabilities.min() < probabilities.max() < 1 / ACTIONS + 0.02


@pytest.mark.parametrize('model, dueling', [(PixelDQN, True), (PixelDQN, False), (PixelActorCritic, False)])
@pytest.mark.parametrize('rows', [None, [12, 79]])
@pytest.mark.parametrize('columns', [None, [4, 79]])
def test_the_heads_of_the_papers_are_linear_on_a_relu(model, rows, columns, dueling, pixels, tmp_path):
    """Mnih et al. 2015, Wang et al. 2016; and an agent's file says which head it has."""
    torch.manual_seed(0)
    sizes = dict(encoder_hidden_size_list=[8, 8, 8, 16], rows=rows, columns=columns)
    sizes.update(head='paper', **(dict(dueling=dueling) if model is PixelDQN else {}))
    net = model(SHAPE, ACTIONS, **sizes)
    seen = pixels.float() / 255
    seen = seen if rows is None else seen[:, :, 12:80]
    seen = seen if columns is None else seen[..., 4:80]
    hidden = net.encoder(seen)
    assert hidden.min() == 0, 'there is a ReLU between'
    outputs = [module for module in net.head.modules() if isinstance(module, torch.nn.Linear)]
    if dueling:
        advantages, value = outputs[0](hidden[:, :16]), outputs[1](hidden[:, 16:])
        logit = value + advantages - advantages.mean(1, keepdim=True)
    else:
        logit = outputs[0](hidden)
    found = net(pixels)
    torch.testing.assert_close(found['logit'], logit)
    if model is PixelActorCritic:
        torch.testing.assert_close(found['value'], net.critic(hidden)[:, 0])
    name = 'pixel_dqn' if model is PixelDQN else 'pixel_actor_critic'
    save_agent(tmp_path / 'agent.safetensors', net.state_dict(), {}, config_of(name, sizes=sizes))
    agent = load_agent(tmp_path / 'agent.safetensors')
    np.testing.assert_allclose(agent.q_values(pixels.numpy()), logit.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('name', ['rows', 'columns'])
def test_weights_for_other_rows_or_columns_are_refused(name):
    """Their shapes are the same."""
    net, other = (PixelDQN(SHAPE, ACTIONS, **{name: places}) for places in ([12, 79], [13, 80]))
    with pytest.raises(ValueError, match=rf'weights are for {name} \[13.0, 80.0\] of the screen; expected \[12, 79\]'):
        net.load_state_dict(other.state_dict())


@pytest.mark.parametrize('model', [PixelDQN, PixelVAC])
@pytest.mark.parametrize(
    'sizes, message',
    [
        (dict(obs_shape=[4, 84, 35]), r'`obs_shape` is \[4, 84, 35\] \(list\); expected three whole numbers'),
        (dict(rows=[12, 40]), r'`rows` is \[12, 40\] \(list\); expected at least 36 of a screen'),
        (dict(rows=12), r'`rows` is 12 \(int\); expected None or the first and the last index'),
        (dict(encoder_hidden_size_list=[]), r'`encoder_hidden_size_list` is \[\] \(list\); expected a list'),
        (dict(encoder_hidden_size_list=[32, 64, 64, 32, 512]), 'more blocks with as many channels as the third'),
    ],
)
def test_error_messages_name_the_size_that_is_not_allowed(model, sizes, message):
    with pytest.raises(ValueError, match=message):
        model(**{**dict(obs_shape=SHAPE, action_shape=ACTIONS), **sizes})


def test_scaled_pixels_are_refused(pixels):
    model = PixelDQN(SHAPE, ACTIONS)
    model(torch.zeros(1, *SHAPE))  # a black screen is ambiguous
    with pytest.raises(ValueError, match=r"expects pixel values 0..255, but the brightest .*obs_dtype='uint8'"):
        model(pixels.float() / 255)
    model(pixels.float())
    model(torch.ones(1, *SHAPE))  # a nearly black screen, after brighter ones


@pytest.mark.parametrize('dueling', [False, True])
def test_values_in_bfloat16_are_as_fine_as_in_float32(dueling):
    """Between 1 and 2 its numbers are 0.008 apart, about as much as the values of two actions."""
    model = PixelDQN([4, 84, 84], 4, encoder_hidden_size_list=[8, 8, 8, 16], dueling=dueling)
    screens = torch.rand(8, 4, 84, 84)
    exact = model.forward_scaled(screens)['logit']
    with torch.autocast('cpu', torch.bfloat16):
        trained = model.forward_scaled(screens)['logit']
    acting = cast_copy(model, torch.bfloat16).forward_scaled(screens.bfloat16())['logit']
    for found in (trained, acting):
        torch.testing.assert_close(found, exact, rtol=0, atol=0.02)
        assert found.dtype is torch.float32 and not torch.equal(found, found.bfloat16().float())
        assert not torch.equal(found, exact), 'the encoder computes in bfloat16'
