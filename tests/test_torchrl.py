"""TorchRL's replay memory behind DI-engine's interface: slices, priorities, files, memory, checkpoints, training."""

import gc
import json
import math
import os
import random
import shutil
import sys
import weakref

import pytest
import torch
from ding.config import compile_config
from ding.utils.data import default_collate, timestep_collate
from ding.worker import create_buffer
from easydict import EasyDict
from test_r2d2 import SMALL
from torch.utils._pytree import tree_leaves

from breakout_env import TorchRLReplayBuffer
from breakout_env.replay.torchrl import buffer as torchrl_buffer
from breakout_env.utils.memory_limits import Room
from helpers.processes import ROOT, run
from helpers.resources import footprint, grown_since, resident_bytes
from helpers.runs import DEMO, check_trained, shortened

pytest.importorskip('torchrl', reason="TorchRL is not installed (pip install 'breakout-env[torchrl]')")

SLICE = 10


def make(folder=None, **options):
    slices = dict(slice_len=SLICE) if options.get('sampler') == 'slice' else {}
    cfg = {**dict(type='torchrl', replay_buffer_size=500, folder=folder and str(folder)), **slices, **options}
    return create_buffer(EasyDict(cfg), tb_logger=None, exp_name='unused')


def transition(episode, step, done=False, size=4):
    """Its numbers tell which it is."""
    return dict(
        obs=torch.full((2, size, size), (31 * episode + step) % 256, dtype=torch.uint8),
        action=torch.tensor([step % 4]),
        prev_state=dict(h=torch.full((1, 1, 3), float(step)), c=torch.full((1, 1, 3), -float(step))),
        reward=torch.tensor([float(episode)]),
        done=done,
        value_gamma=0.5,
        env_id=episode % 3,
        episode_id=episode,
        step_id=step,
    )


def episode_of(number, length):
    return [transition(number, step, step == length - 1) for step in range(length)]


def same(one, other):
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def drawn(buffer, count=16, seed=0):
    torch.manual_seed(seed)
    return buffer.sample(count, 0)


def pieces_of_interleaved_episodes(count, seed=0):
    """Episodes of 1 to 40 steps, played by 3 environments at a time, in pieces, as a collector hands them over."""
    rng = random.Random(seed)
    waiting = [episode_of(number, rng.randint(1, 40)) for number in range(count)]
    under_way = [waiting.pop() for _ in range(3)]
    while under_way:
        for steps in list(under_way):
            piece = rng.randint(1, 7)
            yield [steps.pop(0) for _ in range(min(piece, len(steps)))]
            if not steps:
                under_way.remove(steps)
                if waiting:
                    under_way.append(waiting.pop())


@pytest.mark.parametrize('storage', ['tensor', 'memmap'])
def test_a_slice_is_consecutive_steps_of_one_episode_as_they_were_pushed(storage, tmp_path):
    """Also when episodes come in pieces, and while old steps give way to new ones."""
    buffer, lengths = make(tmp_path, sampler='slice', storage=storage), {}
    kept, seen, short = [], 0, 0
    for piece in pieces_of_interleaved_episodes(60):
        buffer.push(piece, 0)
        kept = (kept + [(step['episode_id'], step['step_id']) for step in piece])[-500:]
        lengths.update({step['episode_id']: step['step_id'] + 1 for step in piece})
        for sequence in buffer.sample(4, 0) or ():
            assert all(len(values) == SLICE for values in sequence.values())
            real = [not null for null in sequence['null']]
            count = sum(real)
            assert count and real == [True] * count + [False] * (SLICE - count)
            episode, first = sequence['episode_id'][0].item(), sequence['step_id'][0].item()
            for i in range(count):
                assert (episode, first + i) in kept
                pushed = transition(episode, first + i, done=bool(sequence['done'][i]))
                assert all(same(pushed[key], sequence[key][i]) for key in pushed)
            if count < SLICE:  # all there is of this episode, or of the part of it that is left
                assert (episode, first - 1) not in kept and (episode, first + count) not in kept
                assert not any(reward.any() for reward in sequence['reward'][count:])
                assert all(bool(done) == bool(sequence['done'][count - 1]) for done in sequence['done'][count:])
                short += 1
            seen += 1
    assert buffer.count() == 500 and seen > 500 and 50 < short < seen


