"""Agents in files: what was trained is what plays. test_untrusted_files.py is about damaged and malicious files."""

import numpy as np
import pytest
import torch
from ding.model import DQN
from ding.utils import MODEL_REGISTRY
from safetensors.torch import save_file
from scipy.special import softmax

from breakout_env import PixelC51DQN, PixelDRQN, PixelVAC
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.weights_file import average_weights
from helpers.agents import SMALL, observations, small_network, write_checkpoint


def values(model: torch.nn.Module, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(obs))['logit'].numpy()


@pytest.mark.parametrize(
    'kwargs',
    [
        dict(dueling=False),
        dict(dueling=True, head_layer_num=2),
        dict(encoder_hidden_size_list=[4, 4, 4, 4, 4, 8]),  # residual blocks
    ],
)
@pytest.mark.parametrize('kind', ['checkpoint', 'safetensors'])
def test_loaded_agent_gives_the_values_of_its_network(kwargs, kind, tmp_path):
    model, path = small_network(**kwargs), tmp_path / 'agent'
    if kind == 'checkpoint':
        write_checkpoint(path, model)
    else:
        save_agent(path, model.state_dict(), {})
    random_state = torch.get_rng_state()
    agent = load_agent(path)
    assert torch.equal(torch.get_rng_state(), random_state)  # loading uses no random numbers
    assert (agent.frame_stack, agent.screen_size, agent.action_count) == (4, 84, 4)
    obs = observations()
    assert np.array_equal(agent.q_values(obs), values(model, obs)) and agent.q_values(obs).dtype == np.float32
    actions = agent.act(obs)
    assert actions.dtype == np.int64 and np.array_equal(actions, values(model, obs).argmax(1))
    assert not agent.model.training


def test_agent_with_a_temperature_draws_its_actions_from_its_policy(tmp_path):
    model, path, obs = small_network(), tmp_path / 'agent', observations()
    save_agent(path, model.state_dict(), dict(temperature=0.1))
    agent, draws = load_agent(path), np.linspace(0, 1, 1000, endpoint=False)
    for one, chances in zip(obs, softmax(values(model, obs) / 0.1, axis=1)):
        actions = agent.act(np.stack([one] * 1000), draws)
        np.testing.assert_allclose(np.bincount(actions, minlength=4) / 1000, chances, atol=0.002)
    many = np.stack([obs[0]] * 1000)
    assert np.array_equal(agent.act(many), load_agent(path).act(many))
    save_agent(path, model.state_dict(), dict(temperature=0))
    with pytest.raises(ValueError, match='agent holds no agent .* `temperature` is 0'):
        load_agent(path)


@pytest.mark.parametrize('frames, size, actions', [(2, 84, 4), (4, 44, 4), (4, 84, 18)])
def test_env_options_follow_from_the_weights(frames, size, actions, tmp_path):
    model = small_network(obs_shape=[frames, size, size], action_shape=actions)
    agent = load_agent(write_checkpoint(tmp_path / 'c.pth.tar', model))
    assert agent.q_values(observations(2, frames, size)).shape == (2, actions)
    options = dict(frame_stack=frames, screen_size=size, full_action_space=actions == 18, obs_dtype='uint8')
    assert agent.env_options == options


def test_screen_size_that_weights_do_not_show_is_stored_beside_them(tmp_path, caplog):
    """A convolution does not read what is less than its stride: 92 to 99 pixels have the same weights."""
    model = small_network(obs_shape=[4, 96, 96])
    assert load_agent(write_checkpoint(tmp_path / 'c.pth.tar', model)).screen_size == 92 and '92 to 99' in caplog.text
    save_agent(tmp_path / 'a.safetensors', model.state_dict(), {}, screen_size=96)
    assert load_agent(tmp_path / 'a.safetensors').screen_size == 96
    with pytest.raises(ValueError, match='screen_size'):
        save_agent(tmp_path / 'a.safetensors', model.state_dict(), {}, screen_size=84)


def broken_weights():
    state = small_network().state_dict()
    return dict(
        empty={},
        # a small file that claims much memory
        view={name: torch.zeros(1).expand(tensor.shape) for name, tensor in state.items()},
        nan={**state, 'encoder.mid.bias': torch.full((8,), torch.nan)},
        kernel={**state, 'encoder.main.0.weight': torch.zeros(4, 4, 5, 5)},
        missing={name: tensor for name, tensor in state.items() if name != 'head.V.1.0.bias'},
        **{network.__name__: network(**SMALL).state_dict() for network in (PixelC51DQN, PixelDRQN, PixelVAC)},
        cartpole=DQN(4, 2).state_dict(),
    )


