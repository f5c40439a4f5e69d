"""The options of the replay buffers: what each means, what it may be, and how a DI-engine config becomes them."""

import math
import numbers
from dataclasses import dataclass, fields
from typing import Any, Callable, Dict, Mapping, Optional

import torch

from ..utils import option_checks
from ..utils.memory_limits import free_disk_bytes, gpu_room, memory_room
from .frames.store import STORAGES
from .memory import EVICTIONS

# Keys that DI-engine puts into the section itself, or that configs written for its own buffers carry; none of them has
# anything to say here. (compile_config merges the advanced buffer's defaults in where the type is named only there.)
DI_ENGINE_KEYS = frozenset(
    [
        'type',
        'import_names',
        'cfg_type',
        'name',
        'multi_buffer',
        'deepcopy',
        'enable_track_used_data',
        'monitor',
        'periodic_thruput_seconds',
        'thruput_controller',
    ]
)
# How its errors begin.
OPTION = 'replay buffer option'
# Bytes a transition besides its frames, and of a compressed frame of 84x84 in the play of a good agent, with room to
# spare: what is refused because of them would come close to the limit (benchmarks/bench_replay.py measures both).
_ROW_BYTES = 160
_COMPRESSED_SHARE = 240 / 7056


class DoesNotFit(ValueError):
    """A size for which there is no room; the message has the numbers."""


@dataclass(frozen=True)
class ReplayOptions:
    """
    Overview:
        The options of a replay buffer, checked.
    Interfaces:
        ``from_config``, ``check_room``.
    """

    # (int) Transitions kept at most.
    replay_buffer_size: int = 1_000_000
    # (str) How frames are kept: 'compressed' in memory, 'ring' as they are in memory, 'memmap' as they are in a file,
    # 'device' as they are on the learner's device, where its batches are then, too.
    storage: str = 'compressed'
    # (str) Who goes when it is full: 'fifo', the oldest, or 'random', anyone.
    eviction: str = 'fifo'
    # (str) Folder for the file of storage 'memmap'; '' for replay below the experiment's folder.
    folder: str = ''
    # (str) Device of storage 'device': 'cuda', 'cuda:1', ... (and 'cpu', to try it without a GPU).
    device: str = 'cuda'
    # (float) Prioritised replay: how much priorities count, from 0 (not) to 1.
    alpha: float = 0.6
    # (float) Prioritised replay: how much the bias is corrected at first, from 0 (not) to 1.
    beta: float = 0.4
    # (int) Samples over which beta rises to 1; 0 to leave it where it is.
    anneal_step: int = 100_000
    # (float) Samples after which a transition is removed; infinite for none.
    max_use: float = math.inf
    # (float) Updates between collecting and sampling after which a transition is removed; infinite for none.
    max_staleness: float = math.inf
    # (bool) Whether the next batch is drawn and decoded by a thread of its own while the learner computes. It is drawn
    # one call earlier, then: before what is pushed in between. Storage 'device' needs no thread, and has none.
    prefetch: bool = False
    # (Optional[bool]) Whether batches lie in pinned memory, from where a GPU copies faster; None for "if there is one".
    pin_memory: Optional[bool] = None
    # (str) File the buffer saves itself to; '' for replay/buffer.npz below the experiment's folder.
    save_path: str = ''
    # (int) Pushed transitions between two saves; 0 for never.
    save_every_pushes: int = 0
    # (float) Seconds between two saves; 0 for never.
    save_every_s: float = 0.0
    # (float) Seconds between two points of the memory's curve in TensorBoard.
    report_every_s: float = 30.0

    @classmethod
    def from_config(cls, cfg: Mapping) -> 'ReplayOptions':
        """
        Overview:
            Read and check ``policy.other.replay_buffer``.
        Raises:
            - ValueError: If an option is unknown or its value is not allowed; the message names the option.
        """
        options = cls(**option_checks.read(OPTION, cfg, _CHECKS, DI_ENGINE_KEYS))
        _check_controller(option_checks.section(OPTION, cfg).get('thruput_controller'))
        if options.storage == 'device':
            _expect_device(options.device)
        return options

    def check_room(self, frame_bytes: int, folder: str) -> None:
        """
        Overview:
            Refuse a size that can not fit, rather than be killed hours later.
        Arguments:
            - frame_bytes (:obj:`int`): Size of a frame.
            - folder (:obj:`str`): Where storage 'memmap' keeps its file.
        Raises:
            - DoesNotFit: With the numbers.
        """
        on_gpu = self.storage == 'device' and torch.device(self.device).type == 'cuda'
        shares = dict(compressed=_COMPRESSED_SHARE, ring=1, memmap=0, device=0 if on_gpu else 1)
        a_frame = shares[self.storage] * frame_bytes
        a_transition = _ROW_BYTES + a_frame
        needed = self.replay_buffer_size * a_transition
        room = memory_room()
        if needed > room.free_bytes:
            raise DoesNotFit(
                f'replay buffer option `replay_buffer_size` is {self.replay_buffer_size:,}: about '
                f'{needed / 1e9:.2f} GB '
                f"with storage='{self.storage}' ({a_transition:.0f} bytes a transition of frames of {frame_bytes:,} "
                f'pixels), but this process can take {room.free_bytes / 1e9:.2f} GB more of the '
                f'{room.limit_bytes / 1e9:.2f} GB that {room.whose} allows. Expected at most '
                f'{int(room.free_bytes / a_transition):,}' + _smaller(self.storage)
            )
        if on_gpu:
            room = gpu_room(self.device)
            needed = self.replay_buffer_size * frame_bytes
            if needed > room.free_bytes:
                raise DoesNotFit(
                    f'replay buffer option `replay_buffer_size` is {self.replay_buffer_size:,}: about '
                    f"{needed / 1e9:.2f} GB with storage='device' ({frame_bytes:,} bytes a transition), but "
                    f'{room.whose} has {room.free_bytes / 1e9:.2f} GB left of {room.limit_bytes / 1e9:.2f} GB. '
                    f'Expected at most {room.free_bytes // frame_bytes:,}, another `device`, or '
                    "storage='compressed'"
                )
        if self.storage == 'memmap':
            free = free_disk_bytes(folder)
            if self.replay_buffer_size * frame_bytes > free:
                raise DoesNotFit(
                    f'replay buffer option `replay_buffer_size` is {self.replay_buffer_size:,}: about '
                    f'{self.replay_buffer_size * frame_bytes / 1e9:.2f} GB on the disk of {folder}, which has '
                    f'{free / 1e9:.2f} GB left. Expected at most {free // frame_bytes:,}, another `folder`, or '
                    "storage='compressed'"
                )


