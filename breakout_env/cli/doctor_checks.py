"""The questions that ``breakout doctor`` asks: a small function each, which returns, raises or hangs."""

import importlib.metadata
import importlib.util
import os
import platform
import resource
import shlex
import subprocess
from functools import partial
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import imageio_ffmpeg
import numpy as np
import psutil
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ..env_manager import GroupEnvManager
from ..envs.emulator import Emulator
from ..envs.env import BreakoutEnv
from ..rendering.window import GameWindow
from ..utils.game_constants import FIRE
from ..utils.memory_limits import free_disk_bytes, memory_room
from .doctor import FAILS, OK, WARNING, Check, Finding

DISTRIBUTION = 'breakout-env'
SHOWN = ('DI-engine', 'torch', 'gymnasium', 'ale-py', 'numpy', 'opencv-python')
# The resident memory of a training with a full buffer of a million transitions, and of these transitions in the play of
# a good agent (docs/memory.md).
TRAINING_BYTES, TRANSITION_BYTES = 1.5e9, 300
# A run's checkpoints, logs and saves.
RUN_DISK_BYTES = 2e9
# DI-engine's `subprocess` manager keeps an observation in shared memory for each environment, ours all of a step.
SHARED_MEMORY_BYTES = 64 * 2**20
OPEN_FILES = 1024


def package_version() -> Finding:
    """This package's own."""
    return Finding(OK, f'{importlib.metadata.version(DISTRIBUTION)}, in {Path(__file__).resolve().parent.parent}')


def python_version() -> Finding:
    """Within the bounds of this package?"""
    bounds = importlib.metadata.metadata(DISTRIBUTION)['Requires-Python']
    version = platform.python_version()
    if version in SpecifierSet(bounds, prereleases=True):
        return Finding(OK, f'{version}, within {_spelled(bounds)}')
    return Finding(
        FAILS, f'{version}; expected {_spelled(bounds)}', 'python3.11 -m venv .venv, and install the package there'
    )


def requirement_version(name: str) -> Finding:
    """Within the bounds that this package or DI-engine sets?"""
    bounds = _requirements().get(name.lower())
    if bounds is None:
        raise LookupError(f'{DISTRIBUTION} {importlib.metadata.version(DISTRIBUTION)} requires no {name}')
    mend = f'pip install {shlex.quote(str(bounds))}'
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(FAILS, f'is not installed; expected {_spelled(str(bounds.specifier))}', mend)
    if bounds.specifier.contains(version, prereleases=True):
        return Finding(OK, f'{version}, within {_spelled(str(bounds.specifier))}')
    return Finding(FAILS, f'{version}; expected {_spelled(str(bounds.specifier))}', mend)


def other_requirements() -> Finding:
    """Those of this package that have no row of their own."""
    ours = {name for name in _own_requirements() if name not in map(str.lower, SHOWN)}
    wrong = {name: finding for name in sorted(ours) if (finding := requirement_version(name)).state != OK}
    if not wrong:
        return Finding(OK, f'{len(ours)} more, all within their bounds')
    return Finding(
        FAILS,
        '; '.join(f'{name} {finding.found}' for name, finding in wrong.items()),
        'pip install ' + ' '.join(shlex.quote(str(_requirements()[name])) for name in wrong),
    )


def cpu() -> Finding:
    """Cores this process may use, and whether bfloat16 pays on them."""
    cores = len(os.sched_getaffinity(0))
    flags = set(Path('/proc/cpuinfo').read_text().split()) if os.path.exists('/proc/cpuinfo') else set()
    fast = [name for name, flag in (('AVX512-BF16', 'avx512_bf16'), ('AMX', 'amx_bf16')) if flag in flags]
    bfloat16 = (
        f"{' and '.join(fast)}: policy.learn.autocast='bfloat16' pays"
        if fast
        else "no AVX512-BF16 or AMX: policy.learn.autocast='bfloat16' does not pay"
    )
    quota = cpu_quota()
    if quota is not None and quota < cores:
        return Finding(
            WARNING,
            f'{cores} cores to be seen, of which the container or job allows the time of {quota:g}; {bfloat16}',
            f'OMP_NUM_THREADS={max(1, int(quota))} taskset -c 0-{max(1, int(quota)) - 1} breakout train',
        )
    return Finding(OK, f'{cores} core{"s" if cores > 1 else ""}; {bfloat16}')


