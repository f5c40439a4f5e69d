"""Collecting and learning at the same time on one machine."""

import copy
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from ding.policy import Policy, create_policy
from easydict import EasyDict

Fragment = TypeVar('Fragment')


def own_collect_policy(cfg: EasyDict, policy: Policy) -> Policy:
    """A policy with its own network, which collects while ``policy`` learns: DI-engine's modes of one policy share one
    network, which would change during a step. This consumes no random numbers.
    ``own.collect_mode.load_state_dict(policy.collect_mode.state_dict())`` copies the weights, from another device, too.
    ``cfg`` is the merged config of the policy.
    """
    model = copy.deepcopy(policy.collect_mode.get_attribute('model'))
    return create_policy(cfg, model=model, enable_field=['collect'])


def overlapped(collections: Iterator[Callable[[], Fragment]], push: Callable[[Fragment], None]) -> Generator[Fragment]:
    """Collect each fragment in a thread, while the caller of this generator learns from the fragment before it::

        step      1    2    3   ...  n    n + 1
        collects  1    2    3        n    -
        learns    -    1    2        n-1  n

    The next collection is taken only while the thread waits: then settings and weights are read, evaluations are made,
    and the newest fragment is pushed into the buffer, which may draw random numbers. So the caller learns once from
    each fragment, including the last, whichever thread is faster: updates and env steps have exactly the ratio of the
    config. Compared to the serial order, the weights that collect a fragment are one fragment older.

    The threads share the global random generators of numpy and torch. The collector explores with them; updates and
    the buffer ``frame`` do not use them, so a run is reproducible. Noisy networks (``rainbow``), DI-engine's own
    buffers, and annealing over a budget of full games are not: use the serial order.

    Whoever stops early closes the generator, which waits for the collection under way.
    """
    # On one stream the collector's forward would wait for all queued updates. Not initialised: all is on the CPU.
    stream = torch.cuda.Stream() if torch.cuda.is_initialized() else None

    def collect(collection: Callable[[], Fragment]) -> Fragment:
        with torch.cuda.stream(stream):
            return collection()

    newest: list[Fragment] = []
    with ThreadPoolExecutor(1, 'overlap') as thread:  # leaving it waits for the thread
        for collection in collections:
            for fragment in newest:
                push(fragment)
            if stream is not None:  # the weights for this collection have been copied
                stream.wait_stream(torch.cuda.current_stream())
            under_way = thread.submit(collect, collection)
            yield from newest
            newest = [under_way.result()]
    for fragment in newest:
        push(fragment)
        yield fragment
