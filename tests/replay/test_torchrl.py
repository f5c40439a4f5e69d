"""TorchRL's replay buffers behind DI-engine's interface: slices, priorities, memory, options."""

import gc
import math
import re
import weakref

import pytest
import torch
from ding.utils.data import default_collate
from easydict import EasyDict

from breakout_env import TorchRLReplayBuffer
from breakout_env.replay import torchrl
from breakout_env.utils.memory_limits import Room
from helpers.processes import completed
from helpers.torchrl_buffers import episode_of, info_for, make, same, transition

pytest.importorskip('torchrl', reason="TorchRL is not installed (pip install 'torchrl>=0.14,<0.15')")


def every_transition(buffer, count):
    found = {}
    while len(found) < count:
        found.update((int(sampled['step_id']), sampled) for sampled in buffer.sample(count, 0))
    return [found[step] for step in sorted(found)]


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
    buffer.push(episode_of(0, 30), 0)
    assert buffer.count() == 30 and buffer.sample(16, 0)


def test_priorities_set_the_frequency_and_weights_correct_for_it():
    buffer = make(sampler='prioritized', alpha=0.5, beta=0.4, anneal_step=0)
    buffer.push(episode_of(0, 4), 0)
    buffer.update(info_for(every_transition(buffer, 4), [1.0, 4.0, 9.0, 0.0]))
    torch.manual_seed(0)
    batch = buffer.sample(4, 0) + [sampled for _ in range(2000) for sampled in buffer.sample(4, 0)]
    shares = [sum(int(sampled['step_id']) == step for sampled in batch) / len(batch) for step in range(4)]
    tiny = math.sqrt(1e-5)
    assert shares == pytest.approx([1 / 6, 2 / 6, 3 / 6, tiny / 6], abs=0.02)
    for sampled in batch[:100]:
        root = [1, 2, 3, tiny][int(sampled['step_id'])]
        assert sampled['priority'] == pytest.approx(root**2, abs=1e-4)
        assert sampled['IS'] == pytest.approx((root / tiny) ** -0.4, rel=1e-3)


def test_overwritten_transitions_are_skipped_and_new_ones_get_the_largest_priority():
    buffer = make(sampler='prioritized', replay_buffer_size=4)
    buffer.push(episode_of(0, 4), 0)
    batch = every_transition(buffer, 4)
    buffer.push([transition(1, 9)], 0)  # replaces step 0
    buffer.update(info_for(batch, [100.0, 7.0, 2.0, 2.0]))
    assert [float(s['priority']) for s in every_transition(buffer, 4)] == pytest.approx([7, 2, 2, 1], rel=1e-3)
    buffer.push([transition(2, 10)], 0)  # replaces step 1
    assert [float(s['priority']) for s in every_transition(buffer, 4)] == pytest.approx([2, 2, 1, 7], rel=1e-3)


def test_priorities_have_to_be_finite_and_used_by_the_sampler():
    buffer = make(sampler='prioritized')
    buffer.push(episode_of(0, 30), 0)
    for value in (-1.0, math.nan, math.inf, 1e70):
        info = dict(replay_unique_id=[0, 1], replay_buffer_idx=[0, 1], priority=[1.0, value])
        with pytest.raises(ValueError, match=rf'priorities are .*{re.escape(str(value))}.*; expected finite'):
            buffer.update(info)
    for sampler in ('uniform', 'slice'):
        with pytest.raises(ValueError, match="expected sampler='prioritized', or policy.priority=False"):
            make(sampler=sampler).update({})


