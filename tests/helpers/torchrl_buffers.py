"""Buffers of type ``torchrl``, and transitions whose numbers identify them."""

import random

import torch

from helpers import replay

SLICE = 10


def make(folder=None, **options):
    if options.get('sampler') == 'slice':
        options['slice_len'] = SLICE
    if options.get('storage') == 'memmap':
        options['folder'] = folder and str(folder)
    return replay.make(type='torchrl', **options)


def transition(episode, step, done=False, size=4):
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


def same(one, other):
    """Whether values are equal, numbers and tensors alike."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def episode_of(number, length):
    return [transition(number, step, step == length - 1) for step in range(length)]


def interleaved_fragments(count, seed=0):
    """Episodes of 1 to 40 steps of 3 environments at a time, in fragments, as a collector hands them over."""
    rng = random.Random(seed)
    waiting = [episode_of(number, rng.randint(1, 40)) for number in range(count)]
    running = [waiting.pop() for _ in range(3)]
    while running:
        for steps in list(running):
            length = rng.randint(1, 7)
            yield [steps.pop(0) for _ in range(min(length, len(steps)))]
            if not steps:
                running.remove(steps)
                if waiting:
                    running.append(waiting.pop())


def filled(folder, full, **options):
    buffer = make(folder, **options)
    for fragment in interleaved_fragments(60 if full else 12):
        buffer.push(fragment, 0)
    if options['sampler'] == 'prioritized':
        replay.set_priorities(buffer, buffer.sample(64, 0), [float(i) for i in range(64)])
    return buffer