def gpu() -> Finding:
    """What training would use, and whether it computes."""
    driver = _nvidia_driver()
    if torch.cuda.is_available():
        total = torch.ones(1000, device='cuda').sum().item()
        if total != 1000:
            raise RuntimeError(f'{torch.cuda.get_device_name()} adds a thousand ones up to {total}')
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        others = torch.cuda.device_count() - 1
        return Finding(
            OK,
            f'{torch.cuda.get_device_name()}, {free_bytes / 1e9:.1f} of {total_bytes / 1e9:.1f} GB free, '
            f'driver {driver or "unknown"}, CUDA {torch.version.cuda}{f", and {others} more" if others else ""}',
        )
    if driver is None:
        return Finding(OK, 'none: training uses the CPU')
    if os.environ.get('CUDA_VISIBLE_DEVICES') is not None:
        hidden = os.environ['CUDA_VISIBLE_DEVICES']
        return Finding(
            WARNING, f'hidden from PyTorch: CUDA_VISIBLE_DEVICES is {hidden!r}', 'unset CUDA_VISIBLE_DEVICES'
        )
    if torch.version.cuda is None:
        return Finding(
            WARNING,
            f'NVIDIA driver {driver}, but this PyTorch ({torch.__version__}) was built for the CPU alone',
            "pip install --force-reinstall --index-url https://download.pytorch.org/whl/cu126 'torch>=2.6,<2.13'",
        )
    return Finding(
        WARNING,
        f'NVIDIA driver {driver}, which PyTorch {torch.__version__} for CUDA {torch.version.cuda} can not use',
        'nvidia-smi, which says what CUDA the driver is for; a newer driver, or a PyTorch for that one',
    )


def rom() -> Finding:
    """Does the game run?"""
    emulator = Emulator(0, 0.0, 108_000, False)
    try:
        emulator.reset_game(1)
        for _ in range(10):
            emulator.advance(FIRE, 4)
        colours = len(np.unique(emulator.render().reshape(-1, 3), axis=0))
        if emulator.lives != 5 or colours < 5:
            raise RuntimeError(f'the game has {emulator.lives} lives and {colours} colours; expected 5 and more than 5')
    finally:
        emulator.close()
    return Finding(OK, f'Breakout of ale-py {importlib.metadata.version("ale-py")} was opened, played and closed')


def window() -> Finding:
    """Can a game be watched in a window?"""
    instead = 'breakout record --out game.mp4'
    display = os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')
    if not display:
        return Finding(WARNING, 'no display (DISPLAY and WAYLAND_DISPLAY are not set), so no window', instead)
    if importlib.util.find_spec('pygame') is None:
        return Finding(
            WARNING, f'pygame, which draws the window on display {display}, is missing', 'pip install pygame'
        )
    window = GameWindow('breakout doctor', 4)
    try:
        if not window.present(np.zeros((210, 160, 3), np.uint8)):
            raise RuntimeError(f'the window on display {display} was gone at once')
    finally:
        window.close()
    return Finding(OK, f'a window was opened on display {display} and closed')


