"""
Collecting and learning at the same time, on one machine, in the parallel mode of DI-engine's task pipelines.

``entry/breakout_dqn_main.py --overlap`` shows the use of it.
"""

import copy
from typing import Any, Callable, List, Optional

import torch
from ding.framework import Task
from ding.policy import Policy, create_policy

Piece = List[Any]


def own_collect_policy(cfg: 'EasyDict', policy: Policy) -> Policy:  # noqa: F821
    """
    Overview:
        A policy with a network of its own, to play while ``policy`` learns: DI-engine's roles of one policy share one \
        network, which would change in the midst of a step. No random numbers are drawn for it. Weights come over with \
        ``own.collect_mode.load_state_dict(policy.collect_mode.state_dict())``, from another device, too.
    Arguments:
        - cfg (:obj:`EasyDict`): The merged config of the policy.
        - policy (:obj:`Policy`): The policy that learns.
    Returns:
        - own (:obj:`Policy`): For collecting only.
    """
    model = copy.deepcopy(policy.collect_mode.get_attribute('model'))
    return create_policy(cfg, model=model, enable_field=['collect'])


class Overlap(object):
    """
    Overview:
        Plays a piece of experience while the one before it is learned from, in two threads::

            step     1    2    3   ...  n    n + 1
            plays    1    2    3        n    -
            learns   -    1    2        n-1  n

        Between two steps both threads stand still. All that both of them know changes then, in the calling thread: \
        the piece goes into the buffer, settings and weights for the next are taken. So each piece is learned from \
        once, the last one, too, and it does not matter which thread is faster: updates and env steps are exactly in \
        the ratio of the config. Compared to the serial order, weights are one piece older when they are played with.

        Random numbers are what the threads may yet share, by the global generators of numpy and torch. The collector \
        explores with them; the updates of policies like ``dqn`` and the buffer ``frame``, which has its own, leave \
        them alone, and such a run can be repeated. One with noisy networks (``rainbow``) or DI-engine's own buffers \
        can not: for that there is the serial order.
    Interfaces:
        ``run``.
    """

    def __init__(
        self,
        next_collection: Callable[[], Optional[Callable[[], Piece]]],
        push: Callable[[Piece], None],
        learn: Callable[[], None],
        report: Callable[[], None],
    ) -> None:
        """
        Arguments:
            - next_collection (:obj:`Callable`): Called between two steps, when all that was pushed has been learned \
                from and the newest piece is not pushed yet. Gives the function that plays the next piece in a thread, \
                or None if there is to be no more.
            - push (:obj:`Callable`): Called after that, with the newest piece.
            - learn (:obj:`Callable`): Makes the updates for the piece that was pushed last, in a thread.
            - report (:obj:`Callable`): Called at the end of each step.
        """
        self._next_collection = next_collection
        self._push = push
        self._learn = learn
        self._report = report
        self._collection: Optional[Callable[[], Piece]] = None
        self._newest: Optional[Piece] = None
        self._is_pushed = False
        # On one stream the collector's forward would wait for all updates that are queued already.
        self._stream = torch.cuda.Stream() if torch.cuda.is_available() else None
        self._weights_are_there: Any = None

    def run(self) -> None:
        """
        Overview:
            Play and learn until there is no next collection. An error in a thread, or an exception by Ctrl-C, ends it \
            as soon as both threads are through with the step, and is raised.
        """
        # not DI-engine's global `task`, in which the caller may be running
        with Task().start(n_async_workers=2) as task:
            task.use(lambda ctx: self._between_steps(task))
            task.use(task.parallel(self._collect_piece, self._learn_from_piece))
            task.use(lambda ctx: self._report())
            task.run()

    def _between_steps(self, task: Task) -> None:
        self._collection = self._next_collection()
        task.finish = self._collection is None  # when this step is done, which learns from the last piece
        self._is_pushed = self._newest is not None
        if self._is_pushed:
            self._push(self._newest)
            self._newest = None
        if self._stream is not None:
            self._weights_are_there = torch.cuda.current_stream().record_event()

    def _collect_piece(self, ctx: 'Context') -> None:  # noqa: F821
        if self._collection is not None:
            with torch.cuda.stream(self._stream):
                if self._stream is not None:
                    self._stream.wait_event(self._weights_are_there)
                self._newest = self._collection()

    def _learn_from_piece(self, ctx: 'Context') -> None:  # noqa: F821
        if self._is_pushed:
            self._learn()
