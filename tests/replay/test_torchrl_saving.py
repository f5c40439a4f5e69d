"""Saved buffers of type ``torchrl``: complete, in any storage, and refused where they are damaged."""

import json
import os
import pickle
import shutil
from pathlib import Path
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


def same_batch(one, other):
    pairs = zip(tree_leaves(one), tree_leaves(other))
    return all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs)


def continue_episode_ids(buffer):
    """As if the collector continued, too, instead of counting from 0 in a new process."""
    if buffer._options.sampler == 'slice':
        buffer._first_episode = 0


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized', 'slice'])
@pytest.mark.parametrize('storage, other, full', [('tensor', 'memmap', False), ('memmap', 'tensor', True)])
def test_a_loaded_buffer_samples_the_same_from_the_same_seed(storage, other, sampler, full):
    """Also after more pushes, and in either storage."""
    buffer = filled(make('frames', sampler=sampler, storage=storage), full)
    state, batches = buffer.state_dict(), []
    buffer.save_data('saved')
    buffer.save_data('saved')  # replaces the first
    assert [name for name in os.listdir() if name.startswith('saved')] == ['saved']
    loaded = [make('frames', sampler=sampler, storage=each) for each in (storage, other)]
    for each in loaded:
        each.push(episode_of(7, 3), 0)  # will be forgotten
        each.load_data('saved')
        continue_episode_ids(each)
        assert each.count() == buffer.count() == (500 if full else buffer.count())
    for newer in (episode_of(200, 30), episode_of(201, 30)):
        batches.append([seeded_batch(each) for each in (buffer, *loaded)])
        assert all(same_batch(batch, batches[-1][0]) for batch in batches[-1])
        for each in (buffer, *loaded):
            each.push(newer, 0)
    restored = make('frames', sampler=sampler, storage=other)
    restored.load_state_dict(state)  # a copy: it did not change with the buffer
    assert same_batch(seeded_batch(restored), batches[0][0])


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
def test_damaged_and_foreign_folders_are_refused_and_the_buffer_still_works(damage, message):
    buffer = make(sampler='prioritized')
    buffer.push(episode_of(0, 30), 0)
    buffer.save_data('saved')
    assert not list(Path('saved').rglob('*.pkl'))
    damage(Path('saved'))
    with pytest.raises(ValueError, match=message):
        buffer.load_data('saved')
    buffer.push(episode_of(1, 30), 0)
    assert buffer.sample(16, 0) and not os.path.exists('harm was done')


def test_a_save_of_another_buffer_is_refused_and_one_of_an_earlier_version_is_loaded():
    buffer = make()
    buffer.push(episode_of(0, 5), 0)
    buffer.save_data('saved')
    with pytest.raises(ValueError, match="`sampler` is 'prioritized', but .* was saved with 'uniform'; expected the"):
        make(sampler='prioritized').load_data('saved')
    add('prefetch.pkl', pickle.dumps(dict(version=1, capacity=0, queue=())))(Path('saved'))
    buffer.load_data('saved')
    assert buffer.count() == 5


def test_saving_does_not_replace_foreign_folders_and_does_not_end_the_training():
    chapter = Path('thesis', 'chapter1')
    chapter.parent.mkdir()
    chapter.write_text('...')
    buffer = make()
    buffer.push(episode_of(0, 30), 0)
    assert buffer.start_saving('thesis', lambda: None)
    assert 'thesis exists and is no folder of a replay buffer; expected' in str(buffer.wait_for_saving())
    assert chapter.read_text() == '...' and os.listdir() == ['thesis']


def learner():
    """As much of a learner as saving its run needs."""
    cfg = EasyDict(learn=dict(learning_rate=0.1), random_collect_size=9)
    policy = SimpleNamespace(
        get_attribute=lambda name: cfg if name == 'cfg' else Mock(),
        state_dict=lambda: dict(model=dict(weight=torch.zeros(1))),
        load_state_dict=lambda state: None,
    )
    return Mock(policy=policy, exp_name='run', collector_envstep=5, tb_logger=None, rank=0, cfg=cfg)


def test_it_is_saved_and_resumed_with_its_run_and_old_saves_are_removed():
    buffer = filled(make(sampler='slice', exp_name='run'), False)
    saver = RunSaver(learner())
    for iteration in (1, 2, 3):
        assert saver.save(iteration, wait=True) is None
    assert sorted(os.listdir('run/resume')) == ['buffer_2.torchrl', 'buffer_3.torchrl', 'pairs.json']
    truncate(Path('run/resume/buffer_3.torchrl'))  # the one before is used then
    resumed = make(sampler='slice', exp_name='run')
    assert RunSaver(learner()).resume()
    assert resumed.push_count == buffer.push_count and resumed.memory_report() == buffer.memory_report()
    assert same_batch(seeded_batch(resumed), seeded_batch(buffer))
