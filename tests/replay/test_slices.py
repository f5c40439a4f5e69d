"""Slices of episodes from the buffer ``torchrl``."""

import pytest
import torch
from ding.utils.data import timestep_collate

from breakout_env.run.config import read_config_file
from helpers.processes import ROOT
from helpers.torchrl_buffers import SLICE, episode_of, interleaved_fragments, make, same, transition


def place(sampled):
    return int(sampled['episode_id'][0]), int(sampled['step_id'][0])


@pytest.mark.parametrize('storage', ['tensor', 'memmap'])
def test_a_slice_is_consecutive_stored_steps_of_one_episode(storage):
    """Also when episodes come in fragments, and while new steps replace old ones."""
    buffer = make(sampler='slice', storage=storage)
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


def test_episodes_are_equally_likely_and_so_are_the_starts_in_one():
    torch.manual_seed(0)
    buffer = make(sampler='slice')
    buffer.push(episode_of(0, 40) + episode_of(1, 4), 0)
    starts = [place(s) for _ in range(400) for s in buffer.sample(16, 0)]
    counts = {start: starts.count(start) for start in starts}
    short = counts.pop((1, 0))
    assert counts.keys() == {(0, step) for step in range(40 - SLICE + 1)} and 3000 < short < 3400
    assert 60 < min(counts.values()) <= max(counts.values()) < 150  # 103 on average
    assert timestep_collate(buffer.sample(3, 0))['obs'].shape == (SLICE, 3, 2, 4, 4)


def test_a_step_of_r2d2_takes_the_bytes_that_its_config_says():
    buffer = make(sampler='slice', replay_buffer_size=100)
    state = dict(h=torch.zeros(1, 1, 512), c=torch.zeros(1, 1, 512))
    buffer.push(dict(transition(0, 0), obs=torch.zeros(4, 84, 84, dtype=torch.uint8), prev_state=state, null=False), 0)
    path = ROOT / 'configs' / 'breakout_r2d2_config.py'
    size = read_config_file(str(path)).main.policy.other.replay_buffer.replay_buffer_size
    bytes_each = buffer.memory_report()['bytes'] / 100
    stated = f'One takes {bytes_each / 1e3:.0f} kB', f'take {size * bytes_each / 1e9:.1f} GB'
    assert all(text in path.read_text() for text in stated)


def test_a_saved_buffer_goes_on_with_slices_and_new_episodes_stay_apart():
    """A collector counts episodes from 0 in each process."""
    buffer, resumed = make(sampler='slice'), make(sampler='slice')
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


def test_transitions_without_ids_are_refused():
    buffer = make(sampler='slice')
    with pytest.raises(ValueError, match="lack episode_id, step_id; choose .*type='sample_with_ids'"):
        buffer.push({key: value for key, value in transition(0, 0).items() if key not in ('episode_id', 'step_id')}, 0)
    assert buffer.count() == 0
