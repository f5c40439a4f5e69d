"""The options of the replay buffers: ``frame``, ``FrameBuffer`` of task pipelines, and ``torchrl``."""

import math
from typing import Annotated, Any, Iterable, Literal, Mapping, Optional

from ding.worker import AdvancedReplayBuffer
from pydantic import Field

from ..utils.options import Between, Flag, Options, PathText, checked, section, shown

_OWNER = 'replay buffer option'
_Count = Annotated[int, Between(0, 2**31 - 1, from_float=True)]
_Share = Annotated[float, Between(0.0, 1.0)]
_Seconds = Annotated[float, Between(0.0)]
# Keys that DI-engine puts into the section itself, or that configs written for its own buffers have, and no options of
# ours. They have no effect. (compile_config merges the advanced buffer's defaults in where only that section names the
# type.)
DI_ENGINE_KEYS = frozenset(AdvancedReplayBuffer.config) | {
    *('import_names', 'cfg_type', 'name', 'multi_buffer', 'periodic_thruput_seconds')
}
# Options of version 0.1.0: allowed at their defaults, as the merged configs of earlier runs have them.
_GONE = dict(max_use=math.inf, max_staleness=math.inf, device='cuda', save_path='', save_every_pushes=0, save_every_s=0)
_NEEDS = dict(folder=dict(storage='memmap'))
# These belong to priorities, or leave gaps in episodes.
_NOT_WITH_SLICES = ('eviction', 'alpha', 'beta', 'anneal_step')


class ReplayOptions(Options):
    """
    Overview:
        The options of a replay buffer, ``policy.other.replay_buffer`` in a config.
    Examples:
        >>> ReplayOptions.from_config(dict(type='frame', replay_buffer_size=1e5)).replay_buffer_size
        100000
        >>> ReplayOptions.from_config(dict(eviction='lifo'))
        Traceback (most recent call last):
        ...
        ValueError: replay buffer option `eviction` is 'lifo' (str); expected one of 'fifo', 'random'
    """

    _owner = _OWNER
    _passed_over = DI_ENGINE_KEYS | frozenset(_GONE)

    replay_buffer_size: Annotated[int, Between(1, 2**31 - 1, from_float=True)] = 1_000_000
    """(int) The most transitions it keeps."""
    storage: Literal['compressed', 'ring', 'memmap'] = 'compressed'
    """(str) Where frames are: ``compressed`` in memory, or unchanged in memory (``ring``) or in a file (``memmap``)."""
    eviction: Literal['fifo', 'random'] = 'fifo'
    """(str) Which transition a full buffer evicts: ``fifo`` the oldest, ``random`` any (de Bruin et al. 2018)."""
    folder: PathText = ''
    """(str) Folder of the file of storage ``memmap``; '' for ``replay`` in the experiment's folder."""
    alpha: _Share = 0.6
    """(float) Prioritised replay (Schaul et al. 2016): the exponent of priorities (absolute TD errors), 0 for uniform \
    sampling."""
    beta: _Share = 0.4
    """(float) Prioritised replay: the exponent of the importance-sampling weights at the start."""
    anneal_step: _Count = 100_000
    """(int) Samples over which beta rises to 1; 0 to leave it where it is."""
    prefetch: Flag = False
    """(bool) Whether a thread decodes the next batch while the learner computes. That batch is sampled one call \
    earlier: before what is pushed in between."""
    pin_memory: Optional[Flag] = None
    """(Optional[bool]) Whether batches are in pinned memory, from where a GPU copies faster; None for "if there is \
    one"."""
    report_every_s: _Seconds = 30.0
    """(float) Seconds between two points of the memory's curve in TensorBoard."""
    slice_len: Optional[Annotated[int, Between(2, 2**31 - 1)]] = None
    """(Optional[int]) Sample slices of so many consecutive steps of an episode, for recurrent policies \
    (``r2d2_slices``), from transitions with `episode_id` and `step_id` (collector ``sample_with_ids``); None for \
    single transitions. Every place where a slice may begin is as likely as any other; shorter episodes are padded \
    with null steps."""
    slice_every: Annotated[int, Between(1, 2**31 - 1)] = 1
    """(int) Slices begin at steps of an episode that are multiples of this. Only these keep `prev_state`, the hidden \
    state of R2D2, which takes 4 kB."""

    @classmethod
    def from_config(cls, cfg: Mapping) -> 'ReplayOptions':
        """Read and check the section; a ValueError names the option that is unknown, not allowed or contradicted."""
        options = cls.read(cfg)
        for name, default in _GONE.items():
            value = section(_OWNER, cfg).get(name, default)
            if value != default:
                raise ValueError(f'{_OWNER} `{name}` is {shown(value)}; expected none, as it is gone (CHANGELOG.md)')
        _check_controller(section(_OWNER, cfg).get('thruput_controller'))
        options._check_slices()
        refuse_without_effect(options, _NEEDS)
        return options

    def _check_slices(self) -> None:
        if self.slice_len is None:
            expect_defaults(self, ['slice_every'], 'without `slice_len`')
            return
        expect_defaults(self, _NOT_WITH_SLICES, 'with `slice_len`: slices are sampled uniformly, from whole episodes')
        if not self.slice_every <= self.slice_len <= self.replay_buffer_size:
            raise ValueError(
                f'{_OWNER} `slice_len` is {self.slice_len}; expected at least `slice_every` ({self.slice_every}) and '
                f'at most `replay_buffer_size` ({self.replay_buffer_size})'
            )


