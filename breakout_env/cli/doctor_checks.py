"""The questions that ``breakout doctor`` asks: a small function each, which returns an answer, raises or hangs."""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import imageio_ffmpeg
import numpy as np
import psutil
import torch
from packaging.requirements import Requirement

from .._version import __version__
from ..agent.play import missing_for_window, open_window
from ..env_manager import GroupEnvManager
from ..env_manager.shared_buffers import is_abnormal
from ..envs.env import BreakoutEnv
from ..policy.learner import fastest_dtype
from ..utils.command_line import shell_command
from ..utils.game_constants import FIRE, SCREEN_SHAPE
from ..utils.gpu import OLD_GPU_WHEEL, gpu_problem
from ..utils.memory_limits import control_groups, disk_room, memory_room

OK, WARNING, FAILS = 'ok', 'warning', 'fails'
DISTRIBUTION = 'ding-breakout'  # as setup.py names it; the import name is another
INSTALL = 'pip install . in the checkout, or its wheel'
SHOWN = ('di-engine', 'torch', 'gymnasium', 'ale-py', 'numpy', 'opencv-python')
_OTHER_OPENCV = ('opencv-contrib-python', 'opencv-contrib-python-headless')
# Resident, with a full buffer of a million transitions, and on disk: checkpoints, logs and saves (docs/memory.md).
TRAINING_BYTES, RUN_DISK_BYTES = 1.5e9, 2e9
# Docker's default. DI-engine's `subprocess` manager keeps an observation of each environment in it, ours all of a step.
SHARED_MEMORY_BYTES = 64 * 2**20
SHARED_MEMORY_FIX = 'docker run --shm-size=1g'


class Answer(NamedTuple):
    """What a check found: ``state`` is 'ok', 'warning' (for what is optional) or 'fails'; ``fix`` says what to do."""

    state: str
    found: str
    fix: str = ''
    name: str = ''


class Check(NamedTuple):
    """A question about this machine. ``look`` answers it, and may raise, crash or hang. Where training does not need
    what is checked, a failure is a warning. ``fix`` says what to do if there is no answer.
    """

    name: str
    look: Callable[[], Answer]
    needed: bool = True
    timeout_s: float = 60.0  # a GPU's first use takes seconds, on a busy machine more
    fix: str = ''


def package() -> Answer:
    """The version of this package, and where it is."""
    folder = Path(__file__).resolve().parent.parent
    return Answer(OK, f'{__version__} in {folder}, Python {platform.python_version()}')


def requirements() -> Answer:
    """Are the required packages within the bounds of this package, and those shown within DI-engine's?"""
    required: dict[str, Requirement] = {}
    try:
        for distribution in ('DI-engine', DISTRIBUTION):
            for one in map(Requirement, importlib.metadata.requires(distribution) or ()):
                is_wanted = distribution == DISTRIBUTION or one.name.lower() in SHOWN
                if is_wanted and (one.marker is None or one.marker.evaluate({'extra': ''})):
                    required[one.name.lower()] = one
    except importlib.metadata.PackageNotFoundError as error:  # such as an installation under an earlier name
        return Answer(WARNING, f'{error.name} is not installed, so its bounds are unknown', INSTALL)
    versions = {name: _version(name) for name in required}
    wrong = {name: one for name, one in required.items() if not _is_within(versions[name], one)}
    if wrong:
        found = (
            f'{name} is {versions[name] or "not installed"}; expected {one.specifier}' for name, one in wrong.items()
        )
        return Answer(FAILS, '; '.join(found), f'pip install {shlex.join(map(str, wrong.values()))}')
    shown = ', '.join(f'{name} {versions[name]}' for name in SHOWN)
    return Answer(OK, f'{shown} and {len(required) - len(SHOWN)} more, all within their bounds')


def _is_within(version: str, requirement: Requirement) -> bool:
    return bool(version) and requirement.specifier.contains(version, prereleases=True)


def _version(name: str) -> str:
    """The version of a package, of OpenCV of any that has its modules; '' if it is missing."""
    for distribution in (name, f'{name}-headless', *(_OTHER_OPENCV if name == 'opencv-python' else ())):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(distribution)
    return ''


