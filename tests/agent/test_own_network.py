"""Networks that weights do not describe play by the config of their run, which is read as data."""

import pytest
import torch
from ding.utils import MODEL_REGISTRY

from breakout_env import PixelC51DQN, PixelVAC
from breakout_env.agent.agent import load_agent, save_agent
from helpers.agents import SMALL, observations, write_checkpoint


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
    save_agent(tmp_path / 'averaged.safetensors', network.state_dict(), {})
    assert (load_agent(tmp_path / 'averaged.safetensors').q_values(obs) == expected).all()


@pytest.mark.parametrize(
    'options, message',
    [
        (
            dict(name='mine', import_names=['no_such_module']),
            "No module named 'no_such_module'; expected it on PYTHONP",
        ),
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
