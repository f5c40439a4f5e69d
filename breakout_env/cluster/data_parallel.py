"""
Data-parallel ranks: processes that play and remember each for itself, and make every update together.

Gradients are DI-engine's business: with ``policy.multi_gpu`` its policies take the first rank's weights at their
beginning and mean the gradients of all ranks at each update. What else it has for several ranks fails without a GPU, or
ends badly. Upstream behaviour worked around (DI-engine 0.5.3), each in one place here:

- ``dist_init`` and ``DDPContext`` divide by the number of GPUs, do not say how long to wait for a rank, and are never
  undone: ``Ranks`` joins, waits and leaves instead;
- a policy takes the GPU ``rank % count``, whatever the current one is: ``Ranks`` makes it the current one;
- the learner's ``log_reduce`` hook sends each number by itself, through a GPU: ``learner_place`` and ``mean_logs``;
- a collector means its counts through a GPU, which can not be done where one rank's play has failed: ``count_alone``;
- an evaluator tells the other ranks at its end, but not if it was stopped before: ``Ranks.evaluated``.

``entry/breakout_dqn_ddp.py`` shows the use of it.
"""

import datetime
import os
from typing import Any, Callable, List, Optional, Tuple, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from ..run.call_hook import CallHook
from ..run.stop_request import Stopped
from ..utils import run_registry
from ..utils.option_checks import checked, whole_number
from .rank_saver import RankSaver

Result = TypeVar('Result')

# From one rank's seed to the next one's. DI-engine counts up from a seed for each environment; so these never meet
# those of another rank, nor those of a run with a seed near by.
SEEDS_APART = 1_000_003
# DI-engine's log means what it was given in its last 10 updates.
LOG_LOOKS_BACK_UPDATES = 10
_TORCHRUN = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')


class RankLost(RuntimeError):
    """Another rank has ended, or did not answer in time."""


class RankFailed(RuntimeError):
    """Another rank found that the run can not go on."""


class Ranks(object):
    """
    Overview:
        The processes of a run, seen from one of them: those that ``torchrun`` started, or this one alone. A context: \
        all join at its beginning; at its end this one leaves, whatever ended it. A rank that is gone ends the others \
        with ``RankLost``: at once if its process ended, after ``peer_timeout_s`` if it hangs or its machine is off.

        Gradients go by NCCL where each process has a GPU of its own, else by gloo; whatever is said besides goes by \
        gloo, so that nobody waits for a GPU to hear it. What is said and done is said and done by all ranks at once.
    Interfaces:
        ``any``, ``sum``, ``mean``, ``gather``, ``each``, ``from_first``, ``evaluated``, ``saver``, ``announce``.
    Properties:
        ``rank``, ``size``, ``is_first``, ``backend``.
    """

    def __init__(self, cuda: bool, peer_timeout_s: float = 1800.0) -> None:
        """
        Arguments:
            - cuda (:obj:`bool`): Whether to learn on GPUs, if there are any.
            - peer_timeout_s (:obj:`float`): Seconds to wait for another rank; the first one may be evaluating.
        Raises:
            - ValueError: If the environment names a place among the ranks only in part.
        """
        self.rank, self.size, here = _place()
        self.is_first = self.rank == 0
        self._are_all_here = here == self.size
        self._gpus = torch.cuda.device_count() if cuda and torch.cuda.is_available() else 0
        # NCCL refuses two processes on one GPU, as someone may have to try it out
        self.backend = 'nccl' if self._gpus >= here and dist.is_nccl_available() else 'gloo'
        self._peer_timeout_s = peer_timeout_s
        self._exp_name: Optional[str] = None

    # ---------------------------------------------------------------- joining and leaving

    def __enter__(self) -> 'Ranks':
        if self._gpus:
            torch.cuda.set_device(self.rank % self._gpus)
        timeout = datetime.timedelta(seconds=self._peer_timeout_s)
        try:
            dist.init_process_group(
                'cpu:gloo,cuda:nccl' if self.backend == 'nccl' else 'gloo',
                store=self._meeting_place(timeout),
                rank=self.rank,
                world_size=self.size,
                timeout=timeout,
            )
        except RuntimeError as error:
            raise self._lost(error, 'could not meet the others') from error
        return self

    def _meeting_place(self, timeout: datetime.timedelta) -> dist.Store:
        """Where the ranks leave their addresses for each other."""
        if self.size == 1:
            return dist.HashStore()  # opens no port
        store = next(rendezvous('env://', self.rank, self.size, timeout=timeout))[0]
        store.set_timeout(timeout)
        if self._are_all_here:
            # What restarts its ranks after a failure may keep the store, and in it the addresses of those that are
            # gone. (On several machines they count their restarts each for itself.)
            store = dist.PrefixStore(f'start_{os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)}', store)
        return store

    def __exit__(self, kind: Optional[type], error: Optional[BaseException], trace: Any) -> None:
        # the others hear of it, and without it the interpreter may abort at its end, as threads wait for them still
        dist.destroy_process_group()
        if self._exp_name is not None:
            run_registry.forget(self._exp_name)
        if _is_about_a_peer(error):
            raise self._lost(error, 'lost another one') from error

    def _lost(self, error: BaseException, what: str) -> RankLost:
        reason = str(error).splitlines()[0]
        return RankLost(
            f'rank {self.rank} of {self.size} {what}, which ended or did not answer within {self._peer_timeout_s:g} '
            'seconds, and ends, too. What that one said is above, or in the log of its machine; the run goes on from '
            f'the last save of all ranks (--resume). [{reason}]'
        )

    # ---------------------------------------------------------------- saying something to each other

    def any(self, *flags: bool) -> Tuple[bool, ...]:
        """For each flag, whether it is set on any rank."""
        together = torch.tensor([int(bool(flag)) for flag in flags])
        dist.all_reduce(together, dist.ReduceOp.MAX)
        return tuple(bool(flag) for flag in together.tolist())

    def sum(self, *numbers: int) -> Tuple[int, ...]:
        """Each whole number, summed over all ranks."""
        together = torch.tensor([int(number) for number in numbers])
        dist.all_reduce(together)
        return tuple(together.tolist())

    def mean(self, numbers: List[float]) -> List[float]:
        """Each number, meaned over all ranks."""
        together = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(together)
        return (together / self.size).tolist()

    def gather(self, thing: Result) -> List[Result]:
        """What each rank gave, in their order."""
        things: List[Any] = [None] * self.size
        dist.all_gather_object(things, thing)
        return things

    def each(self, function: Callable[[], Result]) -> List[Result]:
        """
        Overview:
            Do something on each rank.
        Returns:
            - results (:obj:`List[Result]`): What came of it on each, in their order.
        Raises:
            - RankFailed: If it failed on another rank; where it failed, its error is raised.
        """
        result = error = None
        try:
            result = function()
        except Exception as failure:  # whatever it is, the others must not go on without this one
            error = failure
        answers = self.gather((result, None if error is None else str(error)))
        if error is not None:
            raise error
        self._check({rank: problem for rank, (_, problem) in enumerate(answers) if problem is not None})
        return [result for result, _ in answers]

    def from_first(self, function: Callable[[], Result]) -> Result:
        """
        Overview:
            Do something on the first rank, for all.
        Returns:
            - result (:obj:`Result`): What came of it there.
        Raises:
            - RankFailed: If it failed there; on the first rank its error is raised.
        """
        return self.each(function if self.is_first else lambda: None)[0]

    @staticmethod
    def _check(problems: dict) -> None:
        for rank, problem in problems.items():
            raise RankFailed(f'rank {rank} ended: {problem}')

    def evaluated(self, evaluate: Callable[[], bool]) -> Optional[bool]:
        """
        Overview:
            Wait until the first rank has evaluated.
        Arguments:
            - evaluate (:obj:`Callable`): Calls ``eval`` of one of DI-engine's evaluators; may raise ``Stopped``.
        Returns:
            - finished (:obj:`Optional[bool]`): Whether the score is the one to stop at; None if it was stopped.
        """
        told = [None, None]  # as DI-engine's evaluators tell it: whether to stop, and about the games
        if self.is_first:
            try:
                return evaluate()
            except Stopped:
                pass
        dist.broadcast_object_list(told, src=0)
        return told[0]

    # ---------------------------------------------------------------- taking part in a run

    def saver(self, learner: 'BaseLearner', save_every_s: float) -> RankSaver:  # noqa: F821
        """What saves this rank's part of the run; the learner's hook of type ``resume`` asks for it."""
        return RankSaver(learner, save_every_s, self)

    def announce(self, exp_name: str) -> None:
        """Be found by that hook, until the ranks part."""
        self._exp_name = exp_name
        run_registry.register(exp_name, 'ranks', self)


