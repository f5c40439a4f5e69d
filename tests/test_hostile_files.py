"""
Files that someone else may have made: cut off, of another kind, damaged, or made to do harm. Each gets a sentence with
its name, and nothing in it is run. What test_agent.py and test_replay_saving.py say about agents and saved buffers is
not said again here; a config, and it alone, is a program by its nature, and is run.
"""

import ast
import gzip
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xxhash
from click.testing import CliRunner
from ding.config import read_config
from ding.worker.learner.learner_hook import LoadCkptHook
from easydict import EasyDict

from breakout_env.agent.agent import save_agent
from breakout_env.agent.weights_file import read_weights
from breakout_env.cli import main
from breakout_env.distributed import weights as sent_weights
from breakout_env.policy.pixel_models import PixelDQN
from breakout_env.replay.buffer import FrameReplayBuffer
from breakout_env.replay.torchrl.buffer import TorchRLReplayBuffer
from breakout_env.run.log import RunLog, RunLogWriter
from breakout_env.run.saver import RunSaver, pairs_in
from breakout_env.utils.atomic_file import DamagedFile
from helpers.processes import ROOT
from helpers.resources import footprint

CONFIG = ROOT / 'configs' / 'breakout_dqn_cpu_config.py'
SMALL = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[4, 4, 4, 8])
MARK = 'harm was done'


class Harm(object):
    """Unpickled, it makes a file."""

    def __reduce__(self) -> tuple:
        return open, (MARK, 'w')


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not Path(MARK).exists()


def saved(content, **options) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