def _smaller(storage: str) -> str:
    if storage == 'memmap':
        return ''
    return ", or storage='memmap'" if storage == 'compressed' else ", or storage='compressed'"


def _expect_device(device: str) -> None:
    try:
        torch.zeros(1, dtype=torch.uint8, device=device).cpu()
    except (AssertionError, RuntimeError) as error:  # a PyTorch without CUDA asserts that it has it
        raise ValueError(
            f"replay buffer option `device` is {device!r} with storage='device', but PyTorch {torch.__version__} finds "
            f'{torch.cuda.device_count()} CUDA GPUs here and says: {str(error).splitlines()[0]!r}. Expected a device '
            "that is there: device='cpu' always is, and storage='compressed' needs none"
        ) from None


def _check_controller(controller: Any) -> None:
    """What DI-engine's buffers throttle by; of that, one option has a meaning here."""
    name = f'{OPTION} `thruput_controller`'
    controller = option_checks.section(name, controller)
    option_checks.checked(
        OPTION,
        'thruput_controller.sample_min_limit_ratio',
        controller.get('sample_min_limit_ratio', 1),
        option_checks.number(0.0, 1e6),
    )
    limits = option_checks.section(f'{name[:-1]}.push_sample_rate_limit`', controller.get('push_sample_rate_limit'))
    highest, lowest = limits.get('max', math.inf), limits.get('min', 0)
    if not (isinstance(highest, float) and highest == math.inf and option_checks.finite(lowest) and lowest == 0):
        raise ValueError(
            f'{name[:-1]}.push_sample_rate_limit` is {option_checks.shown(dict(limits))}; expected no limit: '
            'a serial pipeline pushes and samples as update_per_collect and n_sample say'
        )


def _whole_number(low: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        is_one = isinstance(value, numbers.Real) and not isinstance(value, bool) and low <= value < 2**31
        if not is_one or value != int(value):
            raise ValueError(f'a whole number from {low} to {2**31 - 1:,}')
        return int(value)

    return check


def _device(value: Any) -> str:
    try:
        torch.device(option_checks.path(value))
    except (RuntimeError, ValueError):
        raise ValueError("a device as PyTorch writes it, such as 'cuda', 'cuda:1' or 'cpu'") from None
    return value


_CHECKS: Dict[str, Callable[[Any], Any]] = dict(
    replay_buffer_size=_whole_number(1),
    storage=option_checks.one_of(*STORAGES),
    eviction=option_checks.one_of(*EVICTIONS),
    folder=option_checks.path,
    device=_device,
    alpha=option_checks.number(0.0, 1.0),
    beta=option_checks.number(0.0, 1.0),
    anneal_step=_whole_number(0),
    max_use=option_checks.number(1.0, math.inf),
    max_staleness=option_checks.number(0.0, math.inf),
    prefetch=option_checks.one_of(True, False),
    pin_memory=option_checks.one_of(None, True, False),
    save_path=option_checks.path,
    save_every_pushes=_whole_number(0),
    save_every_s=option_checks.number(0.0, math.inf),
    report_every_s=option_checks.number(0.0, math.inf),
)
assert set(_CHECKS) == {field.name for field in fields(ReplayOptions)}