def _place() -> Tuple[int, int, int]:
    """Rank, number of ranks, and how many of them are on this machine."""
    if not {'RANK', 'WORLD_SIZE'} & os.environ.keys():
        return 0, 1, 1
    missing = [name for name in _TORCHRUN if name not in os.environ]
    if missing:
        raise ValueError(
            f'the environment has some of {", ".join(_TORCHRUN)}, but not {", ".join(missing)}; expected all of them, '
            'as `torchrun --nproc-per-node N` sets them, or none'
        )
    size = _number('WORLD_SIZE', 1, 1_000_000)
    here = _number('LOCAL_WORLD_SIZE', 1, size) if 'LOCAL_WORLD_SIZE' in os.environ else size
    _number('MASTER_PORT', 0, 65_535)
    return _number('RANK', 0, size - 1), size, here


def _number(name: str, low: int, high: int) -> int:
    text = os.environ[name]
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return checked('variable', name, int(text) if is_number else text, whole_number(low, high))


def _is_about_a_peer(error: Optional[BaseException]) -> bool:
    """gloo's errors are plain ``RuntimeError``s; each names the place in its source."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and '/gloo/' in str(error))


# ---------------------------------------------------------------- DI-engine's workers on several ranks


def learner_place(ranks: Ranks) -> Tuple[int, int]:
    """``dist_info`` of a learner: its rank, as only the first one writes; but alone, or it would reduce its logs."""
    return ranks.rank, 1


def mean_logs(ranks: Ranks, learner: 'BaseLearner', show_every: int) -> None:  # noqa: F821
    """
    Overview:
        Have the learner's log and curves show means over all ranks: those of the updates it looks back on when it shows
        them, in one message for all numbers.
    Arguments:
        - ranks (:obj:`Ranks`): The ranks.
        - learner (:obj:`BaseLearner`): This rank's.
        - show_every (:obj:`int`): Updates from one line of the log to the next.
    """

    def mean() -> None:
        if -learner.train_iter % show_every < LOG_LOOKS_BACK_UPDATES:
            values = learner.log_buffer['scalar']
            names = sorted(name for name, value in values.items() if isinstance(value, (int, float)))
            values.update(dict(zip(names, ranks.mean([values[name] for name in names]))))

    learner.register_hook(CallHook('mean_logs', 10, mean, position='after_iter'))  # before log_show


def count_alone(collector: 'ISerialCollector') -> None:  # noqa: F821
    """Have a collector count its own env steps only. The pipeline adds those of the others."""
    collector._world_size = 1
