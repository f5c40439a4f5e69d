"""Does learning on this machine's GPU compute what a CPU computes, without waiting and without losing memory?

``make gpu-check`` runs these. Without a GPU they are skipped.
"""

import contextlib
import tempfile

import pytest
import torch

from breakout_env.utils.gpu import gpu_problem
from helpers.policies import BATCH, FROM_ROLLOUTS, POLICIES, batch_for, filled_buffer, policy_on

PROBLEM = gpu_problem()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)]
UPDATES = 50
# An update rounds in another order on a GPU; Adam turns the rounding of gradients that are nearly 0 into whole steps.
LARGEST_DIFFERENCE = 0.02
# bfloat16 has 8 bits for a number.
LARGEST_LOSS_DIFFERENCE = {None: 0.001, 'bfloat16': 0.02}
# What PyTorch's allocator may keep or lose in rounding.
LEVEL_BYTES = 2**20


def weights_of(policy):
    state = policy.learn_mode.state_dict()
    networks = (state[name] for name in ('model', 'target_model') if name in state)
    return torch.cat([weight.detach().cpu().flatten() for network in networks for weight in network.values()])


def moved_state(there, here):
    """A learner's state on one device, saved and loaded into a learner on another."""
    with tempfile.TemporaryFile() as file:
        torch.save(there.learn_mode.state_dict(), file)
        file.seek(0)
        here.learn_mode.load_state_dict(torch.load(file, map_location='cpu', weights_only=True))


def differences(kind, autocast, there='cuda'):
    """For each update of two learners that begin it alike: of the loss, and of the weights as a share of their way."""
    there, here = policy_on(there, kind, autocast=autocast), policy_on('cpu', kind)
    for update in range(UPDATES):
        moved_state(there, here)
        before, batch = weights_of(here), batch_for(kind, update)
        found, expected = (policy.learn_mode.forward(batch)['total_loss'] for policy in (there, here))
        apart, moved = (weights_of(there) - weights_of(here)).norm(), (weights_of(here) - before).norm()
        yield abs(found - expected) / abs(expected), float(apart / moved)


@pytest.mark.parametrize('kind, autocast', [*((kind, None) for kind in POLICIES), ('lean_dqn', 'bfloat16')])
def test_an_update_gives_the_loss_and_weights_of_a_cpu(kind, autocast):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    # rarely rounding decides between two actions of the same value
    loss, weights = (sorted(each)[-3] for each in zip(*differences(kind, autocast)))
    assert loss <= LARGEST_LOSS_DIFFERENCE[autocast]
    assert autocast or weights <= LARGEST_DIFFERENCE


@pytest.mark.parametrize('kind', POLICIES)
@pytest.mark.parametrize('first, then', [('cuda', 'cpu'), ('cpu', 'cuda')])
def test_a_state_that_one_device_saved_continues_on_the_other(kind, first, then):
    one, other = policy_on(first, kind), policy_on(then, kind, seed=1)
    for update in range(5):
        one.learn_mode.forward(batch_for(kind, update))
    moved_state(one, other)
    assert torch.equal(weights_of(one), weights_of(other))
    losses = [policy.learn_mode.forward(batch_for(kind, 5))['total_loss'] for policy in (one, other)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


@pytest.mark.parametrize('kind', ['lean_dqn', *FROM_ROLLOUTS])
def test_an_update_never_waits_for_the_gpu(kind):
    policy, made = policy_on('cuda', kind, log_every_updates=10**6), batch_for(kind, 0)
    buffer = filled_buffer(pin_memory=True)

    def update():
        policy.learn_mode.forward(made if kind in FROM_ROLLOUTS else buffer.sample(BATCH))

    for _ in range(5):  # libraries prepare themselves, and the first means are fetched
        update()
    torch.cuda.set_sync_debug_mode('error')
    try:
        for _ in range(UPDATES):
            update()
        with pytest.raises(RuntimeError):  # waiting is detected
            torch.zeros(1, device='cuda').item()
    finally:
        torch.cuda.set_sync_debug_mode('default')


def test_memory_is_level_over_2000_updates_and_released_afterwards():
    def allocated():
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    def growth(updates):
        policy, used = policy_on('cuda', 'lean_dqn'), []
        with contextlib.closing(filled_buffer()) as buffer:
            for update in range(updates):
                policy.learn_mode.forward(buffer.sample(BATCH))
                if update in (19, updates - 1):  # past two copies into the target network
                    used.append(allocated())
        return used[-1] - used[0]

    growth(20)  # what libraries take for themselves stays
    before = allocated()
    assert growth(2000) <= LEVEL_BYTES and allocated() - before <= LEVEL_BYTES
