"""The options of ``TorchRLReplayBuffer``."""

from typing import Annotated, Literal, Mapping, Optional

from pydantic import Field

from ...utils.options import Between, Flag, Options, PathText
from ..options import DI_ENGINE_KEYS, refuse_without_effect

_NEEDS = dict(
    alpha=dict(sampler='prioritized'),
    beta=dict(sampler='prioritized'),
    anneal_step=dict(sampler='prioritized'),
    folder=dict(storage='memmap'),
)


class TorchRLOptions(Options):
    """
    Overview:
        The checked options of ``cfg.policy.other.replay_buffer``.
    Examples:
        >>> TorchRLOptions.from_config(dict(type='torchrl', sampler='slice', slice_len=60)).slice_len
        60
        >>> TorchRLOptions.from_config(dict(type='torchrl', sampler='slice'))
        Traceback (most recent call last):
        ...
        ValueError: replay buffer option `slice_len` is None with `sampler` 'slice'; expected the number of steps in a \
slice with 'slice', and None with 'uniform' and 'prioritized'
    """

    _owner = 'replay buffer option'
    _passed_over = DI_ENGINE_KEYS

    replay_buffer_size: Annotated[int, Between(1, 2**31 - 1)] = 10000
    """(int) Transitions kept; new ones replace the oldest. The first push allocates memory for all of them and \
    refuses a number that cannot fit: a transition of R2D2 on Breakout takes 32 kB, one of DQN 57 kB."""
    storage: Literal['tensor', 'memmap'] = 'tensor'
    """(str) ``tensor`` to keep transitions in memory (TorchRL's LazyTensorStorage), ``memmap`` in files \
    (LazyMemmapStorage)."""
    folder: Optional[Annotated[PathText, Field(min_length=1)]] = None
    """(Optional[str]) Folder for these files; each buffer creates its own subfolder and removes it. None for a folder \
    ``replay`` in the experiment's."""
    sampler: Literal['uniform', 'prioritized', 'slice'] = 'uniform'
    """(str) What a sample consists of: ``uniform`` or ``prioritized`` transitions, or ``slice``, consecutive steps of \
    an episode, for which transitions need `episode_id` and `step_id`. TorchRL's SliceSampler samples an episode, all \
    with equal probability, then a position in it: steps of short episodes are seen more often."""
    slice_len: Optional[Annotated[int, Between(2, 2**31 - 1)]] = None
    """(Optional[int]) Steps in a slice; shorter episodes are padded with null steps."""
    alpha: Annotated[float, Between(0.0, 1.0)] = 0.6
    """(float) ``prioritized`` only: 0 for uniform sampling, 1 for sampling in proportion to the priority."""
    beta: Annotated[float, Between(0.0, 1.0)] = 0.4
    """(float) ``prioritized`` only: how much importance sampling weights correct for it at the start."""
    anneal_step: Annotated[int, Between(0, 2**63 - 1)] = 100000
    """(int) ``prioritized`` only: the number of samples over which beta rises to 1; 0 to keep beta."""

    prefetch: Flag = False
    """(bool) Whether a thread samples the next batch while the learner computes: before what is pushed in between. \
    Its random numbers are then its own, seeded from PyTorch's."""

    @classmethod
    def from_config(cls, cfg: Mapping) -> 'TorchRLOptions':
        """Read and check the section; a ValueError names the option that is unknown, not allowed or contradicted."""
        options = cls.read(cfg)
        if (options.sampler == 'slice') != (options.slice_len is not None):
            raise ValueError(
                f'replay buffer option `slice_len` is {options.slice_len} with `sampler` {options.sampler!r}; expected '
                "the number of steps in a slice with 'slice', and None with 'uniform' and 'prioritized'"
            )
        refuse_without_effect(options, _NEEDS)
        if options.slice_len is not None and options.slice_len > options.replay_buffer_size:
            raise ValueError(
                f'replay buffer option `slice_len` is {options.slice_len}; expected at most `replay_buffer_size`, '
                f'which is {options.replay_buffer_size}'
            )
        return options
