"""``breakout average``: an agent with the mean of a run's last weights; and an agent as ONNX, by the example."""

import os
import re
import runpy
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from breakout_cli import main
from breakout_env import PixelActorCritic
from breakout_env.agent.agent import initial_weights, load_agent, save_agent
from breakout_env.agent.weights_file import average_weights, checkpoints_of, last_eighth
from helpers.agents import SMALL, SMALL_CONFIG, config_of, observations, small_network, write_checkpoint
from helpers.processes import ROOT


def average(*words, code=0) -> str:
    result = CliRunner().invoke(main, ['average', *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def write_run(folder: Path, network=small_network, config=SMALL_CONFIG) -> Path:
    """A run with the untrained network's checkpoint, four more, the best one and one of a save."""
    for updates in (0, 2500, 5000, 7500, 10000):
        write_checkpoint(folder / 'ckpt' / f'iteration_{updates}.pth.tar', network(updates), config)
    for name in ('ckpt_best', 'resume_10000', 'iteration_best'):
        write_checkpoint(folder / 'ckpt' / f'{name}.pth.tar', network(99), config)
    return folder


@pytest.fixture
def run_folder(tmp_path) -> Path:
    return write_run(tmp_path)


def actor(seed=0, **sizes):
    torch.manual_seed(seed)
    return PixelActorCritic(**{**SMALL, **sizes})


def test_average_command_writes_the_mean_of_the_last_checkpoints(run_folder):
    output = average(run_folder, '--last', 3)
    assert 'the mean of 3 checkpoints, after 5,000 to 10,000 updates' in output  # not in the order of names
    agent = load_agent(run_folder / 'averaged.safetensors')
    three = [small_network(updates).state_dict() for updates in (5000, 7500, 10000)]
    for name, value in agent.model.network.state_dict().items():
        torch.testing.assert_close(value, sum(weights[name] for weights in three) / 3)
    assert agent.act(observations()).shape == (3,) and agent.temperature is None
    next_steps = [shlex.split(line) for line in re.findall(r'breakout (.*)', output)]
    assert next_steps == [[name, '--checkpoint', str(agent_file)] for name, agent_file in (
        ('eval', run_folder / 'averaged.safetensors'), ('play', run_folder / 'averaged.safetensors'))]  # fmt: skip


@pytest.mark.parametrize('output', ['other/agent.safetensors', 'other_run/averaged.safetensors'])
def test_an_average_written_elsewhere_has_the_sizes_of_its_run(tmp_path, output):
    """84 and 86 pixels have the same weights, and a run of somebody else's may lie beside the output."""
    config = config_of('pixel_actor_critic', env=dict(screen_size=86, frame_skip=3), obs_shape=[4, 86, 86])
    run = write_run(tmp_path / 'run', lambda seed: actor(seed, obs_shape=[4, 86, 86]), config)
    write_run(tmp_path / 'other_run')
    average(run, '-o', output, '--temperature', 0.5)
    agent = load_agent(output)
    assert (agent.screen_size, agent.frame_skip, agent.temperature) == (86, 3, 0.5)
    os.remove(run / 'total_config.py')
    assert "without its run's total_config.py" in average(run, '-o', 'again', code=1) and not os.path.exists('again')


def test_an_average_keeps_the_scale_of_the_critic(tmp_path):
    run = write_run(tmp_path / 'run', actor, config_of('pixel_actor_critic'))
    newest, scale = checkpoints_of(run)[-1], dict(count=9.0, mean=3.0, variance=4.0)
    torch.save(dict(torch.load(newest, weights_only=True), return_scale=scale), newest)
    average(run, '-o', 'agent')
    assert initial_weights('agent').return_scale == scale


def test_a_temperature_is_refused_for_a_run_of_q_values(run_folder):
    error = average(run_folder, '--temperature', 0.5, code=2)
    assert f'--temperature is 0.5, and {run_folder} is the run of a network that gives Q values' in error
    assert not (run_folder / 'averaged.safetensors').exists()


@pytest.mark.parametrize('checkpoints, averaged', [(2, 2), (24, 3), (200, 16)])
def test_the_last_eighth_of_the_checkpoints_is_averaged_by_default(checkpoints, averaged):
    assert last_eighth([Path(str(i)) for i in range(checkpoints)])[0] == Path(str(checkpoints - averaged))


def test_one_checkpoint_alone_becomes_an_agent_and_none_is_an_error(run_folder):
    average(run_folder, '--until', 2500)
    weights = small_network(2500).state_dict()
    for name, value in load_agent(run_folder / 'averaged.safetensors').model.network.state_dict().items():
        torch.testing.assert_close(value, weights[name])
    with pytest.raises(ValueError, match='has no checkpoint; expected'):
        checkpoints_of(run_folder / 'ckpt')


def test_different_networks_are_not_averaged(run_folder):
    other = small_network(encoder_hidden_size_list=[4, 4, 4, 16])
    write_checkpoint(run_folder / 'ckpt' / 'iteration_7500.pth.tar', other)
    with pytest.raises(ValueError, match='has another network than .*iteration_5000'):
        average_weights(checkpoints_of(run_folder)[1:])


SIZES = dict(obs_shape=[3, 44, 44], action_shape=18)


@pytest.mark.parametrize(
    'name, network, output', [('pixel_dqn', small_network, 'q_values'), ('pixel_actor_critic', actor, 'logits')]
)
def test_the_example_writes_an_agent_as_onnx_with_the_name_of_its_outputs(name, network, output, monkeypatch):
    onnxruntime = pytest.importorskip('onnxruntime')
    config = config_of(name, env=dict(frame_stack=3, screen_size=44, full_action_space=True), **SIZES)
    save_agent('agent', network(**SIZES).state_dict(), {}, config)
    monkeypatch.setattr(sys, 'argv', ['export_onnx.py', 'agent', 'agent.onnx'])
    runpy.run_path(str(ROOT / 'examples' / 'export_onnx.py'))
    session = onnxruntime.InferenceSession('agent.onnx', providers=['CPUExecutionProvider'])
    for batch_size in (1, 2, 7):
        pixels = observations(batch_size, 3, 44)
        (values,) = session.run([output], {'pixels': pixels})
        assert np.allclose(values, load_agent('agent').q_values(pixels), rtol=1e-4, atol=1e-4)