def test_files_without_a_dqn_on_screens_are_rejected_in_one_line(tmp_path):
    for name, weights in broken_weights().items():
        torch.save(dict(model=weights), tmp_path / name)
    for name, metadata in dict(deep_card=dict(card='[' * 100_000), long_size=dict(screen_size='9' * 5000)).items():
        save_file(small_network().state_dict(), tmp_path / name, metadata)
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError) as error:
            load_agent(path)
        message = str(error.value)
        assert message.startswith(str(path)) and '\n' not in message and len(message) < 600, message


# ---- networks that weights do not describe: by the config of their run, which is read as data


@MODEL_REGISTRY.register('unscaled_with_batch_norm')
class Unscaled(torch.nn.Module):
    """For the pixels in [0, 1] of ``obs_dtype='float32'``; it counts its batches in a whole number."""

    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(4 * 84 * 84, width), torch.nn.BatchNorm1d(width)
        )

    def forward(self, x):
        return dict(logit=self.layers(x))


def run_of(folder, network, name, env={}, on_policy=False, **model):
    """A run's checkpoint, and the config that DI-engine writes beside it."""
    (folder / 'ckpt').mkdir(exist_ok=True)
    config = dict(env=dict(env, stop_value=1), policy=dict(model=dict(model, type=name), on_policy=on_policy))
    (folder / 'total_config.py').write_text(f'exp_config = {config}'.replace("'stop_value': 1", '"s": float("inf")'))
    return write_checkpoint(folder / 'ckpt' / 'ckpt_best.pth.tar', network)


@pytest.mark.parametrize(
    'name, network, values, options',
    [
        ('pixel_c51dqn', lambda: PixelC51DQN(**SMALL), lambda net, obs: net(obs), SMALL),
        (
            'pixel_vac',
            lambda: PixelVAC(**SMALL),
            lambda net, obs: net(obs, mode='compute_actor'),
            dict(SMALL, on_policy=True),
        ),
        (
            'unscaled_with_batch_norm',
            lambda: Unscaled(4),
            lambda net, obs: net(obs.float() / 255),
            dict(width=4, env=dict(obs_dtype='float32', an_option_of_a_subclass=1)),
        ),
    ],
)
def test_the_registered_network_plays_and_its_average_too(tmp_path, name, network, values, options):
    torch.manual_seed(0)
    network = network()
    obs = observations()
    path = run_of(tmp_path, network, name, **options)
    with torch.no_grad():
        expected = values(network.eval(), torch.from_numpy(obs))['logit'].numpy()
    agent = load_agent(path)
    assert (agent.q_values(obs) == expected).all()
    assert agent.env_options == dict(frame_stack=4, screen_size=84, full_action_space=False, obs_dtype='uint8')
    save_agent(tmp_path / 'averaged.safetensors', average_weights([path, path]), {})
    assert (load_agent(tmp_path / 'averaged.safetensors').q_values(obs) == expected).all()


def test_the_screen_size_is_that_of_the_runs_config_and_another_frame_skip_is_a_warning(tmp_path, caplog):
    path = run_of(tmp_path, small_network(), 'pixel_dqn', env=dict(screen_size=88, frame_skip=2))
    assert load_agent(path).screen_size == 88 and 'has frame_skip 2; it is played with 4' in caplog.text


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(name='mine', import_names=['no_such_module']), "No module named 'no_such_module'; expected it on PYTHON"),
        (dict(name='no_such_network'), 'which cannot be built'),
        (dict(name='unscaled_with_batch_norm', width=5), 'has other weights now'),
        (dict(name='unscaled_with_batch_norm', width=4, env=dict(frame_stack=2)), '`ding -m eval` plays any network'),
    ],
)
def test_what_keeps_a_network_from_playing_is_said_in_a_line(tmp_path, options, message):
    path = run_of(tmp_path, Unscaled(4), **options)
    with pytest.raises(ValueError, match=message) as error:
        load_agent(path)
    assert str(error.value).startswith(f'{path} holds no agent that can play: its network is ')
    assert '\n' not in str(error.value)


def test_nothing_in_a_config_beside_a_checkpoint_is_run(tmp_path):
    path = run_of(tmp_path, Unscaled(4), 'unscaled_with_batch_norm', width=4)
    with (tmp_path / 'total_config.py').open('a') as file:
        file.write(f'\nopen({str(tmp_path / "was_run")!r}, "w")\n')
    with pytest.raises(ValueError, match='no total_config.py'):
        load_agent(path)
    assert not (tmp_path / 'was_run').exists()