def test_slices_are_drawn_from_all_places():
    buffer = make(sampler='slice')
    buffer.push(episode_of(0, 40) + episode_of(1, 4), 0)
    starts = {(int(s['episode_id'][0]), int(s['step_id'][0])) for _ in range(100) for s in buffer.sample(16, 0)}
    assert starts == {(0, step) for step in range(40 - SLICE + 1)} | {(1, 0)}


def test_slices_collate_as_di_engines_r2d2_does_it():
    buffer = make(sampler='slice')
    buffer.push(episode_of(0, 40), 0)
    batch = timestep_collate(buffer.sample(3, 0))
    assert batch['obs'].shape == (SLICE, 3, 2, 4, 4) and batch['obs'].dtype == torch.uint8
    assert batch['done'].shape == batch['action'].shape == (SLICE, 3)
    assert len(batch['prev_state']) == SLICE and list(batch['prev_state'][0][0]) == ['h', 'c']


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized'])
@pytest.mark.parametrize('storage', ['tensor', 'memmap'])
def test_transitions_come_back_as_they_were_pushed(storage, sampler, tmp_path):
    buffer = make(tmp_path, sampler=sampler, storage=storage)
    assert buffer.sample(1, 0) is None
    buffer.push(transition(0, 0), 0)
    buffer.push([], 0)
    buffer.push(episode_of(1, 30), 0)
    assert buffer.count() == 31 and buffer.sample(32, 0) is None
    batch = drawn(buffer, 31)
    for sampled in batch:
        pushed = transition(int(sampled['episode_id']), int(sampled['step_id']), bool(sampled['done']))
        assert all(same(pushed[key], sampled[key]) for key in pushed)
        assert sampled['IS'] == 1 and sampled['replay_unique_id'] == sampled['replay_buffer_idx']
    collated = default_collate(batch)
    assert collated['done'].dtype == torch.bool and collated['value_gamma'].dtype == torch.float32
    assert collated['reward'].shape == collated['IS'].shape == (31,)


def test_more_than_fits_keeps_the_newest():
    buffer = make(replay_buffer_size=20)
    buffer.push(episode_of(0, 50), 0)
    assert buffer.count() == 20
    assert {int(sampled['step_id']) for sampled in drawn(buffer, 20)} <= set(range(30, 50))
    buffer.push(episode_of(1, 5), 0)
    steps = {(int(s['episode_id']), int(s['step_id'])) for _ in range(50) for s in buffer.sample(20, 0)}
    assert steps == {(0, step) for step in range(35, 50)} | {(1, step) for step in range(5)}


def info_for(batch, priority):
    return dict(
        replay_unique_id=[sampled['replay_unique_id'] for sampled in batch],
        replay_buffer_idx=[sampled['replay_buffer_idx'] for sampled in batch],
        priority=priority,
    )


def every_transition(buffer, count):
    found = {}
    while len(found) < count:
        found.update((int(sampled['step_id']), sampled) for sampled in buffer.sample(count, 0))
    return [found[step] for step in sorted(found)]