def ffmpeg() -> Finding:
    """Can games be recorded?"""
    path = imageio_ffmpeg.get_ffmpeg_exe()
    listed = subprocess.run([path, '-hide_banner', '-encoders'], capture_output=True, text=True, timeout=10)
    if listed.returncode != 0:
        raise RuntimeError(f'{path} ended with exit code {listed.returncode}: {listed.stderr[-200:]}')
    missing = [encoder for encoder in ('libx264', 'gif') if f' {encoder} ' not in listed.stdout]
    if missing:
        return Finding(
            WARNING, f'{path} has no {" and no ".join(missing)}', 'unset IMAGEIO_FFMPEG_EXE; pip install imageio-ffmpeg'
        )
    return Finding(OK, f'{imageio_ffmpeg.get_ffmpeg_version()} encodes mp4 and gif')


def memory() -> Finding:
    """What a replay buffer may take."""
    room = memory_room()
    fits = max(0, int((room.free_bytes - TRAINING_BYTES) / TRANSITION_BYTES)) + 1_000_000
    found = f'{room.free_bytes / 1e9:.1f} GB free of {room.limit_bytes / 1e9:.1f} GB ({room.whose})'
    if room.free_bytes < TRAINING_BYTES:
        return Finding(
            WARNING,
            f'{found}; training with a million transitions takes up to {TRAINING_BYTES / 1e9:.1f} GB',
            'docker run --memory=4g or sbatch --mem=4G; without a limit, end other programs',
        )
    return Finding(OK, f"{found}; a replay buffer of {fits / 1e6:,.0f} million transitions fits (storage='compressed')")


def disk() -> Finding:
    """Where runs are written to."""
    folder = os.getcwd()
    free = free_disk_bytes(folder)
    found = f'{free / 1e9:.1f} GB free in {folder}'
    if not os.access(folder, os.W_OK):
        return Finding(WARNING, f'{folder} can not be written to; runs are saved in the current folder', 'cd ~')
    if free < RUN_DISK_BYTES:
        return Finding(
            WARNING, f'{found}; a run may take up to {RUN_DISK_BYTES / 1e9:.0f} GB', 'cd to a folder on a larger disk'
        )
    return Finding(OK, found)


def shared_memory(folder: str = '/dev/shm') -> Finding:
    """What the processes of env managers pass observations through."""
    mend = 'docker run --shm-size=1g'
    if not os.path.isdir(folder):
        return Finding(FAILS, f'there is no {folder}, through which environments pass observations', mend)
    room = psutil.disk_usage(folder)
    found = f'{room.free / 2**20:,.0f} of {room.total / 2**20:,.0f} MiB free in {folder}'
    if room.free < 4 * 2**20:
        return Finding(FAILS, f'{found}, too little for the observations of a step', mend)
    if room.total <= SHARED_MEMORY_BYTES:
        return Finding(
            WARNING,
            f"{found}, docker's default: enough for 8 environments, not for hundreds or for PyTorch's data loaders",
            mend,
        )
    return Finding(OK, found)


