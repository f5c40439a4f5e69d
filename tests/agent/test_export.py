"""``breakout export``: an exported agent gives the values of its source, in batches of any size, or is not kept."""

import importlib.util
import os

import numpy as np
import pytest
from click.testing import CliRunner

from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.cli import main
from helpers.agents import observations, small_network


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
