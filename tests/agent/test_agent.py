"""Agents in files: what was trained is what plays. test_untrusted_files.py is about damaged and malicious files."""

import os
import shutil
import warnings

import numpy as np
import pytest
import torch
from ding.model import DQN
from ding.utils import MODEL_REGISTRY
from safetensors.torch import save_file
from scipy.special import softmax

from breakout_env import PixelActorCritic, PixelDRQN, PixelVAC
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.weights_file import average_weights, read_weights
from helpers.agents import SMALL, SMALL_CONFIG, config_of, observations, small_network, write_checkpoint


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
    model, path, config = small_network(**kwargs), tmp_path / 'agent', config_of(**kwargs)
    if kind == 'checkpoint':
        write_checkpoint(path, model, config)
    else:
        save_agent(path, model.state_dict(), {}, config)
    random_state = torch.get_rng_state()
    agent = load_agent(path)
    assert torch.equal(torch.get_rng_state(), random_state)  # loading uses no random numbers
    assert (agent.frame_stack, agent.screen_size, agent.action_count) == (4, 84, 4)
    obs = observations()
    assert np.array_equal(agent.q_values(obs), values(model, obs)) and agent.q_values(obs).dtype == np.float32
    actions = agent.act(obs)
    assert actions.dtype == np.int64 and np.array_equal(actions, values(model, obs).argmax(1))
    assert not any(module.training for module in agent.model.modules())


def small_actor() -> PixelActorCritic:
    torch.manual_seed(0)
    return PixelActorCritic(**SMALL)


ACTOR = config_of('pixel_actor_critic')


def test_agent_with_a_temperature_draws_its_actions_from_its_policy(tmp_path):
    model, path, obs = small_actor(), tmp_path / 'agent', observations()
    save_agent(path, model.state_dict(), dict(temperature=0.1), ACTOR)
    agent, draws = load_agent(path), np.linspace(0, 1, 1000, endpoint=False)
    for one, chances in zip(obs, softmax(values(model, obs) / 0.1, axis=1)):
        actions = agent.act(np.stack([one] * 1000), draws)
        np.testing.assert_allclose(np.bincount(actions, minlength=4) / 1000, chances, atol=0.002)
    many = np.stack([obs[0]] * 1000)
    assert np.array_equal(agent.act(many), load_agent(path).act(many))
    with pytest.raises(ValueError, match='`temperature` is 0'):
        save_agent(path, model.state_dict(), dict(temperature=0), ACTOR)


def test_a_temperature_does_not_go_with_q_values(tmp_path):
    weights = small_network().state_dict()
    with pytest.raises(ValueError, match='temperature is 0.5, and its network gives Q values'):
        save_agent(tmp_path / 'agent', weights, dict(temperature=0.5), SMALL_CONFIG)
    save_agent(tmp_path / 'agent', weights, {}, SMALL_CONFIG)
    save_file(weights, tmp_path / 'agent', dict(read_weights(tmp_path / 'agent')[1], card='{"temperature": 0.5}'))
    with pytest.raises(ValueError, match='agent holds no agent that can play: its temperature is 0.5'):
        load_agent(tmp_path / 'agent')


# ---- what a run says of its screens, its actions and its network goes with the agent, wherever it is written

SCREENS = [
    dict(screen_size=86),  # has the weights of 84
    dict(frame_stack=2, screen_size=60, frame_skip=3, full_action_space=True),
    dict(evaluator=dict(frame_skip=5)),
]


@pytest.mark.parametrize('env', SCREENS, ids=str)
def test_an_agent_written_elsewhere_plays_as_its_run_says(env, tmp_path):
    plays = dict(dict(frame_skip=4, frame_stack=4, screen_size=84, full_action_space=False), **env, obs_dtype='uint8')
    plays.update(plays.pop('evaluator', {}))
    frames, size, actions = plays['frame_stack'], plays['screen_size'], 18 if plays['full_action_space'] else 4
    sizes = dict(obs_shape=[frames, size, size], action_shape=actions)
    model, other = small_network(**sizes), tmp_path / 'elsewhere'
    path = write_checkpoint(tmp_path / 'run' / 'ckpt' / 'a.pth.tar', model, config_of(env=env, **sizes))
    write_checkpoint(other / 'ckpt' / 'b.pth.tar', small_network(), config_of())  # the run of somebody else
    (other / 'link.pth.tar').symlink_to(path)
    agent = load_agent(path)
    save_agent(other / 'ckpt' / 'agent', average_weights([path]), {}, agent.config)
    for one in (agent, load_agent(other / 'ckpt' / 'agent'), load_agent(other / 'link.pth.tar')):
        obs = observations(2, frames, size)
        assert one.env_options == plays and np.array_equal(one.q_values(obs), values(model, obs))