def cpu() -> Answer:
    """How many cores may this process use, and do they compute in bfloat16, as the guides' tables tell CPUs apart?"""
    usable = sorted(os.sched_getaffinity(0))
    cores = len(usable)
    quota = cpu_quota()
    if quota is None or quota >= cores:
        has_bfloat16 = fastest_dtype('auto', 'cpu') is torch.bfloat16
        return Answer(OK, f'{cores} core{"s" * (cores > 1)} {"with" if has_bfloat16 else "without"} bfloat16')
    whole = max(1, int(quota))
    return Answer(
        WARNING,
        f'{cores} cores are visible, but the container or job gets the time of {quota:g}',
        f'OMP_NUM_THREADS={whole} taskset -c {",".join(map(str, usable[:whole]))} {_TRAIN}',
    )


def cpu_quota() -> float | None:
    """The cores whose time a control group (docker, Kubernetes, Slurm) allows, although more are visible."""
    quotas = []
    for group in control_groups('cpu'):
        names = ('cpu.max',) if (group / 'cpu.max').exists() else ('cpu.cfs_quota_us', 'cpu.cfs_period_us')
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = map(int, ' '.join((group / name).read_text() for name in names).split())
            if quota > 0:
                quotas.append(quota / period)
    return min(quotas, default=None)


def gpu() -> Answer:
    """Which GPU would training use, and does it compute?"""
    command = ['nvidia-smi', '--query-gpu=driver_version', '--format=csv,noheader']
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=15)
        driver, failed = answer.stdout.strip().splitlines()[0], answer.returncode
    except (OSError, IndexError):  # no such program, or no GPU
        driver, failed = '', 0
    if not torch.cuda.is_available():
        if failed:  # its output has the reason
            return Answer(WARNING, f'nvidia-smi: {driver}', 'load its driver (after an update: reboot)')
        if not driver:
            return Answer(OK, 'none: training uses the CPU')
        if (hidden := os.environ.get('CUDA_VISIBLE_DEVICES')) in ('', '-1', 'NoDevFiles'):
            found = f'hidden from PyTorch: CUDA_VISIBLE_DEVICES is {hidden!r}'
            return Answer(WARNING, found, 'unset CUDA_VISIBLE_DEVICES')
        found = (
            f'NVIDIA driver {driver}, which this PyTorch ({torch.__version__}, CUDA {torch.version.cuda}) cannot use'
        )
        fix = 'install a PyTorch for the CUDA version that nvidia-smi shows: https://pytorch.org/get-started/locally'
        return Answer(WARNING, found, fix)
    if problem := gpu_problem():
        return Answer(WARNING, f'training uses the CPU: {problem}', OLD_GPU_WHEEL)
    torch.ones(1000, device='cuda').sum().item()  # raises where the GPU does not compute
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    room = f'{free_bytes / 1e9:.1f} of {total_bytes / 1e9:.1f} GB free'
    versions = f'driver {driver or "unknown"}, CUDA {torch.version.cuda}'
    return Answer(OK, f'{torch.cuda.get_device_name()}, the first of {torch.cuda.device_count()}, {room}, {versions}')


def rom() -> Answer:
    """Does the game start?"""
    with contextlib.closing(BreakoutEnv({})) as env:
        env.reset()
    return Answer(OK, f'Breakout of ale-py {importlib.metadata.version("ale-py")} was opened, started and closed')


def worker() -> Answer:
    """Does an environment run in a process of its own?"""
    if (memory_for_it := shared_memory()).state == FAILS:
        return memory_for_it
    with contextlib.closing(GroupEnvManager([partial(BreakoutEnv, {})], dict(connect_timeout=20))) as manager:
        manager.seed(0)
        manager.launch()
        (timestep,) = manager.step({0: np.array([FIRE])}).values()
        if is_abnormal(timestep.info):
            raise RuntimeError(f'the step came back as {timestep.info}')
    return Answer(OK, "a process of env manager 'breakout' was started, stepped and closed")


