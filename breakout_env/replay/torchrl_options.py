"""The options of ``TorchRLReplayBuffer``: what each means and what it may be."""

import numbers
from dataclasses import dataclass, fields
from typing import Any, Mapping, Optional


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
            Read and check ``cfg.policy.other.replay_buffer``. Keys it does not know are passed over: DI-engine merges \
            the options of its own buffer into it where the type is named in the policy alone.
        Arguments:
            - cfg (:obj:`Mapping`): Dict or EasyDict.
        Returns:
            - options (:obj:`TorchRLOptions`): The options in force.
        Raises:
            - ValueError: If a value is not allowed, or two do not go together; the message names the option.
        """
        options = cls(**{field.name: cfg[field.name] for field in fields(cls) if field.name in cfg})
        for name, (allowed, expected) in _CHECKS.items():
            value = getattr(options, name)
            if not allowed(value):
                raise ValueError(
                    f'replay buffer option `{name}` is {value!r} ({type(value).__name__}); expected {expected}'
                )
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


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and value >= low


def _share(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= value <= 1


_CHECKS = dict(
    replay_buffer_size=(lambda value: _whole(value, 1), 'a whole number from 1'),
    storage=(lambda value: value in ('tensor', 'memmap'), "'tensor' or 'memmap'"),
    folder=(lambda value: value is None or isinstance(value, str) and value, 'None or the name of a folder'),
    sampler=(lambda value: value in ('uniform', 'prioritized', 'slice'), "'uniform', 'prioritized' or 'slice'"),
    slice_len=(lambda value: value is None or _whole(value, 2), 'None or a whole number from 2'),
    alpha=(_share, 'a number from 0 to 1'),
    beta=(_share, 'a number from 0 to 1'),
    anneal_step=(lambda value: _whole(value, 0), 'a whole number from 0'),
)