def test_a_checkpoint_copied_alone_is_refused_without_its_config(tmp_path):
    path = write_checkpoint(tmp_path / 'run' / 'ckpt' / 'a.pth.tar', small_network())
    alone = tmp_path / 'elsewhere' / 'a.pth.tar'
    alone.parent.mkdir()
    shutil.copy(path, alone)
    with pytest.raises(ValueError) as error:
        load_agent(alone)
    for part in (f"{alone} is a checkpoint without its run's total_config.py", 'Copy it there', 'breakout average RUN'):
        assert part in str(error.value)
    shutil.copy(tmp_path / 'run' / 'total_config.py', alone.parent)
    assert load_agent(alone).config == load_agent(path).config


@pytest.mark.parametrize('text', ['exp_config = {}\nopen("was_run", "w")', 'exp_config = {', '', 'exp_config = [1]'])
def test_a_config_that_is_not_data_is_named_and_not_run(text, tmp_path):
    path = write_checkpoint(tmp_path / 'a.pth.tar', small_network())
    (tmp_path / 'total_config.py').write_text(text)
    with pytest.raises(ValueError, match=r'total_config.py cannot be read as data .* expected `exp_config = \{'):
        load_agent(path)
    assert not os.path.exists('was_run')


# ---- networks of DI-engine and of users


def broken_weights():
    state = small_network().state_dict()
    return dict(
        empty={},
        nan={**state, 'encoder.mid.bias': torch.full((8,), torch.nan)},
        kernel={**state, 'encoder.main.0.weight': torch.zeros(4, 4, 5, 5)},
        missing={name: tensor for name, tensor in state.items() if name != 'head.V.1.0.bias'},
        more={**state, 'critic.weight': torch.zeros(1, 8)},
        cartpole=DQN(4, 2).state_dict(),
    )


HUGE = '{"policy": {"model": {"type": "pixel_dqn", "encoder_hidden_size_list": [16384, 16384, 16384, 16384]}}}'
METADATA = dict(
    none={},
    deep_card=dict(card='[' * 100_000, config='{}'),
    deep_config=dict(card='{}', config='{"policy":' * 100_000),
    other_sections=dict(card='{}', config='{"env": 1, "policy": []}'),
    long_size=dict(card='{}', config=f'{{"env": {{"screen_size": {"9" * 4000}}}}}'),
    no_type=dict(card='{}', config='{"policy": {"model": {}}}'),
    type_of_types=dict(card='{}', config='{"policy": {"model": {"type": ["pixel_dqn"]}}}'),
    method=dict(card='{}', config='{"policy": {"model": {"type": "pixel_dqn", "update": 1}}}'),
    unknown=dict(card='{}', config='{"policy": {"model": {"type": "pixel_dqn", "import_names": [["os"]]}}}'),
    huge=dict(card='{}', config=HUGE),
)


def test_files_without_a_dqn_on_screens_are_rejected_in_one_line(tmp_path, capfd):
    for name, weights in broken_weights().items():
        (tmp_path / name).mkdir()
        write_checkpoint(tmp_path / name / 'file', small_network())
        torch.save(dict(model=weights), tmp_path / name / 'file')
    for name, metadata in METADATA.items():
        (tmp_path / name).mkdir()
        save_file(small_network().state_dict(), tmp_path / name / 'file', metadata)
    for path in tmp_path.glob('*/file'):
        with pytest.raises(ValueError) as error:
            load_agent(path)
        message = str(error.value)
        assert message.startswith(str(path)) and '\n' not in message and len(message) < 600, message
    assert not capfd.readouterr().out  # DI-engine prints hints about arguments


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


