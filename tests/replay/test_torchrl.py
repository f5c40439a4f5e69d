"""TorchRL's replay buffers behind DI-engine's interface: slices, priorities, memory, options, saves."""

import gc
import os
import weakref
from pathlib import Path

import pytest
import torch
from ding.utils.data import default_collate

from helpers.processes import completed
from helpers.runs import DQN, NAME, as_before, config_in  # noqa: F401  a run in this process listens to signals
from helpers.serial_run import SerialRun
from helpers.torchrl_buffers import episode_of, filled, make, same, transition

pytest.importorskip('torchrl', reason="TorchRL is not installed (pip install 'torchrl>=0.14,<0.15')")


@pytest.mark.parametrize('storage, sampler', [('tensor', 'prioritized'), ('memmap', 'uniform')])
def test_transitions_are_sampled_as_they_were_pushed(storage, sampler, tmp_path):
    buffer = make(tmp_path, sampler=sampler, storage=storage)
    buffer.push(transition(0, 0), 0)
    buffer.push([], 0)
    buffer.push(episode_of(1, 30), 0)
    assert buffer.count() == 31 and buffer.sample(32, 0) is None
    batch = buffer.sample(31, 0)
    for sampled in batch:
        pushed = transition(int(sampled['episode_id']), int(sampled['step_id']), bool(sampled['done']))
        assert all(same(pushed[key], sampled[key]) for key in pushed)
        assert sampled['IS'] == 1 and sampled['replay_unique_id'] == sampled['replay_buffer_idx']
    assert default_collate(batch)['reward'].shape == (31,)
    buffer.clear()
    assert buffer.count() == 0 and buffer.sample(1, 0) is None