def open_files() -> Finding:
    """Workers, their pipes and shared memory take a few files each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < OPEN_FILES:
        possible = f'ulimit -n {OPEN_FILES}' if hard < 0 or hard >= OPEN_FILES else f'ulimit -n {hard}'
        return Finding(
            WARNING, f'a process may open {soft} files; dozens of environments need up to {OPEN_FILES}', possible
        )
    return Finding(OK, f'a process may open {"any number of" if soft < 0 else f"{soft:,}"} files')


def worker() -> Finding:
    """Does an environment run in a process of its own?"""
    manager = GroupEnvManager([partial(BreakoutEnv, {})], dict(connect_timeout=20, step_timeout=10))
    try:
        manager.seed(0)
        manager.launch()
        (timestep,) = manager.step({0: np.array([FIRE])}).values()
        if timestep.info.get('abnormal') or timestep.obs.shape != (4, 84, 84):
            raise RuntimeError(f'the step came back as {timestep.info}')
    finally:
        manager.close()
    return Finding(OK, "a process of env manager 'breakout' was started, stepped and closed")


def cpu_quota(root: str = '/sys/fs/cgroup', membership: str = '/proc/self/cgroup') -> Optional[float]:
    """
    Overview:
        Cores whose time a control group (docker, Kubernetes, Slurm) allows; None for all. They are seen all the same.
    Arguments:
        - root (:obj:`str`): Where control groups are mounted.
        - membership (:obj:`str`): The file that says in which groups this process is.
    """
    quotas: List[float] = []
    for line in Path(membership).read_text().splitlines() if os.path.exists(membership) else []:
        _, controllers, path = line.split(':', 2)
        if controllers and 'cpu' not in controllers.split(','):
            continue
        top = Path(root, controllers) if controllers else Path(root)
        # in a container the path may be the host's, with the group itself mounted at the top
        for group in (top / path.lstrip('/'), *(top / path.lstrip('/')).parents):
            if not group.is_relative_to(top):
                break
            quotas.extend(_quota_of(group))
    return min(quotas, default=None)


def _quota_of(group: Path) -> Iterator[float]:
    try:
        if (group / 'cpu.max').exists():
            quota, period = (group / 'cpu.max').read_text().split()
        else:
            quota = (group / 'cpu.cfs_quota_us').read_text()
            period = (group / 'cpu.cfs_period_us').read_text()
        if int(quota) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError):  # no such group, or "max"
        return


def _nvidia_driver() -> Optional[str]:
    """Version of the driver of NVIDIA's GPUs; None where there is none."""
    try:
        listed = subprocess.run(
            ['nvidia-smi', '--query-gpu=driver_version', '--format=csv,noheader'],
            capture_output=True,
            text=True,
            timeout=15,
        )
        if listed.returncode == 0 and listed.stdout.strip():
            return listed.stdout.split()[0]
    except OSError:  # no such program
        pass
    try:  # such as: NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 ...
        words = Path('/proc/driver/nvidia/version').read_text().split()
    except OSError:
        return None
    return next((word for word in words if word[0].isdigit() and '.' in word), 'of an unknown version')


def _own_requirements() -> Dict[str, Requirement]:
    parsed = map(Requirement, importlib.metadata.requires(DISTRIBUTION) or [])
    return {one.name.lower(): one for one in parsed if one.marker is None or one.marker.evaluate({'extra': ''})}


def _requirements() -> Dict[str, Requirement]:
    """What this package requires, and what DI-engine requires beside that, such as numpy's bound."""
    ours = _own_requirements()
    try:
        texts = importlib.metadata.requires('DI-engine') or []
    except importlib.metadata.PackageNotFoundError:  # it has a row of its own
        return ours
    theirs = [one for one in map(Requirement, texts) if one.marker is None or one.marker.evaluate({'extra': ''})]
    return {**{one.name.lower(): one for one in theirs}, **ours}


def _spelled(bounds: str) -> str:
    return ', '.join(sorted(bounds.split(','), reverse=True)) or 'any version'


_REINSTALL = 'pip install --force-reinstall '
CHECKS = [
    Check('breakout_env', package_version, mend='pip install . in the checkout, or its wheel'),
    Check('Python', python_version),
    *(Check(name, partial(requirement_version, name)) for name in SHOWN),
    Check('other packages', other_requirements),
    Check('CPU', cpu, needed=False),
    Check('GPU', gpu, needed=False, timeout_s=60, mend='nvidia-smi, which says whether the driver answers'),
    Check('ROM', rom, mend=f"{_REINSTALL}--no-deps 'ale-py>=0.11'"),
    Check('worker process', worker, mend='ulimit -u, which may be too low; docker run --init --ipc=host'),
    Check('memory', memory, needed=False),
    Check('shared memory', shared_memory),
    Check('disk', disk, needed=False),
    Check('open files', open_files, needed=False),
    Check('window', window, needed=False, mend='xvfb-run -a before the command'),
    Check('FFmpeg', ffmpeg, needed=False, mend=f'{_REINSTALL}imageio-ffmpeg'),
]