def test_priorities_rule_how_often_and_weights_make_up_for_it():
    buffer = make(sampler='prioritized', alpha=0.5, beta=0.4, anneal_step=0)
    buffer.push(episode_of(0, 4), 0)
    buffer.update(info_for(every_transition(buffer, 4), [1.0, 4.0, 9.0, 0.0]))
    torch.manual_seed(0)
    batch = [sampled for _ in range(5000) for sampled in buffer.sample(4, 0)]
    shares = [sum(int(sampled['step_id']) == step for sampled in batch) / len(batch) for step in range(4)]
    tiny = math.sqrt(1e-5)
    assert shares == pytest.approx([1 / 6, 2 / 6, 3 / 6, tiny / 6], abs=0.01)
    for sampled in batch[:100]:
        root = [1, 2, 3, tiny][int(sampled['step_id'])]
        assert sampled['priority'] == pytest.approx(root**2, abs=1e-4)
        assert sampled['IS'] == pytest.approx((root / tiny) ** -0.4, rel=1e-3)


def test_beta_rises_to_1():
    buffer = make(sampler='prioritized', alpha=1.0, beta=0.4, anneal_step=10)
    buffer.push(episode_of(0, 2), 0)
    buffer.update(info_for(every_transition(buffer, 2), [1.0, 4.0]))
    buffer._samples = 0
    weights = []
    while len(weights) < 12:
        weights.append(min(float(sampled['IS']) for sampled in buffer.sample(2, 0)))
    assert all(weight == 1 or weight == pytest.approx(4 ** -min(1, 0.4 + 0.06 * i), rel=1e-3)
               for i, weight in enumerate(weights))  # fmt: skip
    assert min(weights) == pytest.approx(0.25, rel=1e-3)


def test_new_transitions_have_the_largest_priority_there_was():
    buffer = make(sampler='prioritized')
    buffer.push(episode_of(0, 4), 0)
    buffer.update(info_for(every_transition(buffer, 4), [1.0, 7.0, 0.5, 0.5]))
    buffer.push([transition(1, 4)], 0)
    assert every_transition(buffer, 5)[4]['priority'] == pytest.approx(7, rel=1e-3)


def test_a_transition_that_was_overwritten_gets_nobody_elses_priority():
    buffer = make(sampler='prioritized', replay_buffer_size=4)
    buffer.push(episode_of(0, 4), 0)
    batch = every_transition(buffer, 4)
    buffer.push([transition(1, 9)], 0)  # takes the place of step 0
    buffer.update(info_for(batch, [100.0, 2.0, 2.0, 2.0]))
    assert [float(s['priority']) for s in every_transition(buffer, 4)] == pytest.approx([2, 2, 2, 1], rel=1e-3)


@pytest.mark.parametrize('priority', [-1.0, math.nan, math.inf])
def test_a_priority_that_is_none_is_refused(priority):
    buffer = make(sampler='prioritized')
    buffer.push(episode_of(0, 4), 0)
    with pytest.raises(ValueError, match=f'priorities are .*{priority}.*; expected numbers from 0'):
        buffer.update(info_for(every_transition(buffer, 4), [1.0, priority, 1.0, 1.0]))


@pytest.mark.parametrize('sampler', ['uniform', 'slice'])
def test_priorities_for_a_sampler_that_takes_none_are_refused(sampler):
    with pytest.raises(ValueError, match="expected sampler='prioritized', or policy.priority=False"):
        make(sampler=sampler).update(dict(priority=[1.0]))


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized', 'slice'])
def test_it_can_be_emptied_and_filled_again(sampler):
    buffer = make(sampler=sampler)
    buffer.clear()
    for _ in range(3):
        buffer.push(episode_of(0, 30), 0)  # the same ids again: the old ones are forgotten
        assert buffer.count() == 30 and buffer.sample(16, 0)
        buffer.clear()
        assert buffer.count() == 0 and buffer.sample(1, 0) is None