def bomb() -> bytes:
    """A zip that is small, and says that what is in it is large."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('archive/data.pkl', pickle.dumps({}))
        archive.writestr('archive/data/0', bytes(50_000_000))
        archive.writestr('meta.npy', bytes(50_000_000))
    return file.getvalue()


def npy(header: str) -> bytes:
    text = header.encode()
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text


def object_npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, meta=np.array([Harm()], object))
    return file.getvalue()


FOREIGN = {
    'nothing': lambda: b'',
    'a picture': lambda: b'\x89PNG\r\n\x1a\n' + bytes(1000),
    'a text': lambda: b'Dear reader,\nthis is a letter.\n',
    'a pickle': lambda: pickle.dumps(dict(model=Harm())),
    'a checkpoint with code': lambda: saved(dict(model=Harm())),
    'an old checkpoint with code': lambda: saved(Harm(), _use_new_zipfile_serialization=False),
    "another project's checkpoint": lambda: saved(torch.nn.Linear(2, 2)),
    'a bomb': bomb,
    'an npz with objects': object_npz,
    'a safetensors head without a body': lambda: struct.pack('<Q', 2**60) + b'{"a": {"dtype": "F32"',
    'brackets': lambda: b'[' * 100_000,
}
COMMANDS = {
    'eval': ['eval', '--checkpoint', 'file'],
    'play': ['play', '--terminal', '--checkpoint', 'file'],
    'record': ['record', '--out', 'x.gif', '--checkpoint', 'file'],
    'export': ['export', '--checkpoint', 'file'],
    'average': ['average', 'run'],
    'plot': ['plot', 'file'],
    'plan': ['plan', '--constants', 'file'],
}


def refused(command, *words) -> str:
    result = CliRunner().invoke(command, list(words))
    assert result.exit_code in (1, 2), (result.exit_code, result.output[-2000:], result.exception)
    assert 'Error: ' in result.output and 'Traceback' not in result.output, result.output[-2000:]
    return ' '.join(result.output.split())


@pytest.mark.parametrize('kind', FOREIGN)
def test_each_command_names_a_file_that_is_something_else(kind):
    content = FOREIGN[kind]()
    Path('file').write_bytes(content)
    Path('run/ckpt').mkdir(parents=True)
    Path('run/ckpt/iteration_1.pth.tar').write_bytes(content)
    for name, words in COMMANDS.items():
        if name == 'plot' and kind == 'nothing':
            continue  # a log that nothing has been written to yet
        said = refused(main, *words)
        assert ('iteration_1.pth.tar' if name == 'average' else 'file') in said.split('Error: ')[1], said
    assert not Path('x.gif').exists()


def entry(name: str):
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, ROOT / 'entry' / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_evaluation_written_out_names_it_too():
    program = entry('breakout_dqn_eval').main
    for content in FOREIGN.values():
        Path('file').write_bytes(content())
        assert 'file' in refused(program, '-c', str(CONFIG), '--load-path', 'file').split('Error: ')[1]
    save_agent('other.safetensors', PixelDQN(**SMALL).state_dict(), {})
    said = refused(program, '-c', str(CONFIG), '--load-path', 'other.safetensors')
    assert 'other.safetensors is of another network than that of' in said


# ---------------------------------------------------------------- damage


def lengths_of(content: bytes):
    rng = random.Random(0)
    return sorted({0, 1, 2, 7, 8, 9, 30, len(content) - 1, *rng.sample(range(len(content)), 40)})


@pytest.mark.parametrize('kind', ['checkpoint', 'safetensors'])
def test_weights_that_are_cut_off_anywhere_get_a_sentence(kind):
    state = PixelDQN(**SMALL).state_dict()
    if kind == 'checkpoint':
        torch.save(dict(model=state, optimizer={}), 'whole')
    else:
        save_agent('whole', state, {})
    content = Path('whole').read_bytes()
    for length in lengths_of(content):
        Path('cut').write_bytes(content[:length])
        with pytest.raises(ValueError, match='^cut (is|holds)'):
            read_weights('cut')


@pytest.mark.parametrize('kind', ['checkpoint', 'safetensors'])
def test_a_flipped_byte_gets_a_sentence_or_weights(kind):
    state = PixelDQN(**SMALL).state_dict()
    if kind == 'checkpoint':
        torch.save(dict(model=state), 'whole')
    else:
        save_agent('whole', state, {})
    content, rng, read = Path('whole').read_bytes(), random.Random(1), 0
    for offset in [*range(0, 400, 5), *rng.sample(range(len(content)), 120)]:
        damaged = bytearray(content)
        damaged[offset] ^= rng.randrange(1, 256)
        Path('flipped').write_bytes(damaged)
        try:
            found, _ = read_weights('flipped')
        except ValueError as error:
            assert str(error).startswith('flipped '), error
        else:
            read += 1
            assert all(isinstance(tensor, torch.Tensor) for tensor in found.values())
    assert read  # most of a file is numbers, which mean something whatever they are


def test_weights_that_were_sent_and_arrive_damaged_get_a_sentence():
    state = PixelDQN(**SMALL).state_dict()
    content = sent_weights.to_bytes(state)
    assert sent_weights.from_bytes(content).keys() == state.keys()
    for length in lengths_of(content):
        with pytest.raises(ValueError, match='the weights of a network can not be read'):
            sent_weights.from_bytes(content[:length])
    with pytest.raises(ValueError, match='can not be read'):
        sent_weights.from_bytes(pickle.dumps(Harm()))


# ---------------------------------------------------------------- DI-engine's own loading


def test_di_engines_own_ways_to_load_a_checkpoint_run_nothing():
    """``torch.load`` of 2.6 and later takes weights only unless it is told otherwise; DI-engine does not tell it."""
    Path('harm.pth.tar').write_bytes(saved(dict(model=Harm())))
    hook = LoadCkptHook('load', 20, position='before_run', ext_args=EasyDict(load_path='harm.pth.tar'))
    with pytest.raises(pickle.UnpicklingError):  # what load_ckpt_before_run comes to
        hook(SimpleNamespace())
    from ding.entry import eval as ding_eval  # what `ding -m eval --load-path` comes to

    with pytest.raises(pickle.UnpicklingError):
        ding_eval(read_config(str(CONFIG)), seed=0, load_path='harm.pth.tar')
    assert not Path(MARK).exists()
    torch.load('harm.pth.tar', weights_only=False)  # it would have been run
    assert Path(MARK).exists()
    os.unlink(MARK)


# ---------------------------------------------------------------- runs to go on with


def run_folder(**changes) -> Path:
    """A folder that says there is a save in it."""
    content = changes.pop('content', b'')
    Path('run/resume').mkdir(parents=True, exist_ok=True)
    Path('run/ckpt').mkdir(exist_ok=True)
    Path('run/ckpt/resume_3.pth.tar').write_bytes(content)
    pair = dict(iteration=3, env_step=30, checkpoint='ckpt/resume_3.pth.tar', buffer='resume/buffer_3.npz')
    pair['checkpoint_digest'] = xxhash.xxh3_128_hexdigest(content)
    Path('run/resume/pairs.json').write_text(json.dumps([{**pair, **changes}]))
    return Path('run')


def test_a_list_of_saves_is_read():
    assert len(pairs_in(run_folder())) == 1


@pytest.mark.parametrize(
    'changes',
    [
        dict(checkpoint='../../secret'),
        dict(checkpoint='/etc/passwd'),
        dict(checkpoint='ckpt/../../x/resume_3.pth.tar'),
        dict(checkpoint='resume/resume_3.pth.tar'),
        dict(checkpoint=3),
        dict(buffer='../buffer_3.npz'),
        dict(buffer='/dev/zero'),
        dict(buffer=['resume/buffer_3.npz']),
        dict(iteration='3'),
        dict(iteration=-1),
        dict(env_step=None),
        dict(env_step=1.5),
        dict(ranks='all'),
        dict(checkpoint_digest=7),
    ],
    ids=str,
)
def test_a_list_of_saves_that_names_other_files_is_damaged(changes):
    with pytest.raises(DamagedFile, match=r'run/resume/pairs\.json is damaged'):
        pairs_in(run_folder(**changes))
    said = refused(main, 'train', '--resume', 'run', '--device', 'cpu')
    assert 'run/resume/pairs.json is damaged' in said


@pytest.mark.parametrize('kind', FOREIGN)
def test_a_save_with_something_else_in_it_is_damaged_though_its_digest_is_right(kind):
    folder = run_folder(content=FOREIGN[kind]())
    saver = RunSaver(learner_of(folder))
    with pytest.raises(DamagedFile, match=r'run/ckpt/resume_3\.pth\.tar is no checkpoint of a run'):
        saver._read_checkpoint(pairs_in(folder)[0])


@pytest.mark.parametrize(
    'state',
    [
        3,
        dict(model={}),
        dict(model={}, last_iter=1, last_step=1, resume=3),
        dict(model={}, last_iter='1', last_step=1, resume={}),
        dict(model={}, last_iter=1, last_step=-1, resume={}),
        dict(model={}, last_iter=1, last_step=1, resume=dict(random_states={})),
    ],
    ids=str,
)
def test_a_save_that_lacks_what_a_run_needs_gets_a_sentence(state):
    folder = run_folder(content=saved(state))
    saver = RunSaver(learner_of(folder))
    pair = pairs_in(folder)[0]
    with pytest.raises(ValueError, match=r'run/ckpt/resume_3\.pth\.tar is no (whole )?checkpoint of a run'):
        saver._apply(pair, saver._read_checkpoint(pair))


def learner_of(folder: Path):
    """What a saver asks its learner for."""
    cfg = EasyDict(learn=dict(update_per_collect=1))
    policy = SimpleNamespace(get_attribute=lambda name: cfg, load_state_dict=lambda state: None)
    return SimpleNamespace(
        exp_name=str(folder), policy=policy, last_iter=SimpleNamespace(val=0, update=lambda value: None)
    )


# ---------------------------------------------------------------- saved buffers


@pytest.mark.parametrize(
    'content',
    [
        npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000,), }      \n"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (100000, 100000, 100000), }   \n"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }                     \n"),
        npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-5,), }                   \n"),
        npy("{'descr': __import__('os'), 'fortran_order': False, 'shape': (3,), }         \n"),
        b'\x93NUMPY\x09\x09' + bytes(100),
    ],
    ids=['a petabyte', 'eight petabytes', 'objects', 'negative', 'code', 'version'],
)
def test_a_saved_buffer_that_claims_what_is_not_there_costs_nothing(content):
    with zipfile.ZipFile('claims.npz', 'w') as archive:
        archive.writestr('meta.npy', content)
    buffer = FrameReplayBuffer(dict(replay_buffer_size=10))
    before = footprint()
    with pytest.raises(DamagedFile, match=r'^claims\.npz is damaged \(meta: '):
        buffer.load_data('claims.npz')
    assert footprint()['descriptors'] == before['descriptors']


def test_a_compressed_buffer_is_refused_before_it_is_unpacked():
    Path('bomb.npz').write_bytes(bomb())
    with pytest.raises(DamagedFile, match=r'^bomb\.npz is damaged \(meta: '):
        FrameReplayBuffer(dict(replay_buffer_size=10)).load_data('bomb.npz')


# ---------------------------------------------------------------- TorchRL's saves


def torchrl_save(**options) -> TorchRLReplayBuffer:
    pytest.importorskip('torchrl')
    buffer = TorchRLReplayBuffer(dict(replay_buffer_size=20, **options))
    steps = [dict(obs=torch.full((4, 8, 8), i, dtype=torch.uint8), action=torch.tensor(i)) for i in range(5)]
    buffer.push(steps, 0)
    buffer.save_data('saved')
    return TorchRLReplayBuffer(dict(replay_buffer_size=20, **options))


def declare(path: Path) -> None:
    """Put a file's size where the others' are: whoever makes a folder can do that, too."""
    manifest = Path('saved/breakout_replay.json')
    about = json.loads(manifest.read_text())
    about['files'][str(path.relative_to('saved'))] = path.stat().st_size
    manifest.write_text(json.dumps(about))


def test_a_folder_of_torchrls_is_loaded_without_a_pickle():
    buffer = torchrl_save(sampler='prioritized')
    assert not list(Path('saved').rglob('*.pkl'))
    buffer.load_data('saved')
    assert buffer.count() == 5


def test_a_folder_of_torchrls_that_an_earlier_version_wrote_is_loaded():
    buffer = torchrl_save()
    Path('saved/prefetch.pkl').write_bytes(pickle.dumps(dict(version=1, capacity=0, queue=())))
    declare(Path('saved/prefetch.pkl'))
    buffer.load_data('saved')
    assert buffer.count() == 5


@pytest.mark.parametrize('name', ['prefetch.pkl', 'storage/other.pickle', 'x.py', 'sampler/state.pt'])
def test_a_folder_of_torchrls_with_a_program_in_it_is_refused(name):
    buffer = torchrl_save()
    path = Path('saved', name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(Harm()))
    declare(path)
    with pytest.raises(ValueError, match=f'saved holds {name}, which save_data did not write'):
        buffer.load_data('saved')


def test_weights_of_a_sampler_that_would_run_code_are_refused():
    buffer = torchrl_save(sampler='prioritized')
    Path('saved/sampler/weights.pt').write_bytes(saved(Harm()))
    declare(Path('saved/sampler/weights.pt'))
    with pytest.raises(ValueError, match='saved can not be loaded'):
        buffer.load_data('saved')


# ---------------------------------------------------------------- logs


def a_log() -> bytes:
    log = RunLogWriter('log.jsonl')
    log.write('run', env_step=0, updates=0, run_s=0.0, exp_name='run', seed=0)
    for step in range(20):
        log.write('progress', env_step=step * 100, updates=step, run_s=float(step), loss=0.1)
    log.write('evaluation', env_step=300, updates=3, run_s=3.0, returns=[1.0, 2.0])
    return Path('log.jsonl').read_bytes()


@pytest.mark.parametrize('is_packed', [False, True])
def test_a_log_that_is_cut_off_or_damaged_gets_a_sentence_or_is_read(is_packed):
    whole, rng = a_log(), random.Random(2)
    content = gzip.compress(whole) if is_packed else whole
    variants = [content[:length] for length in lengths_of(content)]
    for _ in range(150):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= rng.randrange(1, 256)
        variants.append(bytes(damaged))
    outcomes = set()
    for variant in variants:
        Path('other.jsonl').write_bytes(variant)
        try:
            RunLog.read('other.jsonl')
            outcomes.add('read')
        except ValueError as error:
            assert str(error).startswith('other.jsonl'), error
            outcomes.add('sentence')
    assert outcomes == {'read', 'sentence'}


@pytest.mark.parametrize(
    'line, said',
    [
        ('{"kind": "progress", "env_step": "x"}', 'env_step is'),
        ('{"kind": "progress", "env_step": {}}', 'env_step is'),
        ('{"kind": ' + '[' * 100_000 + '}', 'is damaged'),
        ('{"kind": "progress", "env_step": ' + '9' * 5000 + '}', 'is damaged'),
        ('{"kind": "evaluation", "returns": {"a": 1}}', 'returns is'),
        ('{"kind": "evaluation", "returns": ["1"]}', 'returns is'),
    ],
    ids=['text', 'dict', 'brackets', 'digits', 'returns', 'texts'],
)
def test_a_line_of_a_log_that_says_something_else_is_named(line, said):
    Path('log.jsonl').write_text(f'{line}\n')
    with pytest.raises(ValueError, match=rf'^log\.jsonl, line 1:? {said}'):
        RunLog.read('log.jsonl')


def test_a_number_in_a_log_that_no_float_holds_is_infinite():
    Path('log.jsonl').write_text(
        '{"kind": "evaluation", "env_step": 1' + '0' * 400 + ', "returns": [1' + '0' * 400 + ']}\n'
    )
    log = RunLog.read('log.jsonl')
    assert np.isinf(log.evaluation['env_step']).all() and np.isinf(log.evaluation['score']).all()


def test_a_packed_log_that_would_fill_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr('breakout_env.run.log.LARGEST_BYTES', 1_000_000)
    Path('log.jsonl').write_bytes(gzip.compress(bytes(2_000_000)))
    with pytest.raises(ValueError, match=r'^log\.jsonl unpacks to more than 1,000,000 bytes'):
        RunLog.read('log.jsonl')


# ---------------------------------------------------------------- ROMs


ROM_PROGRAM = """
from ale_py import roms

