"""
Data-parallel ranks: processes that collect and store each for itself, and make every update together.

DI-engine averages gradients by itself, with ``policy.multi_gpu``. Its other parts for several ranks fail without a GPU
or end badly (DI-engine 0.5.3): ``dist_init`` and ``DDPContext`` divide by the number of GPUs, set no timeout, and are
never undone; a policy takes the GPU ``rank % count``, whatever the current one is; an evaluator tells the other ranks
its result, but not if it was stopped. ``Ranks`` stands in their place; ``compat/ding_rank_logs.py`` has the rest.
``entry/breakout_dqn_ddp.py`` uses both.
"""

import datetime
import os
from types import TracebackType
from typing import Annotated, Any, Callable, List, Optional, Tuple, Type, TypeVar

import torch
import torch.distributed as dist
from ding.worker import BaseLearner
from torch.distributed.rendezvous import rendezvous

from ..run.saver import RunSaver
from ..run.stop_request import Stopped
from ..utils import run_registry
from ..utils.options import Between, checked

Result = TypeVar('Result')

# Between the seeds of two ranks: DI-engine counts up from a seed for each environment, so these never meet.
SEEDS_APART = 1_000_003
_TORCHRUN = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')


class RankLost(RuntimeError):
    """Another rank has ended, or did not answer in time."""


class RankFailed(RuntimeError):
    """Another rank cannot continue the run."""


class Ranks(object):
    """
    The processes of a run, seen from one of them: those that ``torchrun`` started, or this one alone. A context:
    all ranks join at its start, and this one leaves at its end. If a rank is lost, the others end with
    ``RankLost``: at once if its process ended, after ``peer_timeout_s`` if it hangs or its machine is off.

    Gradients go by NCCL where each process has a GPU of its own, else by gloo; all other messages go by gloo,
    which waits for no GPU. All ranks call each method together.
    """

    def __init__(self, cuda: bool, peer_timeout_s: float = 1800.0) -> None:
        """
        Arguments:
            - cuda (:obj:`bool`): Whether to learn on GPUs, if there are any.
            - peer_timeout_s (:obj:`float`): Seconds to wait for another rank; the first one may be evaluating.
        Raises:
            - ValueError: If the environment has some of torchrun's variables, but not all.
        """
        self.rank, self.size, here = _place()
        self.is_first = self.rank == 0
        self._are_all_here = here == self.size
        self._gpus = torch.cuda.device_count() if cuda and torch.cuda.is_available() else 0
        # NCCL refuses two processes on one GPU
        self.backend = 'nccl' if self._gpus >= here and dist.is_nccl_available() else 'gloo'
        self._peer_timeout_s = peer_timeout_s
        self._exp_name: Optional[str] = None

    # ---------------------------------------------------------------- joining and leaving

    def __enter__(self) -> 'Ranks':
        if self._gpus:
            torch.cuda.set_device(self.rank % self._gpus)
        timeout = datetime.timedelta(seconds=self._peer_timeout_s)
        backend = 'cpu:gloo,cuda:nccl' if self.backend == 'nccl' else 'gloo'
        try:
            store = self._store(timeout)
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size, timeout=timeout)
        except RuntimeError as error:
            raise self._lost(error, 'could not meet the others') from error
        return self

    def _store(self, timeout: datetime.timedelta) -> dist.Store:
        if self.size == 1:
            return dist.HashStore()  # opens no port
        store = next(rendezvous('env://', self.rank, self.size, timeout=timeout))[0]
        store.set_timeout(timeout)
        if self._are_all_here:
            # Restarted ranks may find the store of those before, with their addresses. (On several machines each
            # counts its own restarts.)
            store = dist.PrefixStore(f'start_{os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)}', store)
        return store

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        # tells the others; without it the interpreter may abort at its end, as threads still wait for them
        dist.destroy_process_group()
        if self._exp_name is not None:
            run_registry.forget(self._exp_name)
        # gloo raises plain RuntimeErrors, which name the place in its source
        if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and '/gloo/' in str(error)):
            raise self._lost(error, 'lost another one') from error

    def _lost(self, error: BaseException, what: str) -> RankLost:
        return RankLost(
            f'rank {self.rank} of {self.size} {what}, which ended or did not answer within {self._peer_timeout_s:g} '
            'seconds, and ends, too. Its own message is above, or in the log of its machine; --resume resumes the run '
            f'from the last save of all ranks. [{str(error).splitlines()[0]}]'
        )

    # ---------------------------------------------------------------- messages

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
        """Each number, averaged over all ranks."""
        together = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(together)
        return (together / self.size).tolist()

    def gather(self, value: Result) -> List[Result]:
        """The values of all ranks, in their order."""
        values: List[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def each(self, function: Callable[[], Result]) -> List[Result]:
        """
        Overview:
            Call a function on each rank.
        Returns:
            - results (:obj:`List[Result]`): Its results on all ranks, in their order.
        Raises:
            - RankFailed: If it failed on another rank; where it failed, its own error is raised.
        """
        result: Any = None
        error: Optional[Exception] = None
        try:
            result = function()
        except Exception as failure:  # whatever it is, the others must hear of it
            error = failure
        answers = self.gather((result, None if error is None else str(error)))
        if error is not None:
            raise error
        for rank, (_, problem) in enumerate(answers):
            if problem is not None:
                raise RankFailed(f'rank {rank} ended: {problem}')
        return [result for result, _ in answers]

    def from_first(self, function: Callable[[], Result]) -> Result:
        """Call a function on the first rank, for all; errors as of ``each``."""
        results: List[Any] = self.each(function if self.is_first else lambda: None)
        return results[0]

    def evaluated(self, evaluate: Callable[[], bool]) -> Optional[bool]:
        """
        Overview:
            Wait until the first rank has called ``evaluate``, which calls ``eval`` of one of DI-engine's evaluators.
        Returns:
            - finished (:obj:`Optional[bool]`): Whether the score has reached ``stop_value``; None after a stop.
        """
        told = [None, None]  # as DI-engine's evaluators tell it: whether to stop, and about the games
        if self.is_first:
            try:
                return evaluate()
            except Stopped:
                pass
        dist.broadcast_object_list(told, src=0)
        return told[0]

    # ---------------------------------------------------------------- in a run

    def register(self, exp_name: str, saver: Callable[[BaseLearner, float, 'Ranks'], RunSaver]) -> None:
        """Let the learner hook ``resume`` find the ranks, until they part, and what saves a rank's part of the run."""
        self._exp_name, self._saver = exp_name, saver
        run_registry.register(exp_name, 'ranks', self)

    def saver(self, learner: BaseLearner, save_every_s: float) -> RunSaver:
        """For that hook."""
        return self._saver(learner, save_every_s, self)


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
    size = _variable('WORLD_SIZE', 1, 1_000_000)
    here = _variable('LOCAL_WORLD_SIZE', 1, size) if 'LOCAL_WORLD_SIZE' in os.environ else size
    _variable('MASTER_PORT', 0, 65_535)
    return _variable('RANK', 0, size - 1), size, here


def _variable(name: str, low: int, high: int) -> int:
    text = os.environ[name]
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    return checked('variable', name, int(text) if is_number else text, Annotated[int, Between(low, high)])