NETWORKS = {
    'pixel_actor_critic': (small_actor, lambda net, obs: net(obs), {}, 'logits'),
    'pixel_vac': (
        lambda: PixelVAC(**SMALL),
        lambda net, obs: net(obs, mode='compute_actor'),
        dict(on_policy=True),
        'logits',
    ),
    'dqn': (
        lambda: DQN(**SMALL),
        lambda net, obs: net(obs.float() / 255),
        dict(env=dict(env_id='BreakoutNoFrameskip-v4')),
        'q_values',
    ),
    'unscaled_with_batch_norm': (
        lambda: Unscaled(4),
        lambda net, obs: net(obs.float() / 255),
        dict(sizes=dict(width=4), env=dict(obs_dtype='float32', an_option_of_a_subclass=1)),
        'q_values',
    ),
}


@pytest.mark.parametrize('name', NETWORKS)
def test_the_registered_network_plays_and_its_average_too(tmp_path, name):
    build, act, options, output_name = NETWORKS[name]
    torch.manual_seed(0)
    network, obs = build(), observations()
    path = write_checkpoint(tmp_path / 'a.pth.tar', network, config_of(name, **options))
    with torch.no_grad():
        expected = act(network.eval(), torch.from_numpy(obs))['logit'].numpy()
    agent = load_agent(path)
    assert (agent.q_values(obs) == expected).all() and agent.output_name == output_name
    plays = dict(frame_skip=4, frame_stack=4, screen_size=84, full_action_space=False, obs_dtype='uint8')
    assert agent.env_options == plays
    save_agent(tmp_path / 'averaged.safetensors', average_weights([path, path]), {}, agent.config)
    os.remove(tmp_path / 'total_config.py')
    averaged = load_agent(tmp_path / 'averaged.safetensors')
    assert (averaged.q_values(obs) == expected).all() and averaged.output_name == output_name


@pytest.mark.parametrize(
    'policy, network', [('dqn_command', DQN), ('lean_dqn', small_network), ('lean_ppo', small_actor)]
)
def test_a_config_that_names_no_model_has_that_of_its_policy(policy, network, tmp_path):
    env = dict(env_id='BreakoutNoFrameskip-v4') if network is DQN else {}
    model = DQN(**SMALL) if network is DQN else network()
    sizes = dict(encoder_hidden_size_list=SMALL['encoder_hidden_size_list'])
    path = write_checkpoint(tmp_path / 'a', model, dict(env=env, policy=dict(type=policy, model=sizes)))
    obs = observations()
    seen = torch.from_numpy(obs) / 255 if network is DQN else torch.from_numpy(obs)
    with torch.no_grad():
        assert np.array_equal(load_agent(path).q_values(obs), model(seen)['logit'].numpy())


def test_a_module_that_is_not_found_is_named_with_where_it_was_looked_for(tmp_path):
    path = write_checkpoint(tmp_path / 'a', small_network(), config_of('mine', import_names=['no_such_module']))
    with pytest.raises(ValueError, match=r"No module named 'no_such_module'; expected .*PYTHONPATH \(such as"):
        load_agent(path)


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(name='no_such_network', width=4), "'no_such_network' .* which no module of policy.model.import_names"),
        (dict(width=4, hight=4), 'cannot be built: TypeError'),
        (dict(width=5), r'has other weights: .*layers.1.bias.* is \(4,\); expected \(5,\)'),
        (dict(width=4, env=dict(frame_stack=2)), '`ding -m eval` plays any network'),
    ],
)
def test_what_keeps_a_network_from_playing_is_said_in_a_line(tmp_path, options, message):
    config = config_of(**{'name': 'unscaled_with_batch_norm', 'sizes': {}, **options})
    path = write_checkpoint(tmp_path / 'a', Unscaled(4), config)
    with pytest.raises(ValueError, match=message) as error:
        load_agent(path)
    assert str(error.value).startswith(f'{path} holds no agent that can play') and '\n' not in str(error.value)


def test_a_recurrent_network_is_refused_without_a_try(tmp_path):
    config = config_of('pixel_drqn')
    config['policy']['burnin_step'] = 4
    path = write_checkpoint(tmp_path / 'a', PixelDRQN(**SMALL), config)
    with warnings.catch_warnings():
        warnings.simplefilter('error')  # PyTorch's, about an observation in place of a dict
        with pytest.raises(ValueError, match='recurrent .*`ding -m eval` plays'):
            load_agent(path)
        del config['policy']['burnin_step']
        write_checkpoint(path, PixelDRQN(**SMALL), config)
        with pytest.raises(ValueError, match='which gives .*; expected a dict with `logit`'):
            load_agent(path)
