"""Transitions that can be checked, and replay buffers filled with them."""

import math
import os
from collections import Counter, deque

import numpy as np
import pytest
import torch
from ding.worker import create_buffer
from easydict import EasyDict
from hypothesis import settings

from breakout_env.replay import ReplayMemory

SIDE = 20  # pixels; zstd finds something to learn in frames of this size
STORAGES = ['compressed', 'ring', 'memmap']


def examples(count: int, **options) -> settings:
    """So many examples of a property in the default profile of tests/conftest.py, more in the release profile."""
    return settings(max_examples=count * settings().max_examples // 50, **options)


def make(tb_logger=None, **options):
    """A buffer of type ``frame``, or of another one, as DI-engine's pipelines make it."""
    if options.get('type') == 'torchrl':
        pytest.importorskip('torchrl')
    np.random.seed(0)  # as DI-engine's set_pkg_seed does
    cfg = EasyDict(dict(type='frame', import_names=['breakout_env'], replay_buffer_size=500), **options)
    return create_buffer(cfg, tb_logger=tb_logger, exp_name='exp', instance_name='agent_buffer')


def transition(number: int, side: int = 8, depth: int = 4, **more) -> dict:
    """All of it follows from its number."""
    pixels = np.random.default_rng(number).integers(256, size=(depth + 1, side, side), dtype=np.uint8)
    return dict(
        obs=torch.from_numpy(pixels[:-1].copy()),
        next_obs=torch.from_numpy(pixels[1:].copy()),
        action=torch.tensor([number % 4]),
        reward=torch.tensor([number / 2, 1.0, 2.0]),
        done=number % 5 == 0,
        id=number,
        **more,
    )


def transitions(*numbers: int, **more) -> list:
    return [transition(number, **more) for number in range(*numbers)]


def is_exact(sampled: dict, **kwargs) -> bool:
    """Whether a sampled transition is what was pushed under its number."""
    pushed = transition(sampled['id'], **kwargs)
    return same({key: sampled[key] for key in pushed}, pushed)


def ids(batch) -> list:
    return [t['id'] for t in batch]


def filled(count: int = 40, start: int = 0, **options):
    buffer = make(**options)
    buffer.push(transitions(start, start + count), 0)
    return buffer


def set_priorities(buffer, batch, priorities) -> None:
    """As the learner does with the transitions of a batch; with none of them it turns prioritised sampling on."""
    names, rows = ([t[key] for t in batch] for key in ('replay_unique_id', 'replay_buffer_idx'))
    buffer.update(dict(replay_unique_id=names, replay_buffer_idx=rows, priority=priorities))


def open_files_in(folder, pid='self') -> list:
    links = (f'/proc/{pid}/fd/{number}' for number in os.listdir(f'/proc/{pid}/fd'))
    return [os.readlink(link) for link in links if os.path.lexists(link) and os.readlink(link).startswith(str(folder))]


class Harm:
    """Unpickled, it makes a file."""

    def __reduce__(self):
        return open, ('harm was done', 'w')


def screen(rng: np.random.Generator, variety: int = 300) -> np.ndarray:
    """A wall, bricks, noise, a paddle; one of a limited number, so that some come up again."""
    content = np.random.default_rng(int(rng.integers(variety)))
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    pixels[:2] = 142
    pixels[4:8] = content.integers(0, 2, SIDE) * 200
    pixels[9:18] = content.integers(256, size=(9, SIDE))  # a few fill a segment
    pixels[-1, 3:8] = content.integers(1, 255)
    return pixels


class Play:
    """An env: stacks that overlap, from an episode's first screen on, and the ``nstep`` steps of its transitions."""

    def __init__(self, depth: int, nstep: int, rng: np.random.Generator) -> None:
        self._nstep, self._rng = nstep, rng
        self._screens = deque(maxlen=depth)
        self._stacks = deque(maxlen=nstep + 1)
        self.reset()

    def reset(self) -> None:
        self._stacks.clear()
        self._screens.extend([screen(self._rng)] * self._screens.maxlen)
        self._stacks.append(np.stack(self._screens))

    def transition(self) -> dict:
        while True:
            self._screens.append(screen(self._rng))
            self._stacks.append(np.stack(self._screens))
            if len(self._stacks) > self._nstep:
                return dict(obs=self._stacks[0].copy(), next_obs=self._stacks[-1].copy())


def other_keys(number: int) -> dict:
    """The rest of a transition, of every kind of value; all of it follows from its number."""
    return dict(
        id=number,
        done=number % 7 == 0,
        reward=torch.tensor([number / 3]),
        pair=dict(half=torch.tensor(number / 7, dtype=torch.bfloat16), more=dict(truth=number % 3 == 0)),
        table=np.full((2, 3), number, '>i2'),
        scalar=np.float32(number / 9),
    )


def same(one, other) -> bool:
    """Equal in type, dtype, shape, order of keys and value; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        if one.dtype is torch.bfloat16 and other.dtype is torch.bfloat16:
            one, other = one.view(torch.int16), other.view(torch.int16)
        return one.dtype == other.dtype and same(one.numpy(), other.numpy())
    if isinstance(one, (np.ndarray, np.generic)):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


def stored(memory: ReplayMemory) -> list:
    """All transitions, the oldest first."""
    return list(memory.fetch(memory.order()))


def frames_in(memory: ReplayMemory) -> Counter:
    """The content of each frame that is stored, and the number of references to it."""
    if memory.frame_store is None:
        return Counter()
    references = memory.frame_store.references
    numbers = np.flatnonzero(references)
    pixels = memory.frame_store.gather(numbers).numpy() if len(numbers) else []
    contents = [row.tobytes() for row in pixels]
    assert len(set(contents)) == len(contents) == memory.frames, 'a frame is stored twice, or without a reference'
    return Counter(dict(zip(contents, references[numbers].tolist())))


def references_add_up(memory: ReplayMemory) -> bool:
    return sum(frames_in(memory).values()) == memory.count * memory.rows.frames_each
