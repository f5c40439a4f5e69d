"""Saved buffers of type ``torchrl``: complete, in any storage, and refused where they are damaged."""

import json
import os
import pickle
import shutil
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from easydict import EasyDict
from torch.utils._pytree import tree_leaves

from breakout_env.run.saver import RunSaver
from helpers.replay import Harm
from helpers.torchrl_buffers import episode_of, filled, make

pytest.importorskip('torchrl', reason="TorchRL is not installed (pip install 'torchrl>=0.14,<0.15')")


def seeded_batch(buffer):
    torch.manual_seed(0)
    return buffer.sample(16, 0)


def same_leaves(one, other):
    pairs = zip(tree_leaves(one), tree_leaves(other))
    return all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) if torch.is_tensor(a) else a == b for a, b in pairs)


def same_batch(one, other):
    return str(one[0]['prev_state']) == str(other[0]['prev_state']) and same_leaves(one, other)


def continue_episode_ids(buffer):
    """As if the collector continued, too, instead of counting from 0 in a new process."""
    if buffer._options.sampler == 'slice':
        buffer._first_episode = 0


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized', 'slice'])
@pytest.mark.parametrize('storage, other, full', [('tensor', 'memmap', False), ('memmap', 'tensor', True)])
def test_a_loaded_buffer_samples_the_same_from_the_same_seed(storage, other, sampler, full, tmp_path):
    """Also after more pushes, and in either storage."""
    buffer = filled(make(tmp_path, sampler=sampler, storage=storage), full)
    buffer.save_data(str(tmp_path / 'saved'))
    buffer.save_data(str(tmp_path / 'saved'))  # replaces the first
    assert sorted(path.name.split('-')[0] for path in tmp_path.iterdir()) == ['saved'] + ['torchrl'] * (
        storage == 'memmap'
    )
    loaded = [make(tmp_path, sampler=sampler, storage=each) for each in (storage, other)]
    for each in loaded:
        each.push(episode_of(7, 3), 0)  # will be forgotten
        each.load_data(str(tmp_path / 'saved'))
        continue_episode_ids(each)
        assert each.count() == buffer.count() == (500 if full else buffer.count())
    for newer in (episode_of(200, 30), episode_of(201, 30)):
        batches = [seeded_batch(each) for each in (buffer, *loaded)]
        assert all(same_batch(batch, batches[0]) for batch in batches[1:])
        for each in (buffer, *loaded):
            each.push(newer, 0)


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized', 'slice'])
def test_a_state_dict_is_a_copy_that_restores_everything(sampler, tmp_path):
    buffer, other = filled(make(sampler=sampler), True), make(tmp_path, sampler=sampler, storage='memmap')
    state, expected = buffer.state_dict(), seeded_batch(buffer)
    buffer.clear()
    buffer.push(episode_of(300, 30), 0)
    other.load_state_dict(state)
    continue_episode_ids(other)
    assert other.count() == 500 and same_batch(seeded_batch(other), expected)