@pytest.fixture
def no_garbage_collection():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized', 'slice'])
@pytest.mark.parametrize('storage', ['tensor', 'memmap'])
@pytest.mark.parametrize('goes_by', ['close', 'last reference'])
def test_memory_and_files_are_given_back_at_once(storage, sampler, goes_by, tmp_path, no_garbage_collection):
    buffer = make(tmp_path, sampler=sampler, storage=storage)
    buffer.push(episode_of(0, 30), 0)
    buffer.sample(4, 0)
    parts = [weakref.ref(part) for part in (buffer._buffer.storage[:]['obs'], buffer._buffer, buffer._buffer.storage)]
    files = list(tmp_path.rglob('*.memmap'))
    assert bool(files) == (storage == 'memmap')
    if goes_by == 'close':
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
        assert 'memmap' not in maps.read()


def test_fifty_buffers_leave_nothing(tmp_path, no_garbage_collection):
    def fill_and_drop():
        for storage in ('tensor', 'memmap'):
            buffer = make(tmp_path, storage=storage)
            buffer.push([transition(0, step, size=200) for step in range(30)], 0)
            buffer.sample(4, 0)

    fill_and_drop()
    before, resident = footprint(), resident_bytes()
    for _ in range(25):
        fill_and_drop()
    assert not grown_since(before) and resident_bytes() - resident < 10e6 and not list(tmp_path.iterdir())


def test_memmap_files_have_their_place_on_the_disk(tmp_path):
    """A sparse file on a disk that fills up later ends the process with SIGBUS."""
    buffer = make(tmp_path, storage='memmap', replay_buffer_size=2000)
    buffer.push([transition(0, 0, size=40)], 0)
    files = {path.stem: path.stat() for path in tmp_path.rglob('*.memmap')}
    assert files['obs'].st_size == 2000 * 2 * 40 * 40 and sum(file.st_size for file in files.values()) >= buffer.nbytes
    assert all(file.st_blocks * 512 >= file.st_size for file in files.values())


def test_memmap_files_go_with_the_process_but_not_with_a_child(tmp_path):
    program = '\n'.join(
        [
            'import os, sys',
            f'sys.path.insert(0, {str(ROOT / "tests")!r})',
            'from test_torchrl import make, episode_of',
            f'buffer = make({str(tmp_path)!r}, storage="memmap")',
            'buffer.push(episode_of(0, 9), 0)',
            'child = os.fork()',
            'if not child: del buffer; sys.exit()',
            'os.waitpid(child, 0)',
            f'print(len(os.listdir({str(tmp_path)!r})), len(buffer.sample(4, 0)))',
        ]
    )
    assert run([sys.executable, '-c', program], tmp_path).splitlines()[-1] == '1 4'
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized', 'slice'])
@pytest.mark.parametrize('storage, other', [('tensor', 'memmap'), ('memmap', 'tensor')])
@pytest.mark.parametrize('full', [False, True])
def test_a_saved_buffer_goes_on_where_it_was(storage, other, sampler, full, tmp_path):
    """The same samples from the same seed, also after more was pushed, whatever storage it is loaded into."""
    buffer = filled(make(tmp_path, sampler=sampler, storage=storage), full)
    buffer.save_data(str(tmp_path / 'saved'))
    buffer.save_data(str(tmp_path / 'saved'))  # over the first
    assert sorted(path.name.split('-')[0] for path in tmp_path.iterdir()) == ['saved'] + ['torchrl'] * (
        storage == 'memmap'
    )
    loaded = [make(tmp_path, sampler=sampler, storage=each) for each in (storage, other)]
    for each in loaded:
        each.push(episode_of(7, 3), 0)  # to be forgotten
        each.load_data(str(tmp_path / 'saved'))
        each._first_episode = 0  # the collector goes on, too
        assert each.count() == buffer.count() == (500 if full else buffer.count())
    for newer in (episode_of(200, 30), episode_of(201, 30)):
        batches = [drawn(each) for each in (buffer, *loaded)]
        assert all(same_batch(batch, batches[0]) for batch in batches[1:])
        for each in (buffer, *loaded):
            each.push(newer, 0)