from breakout_env import BreakoutEnv

for kind in ('cut off', 'nothing', 'text', 'folder', 'gone'):
    roms.get_rom_path = lambda name: f'{kind}.bin'
    env = BreakoutEnv({})
    try:
        env.reset()
    except ValueError as error:
        print('said:', error)
    env.close()
"""


def test_a_rom_that_is_none_gets_a_sentence_and_ends_no_process():
    """The ROM is ale-py's; a damaged installation of it ends the process where ALE meets it."""
    from ale_py import roms

    Path('cut off.bin').write_bytes(Path(roms.get_rom_path('breakout')).read_bytes()[:1000])
    Path('nothing.bin').write_bytes(b'')
    Path('text.bin').write_text('hello')
    Path('folder.bin').mkdir()
    done = subprocess.run([sys.executable, '-c', ROM_PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    for kind in ('cut off', 'nothing', 'text', 'folder', 'gone'):
        assert f'said: {kind}.bin is not the ROM of Breakout' in done.stdout, done.stdout + done.stderr


# ---------------------------------------------------------------- nothing that runs what it reads

# Calls that may run what they read, by file and function; and why nobody else's bytes can reach them.
EXCEPTIONS = {
    ('breakout_env/env_manager/worker_handle.py', 'loads'): 'from a pipe to a process that this one has started',
    ('breakout_env/env_manager/worker_main.py', 'loads'): 'from that pipe, and of what this process has just pickled',
    (
        'breakout_env/agent/export.py',
        'torch.jit.load',
    ): 'of what this process has just written',
}
RUNNING = {'load', 'loads', 'Unpickler', 'read_pickle'}
PICKLING = {'pickle', 'cPickle', 'dill', 'cloudpickle', 'marshal', 'shelve', 'joblib'}


def calls_that_run_what_they_read(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        given = {keyword.arg: getattr(keyword.value, 'value', None) for keyword in node.keywords}
        if isinstance(node.func, ast.Name) and node.func.id in ('eval', 'exec', 'compile'):
            yield node.func.id
        if not isinstance(node.func, ast.Attribute):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        if owner in PICKLING and name in RUNNING:
            yield name
        elif owner == 'torch' and name == 'load' and given.get('weights_only') is not True:
            yield 'torch.load'
        elif owner in ('np', 'numpy') and name == 'load' and given.get('allow_pickle') is not False:
            yield 'np.load'
        elif name == 'read_array' and given.get('allow_pickle') is not False:
            yield name
        elif owner == 'yaml' and name in ('load', 'unsafe_load', 'full_load'):
            yield 'yaml.load'
        elif owner == 'torch.jit' and name == 'load':
            yield 'torch.jit.load'


def test_no_file_of_a_users_is_read_by_what_would_run_it():
    found = set()
    for folder in ('breakout_env', 'entry', 'configs'):
        for path in sorted((ROOT / folder).rglob('*.py')):
            found |= {(str(path.relative_to(ROOT)), name) for name in calls_that_run_what_they_read(path)}
    assert found == set(EXCEPTIONS)


def test_that_look_finds_what_it_looks_for(tmp_path):
    lines = {
        'pickle.load(f)': 'load',
        'torch.load(f)': 'torch.load',
        'torch.load(f, weights_only=False)': 'torch.load',
        'np.load(f)': 'np.load',
        'np.load(f, allow_pickle=True)': 'np.load',
        'eval(text)': 'eval',
        'yaml.load(f)': 'yaml.load',
    }
    for line, name in lines.items():
        (tmp_path / 'x.py').write_text(line)
        assert list(calls_that_run_what_they_read(tmp_path / 'x.py')) == [name], line


def test_the_lowest_torch_that_is_allowed_reads_weights_only_by_default():
    """2.6 is the first one; DI-engine's own loading is safe by it."""
    bounds = (ROOT / 'setup.py').read_text()
    assert "'torch>=2.6," in bounds
