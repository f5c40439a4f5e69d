"""``breakout average``: an agent with the mean of a run's last weights; ``breakout export``: one in another format."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.weights_file import average_weights, checkpoints_of, last_eighth
from breakout_env.cli import main
from helpers.agents import observations, small_network, write_checkpoint


@pytest.fixture
def run_folder(tmp_path) -> Path:
    """A run with the untrained network's checkpoint, four more, the best one and one of a save."""
    (tmp_path / 'ckpt').mkdir()
    for updates in (0, 2500, 5000, 7500, 10000):
        write_checkpoint(tmp_path / 'ckpt' / f'iteration_{updates}.pth.tar', small_network(updates))
    for name in ('ckpt_best', 'resume_10000', 'iteration_best'):
        write_checkpoint(tmp_path / 'ckpt' / f'{name}.pth.tar', small_network(99))
    return tmp_path


def test_average_command_writes_the_mean_of_the_last_checkpoints(run_folder):
    result = CliRunner().invoke(main, ['average', str(run_folder), '--last', '3', '--temperature', '0.5'])
    assert result.exit_code == 0, result.output
    assert 'the mean of 3 checkpoints, after 5,000 to 10,000 updates' in result.output  # not in the order of names
    agent = load_agent(run_folder / 'averaged.safetensors')
    three = [small_network(updates).state_dict() for updates in (5000, 7500, 10000)]
    for name, value in agent.model.state_dict().items():
        torch.testing.assert_close(value, sum(weights[name] for weights in three) / 3)
    assert agent.act(observations()).shape == (3,) and agent.temperature == 0.5


@pytest.mark.parametrize('checkpoints, averaged', [(2, 2), (24, 3), (200, 16)])
def test_the_last_eighth_of_the_checkpoints_is_averaged_by_default(checkpoints, averaged):
    assert last_eighth([Path(str(i)) for i in range(checkpoints)])[0] == Path(str(checkpoints - averaged))


def test_one_checkpoint_alone_becomes_an_agent_and_none_is_an_error(run_folder):
    result = CliRunner().invoke(main, ['average', str(run_folder), '--until', '2500'])
    assert result.exit_code == 0, result.output
    weights = small_network(2500).state_dict()
    for name, value in load_agent(run_folder / 'averaged.safetensors').model.state_dict().items():
        torch.testing.assert_close(value, weights[name])
    with pytest.raises(ValueError, match='has no checkpoint; expected'):
        checkpoints_of(run_folder / 'ckpt')


def test_different_networks_are_not_averaged(run_folder):
    other = small_network(encoder_hidden_size_list=[4, 4, 4, 16])
    write_checkpoint(run_folder / 'ckpt' / 'iteration_7500.pth.tar', other)
    with pytest.raises(ValueError, match='has another network than .*iteration_5000'):
        average_weights(checkpoints_of(run_folder)[1:])


@pytest.fixture
def agent_file() -> str:
    other = small_network(dueling=False, obs_shape=[3, 44, 44], action_shape=18)
    save_agent('small.safetensors', other.state_dict(), dict(name='half/small'))
    return 'small.safetensors'


def test_exported_agent_gives_the_same_values_in_batches_of_any_size(agent_file):
    onnxruntime = pytest.importorskip('onnxruntime')
    result = CliRunner().invoke(main, ['export', '--checkpoint', agent_file])
    assert result.exit_code == 0 and 'wrote half_small.onnx' in result.output, result.output
    assert 'pixels uint8 (batch, 3, 44, 44) -> q_values float32 (batch, 18)' in result.output
    session = onnxruntime.InferenceSession('half_small.onnx', providers=['CPUExecutionProvider'])
    for batch_size in (1, 2, 7):
        pixels = observations(batch_size, 3, 44)
        (values,) = session.run(['q_values'], {'pixels': pixels})
        assert np.allclose(values, load_agent(agent_file).q_values(pixels), rtol=1e-4, atol=1e-4)
    again = CliRunner().invoke(main, ['export', '--checkpoint', agent_file])
    assert again.exit_code == 1 and 'half_small.onnx exists already; expected another --output' in again.output


def test_export_that_differs_from_its_source_is_not_kept(agent_file, monkeypatch):
    pytest.importorskip('onnxruntime')
    monkeypatch.setattr('breakout_env.agent.agent.Agent.q_values', lambda agent, obs: np.full((len(obs), 18), np.nan))
    result = CliRunner().invoke(main, ['export', '--checkpoint', agent_file])
    assert result.exit_code == 1 and 'Error: ONNX differs from its source' in result.output
    assert os.listdir() == [agent_file]


def test_missing_onnx_is_an_error_with_the_command_that_installs_it(agent_file, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None if name == 'onnxscript' else find_spec(name))
    result = CliRunner().invoke(main, ['export', '--checkpoint', agent_file])
    assert result.exit_code == 1 and os.listdir() == [agent_file]
    assert 'Error: ONNX needs onnxscript' in result.output and 'pip install onnx onnxscript' in result.output