@pytest.mark.parametrize('sampler', ['uniform', 'prioritized', 'slice'])
@pytest.mark.parametrize('full', [False, True])
def test_a_state_dict_holds_it_all(sampler, full, tmp_path):
    """The oldest is first in it, and what is loaded from it has other places but the same to give."""
    buffer = filled(make(tmp_path, sampler=sampler), full)
    copy = make(tmp_path, sampler=sampler, storage='memmap')
    state = buffer.state_dict()
    kept = summary(buffer)
    buffer.clear()  # the state is a copy
    buffer.push(episode_of(300, 30), 0)
    copy.load_state_dict(state)
    copy._first_episode = 0
    assert summary(copy) == kept
    copy.push(episode_of(200, 30), 0)
    now = summary(copy)
    assert len(now) == min(500, len(kept) + 30) and set(sorted(kept)[30 if full else 0 :]) <= set(now)


def filled(buffer, full):
    for piece in pieces_of_interleaved_episodes(60 if full else 12):
        buffer.push(piece, 0)
    if buffer._options.sampler == 'prioritized':
        batch = buffer.sample(64, 0)
        buffer.update(info_for(batch, [float(i) for i in range(64)]))
    return buffer


def summary(buffer):
    """Unique id of each transition, with what else there is to know of it."""
    state = buffer.state_dict()
    columns = state['columns']
    weights = state['priorities']['weights'] if state['priorities'] else [0.0] * state['count']
    return {
        int(unique_id): (int(episode), int(step), obs.sum().item(), float(weight))
        for unique_id, episode, step, obs, weight in zip(
            columns['replay_unique_id',], columns['episode_id',], columns['step_id',], columns['obs',], weights
        )
    }


def same_batch(one, other):
    return all(same(a, b) for a, b in zip(tree_leaves(one), tree_leaves(other))) and (
        list(one[0]) == list(other[0]) and str(one[0]['prev_state']) == str(other[0]['prev_state'])
    )


def test_an_empty_buffer_can_be_saved_too(tmp_path):
    buffer = make(tmp_path)
    buffer.save_data(str(tmp_path / 'saved'))
    other = make(tmp_path)
    other.push(episode_of(0, 9), 0)
    other.load_data(str(tmp_path / 'saved'))
    assert other.count() == 0


def test_episodes_of_a_new_run_are_others_than_the_loaded_ones(tmp_path):
    """A collector counts from 0 in each run."""
    buffer, resumed = make(sampler='slice'), make(sampler='slice')
    buffer.push(episode_of(0, 30) + episode_of(1, 30)[:15], 0)
    buffer.save_data(str(tmp_path / 'saved'))
    resumed.load_data(str(tmp_path / 'saved'))
    resumed.push(episode_of(0, 20), 0)
    lengths = {}
    for sequence in [s for _ in range(50) for s in resumed.sample(16, 0)]:
        assert len(set(map(int, sequence['episode_id']))) == 1
        episode = int(sequence['episode_id'][0])
        lengths[episode] = max(lengths.get(episode, 0), int(sequence['step_id'][-1]) + 1)
    assert lengths == {0: 30, 1: 15, 2: 20}


def cut_off(folder):
    path = folder / 'storage' / 'obs.memmap'
    os.truncate(path, path.stat().st_size // 2)


def scramble(folder):
    path = folder / 'storage' / 'meta.json'
    path.write_text('x' * path.stat().st_size)


def rewrite(**changes):
    def damage(folder):
        manifest = folder / 'breakout_replay.json'
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))

    return damage