def memory() -> Answer:
    """How large may a replay buffer be?"""
    room = memory_room()
    found = f'{room.free_bytes / 1e9:.1f} GB free of {room.limit_bytes / 1e9:.1f} GB ({room.whose})'
    if room.free_bytes < TRAINING_BYTES:
        found += f'; training with a million transitions takes up to {TRAINING_BYTES / 1e9:.1f} GB'
        fix = 'docker run --memory=4g or sbatch --mem=4G; without a limit, end other programs'
        return Answer(WARNING, found, fix)
    return Answer(OK, f"{found}; a replay buffer of a million transitions fits (storage='compressed')")


def shared_memory(folder: str = '/dev/shm') -> Answer:
    """Is there room for the observations that env managers receive from their processes?"""
    room = psutil.disk_usage(folder)
    found = f'{room.free / 2**20:,.0f} of {room.total / 2**20:,.0f} MiB free in {folder}'
    if room.free < 4 * 2**20:
        return Answer(FAILS, f'{found}, too little for the observations of a step', SHARED_MEMORY_FIX)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:  # read-only, or the rights of another user
        fix = f'mount -o remount,rw {folder}; docker run --tmpfs {folder}:rw,exec'
        return Answer(FAILS, f'no file can be made in {folder}: {error.strerror}; env managers need it', fix)
    if room.total <= SHARED_MEMORY_BYTES:
        enough = "docker's default: enough for 8 environments, not for hundreds or for PyTorch's data loaders"
        return Answer(WARNING, f'{found}, {enough}', SHARED_MEMORY_FIX)
    return Answer(OK, found)


def disk() -> Answer:
    """Can runs be written to the current folder?"""
    folder = os.getcwd()
    free = disk_room(folder).free_bytes
    found = f'{free / 1e9:.1f} GB free in {folder}'
    if not os.access(folder, os.W_OK):
        return Answer(FAILS, f'{folder} is not writable; runs are saved in the current folder', 'cd ~')
    if free < RUN_DISK_BYTES:
        return Answer(WARNING, f'{found}; a run may take up to 2 GB', 'cd to a folder on a larger disk')
    return Answer(OK, found)


def window() -> Answer:
    """Can a game be watched in a window?"""
    missing = missing_for_window()
    if missing:
        pygame = '' if importlib.util.find_spec('pygame') else '; for a window, pip install pygame'
        record = shell_command('breakout', 'record', '--out', 'game.mp4')
        return Answer(WARNING, missing, f'{record}{pygame}')
    with contextlib.closing(open_window('breakout doctor')) as window:
        if not window.present(np.zeros((*SCREEN_SHAPE, 3), np.uint8)):
            raise RuntimeError('the window closed at once')
    return Answer(OK, 'a window was opened and closed')


def ffmpeg() -> Answer:
    """Can games be recorded?"""
    return Answer(OK, f'{imageio_ffmpeg.get_ffmpeg_version()} in {imageio_ffmpeg.get_ffmpeg_exe()}')


def ding_config_writer() -> Answer:
    """Can ``ding -m serial`` save its config? Its formatter, yapf 0.29, needs what Debian splits off Python."""
    importlib.import_module('lib2to3.pgen2.tokenize')
    return Answer(OK, 'lib2to3, which `ding -m serial` needs, is there')


_REINSTALL = 'pip install --force-reinstall '
_TRAIN = shell_command('breakout', 'train')
CHECKS = [
    Check('breakout_env', package, fix=INSTALL),
    Check('packages', requirements),
    Check(
        'ding',
        ding_config_writer,
        needed=False,
        fix=f'apt install python3-lib2to3, or `{shell_command("breakout", "train")}`',
    ),
    Check('CPU', cpu, needed=False),
    Check('GPU', gpu, needed=False, fix='nvidia-smi, which shows whether the driver answers'),
    Check('ROM', rom, fix=f"{_REINSTALL}--no-deps 'ale-py>=0.11'"),
    Check('worker process', worker, fix='ulimit -u, which may be too low; docker run --init --ipc=host'),
    Check('memory', memory, needed=False),
    Check('shared memory', shared_memory, fix=SHARED_MEMORY_FIX),
    Check('disk', disk),
    Check('window', window, needed=False, fix='xvfb-run -a before the command'),
    Check('FFmpeg', ffmpeg, needed=False, fix=f'unset IMAGEIO_FFMPEG_EXE; {_REINSTALL}imageio-ffmpeg'),
]
