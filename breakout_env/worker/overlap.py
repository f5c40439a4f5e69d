"""Collecting and learning at the same time on one machine."""

import copy
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from ding.policy import Policy, create_policy
from easydict import EasyDict


def own_collect_policy(cfg: EasyDict, policy: Policy) -> Policy:
    """A policy with a network of its own for collecting while ``policy`` learns: DI-engine's modes of one policy share
    one network, which would change during a step. This consumes no random numbers.
    ``own.collect_mode.load_state_dict(policy.collect_mode.state_dict())`` copies the weights, from another device, too.
    ``cfg`` is the merged config of the policy.
    """
    model = copy.deepcopy(policy.collect_mode.get_attribute('model'))
    return create_policy(cfg, model=model, enable_field=['collect'])


def run_overlapped(
    next_collection: Callable[[], Callable[[], list[Any]] | None],
    push: Callable[[list[Any]], None],
    learn: Callable[[], None],
) -> None:
    """Collect a rollout fragment while the previous one is learned from, in two threads::

        step      1    2    3   ...  n    n + 1
        collects  1    2    3        n    -
        learns    -    1    2        n-1  n

    Between two steps both threads wait. Only then does shared state change, in the calling thread: the fragment is
    pushed into the buffer, settings and weights for the next one are read. So each fragment is learned from once,
    including the last, whichever thread is faster: updates and env steps have exactly the ratio of the config. Compared
    to the serial order, fragments are collected with weights that are one fragment older.

    The threads still share random numbers, from the global generators of numpy and torch. The collector explores with
    them; the updates of policies like ``dqn`` do not use them, nor does the buffer ``frame``, which has its own, so
    such a run is reproducible. Not so are noisy networks (``rainbow``), DI-engine's own buffers, and annealing over a
    budget of full games, as those of the collection under way count: use the serial order.

    Arguments:
        next_collection: Called between two steps: all fragments in the buffer have been learned from, the newest is
            pushed afterwards. Returns the function that collects the next fragment in a thread, or None to end.
        push: Called after that, with the newest fragment.
        learn: Makes the updates for the fragment that was pushed last, in a thread.
    Raises:
        Exception: An error in a thread or a KeyboardInterrupt, as soon as both threads have finished the step.
    """

    # On one stream the collector's forward would wait for all queued updates. Not initialised: all is on the CPU.
    stream = torch.cuda.Stream() if torch.cuda.is_initialized() else None

    def collect(collection: Callable[[], list[Any]]) -> list[Any]:
        with torch.cuda.stream(stream):
            return collection()

    newest: list[Any] | None = None
    with ThreadPoolExecutor(2, 'overlap') as threads:  # leaving it waits for both
        while True:
            collection = next_collection()
            if newest is not None:
                push(newest)
            steps: list[Future] = []
            if collection is not None:
                if stream is not None:  # the weights for this collection have been copied
                    stream.wait_stream(torch.cuda.current_stream())
                steps.append(threads.submit(collect, collection))
            if newest is not None:
                steps.append(threads.submit(learn))
            wait(steps)
            newest, *_ = [step.result() for step in steps] + [None]
            if collection is None:  # the last fragment has been learned from
                return