@pytest.mark.parametrize(
    'damage, said',
    [
        (shutil.rmtree, 'can not be read .*; expected a folder that save_data wrote'),
        (lambda folder: (folder / 'breakout_replay.json').write_text('{'), 'can not be read'),
        (lambda folder: (folder / 'breakout_replay.json').write_text('[]'), 'can not be read'),
        (cut_off, 'is damaged: storage/obs.memmap has 8000 bytes; expected the 16000 that'),
        (lambda folder: shutil.rmtree(folder / 'storage'), 'is damaged: .* has no bytes'),
        (scramble, 'can not be loaded .*; the replay buffer is empty now'),
        (rewrite(layout=3), 'can not be loaded'),
        (rewrite(count='many', pushed=None), 'can not be loaded'),
        (rewrite(replay_buffer_size=7), '`replay_buffer_size` is 500, but .* was saved with 7; expected the same'),
        (rewrite(sampler='slice'), "`sampler` is 'uniform', but .* was saved with 'slice'; expected the same"),
    ],
)
def test_a_damaged_or_foreign_folder_gets_a_sentence(damage, said, tmp_path):
    buffer = make(tmp_path)
    buffer.push(episode_of(0, 30), 0)
    buffer.save_data(str(tmp_path / 'saved'))
    damage(tmp_path / 'saved')
    with pytest.raises(ValueError, match=said):
        buffer.load_data(str(tmp_path / 'saved'))
    buffer.push(episode_of(1, 30), 0)  # it is of use
    assert buffer.sample(16, 0)


def test_saving_leaves_other_peoples_folders_alone(tmp_path):
    (tmp_path / 'thesis').mkdir()
    (tmp_path / 'thesis' / 'chapter1').write_text('...')
    buffer = make(tmp_path)
    buffer.push(episode_of(0, 30), 0)
    with pytest.raises(ValueError, match='thesis exists and is no folder of a replay buffer; expected another name'):
        buffer.save_data(str(tmp_path / 'thesis'))
    assert (tmp_path / 'thesis' / 'chapter1').read_text() == '...' and len(list(tmp_path.iterdir())) == 1


def test_what_can_not_fit_is_refused_at_the_first_push(monkeypatch, tmp_path):
    monkeypatch.setattr(torchrl_buffer, 'memory_room', lambda: Room(10**6, 10**7, 'the memory'))
    monkeypatch.setattr(torchrl_buffer, 'free_disk_bytes', lambda folder: 2 * 10**6)
    for storage, most in (('tensor', 10**6), ('memmap', 2 * 10**6)):
        buffer = make(tmp_path, storage=storage, replay_buffer_size=10**9)
        with pytest.raises(ValueError, match='`replay_buffer_size` is 1000000000; at .* Expected at most') as error:
            buffer.push(episode_of(0, 3), 0)
        fits = int(str(error.value).split('at most ')[1].split(',')[0])
        buffer = make(tmp_path, storage=storage, replay_buffer_size=fits)
        buffer.push(episode_of(0, 3), 0)
        assert 0.99 * most < buffer.nbytes <= most


@pytest.mark.parametrize(
    'options, said',
    [
        (dict(storage='disk'), "`storage` is 'disk' .*; expected one of 'tensor', 'memmap'"),
        (dict(sampler='prioritised'), "`sampler` is 'prioritised' .*; expected one of 'uniform', 'prioritized',"),
        (dict(replay_buffer_size=0), '`replay_buffer_size` is 0 .*; expected a whole number from 1'),
        (dict(replay_buffer_size=1e5), r'`replay_buffer_size` is 100000.0 \(float\)'),
        (dict(alpha=2), '`alpha` is 2 .*; expected a number from 0 to 1'),
        (dict(beta=-0.1), '`beta` is -0.1'),
        (dict(anneal_step=-1), '`anneal_step` is -1'),
        (dict(folder=''), "`folder` is '' .*; expected None or the name of a folder"),
        (dict(sampler='slice', slice_len=None), "`slice_len` is None with `sampler` 'slice'"),
        (dict(slice_len=10), "`slice_len` is 10 with `sampler` 'uniform'"),
        (dict(sampler='slice', slice_len=1), '`slice_len` is 1 .*; expected None or a whole number from 2'),
        (
            dict(sampler='slice', slice_len=501),
            '`slice_len` is 501; expected at most `replay_buffer_size`, which is 500',
        ),
    ],
)
def test_wrong_options_get_a_sentence(options, said):
    options = {'replay_buffer_size': 500, **options}
    with pytest.raises(ValueError, match='replay buffer option ' + said):
        TorchRLReplayBuffer(EasyDict(options))