def truncate(folder):
    path = folder / 'storage' / 'obs.memmap'
    os.truncate(path, path.stat().st_size // 2)


def scramble(folder):
    path = folder / 'storage' / 'meta.json'
    path.write_text('x' * path.stat().st_size)


def add(name, content=None):
    """Add a file, by default one with a program in it, to a save and to its manifest."""

    def damage(folder):
        path, manifest = folder / name, folder / 'breakout_replay.json'
        path.parent.mkdir(exist_ok=True)
        torch.save(Harm(), path) if content is None else path.write_bytes(content)
        about = json.loads(manifest.read_text())
        about['files'][name] = path.stat().st_size
        manifest.write_text(json.dumps(about))

    return damage


@pytest.mark.parametrize(
    'damage, message',
    [
        (shutil.rmtree, 'cannot be read .*; expected a folder that save_data wrote'),
        (lambda folder: (folder / 'breakout_replay.json').write_text('[]'), 'cannot be read'),
        (truncate, 'is damaged: storage/obs.memmap has 8000 bytes; expected the 16000 that'),
        (scramble, 'cannot be loaded .*; the replay buffer is empty now'),
        (add('prefetch.pkl'), 'saved holds prefetch.pkl, which save_data did not write'),
        (add('storage/x.py'), 'saved holds storage/x.py, which save_data did not write'),
        (add('sampler/weights.pt'), 'saved cannot be loaded'),
    ],
)
def test_damaged_and_foreign_folders_are_refused_and_the_buffer_still_works(damage, message, tmp_path):
    buffer = make(tmp_path, sampler='prioritized')
    buffer.push(episode_of(0, 30), 0)
    buffer.save_data(str(tmp_path / 'saved'))
    assert not list(tmp_path.rglob('*.pkl'))
    damage(tmp_path / 'saved')
    with pytest.raises(ValueError, match=message):
        buffer.load_data(str(tmp_path / 'saved'))
    buffer.push(episode_of(1, 30), 0)
    assert buffer.sample(16, 0) and not os.path.exists('harm was done')


def test_a_save_of_another_buffer_is_refused_and_one_of_an_earlier_version_is_loaded(tmp_path):
    buffer = make()
    buffer.push(episode_of(0, 5), 0)
    buffer.save_data(str(tmp_path / 'saved'))
    with pytest.raises(
        ValueError, match="`sampler` is 'prioritized', but .* was saved with 'uniform'; expected the same"
    ):
        make(sampler='prioritized').load_data(str(tmp_path / 'saved'))
    add('prefetch.pkl', pickle.dumps(dict(version=1, capacity=0, queue=())))(tmp_path / 'saved')
    buffer.load_data(str(tmp_path / 'saved'))
    assert buffer.count() == 5


def test_saving_does_not_replace_foreign_folders_and_does_not_end_the_training(tmp_path):
    (tmp_path / 'thesis').mkdir()
    (tmp_path / 'thesis' / 'chapter1').write_text('...')
    buffer = make(tmp_path)
    buffer.push(episode_of(0, 30), 0)
    assert buffer.start_saving(str(tmp_path / 'thesis'), lambda: None)
    assert 'thesis exists and is no folder of a replay buffer; expected' in str(buffer.wait_for_saving())
    assert (tmp_path / 'thesis' / 'chapter1').read_text() == '...' and len(list(tmp_path.iterdir())) == 1


def learner_of(exp_name):
    """As much of a learner as saving its run needs."""
    cfg = EasyDict(learn=dict(learning_rate=0.1), random_collect_size=9)
    policy = SimpleNamespace(
        get_attribute=lambda name: cfg if name == 'cfg' else Mock(),
        state_dict=lambda: dict(model=dict(weight=torch.zeros(1))),
        load_state_dict=lambda state: None,
    )
    return Mock(policy=policy, exp_name=exp_name, collector_envstep=5, tb_logger=None, rank=0, cfg=cfg)


def test_it_is_saved_and_resumed_with_its_run_and_old_saves_are_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    buffer = filled(make(sampler='slice', exp_name='run'), False)
    saver = RunSaver(learner_of('run'))
    for iteration in (1, 2, 3):
        assert saver.save(iteration, wait=True) is None
    kept = sorted(path.name for path in (tmp_path / 'run' / 'resume').iterdir())
    assert kept == ['buffer_2.torchrl', 'buffer_3.torchrl', 'pairs.json']
    truncate(tmp_path / 'run' / 'resume' / 'buffer_3.torchrl')  # the one before is used then
    resumed = make(sampler='slice', exp_name='run')
    assert RunSaver(learner_of('run')).resume()
    assert resumed.count() == buffer.count() and resumed.push_count == buffer.push_count
    assert resumed.memory_report() == dict(
        transitions=resumed.count(), bytes=buffer.memory_report()['bytes'], file_bytes=0
    )
    continue_episode_ids(resumed)
    assert same_batch(seeded_batch(resumed), seeded_batch(buffer))
