"""``breakout export``: an exported agent gives the values of its source, in batches of any size, or is not kept."""

import importlib.util
import os

import numpy as np
import pytest
from click.testing import CliRunner

from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.export import FORMATS, ONNX_PACKAGES, ExportDiffers, export_agent
from breakout_env.cli import main
from helpers.agents import observations, small_network

HAS_ONNX = all(importlib.util.find_spec(package) for package in ONNX_PACKAGES)
AVAILABLE = [
    pytest.param(name, marks=pytest.mark.skipif(name == 'onnx' and not HAS_ONNX, reason='no onnx')) for name in FORMATS
]


@pytest.fixture(params=[dict(), dict(dueling=False, obs_shape=[3, 44, 44], action_shape=18)], ids=['usual', 'other'])
def agent_file(request, tmp_path) -> str:
    save_agent(tmp_path / 'small.safetensors', small_network(**request.param).state_dict(), dict(name='small'))
    return str(tmp_path / 'small.safetensors')


def values(path, format, pixels):
    """As a program without this package computes them."""
    if format == 'onnx':
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
        return session.run(['q_values'], {'pixels': pixels})[0]
    return load_agent(path).q_values(pixels)


@pytest.mark.parametrize('format', AVAILABLE)
def test_exported_agent_gives_the_same_values_in_batches_of_any_size(format, agent_file, tmp_path):
    agent, path = load_agent(agent_file), str(tmp_path / 'exported')
    assert export_agent(agent, path, format) < 1e-4
    for batch_size in (1, 2, 7):
        pixels = observations(batch_size, agent.frame_stack, agent.screen_size)
        tolerance = 0 if format == 'safetensors' else 1e-4
        assert np.allclose(values(path, format, pixels), agent.q_values(pixels), rtol=tolerance, atol=tolerance)


def test_export_that_differs_from_its_source_is_not_kept(tmp_path, monkeypatch):
    save_agent(tmp_path / 'small', small_network().state_dict(), {})
    (tmp_path / 'a').write_text('an older file')
    suffix, make = FORMATS['safetensors']

    def wrong(agent, factor):
        content, run = make(agent)
        return content, lambda pixels: run(pixels) * factor

    monkeypatch.setitem(FORMATS, 'safetensors', (suffix, lambda agent: wrong(agent, float('nan'))))
    with pytest.raises(ExportDiffers, match='safetensors differs from its source'):
        export_agent(load_agent(tmp_path / 'small'), tmp_path / 'a', 'safetensors')
    monkeypatch.setitem(FORMATS, 'safetensors', (suffix, lambda agent: wrong(agent, 2)))
    words = ['--format', 'safetensors', '--checkpoint', str(tmp_path / 'small'), '-o', str(tmp_path / 'a'), '--force']
    result = CliRunner().invoke(main, ['export', *words])
    assert result.exit_code == 1 and result.output.startswith('Error: ') and result.output.count('\n') == 1
    assert sorted(os.listdir(tmp_path)) == ['a', 'small'] and (tmp_path / 'a').read_text() == 'an older file'


def test_export_command_prints_the_file_and_its_interface(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ['export', '--pretrained', '--format', 'safetensors'])
    assert result.exit_code == 0, result.output
    name = f'{load_agent().name}.safetensors'
    assert os.listdir(tmp_path) == [name] and f'wrote {name}' in result.output
    assert 'pixels uint8 (batch, 4, 84, 84) -> q_values float32 (batch, 4)' in result.output
    again = CliRunner().invoke(main, ['export', '--pretrained', '--format', 'safetensors'])
    assert again.exit_code == 1 and f'{name} exists already; expected another --output, or --force' in again.output


def test_missing_onnx_is_an_error_with_the_command_that_installs_it(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None if name == 'onnxscript' else find_spec(name))
    result = CliRunner().invoke(main, ['export', '--format', 'onnx', '-o', str(tmp_path / 'a.onnx')])
    assert result.exit_code == 1 and not os.listdir(tmp_path)
    assert 'Error: ONNX needs onnxscript' in result.output and 'pip install onnx onnxscript' in result.output
