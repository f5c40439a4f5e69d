"""Files that someone else may have made: of another kind, truncated, damaged or malicious. Each gets an error message
with its name, and nothing in it is run; a config is a program, and is run. Saved buffers: tests/replay; logs:
tests/run.
"""

import io
import json
import pickle
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from ale_py import roms
from click.testing import CliRunner

from breakout_cli import main
from breakout_env import BreakoutEnv
from breakout_env.agent.agent import load_agent, save_agent
from breakout_env.agent.weights_file import read_weights
from helpers.agents import SMALL_CONFIG, small_network, write_checkpoint
from helpers.processes import ROOT
from helpers.replay import Harm

CONFIG = ROOT / 'configs' / 'breakout_dqn_cpu_config.py'


@pytest.fixture(autouse=True)
def here():
    yield
    assert not Path('harm was done').exists()


def saved(content) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def npz_of_objects() -> bytes:
    file = io.BytesIO()
    np.savez(file, meta=np.array([Harm()], object))
    return file.getvalue()


FOREIGN = {
    'text': lambda: b'Dear reader,\nthis is a letter.\n',
    'pickle': lambda: pickle.dumps(dict(model=Harm())),
    'checkpoint with code': lambda: saved(dict(model=small_network().state_dict(), optimizer=Harm())),
    'npz of objects': npz_of_objects,
    'safetensors header without a body': lambda: struct.pack('<Q', 2**60) + b'{"a": {"dtype": "F32"',
}


def refusal(*words) -> str:
    """The error message with which a command refuses."""
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code in (1, 2), (result.exit_code, result.output[-2000:], result.exception)
    assert 'Error: ' in result.output and 'Traceback' not in result.output, result.output[-2000:]
    return ' '.join(result.output.split()).split('Error: ')[1]


@pytest.mark.parametrize('kind', FOREIGN)
def test_foreign_file_is_refused_by_name_and_not_run(kind):
    content = FOREIGN[kind]()
    Path('file').write_bytes(content)
    Path('run/ckpt').mkdir(parents=True)
    Path('run/ckpt/iteration_1.pth.tar').write_bytes(content)
    with pytest.raises(ValueError, match='^file (is|holds) ') as error:
        load_agent('file')
    message = str(error.value)
    assert 'weights_only' not in message and '\n' not in message and len(message) < 600
    assert 'file' in refusal('eval', '--checkpoint', 'file') and 'file' in refusal('plot', 'file')
    assert 'iteration_1.pth.tar' in refusal('average', 'run')


WRITERS = {
    'checkpoint': lambda path: write_checkpoint(path, small_network()),
    'safetensors': lambda path: save_agent(path, small_network().state_dict(), {}, SMALL_CONFIG),
}


def outcome(content: bytes) -> str:
    """'read' or 'refused', where the error message has to be one line that begins with the file's name."""
    Path('damaged').write_bytes(content)
    try:
        read_weights('damaged')
        return 'read'
    except ValueError as error:
        assert str(error).startswith('damaged') and '\n' not in str(error), error
        return 'refused'


@pytest.mark.parametrize('kind', WRITERS)
def test_truncated_weights_are_refused_a_flipped_byte_changes_a_value(kind):
    WRITERS[kind](Path('whole'))
    content, rng = Path('whole').read_bytes(), random.Random(0)
    lengths = {0, 1, 2, 7, 8, 9, 30, len(content) - 1, *rng.sample(range(len(content)), 40)}
    assert {outcome(content[:length]) for length in lengths} == {'refused'}
    outcomes = set()
    for offset in [*range(0, min(400, len(content)), 5), *rng.choices(range(len(content)), k=120)]:
        damaged = bytearray(content)
        damaged[offset] ^= rng.randrange(1, 256)
        outcomes.add(outcome(bytes(damaged)))
    assert outcomes == {'read', 'refused'}


@pytest.mark.parametrize(
    'name, value',
    [
        ('checkpoint', '/etc/passwd'),
        ('checkpoint', 'ckpt/../../x/resume_3.pth.tar'),
        ('buffer', '../buffer_3.npz'),
        ('buffer', ['resume/buffer_3.npz']),
        ('iteration', '3'),
    ],
    ids=str,
)
def test_list_of_saves_that_names_other_files_is_damaged(name, value):
    Path('run/resume').mkdir(parents=True)
    Path('run/ckpt').mkdir()
    Path('run/ckpt/resume_3.pth.tar').touch()
    save = dict(iteration=3, env_step=30, checkpoint='ckpt/resume_3.pth.tar', buffer='resume/buffer_3.npz', time=1.0)
    save['checkpoint_digest'] = xxhash.xxh3_128_hexdigest(b'')
    Path('run/resume/pairs.json').write_text(json.dumps([{**save, name: value}]))
    assert 'run/resume/pairs.json is damaged' in refusal('train', '--resume', 'run', '--device', 'cpu')


def test_damaged_rom_is_refused_before_ale_would_end_the_process(monkeypatch):
    Path('truncated.bin').write_bytes(Path(roms.get_rom_path('breakout')).read_bytes()[:1000])
    monkeypatch.setattr(roms, 'get_rom_path', lambda name: 'truncated.bin')
    env = BreakoutEnv({})
    with pytest.raises(ValueError, match='truncated.bin is not the ROM of Breakout'):
        env.reset()
    env.close()
