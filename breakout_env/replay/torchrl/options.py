"""The options of ``TorchRLReplayBuffer``: what each means and what it may be."""

from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, Optional

from ...utils import option_checks

# How its errors begin.
OPTION = 'replay buffer option'
# What DI-engine puts into the section itself: compile_config merges the options of its own buffer in where the type is
# named in the policy alone. They mean nothing here.
DI_ENGINE_KEYS = frozenset(
    [
        'type',
        'import_names',
        'cfg_type',
        'name',
        'multi_buffer',
        'deepcopy',
        'enable_track_used_data',
        'max_staleness',
        'max_use',
        'monitor',
        'periodic_thruput_seconds',
        'thruput_controller',
    ]
)


@dataclass(frozen=True)
class TorchRLOptions:
    """
    Overview:
        The options, checked, with nothing left to look up.
    Interfaces:
        ``from_config``.
    """

    # (int) Transitions kept; the oldest make room for new ones. Memory for all of them is set aside at the first push,
    # which refuses a number that can not fit: a transition of R2D2 on Breakout takes 32 kB, one of DQN 57 kB.
    replay_buffer_size: int = 10000
    # (str) 'tensor' to keep them in memory (TorchRL's LazyTensorStorage), 'memmap' in files (LazyMemmapStorage).
    storage: str = 'tensor'
    # (Optional[str]) Folder for these files; each buffer makes one of its own in there, and removes it. None for
    # a folder `replay` in the experiment's.
    folder: Optional[str] = None
    # (str) What a sample is made of: 'uniform' or 'prioritized' transitions, or 'slice', consecutive steps of an
    # episode, for which transitions must carry `episode_id` and `step_id`. TorchRL's SliceSampler draws an episode,
    # each as likely as any other, then a place in it: steps of short episodes are seen more often.
    sampler: str = 'uniform'
    # (Optional[int]) Steps in a slice; shorter episodes are filled up with null steps.
    slice_len: Optional[int] = None
    # (float) 'prioritized' only: 0 for even sampling, 1 for sampling in proportion to the priority.
    alpha: float = 0.6
    # (float) 'prioritized' only: how far importance sampling weights make up for it at the start, ...
    beta: float = 0.4
    # (int) ... and the number of samples after which they do so in full; 0 to stay at beta.
    anneal_step: int = 100000

    @classmethod
    def from_config(cls, cfg: Mapping) -> 'TorchRLOptions':
        """
        Overview:
            Read and check ``cfg.policy.other.replay_buffer``.
        Arguments:
            - cfg (:obj:`Mapping`): Dict or EasyDict.
        Returns:
            - options (:obj:`TorchRLOptions`): The options in force.
        Raises:
            - ValueError: If an option is unknown, its value is not allowed, or two do not go together; the message \
                names the option.
        """
        options = cls(**option_checks.read(OPTION, cfg, _CHECKS, DI_ENGINE_KEYS))
        if (options.sampler == 'slice') != (options.slice_len is not None):
            raise ValueError(
                f'replay buffer option `slice_len` is {options.slice_len} with `sampler` {options.sampler!r}; expected '
                "the number of steps in a slice with 'slice', and None with 'uniform' and 'prioritized'"
            )
        if options.slice_len is not None and options.slice_len > options.replay_buffer_size:
            raise ValueError(
                f'replay buffer option `slice_len` is {options.slice_len}; expected at most `replay_buffer_size`, '
                f'which is {options.replay_buffer_size}'
            )
        return options


_CHECKS: Dict[str, option_checks.Check] = dict(
    replay_buffer_size=option_checks.whole_number(1, 2**31 - 1),
    storage=option_checks.one_of('tensor', 'memmap'),
    folder=lambda value: None if value is None else _folder(value),
    sampler=option_checks.one_of('uniform', 'prioritized', 'slice'),
    slice_len=option_checks.whole_number(2, 2**31 - 1, or_none=True),
    alpha=option_checks.number(0.0, 1.0),
    beta=option_checks.number(0.0, 1.0),
    anneal_step=option_checks.whole_number(0, 2**63 - 1),
)
assert set(_CHECKS) == {field.name for field in fields(TorchRLOptions)}


def _folder(value: Any) -> str:
    try:
        folder = option_checks.path(value)
    except ValueError as expected:
        raise ValueError(f'None or {expected}') from None
    if not folder:
        raise ValueError('None or the name of a folder')
    return folder