@pytest.mark.parametrize('sampler, storage', [('uniform', 'memmap'), ('prioritized', 'tensor'), ('slice', 'tensor')])
def test_prefetched_batches_follow_from_the_seed(sampler, storage, tmp_path):
    """Whatever else draws random numbers; a changed request is answered anew."""
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        buffer, batches = make(tmp_path, sampler=sampler, storage=storage, prefetch=True), []
        for number in range(6):
            buffer.push(episode_of(number, 30), 0)
            batches.append([str(s['step_id']) for s in buffer.sample(5 + number // 3, 0)])
            torch.rand(number + len(runs))
        runs.append(batches)
        buffer.close()
    assert runs[0] == runs[1]


@pytest.mark.parametrize('sampler, storage', [('uniform', 'memmap'), ('prioritized', 'tensor'), ('slice', 'memmap')])
@pytest.mark.parametrize('by', ['close', 'last reference'])
def test_memory_and_files_are_released_at_once(storage, sampler, by, tmp_path, request, same_footprint):
    gc.disable()
    request.addfinalizer(gc.enable)
    buffer = make(tmp_path, sampler=sampler, storage=storage)
    buffer.push(episode_of(0, 30), 0)
    buffer.sample(4, 0)
    parts = [weakref.ref(part) for part in (buffer.buffer.storage[:]['obs'], buffer.buffer, buffer.buffer.storage)]
    assert bool(list(tmp_path.rglob('*.memmap'))) == (storage == 'memmap')
    if by == 'close':
        buffer.close()
        buffer.close()
        assert buffer.count() == 0
        with pytest.raises(RuntimeError, match='the replay buffer is closed'):
            buffer.push(episode_of(1, 3), 0)
    else:
        del buffer
    assert [part() for part in parts] == [None, None, None] and not list(tmp_path.iterdir())
    with open('/proc/self/maps') as maps:
        assert str(tmp_path) not in maps.read()


def test_memmap_files_have_all_their_disk_blocks(tmp_path):
    """Otherwise a disk that fills up later ends the process with SIGBUS."""
    buffer = make(tmp_path, storage='memmap', replay_buffer_size=2000)
    buffer.push([transition(0, 0, size=40)], 0)
    files = {path.stem: path.stat() for path in tmp_path.rglob('*.memmap')}
    assert files['obs'].st_size == 2000 * 2 * 40 * 40
    assert sum(file.st_size for file in files.values()) >= buffer.memory_report()['file_bytes'] > 2000 * 2 * 40 * 40
    assert all(file.st_blocks * 512 >= file.st_size for file in files.values())


def test_other_structures_and_priorities_without_a_use_are_refused():
    buffer = make(sampler='slice')
    with pytest.raises(TypeError, match=r"transition\['obs'\] is of type builtins.list; .* `r2d2_slices` hands over"):
        buffer.push([dict(obs=[torch.zeros(2)] * 3)], 0)
    with pytest.raises(ValueError, match="expected sampler='prioritized', or policy.priority=False"):
        buffer.update({})
    buffer.push(episode_of(0, 3), 0)
    for wrong, name in ((dict(transition(1, 1), extra=1), 'extra'), (transition(1, 1, size=5), 'obs')):
        with pytest.raises(ValueError, match=rf"transition\['{name}'\] is .* have one structure"):
            buffer.push([transition(1, 0), wrong], 0)
    assert buffer.count() == 3


def test_the_package_works_without_torchrl_and_the_buffer_names_the_extra(tmp_path):
    program = """
import sys
sys.modules['torchrl'] = sys.modules['tensordict'] = None
import breakout_env
print(breakout_env.TorchRLReplayBuffer.default_config().type)
breakout_env.TorchRLReplayBuffer({})
"""
    result = completed(['python', '-c', program], tmp_path)
    assert result.stdout.startswith('torchrl\n'), result.stderr
    assert "ImportError: the replay buffer of type 'torchrl' needs TorchRL" in result.stderr
    assert "pip install 'torchrl>=0.14,<0.15'" in result.stderr


def seeded_batch(buffer):
    torch.manual_seed(0)
    return buffer.sample(16, 0)


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized', 'slice'])
@pytest.mark.parametrize('storage, other, full', [('tensor', 'memmap', False), ('memmap', 'tensor', True)])
def test_a_loaded_buffer_samples_the_same_from_the_same_seed(storage, other, sampler, full):
    """Also after more pushes, and in either storage."""
    buffer = filled('frames', full, sampler=sampler, storage=storage)
    state, batches = buffer.state_dict(), []
    buffer.save_data('saved')
    buffer.save_data('saved')  # replaces the first
    assert set(os.listdir()) <= {'frames', 'saved'}
    loaded = [make('frames', sampler=sampler, storage=each) for each in (storage, other)]
    for each in loaded:
        each.push(episode_of(7, 3), 0)  # will be forgotten
        each.load_data('saved')
        assert each.count() == buffer.count() == (500 if full else buffer.count())
    # a loaded buffer numbers new episodes from here
    first = int(buffer.buffer.storage[:]['episode_id'].max()) + 1 if sampler == 'slice' else 0
    for _ in range(2):
        batches.append([seeded_batch(each) for each in (buffer, *loaded)])
        assert all(same(batch, batches[-1][0]) for batch in batches[-1])
        buffer.push([dict(step, episode_id=first + 200) for step in episode_of(200, 30)], 0)
        for each in loaded:
            each.push(episode_of(200, 30), 0)
    restored = make('frames', sampler=sampler, storage=other)
    restored.load_state_dict(state)  # a copy: it did not change with the buffer
    assert same(seeded_batch(restored), batches[0][0])


def test_a_save_of_a_buffer_with_another_sampler_is_refused():
    buffer = make()
    buffer.push(episode_of(0, 5), 0)
    buffer.save_data('saved')
    with pytest.raises(ValueError, match="`sampler` is 'prioritized', but .* was saved with 'uniform'; expected the"):
        make(sampler='prioritized').load_data('saved')


def test_it_is_saved_and_resumed_with_its_run_and_old_saves_are_removed(tmp_path):
    small = (r'\Z', 'main_config.policy.other.replay_buffer.replay_buffer_size=100\n')
    run, pushed, batches = SerialRun(config_in(tmp_path, 900, ("type='frame'", "type='torchrl'"), small)), [], []
    for _ in range(3):
        run.train(1)
        pushed.append(run.buffer.push_count)
        batches.append(seeded_batch(run.buffer))
        run.save()
    run.end()
    older, newest = sorted(Path(NAME, 'resume').glob('buffer_*'))
    assert (older.name, newest.name) == ('buffer_4.npz', 'buffer_6.npz')
    os.truncate(newest, 1000)  # the one before is used then
    resumed = SerialRun(tmp_path / DQN.name).buffer
    assert resumed.push_count == pushed[1] and same(seeded_batch(resumed), batches[1])