class TorchRLOptions(Options):
    """
    Overview:
        The checked options of ``cfg.policy.other.replay_buffer``.
    Examples:
        >>> TorchRLOptions.from_config(dict(type='torchrl', sampler='slice', slice_len=60)).slice_len
        60
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
    with equal probability, then a start in it: steps of short episodes are seen more often."""
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
        prioritized = dict(sampler='prioritized')
        needs = dict(alpha=prioritized, beta=prioritized, anneal_step=prioritized, slice_len=dict(sampler='slice'))
        refuse_without_effect(options, dict(needs, folder=dict(storage='memmap')))
        if options.sampler == 'slice' and not 0 < (options.slice_len or 0) <= options.replay_buffer_size:
            raise ValueError(
                f"replay buffer option `slice_len` is {options.slice_len} with sampler='slice'; expected the number of "
                f'steps in a slice, at most `replay_buffer_size`, which is {options.replay_buffer_size}'
            )
        return options


def expect_defaults(options: Options, names: Iterable[str], why: str) -> None:
    """Refuse options that would have no effect, where they are not at their defaults."""
    for name in names:
        value, default = getattr(options, name), type(options).model_fields[name].default
        if value != default:
            raise ValueError(f'{_OWNER} `{name}` is {shown(value)}; expected {default!r} {why}')


def refuse_without_effect(options: Options, needs: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse options that have an effect only with some value of another one, by name."""
    for name, condition in needs.items():
        for other, value in condition.items():
            if getattr(options, other) != value:
                expect_defaults(options, [name], f'where {other}={getattr(options, other)!r}; or {other}={value!r}')


def _check_controller(controller: Any) -> None:
    """What DI-engine's buffers throttle by; only ``sample_min_limit_ratio`` has an effect here."""
    name = 'thruput_controller'
    controller = section(f'{_OWNER} `{name}`', controller)
    ratio = controller.get('sample_min_limit_ratio', 1)
    checked(_OWNER, f'{name}.sample_min_limit_ratio', ratio, Annotated[float, Between(0.0, 1e6)])
    limits = section(f'{_OWNER} `{name}.push_sample_rate_limit`', controller.get('push_sample_rate_limit'))
    for bound, unlimited in (('max', math.inf), ('min', 0)):
        value = limits.get(bound, unlimited)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != unlimited:
            raise ValueError(
                f'{_OWNER} `{name}.push_sample_rate_limit` is {shown(dict(limits))}; expected no limit: '
                'a serial pipeline pushes and samples as update_per_collect and n_sample say'
            )
