"""The buffer of a rollout: its minibatches."""

import torch

from breakout_env.replay.rollout_buffer import RolloutBuffer


def test_each_pass_over_a_rollout_has_each_transition_once():
    buffer = RolloutBuffer()
    buffer.push(dict(obs=torch.arange(12)))
    for _ in range(2):
        assert sorted(torch.cat([buffer.sample(4)['obs'] for _ in range(3)]).tolist()) == list(range(12))
    buffer.push(dict(obs=torch.arange(100, 103)))
    assert buffer.sample(4) is None and buffer.sample(3)['obs'].min() >= 100


def test_minibatches_do_not_depend_on_random_numbers_that_others_draw_meanwhile():
    """The collector explores in another thread."""
    orders = []
    for drawn in (0, 3):
        torch.manual_seed(0)
        buffer = RolloutBuffer()
        buffer.push(dict(obs=torch.arange(100)))
        torch.rand(drawn)
        orders.append(buffer.sample(100)['obs'].tolist())
    assert orders[0] == orders[1] != list(range(100))