@pytest.mark.parametrize('sampler, storage', [('uniform', 'memmap'), ('prioritized', 'tensor'), ('slice', 'tensor')])
def test_prefetched_batches_are_those_of_the_moment_they_were_asked_for(sampler, storage, tmp_path):
    """And follow from the seed, whatever else draws random numbers; a changed request is answered anew."""
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        buffer, batches = make(tmp_path, sampler=sampler, storage=storage, prefetch=True), []
        for number in range(6):
            buffer.push(episode_of(number, 30), 0)
            batches.append([s['step_id'] for s in buffer.sample(5 + number // 3, 0)])
            newest = max(int(torch.as_tensor(s['episode_id']).max()) for s in buffer.sample(5 + number // 3, 0))
            assert newest <= number
            torch.rand(number + len(runs))
        runs.append(batches)
        buffer.clear()
        assert buffer.sample(1, 0) is None
        buffer.close()
    assert str(runs[0]) == str(runs[1])


@pytest.mark.parametrize('sampler, storage', [('uniform', 'memmap'), ('prioritized', 'tensor'), ('slice', 'memmap')])
@pytest.mark.parametrize('by', ['close', 'last reference'])
def test_memory_and_files_are_released_at_once(storage, sampler, by, tmp_path, request, same_footprint):
    gc.disable()
    request.addfinalizer(gc.enable)
    buffer = make(tmp_path, sampler=sampler, storage=storage)
    buffer.push(episode_of(0, 30), 0)
    buffer.sample(4, 0)
    parts = [weakref.ref(part) for part in (buffer._buffer.storage[:]['obs'], buffer._buffer, buffer._buffer.storage)]
    assert bool(list(tmp_path.rglob('*.memmap'))) == (storage == 'memmap')
    if by == 'close':
        buffer.close()
        buffer.close()
        assert buffer.count() == 0 and buffer.sample(1, 0) is None
        with pytest.raises(RuntimeError, match='the replay buffer is closed'):
            buffer.push(episode_of(1, 3), 0)
    else:
        del buffer
    assert [part() for part in parts] == [None, None, None]
    assert not list(tmp_path.iterdir())
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


@pytest.mark.parametrize('storage, place', [('tensor', 'memory_room'), ('memmap', 'disk_room')])
def test_a_size_that_cannot_fit_is_refused_at_the_first_push(storage, place, monkeypatch, tmp_path):
    monkeypatch.setattr(torchrl, place, lambda *_: Room(10**6, 10**7, 'the place'))
    buffer = make(tmp_path, storage=storage, replay_buffer_size=10**6)
    with pytest.raises(ValueError, match='`replay_buffer_size` is 1,000,000: .*the place.* Expected at most') as error:
        buffer.push(episode_of(0, 3), 0)
    fits = int(str(error.value).split('at most ')[1].split(',')[0].replace(',', ''))
    buffer = make(tmp_path, storage=storage, replay_buffer_size=fits)
    buffer.push(episode_of(0, 3), 0)
    report = buffer.memory_report()
    assert 0 < report['bytes'] + report['file_bytes'] <= 10**6


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(storage='disk'), "`storage` is 'disk' .*; expected one of 'tensor', 'memmap'"),
        (dict(sampler='slice', slice_len=None), "`slice_len` is None with sampler='slice'; expected the number of"),
        (dict(sampler='slice', slice_len=501), '`slice_len` is 501 .* at most `replay_buffer_size`, which is 500'),
        (dict(slice_len=10), "`slice_len` is 10 .*; expected None where sampler='uniform'; or sampler='slice'"),
        (dict(alpha=0.5), "`alpha` is 0.5 .*; expected 0.6 where sampler='uniform'; or sampler='prioritized'"),
    ],
)
def test_error_messages_name_the_option_and_what_is_allowed(options, message):
    with pytest.raises(ValueError, match='replay buffer option ' + message):
        TorchRLReplayBuffer(EasyDict({'replay_buffer_size': 500, **options}))


def test_transitions_of_different_structure_are_refused():
    buffer = make(sampler='slice')
    with pytest.raises(ValueError, match="lack episode_id, step_id; choose .*type='sample_with_ids'"):
        buffer.push({k: v for k, v in transition(0, 0).items() if k not in ('episode_id', 'step_id')}, 0)
    with pytest.raises(TypeError, match=r"transition\['obs'\] is of type list; .* `r2d2_slices` hands over"):
        buffer.push([dict(obs=[torch.zeros(2)] * 3)], 0)
    buffer.push(episode_of(0, 3), 0)
    for wrong, name in (
        (transition(1, 0, size=5), 'obs'),
        (dict(transition(1, 0), extra=1), 'extra'),
        ([transition(1, 0), transition(1, 1, size=5)], 'obs'),
    ):
        with pytest.raises(ValueError, match=f'transitions .* differ in {name}; expected the same keys'):
            buffer.push(wrong, 0)
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
