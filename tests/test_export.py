"""``breakout export``: what leaves gives the values of its source, in batches of any size, or is not kept."""

import importlib.util
import os

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import breakout_env.export
from breakout_env import PixelDQN
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.export import FORMATS, ONNX_PACKAGES, ExportDiffers, export_agent
from breakout_env.cli import main

HAS_ONNX = all(importlib.util.find_spec(package) for package in ONNX_PACKAGES)
HERE = [
    pytest.param(name, marks=pytest.mark.skipif(name == 'onnx' and not HAS_ONNX, reason='no onnx')) for name in FORMATS
]


@pytest.fixture(params=[dict(), dict(dueling=False), dict(obs_shape=[3, 44, 44], action_shape=18)], ids=str)
def agent_file(request, tmp_path):
    torch.manual_seed(0)
    kwargs = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[4, 4, 4, 8])
    save_agent(tmp_path / 'small.safetensors', PixelDQN(**{**kwargs, **request.param}).state_dict(), dict(name='small'))
    return str(tmp_path / 'small.safetensors')


def values(path, format, pixels):
    """As a program without this package would."""
    if format == 'torchscript':
        with torch.no_grad():
            return torch.jit.load(path)(torch.from_numpy(pixels)).numpy()
    if format == 'onnx':
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
        return session.run(['q_values'], {'pixels': pixels})[0]
    return load_agent(path).q_values(pixels)


@pytest.mark.parametrize('format', HERE)
def test_what_is_exported_gives_the_same_values_in_batches_of_any_size(format, agent_file, tmp_path):
    agent, path = load_agent(agent_file), str(tmp_path / 'exported')
    assert export_agent(agent, path, format) < 1e-4
    rng = np.random.default_rng(0)
    for batch_size in (1, 2, 7):
        size = (batch_size, agent.frame_stack, agent.screen_size, agent.screen_size)
        pixels = rng.integers(0, 256, size, dtype=np.uint8)
        assert np.allclose(values(path, format, pixels), agent.q_values(pixels), atol=1e-4)


@pytest.mark.parametrize('format', HERE)
def test_what_differs_from_its_source_is_not_kept(format, tmp_path, monkeypatch):
    (tmp_path / 'a').write_text('an older file')
    suffix, export = FORMATS[format]

    def of_another(agent):
        with torch.no_grad():
            next(agent.model.parameters()).mul_(2)
        exported = export(agent)
        with torch.no_grad():
            next(agent.model.parameters()).div_(2)
        return exported

    monkeypatch.setitem(FORMATS, format, (suffix, of_another))
    with pytest.raises(ExportDiffers, match=f'{format} differs from its source'):
        export_agent(load_agent(), str(tmp_path / 'a'), format)
    arguments = ['export', '--pretrained', '--format', format, '-o', str(tmp_path / 'a')]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1 and result.output.startswith('Error: ') and result.output.count('\n') == 1
    assert os.listdir(tmp_path) == ['a'] and (tmp_path / 'a').read_text() == 'an older file'


def test_a_value_that_is_no_number_differs(tmp_path, monkeypatch):
    def broken(agent):
        return b'', lambda pixels: np.full((len(pixels), agent.action_count), np.nan, dtype=np.float32)

    monkeypatch.setitem(FORMATS, 'torchscript', ('.pt', broken))
    with pytest.raises(ExportDiffers):
        export_agent(load_agent(), str(tmp_path / 'a'), 'torchscript')


def test_it_is_checked_on_a_game_that_goes_on():
    observations = breakout_env.agent.export._observations(load_agent())
    assert observations.shape == (64, 4, 84, 84) and observations.dtype == np.uint8
    assert len(np.unique(observations, axis=0)) > 32


@pytest.mark.parametrize('format', HERE)
def test_the_command_says_what_it_wrote(format, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ['export', '--pretrained', '--format', format])
    assert result.exit_code == 0, result.output
    name = f'{load_agent().name}{FORMATS[format][0]}'
    assert os.listdir(tmp_path) == [name] and f'wrote {name}' in result.output
    assert 'pixels uint8 (batch, 4, 84, 84) -> q_values float32 (batch, 4)' in result.output


def test_an_agent_made_of_a_checkpoint_plays_as_the_checkpoint(tmp_path):
    model = PixelDQN([4, 84, 84], 4, encoder_hidden_size_list=[4, 4, 4, 8])
    torch.save(dict(model=model.state_dict(), target_model=model.state_dict()), tmp_path / 'c.pth.tar')
    output = str(tmp_path / 'a.safetensors')
    arguments = ['export', '--checkpoint', str(tmp_path / 'c.pth.tar'), '--format', 'safetensors', '-o', output]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0 and result.output.strip().endswith('0.0e+00')
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), dtype=np.uint8)
    assert np.array_equal(load_agent(output).q_values(pixels), load_agent(tmp_path / 'c.pth.tar').q_values(pixels))


def test_a_checkpoint_is_not_written_over_by_what_is_made_of_it(agent_file):
    before = open(agent_file, 'rb').read()
    result = CliRunner().invoke(main, ['export', '--checkpoint', agent_file, '-o', agent_file])
    assert result.exit_code == 2 and open(agent_file, 'rb').read() == before


def test_onnx_that_is_not_installed_is_a_line_with_the_command(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None if name == 'onnxscript' else find_spec(name))
    result = CliRunner().invoke(main, ['export', '--format', 'onnx', '-o', str(tmp_path / 'a.onnx')])
    assert result.exit_code == 1 and not os.listdir(tmp_path)
    assert (
        result.output.startswith('Error: ONNX needs')
        and 'pip install onnx onnxscript onnxruntime' in result.output
        and "extra 'onnx'" in result.output
    )


def test_a_folder_that_can_not_be_written_to_is_a_line(tmp_path):
    (tmp_path / 'file').touch()
    result = CliRunner().invoke(main, ['export', '-o', str(tmp_path / 'file' / 'a.pt')])
    assert result.exit_code == 1 and result.output.startswith('Error: ') and 'Traceback' not in result.output
