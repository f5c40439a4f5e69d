"""Slices of episodes from the buffers ``frame`` and ``torchrl``; ``frame`` takes a small part of the memory."""

from functools import partial

import pytest
import torch
from ding.utils.data import timestep_collate

from helpers.replay import filled, make
from helpers.torchrl_buffers import SLICE, episode_of, interleaved_fragments, same, transition

sliced = partial(make, slice_len=SLICE)
TORCHRL = dict(type='torchrl', sampler='slice')


def place(sampled):
    return int(sampled['episode_id'][0]), int(sampled['step_id'][0])


@pytest.mark.parametrize('options', [{}, dict(storage='ring'), TORCHRL, dict(TORCHRL, storage='memmap')])
def test_a_slice_is_consecutive_stored_steps_of_one_episode(options):
    """Also when episodes come in fragments, and while new steps replace old ones."""
    buffer = sliced(**options)
    kept, seen, short = [], 0, 0
    for fragment in interleaved_fragments(60):
        buffer.push(fragment, 0)
        kept = (kept + [(step['episode_id'], step['step_id']) for step in fragment])[-500:]
        for sequence in buffer.sample(4, 0) or ():
            assert all(len(values) == SLICE for values in sequence.values())
            real = [not null for null in sequence['null']]
            count = sum(real)
            assert count and real == [True] * count + [False] * (SLICE - count)
            episode, first = place(sequence)
            for i in range(count):
                assert (episode, first + i) in kept
                pushed = transition(episode, first + i, done=bool(sequence['done'][i]))
                assert all(same(pushed[key], sequence[key][i]) for key in pushed)
            if count < SLICE:  # all that is stored of this episode, or of this part of it
                assert (episode, first - 1) not in kept and (episode, first + count) not in kept
                assert not any(reward.any() for reward in sequence['reward'][count:])
                assert all(bool(done) == bool(sequence['done'][count - 1]) for done in sequence['done'][count:])
                short += 1
            seen += 1
    assert buffer.count() == 500 and seen > 500 and 50 < short < seen
    buffer.clear()
    buffer.push(episode_of(0, 30), 0)  # the same ids again: the old ones are forgotten
    assert buffer.sample(16, 0)


def test_every_place_to_begin_is_as_likely_as_any_other():
    buffer = sliced()
    buffer.push(episode_of(0, 40) + episode_of(1, 4), 0)
    starts = [place(s) for _ in range(200) for s in buffer.sample(16)]
    counts = {start: starts.count(start) for start in starts}
    expected = {(0, step) for step in range(40 - SLICE + 1)} | {(1, 0)}
    assert counts.keys() == expected and 60 < min(counts.values()) <= max(counts.values()) < 145
    assert timestep_collate(buffer.sample(3))['obs'].shape == (SLICE, 3, 2, 4, 4)


def test_with_slice_every_only_the_first_states_are_kept_and_ends_of_episodes_are_reached():
    buffer = sliced(slice_every=4)
    buffer.push(episode_of(0, 23) + episode_of(1, 3), 0)
    slices = {place(s): s for _ in range(40) for s in buffer.sample(16)}
    assert slices.keys() == {(0, 0), (0, 4), (0, 8), (0, 12), (0, 16), (1, 0)}
    for (episode, step), sampled in slices.items():
        states = sampled['prev_state']
        assert torch.equal(states[0]['h'], transition(episode, step)['prev_state']['h'])
        assert [state is None for state in states[:4]] == [False, *[True] * min(3, len(states) - 1)][:4]
    assert bool(slices[0, 16]['done'][-1]) and [bool(n) for n in slices[0, 16]['null']] == [False] * 7 + [True] * 3


def test_a_step_of_r2d2_takes_hundreds_of_bytes():
    torch.manual_seed(0)
    buffer = sliced(replay_buffer_size=20_000, slice_len=60, slice_every=20)
    state = dict(h=torch.rand(1, 1, 512), c=torch.rand(1, 1, 512))
    screen = torch.zeros(4, 84, 84, dtype=torch.uint8)
    used = []
    for first in range(0, 2400, 100):  # the dictionary of frames is trained at 1,024
        steps = []
        for step in range(first, first + 100):
            screen = torch.cat([screen[1:], torch.zeros(1, 84, 84, dtype=torch.uint8)])
            screen[3, step % 80 : step % 80 + 4, step // 80 : step // 80 + 2] = 200
            steps.append(dict(transition(0, step), obs=screen, prev_state=state))
        buffer.push(steps)
        if first in (1300, 2300):
            used.append(buffer.memory_report()['bytes'])
    assert (used[1] - used[0]) / 1000 < 500


@pytest.mark.parametrize('options', [{}, TORCHRL])
def test_a_saved_buffer_goes_on_with_slices_and_new_episodes_stay_apart(options):
    """A collector counts episodes from 0 in each process."""
    buffer, resumed = sliced(**options), sliced(**options)
    buffer.push(episode_of(0, 30) + episode_of(1, 30)[:15], 0)
    buffer.save_data('saved')
    resumed.load_data('saved')
    resumed.push(episode_of(0, 20), 0)
    lengths = {}
    for sampled in [s for _ in range(50) for s in resumed.sample(16, 0)]:
        assert len(set(map(int, sampled['episode_id']))) == 1
        episode, step = place(sampled)
        lengths[episode] = max(lengths.get(episode, 0), step + SLICE)
    assert lengths == {0: 30, 1: 15, 2: 20}


def test_what_does_not_go_with_slices_is_refused():
    buffer = sliced()
    buffer.push(episode_of(0, 20), 0)
    with pytest.raises(ValueError, match="lack episode_id, step_id; choose .*type='sample_with_ids'"):
        buffer.push({key: value for key, value in transition(0, 20).items() if key not in ('episode_id', 'step_id')})
    with pytest.raises(ValueError, match='has step_id 25; expected 20'):
        buffer.push(transition(0, 25))
    with pytest.raises(ValueError, match=r'slices of whole episodes, uniformly \(`slice_len`\)'):
        buffer.update(dict(replay_unique_id=[0], replay_buffer_idx=[0], priority=[1.0]))
    assert buffer.count() == 20 and buffer.sample(4)
    filled(30).save_data('saved.npz')
    with pytest.raises(ValueError, match='cannot be sampled in slices'):
        buffer.load_data('saved.npz')
    assert buffer.count() == 0 and buffer.sample(2) is None
