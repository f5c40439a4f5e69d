"""The options of the replay buffers: ``frame``, ``TaskFrameBuffer`` of task pipelines, and ``torchrl``."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from ding.worker import AdvancedReplayBuffer
from pydantic import Field
from typing_extensions import Self

from ..utils.options import Between, Flag, Options, PathText, as_dict, describe

_OWNER = 'replay buffer option'
_Size = Annotated[int, Between(1, 2**31 - 1, from_float=True)]
_Share = Annotated[float, Between(0.0, 1.0)]
FOLDER = 'replay'  # in the experiment's, for storages in files, where no other folder is given
# Keys without effect: DI-engine puts them into the section, or configs have them for its buffers. (compile_config
# merges the defaults of the advanced buffer into a section that alone names the type.)
DI_ENGINE_KEYS = frozenset(AdvancedReplayBuffer.config) | {
    *('import_names', 'cfg_type', 'name', 'multi_buffer', 'periodic_thruput_seconds')
}


class _BufferOptions(Options):
    """What all buffers share."""

    _owner = _OWNER

    def refuse_without_effect(self, other: str, value: str, names: Iterable[str]) -> None:
        """Refuse options that differ from their defaults, where another option's value leaves them without effect."""
        for name in names if getattr(self, other) != value else ():
            found, default = getattr(self, name), type(self).model_fields[name].default
            if found != default:
                raise ValueError(
                    f'{self._owner} `{name}` is {describe(found)}; expected {default!r} where '
                    f'{other}={getattr(self, other)!r}; or {other}={value!r}'
                )


class FrameStorageOptions(_BufferOptions):
    """Where frames are, and which are evicted: the options of both interfaces of ``ReplayMemory``."""

    storage: Literal['compressed', 'ring', 'memmap'] = 'compressed'
    """(str) Where frames are: ``compressed`` in memory, or unchanged in memory (``ring``) or in a file (``memmap``)."""
    eviction: Literal['fifo', 'random'] = 'fifo'
    """(str) Which transition a full buffer evicts: ``fifo`` the oldest, ``random`` any (de Bruin et al. 2018)."""
    folder: PathText = ''
    """(str) Folder of the file of storage ``memmap``; '' for ``replay`` in the experiment's folder."""


class TaskBufferOptions(FrameStorageOptions):
    """The arguments of ``TaskFrameBuffer``. It samples without priorities and prefetching: in a task pipeline these,
    and expiry, are middleware.
    """

    _owner = 'TaskFrameBuffer option'

    size: _Size
    """(int) The most transitions it keeps."""

    @classmethod
    def from_arguments(cls, size: int, others: Mapping) -> 'TaskBufferOptions':
        """Read and check them; a ValueError names the option that is unknown, not allowed or contradicted."""
        options = cls.read(dict(others, size=size))
        options.refuse_without_effect('storage', 'memmap', ['folder'])
        return options


class SamplingOptions(_BufferOptions):
    """What the buffers of serial pipelines share."""

    _passed_over = DI_ENGINE_KEYS

    replay_buffer_size: _Size = 1_000_000
    """(int) The most transitions it keeps."""
    alpha: _Share = 0.6
    """(float) Prioritised replay (Schaul et al. 2016): the exponent of priorities (absolute TD errors), 0 for uniform \
    sampling."""
    beta: _Share = 0.4
    """(float) Prioritised replay: the exponent of the importance-sampling weights at the start."""
    anneal_step: Annotated[int, Between(0, 2**31 - 1, from_float=True)] = 100_000
    """(int) Prioritised replay: samples over which beta rises to 1; 0 to leave it where it is."""
    prefetch: Flag = False
    """(bool) Whether a thread makes the next batch while the learner computes. It is sampled one call early, so it \
    lacks transitions pushed and priorities set in between. (``torchrl``: from a separate generator, seeded \
    from PyTorch's.)"""

    @classmethod
    def from_config(cls, cfg: Mapping) -> Self:
        """Read and check the section; a ValueError names the option that is unknown, not allowed or contradicted."""
        values = as_dict(_OWNER, cfg)
        for name in ('max_use', 'max_staleness', 'thruput_controller'):  # limits that DI-engine's buffers have
            default = AdvancedReplayBuffer.config[name]
            if (value := values.get(name, default)) != default:
                raise ValueError(f'{_OWNER} `{name}` is {describe(value)}; expected no limit, as it has no effect')
        options = cls.read(cfg)
        options.refuse_without_effect('storage', 'memmap', ['folder'])
        return options


class ReplayOptions(SamplingOptions, FrameStorageOptions):
    """The options of a replay buffer, ``policy.other.replay_buffer`` in a config.

    Examples:
        >>> ReplayOptions.from_config(dict(type='frame', replay_buffer_size=1e5)).replay_buffer_size
        100000
        >>> ReplayOptions.from_config(dict(eviction='lifo'))
        Traceback (most recent call last):
        ...
        ValueError: replay buffer option `eviction` is 'lifo' (str); expected one of 'fifo', 'random'
    """

    pin_memory: Flag | None = None
    """(bool | None) Whether batches are in pinned memory, from where a GPU copies faster; None: if this \
    process uses a GPU."""


class TorchRLOptions(SamplingOptions):
    """The checked options of ``cfg.policy.other.replay_buffer``.

    Examples:
        >>> TorchRLOptions.from_config(dict(type='torchrl', sampler='slice', slice_len=60)).slice_len
        60
    """

    replay_buffer_size: _Size = 10000
    """(int) Transitions kept; new ones replace the oldest. The first push allocates memory for all of them and \
    refuses a number that cannot fit: a transition of R2D2 on Breakout takes 32 kB, one of DQN 57 kB."""
    storage: Literal['tensor', 'memmap'] = 'tensor'
    """(str) ``tensor`` to keep transitions in memory (TorchRL's LazyTensorStorage), ``memmap`` in files \
    (LazyMemmapStorage)."""
    folder: Annotated[PathText, Field(min_length=1)] | None = None
    """(str | None) Folder for these files; each buffer creates its own subfolder and removes it. None for a folder \
    ``replay`` in the experiment's."""
    sampler: Literal['uniform', 'prioritized', 'slice'] = 'uniform'
    """(str) What a sample consists of: ``uniform`` or ``prioritized`` transitions, or ``slice``, consecutive steps of \
    an episode, for recurrent policies (``r2d2_slices``); their transitions need `episode_id` and `step_id` (collector \
    ``sample_with_ids``). TorchRL's SliceSampler samples an episode, all with equal probability, then a start in it: \
    steps of short episodes are seen more often."""
    slice_len: Annotated[int, Between(2, 2**31 - 1)] | None = None
    """(int | None) Steps in a slice; shorter episodes are padded with null steps."""

    @classmethod
    def from_config(cls, cfg: Mapping) -> Self:
        options = super().from_config(cfg)
        options.refuse_without_effect('sampler', 'prioritized', ['alpha', 'beta', 'anneal_step'])
        options.refuse_without_effect('sampler', 'slice', ['slice_len'])
        if options.sampler == 'slice' and not 0 < (options.slice_len or 0) <= options.replay_buffer_size:
            raise ValueError(
                f"{_OWNER} `slice_len` is {options.slice_len} with sampler='slice'; expected the number of "
                f'steps in a slice, at most `replay_buffer_size`, which is {options.replay_buffer_size}'
            )
        return options