def test_transitions_that_do_not_go_together_get_a_sentence():
    buffer = make(sampler='slice')
    with pytest.raises(ValueError, match="lack episode_id, step_id; choose .*type='sample_with_ids'"):
        buffer.push({k: v for k, v in transition(0, 0).items() if k not in ('episode_id', 'step_id')}, 0)
    with pytest.raises(TypeError, match=r"transition\['obs'\] is of type list; .* the policy `r2d2_slices` hands over"):
        buffer.push([dict(obs=[torch.zeros(2)] * 3)], 0)
    buffer.push(episode_of(0, 3), 0)
    with pytest.raises(
        ValueError, match='transitions differ from those in the replay buffer in obs; expected the same'
    ):
        buffer.push(transition(1, 0, size=5), 0)
    with pytest.raises(ValueError, match='differ .* in extra'):
        buffer.push(dict(transition(1, 0), extra=1), 0)
    with pytest.raises(ValueError, match=r"transition\['obs'\] differs in shape or dtype within a push"):
        buffer.push([transition(1, 0), transition(1, 1, size=5)], 0)
    with pytest.raises(ValueError, match=r"a transition has the keys .*'extra'"):
        buffer.push([transition(1, 0), dict(transition(1, 1), extra=1)], 0)
    assert buffer.count() == 3


def test_it_may_be_named_in_the_policy_alone():
    """DI-engine then merges the options of its own buffer into ours."""
    main = EasyDict(
        exp_name='unused',
        env=dict(collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1),
        policy=dict(
            other=dict(
                replay_buffer=dict(
                    type='torchrl', import_names=['breakout_env'], replay_buffer_size=50, sampler='prioritized'
                )
            )
        ),
    )
    create = EasyDict(
        env=dict(type='breakout', import_names=['breakout_env']),
        env_manager=dict(type='base'),
        policy=dict(type='dqn'),
    )
    cfg = compile_config(main, auto=True, create_cfg=create, save_cfg=False).policy.other.replay_buffer
    assert cfg.cfg_type == 'AdvancedReplayBufferDict' and 'thruput_controller' in cfg
    buffer = create_buffer(cfg, tb_logger=None, exp_name='unused')
    assert isinstance(buffer, TorchRLReplayBuffer) and buffer._options.replay_buffer_size == 50


def test_r2d2_learns_from_slices_by_the_ding_command(tmp_path):
    config = shortened(ROOT / 'configs' / 'breakout_r2d2_config.py', tmp_path, *SMALL)
    run(['ding', '-m', 'serial', '-c', str(config), '-s', '0', '--env-step', '600'], tmp_path)
    check_trained(tmp_path / 'experiments' / 'breakout_r2d2')


@pytest.mark.parametrize(
    'policy, options',
    [
        ('', "storage='memmap'"),
        ('priority=True, priority_IS_weight=True, ', "sampler='prioritized'"),
    ],
)
def test_dqn_learns_from_it_too(policy, options, tmp_path):
    config = shortened(
        DEMO,
        tmp_path,
        (r'random_collect_size=\d+', f'{policy}random_collect_size=200'),
        (r'replay_buffer_size=\d+', f'replay_buffer_size=1000, {options}'),
        (r"replay_buffer=dict\(type='frame'", "replay_buffer=dict(type='torchrl'"),
    )
    run(['ding', '-m', 'serial', '-c', str(config), '-s', '0', '--env-step', '600'], tmp_path)
    experiment = tmp_path / 'experiments' / 'breakout_dqn_demo'
    check_trained(experiment)
    assert not list((experiment / 'replay').iterdir() if 'memmap' in options else [])
