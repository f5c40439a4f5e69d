"""The questions that ``breakout doctor`` asks, a function each. Importing this module imports the package."""

import contextlib
import importlib.metadata
import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import imageio_ffmpeg
import numpy as np
import psutil
import torch
from packaging.requirements import Requirement

import breakout_env
from breakout_env.agent.play import missing_for_window, open_window
from breakout_env.policy.learner import fastest_dtype
from breakout_env.utils.check_process import CheckProcess
from breakout_env.utils.command_line import shell_command
from breakout_env.utils.game_constants import FIRE, SCREEN_SHAPE
from breakout_env.utils.gpu import OLD_GPU_WHEEL, gpu_problem
from breakout_env.utils.memory_limits import control_groups, disk_room, memory_room

OK, WARNING, FAILS = 'ok', 'warning', 'fails'
DISTRIBUTION = 'ding-breakout'
SHOWN = ('di-engine', 'torch', 'gymnasium', 'ale-py', 'numpy', 'opencv-python')
SHARED_MEMORY_FIX = 'docker run --shm-size=1g'
REINSTALL = 'pip install --force-reinstall '


class Answer(NamedTuple):
    """What a check found: ``state`` is 'ok', 'warning' or 'fails'; ``fix`` says what to do."""

    state: str
    found: str
    fix: str = ''
    name: str = ''


class Check(NamedTuple):
    """A question about this machine. ``look`` may raise, crash or hang; ``fix`` is for that. If training does not need
    what is checked, a failure is a warning.
    """

    name: str
    look: Callable[[], Answer]
    needed: bool = True
    fix: str = ''


def run_checks(checks: Iterable[Check], timeout_s: float = 60.0) -> Iterator[Answer]:
    """Run checks, one after the other; one that raises, crashes or hangs has failed."""
    for check in checks:
        process = CheckProcess(partial(_look, check))
        try:
            answer = process.receive(timeout_s)
        except TimeoutError:
            answer = Answer(FAILS, f'did not end within {timeout_s:g} s and was ended', check.fix)
        except EOFError:
            answer = Answer(FAILS, 'crashed: its process ended without an answer', check.fix)
        finally:
            process.end()
        is_optional = answer.state == FAILS and not check.needed
        yield answer._replace(name=check.name, state=WARNING if is_optional else answer.state)


def _look(check: Check, connection: Connection) -> None:
    try:
        answer = check.look()
    except Exception as error:  # whatever it is, that is what the check has found
        answer = Answer(FAILS, f'{type(error).__name__}: {" ".join(str(error).split())}'[:500], check.fix)
    connection.send(answer)


def requirements() -> Answer:
    """Are the required packages within the bounds of this package, and those shown within DI-engine's?"""
    required: dict[str, Requirement] = {}
    for distribution in ('DI-engine', DISTRIBUTION):
        for one in map(Requirement, importlib.metadata.requires(distribution) or ()):
            is_wanted = distribution == DISTRIBUTION or one.name.lower() in SHOWN
            if is_wanted and (one.marker is None or one.marker.evaluate({'extra': ''})):
                required[one.name.lower()] = one
    versions = {name: _version(name) for name in required}
    wrong = [one for name, one in required.items() if not one.specifier.contains(versions[name], prereleases=True)]
    if wrong:
        found = '; '.join(f'{one.name} is {versions[one.name.lower()]}; expected {one.specifier}' for one in wrong)
        return Answer(FAILS, found, f'pip install {shlex.join(map(str, wrong))}')
    here = f'breakout_env {breakout_env.__version__} in {Path(breakout_env.__file__).parent}'
    shown = ', '.join(f'{name} {versions[name]}' for name in SHOWN)
    return Answer(OK, f'{here}, Python {platform.python_version()}, {shown}; all packages are within their bounds')


def _version(name: str) -> str:
    """The version of a package, or of its headless variant."""
    for distribution in (name, f'{name}-headless'):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(distribution)
    return 'not installed'


def cpu() -> Answer:
    """How many cores may this process use, and do they compute in bfloat16, as the guides' tables tell CPUs apart?"""
    usable = sorted(os.sched_getaffinity(0))
    quota = float(len(usable))
    for group in control_groups():  # docker, Kubernetes and Slurm may allow less time than there are cores
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            time_us, period_us = map(int, (group / 'cpu.max').read_text().split())
            quota = min(quota, time_us / period_us)
    if quota < len(usable):
        whole, train = max(1, int(quota)), shell_command('breakout', 'train')
        found = f'{len(usable)} cores are visible, but the container or job gets the time of {quota:g}'
        fix = f'OMP_NUM_THREADS={whole} taskset -c {",".join(map(str, usable[:whole]))} {train}'
        return Answer(WARNING, found, fix)
    bfloat16 = 'with' if fastest_dtype('auto', 'cpu') is torch.bfloat16 else 'without'
    return Answer(OK, f'{len(usable)} cores {bfloat16} bfloat16')


def gpu() -> Answer:
    """Which GPU would training use, and does it compute?"""
    if not torch.cuda.is_available():
        if shutil.which('nvidia-smi') is None:
            return Answer(OK, 'none: training uses the CPU')
        found = f'an NVIDIA driver is installed, but this PyTorch ({torch.__version__}) finds no GPU that it can use'
        fix = 'unset CUDA_VISIBLE_DEVICES; https://pytorch.org/get-started/locally for the CUDA that nvidia-smi shows'
        return Answer(WARNING, found, fix)
    if problem := gpu_problem():
        return Answer(WARNING, f'training uses the CPU: {problem}', OLD_GPU_WHEEL)
    torch.ones(1000, device='cuda').sum().item()  # raises where the GPU does not compute
    return Answer(OK, f'{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}')


def rom() -> Answer:
    """Does the game start?"""
    with contextlib.closing(breakout_env.BreakoutEnv({})) as env:
        env.reset()
    return Answer(OK, f'Breakout of ale-py {importlib.metadata.version("ale-py")} was opened, started and closed')


def worker() -> Answer:
    """Does an environment run in a separate process?"""
    env_fn = partial(breakout_env.BreakoutEnv, {})
    with contextlib.closing(breakout_env.GroupEnvManager([env_fn], dict(connect_timeout=20))) as manager:
        manager.seed(0)
        manager.launch()
        (timestep,) = manager.step({0: np.array([FIRE])}).values()
    if timestep.info.get('abnormal'):
        return Answer(FAILS, f'the step came back as {timestep.info}')
    return Answer(OK, "a process of env manager 'breakout' was started, stepped and closed")


def memory() -> Answer:
    """How large may a replay buffer be?"""
    room = memory_room()
    found = f'{room.free_bytes / 1e9:.1f} GB free of {room.limit_bytes / 1e9:.1f} GB ({room.whose})'
    if room.free_bytes < 1.5e9:
        found += '; training with a million transitions takes up to 1.5 GB'
        return Answer(WARNING, found, 'docker run --memory=4g or sbatch --mem=4G; without a limit, end other programs')
    return Answer(OK, found)


def shared_memory(folder: str = '/dev/shm') -> Answer:
    """Is there room for the observations that env managers receive from their processes?"""
    room = psutil.disk_usage(folder)
    found = f'{room.free / 2**20:,.0f} of {room.total / 2**20:,.0f} MiB free in {folder}'
    if room.free < 4 * 2**20:
        return Answer(FAILS, f'{found}, too little for the observations of a step', SHARED_MEMORY_FIX)
    if room.total <= 64 * 2**20:  # docker's default
        return Answer(WARNING, f'{found}: enough for 8 environments, not for hundreds', SHARED_MEMORY_FIX)
    return Answer(OK, found)


def disk() -> Answer:
    """Is there room for a run in the current folder?"""
    folder = os.getcwd()
    free_gb = disk_room(folder).free_bytes / 1e9
    found = f'{free_gb:.1f} GB free in {folder}'
    if free_gb < 2:
        return Answer(WARNING, f'{found}; a run may take up to 2 GB', 'cd to a folder on a larger disk')
    return Answer(OK, found)


def window() -> Answer:
    """Can a game be watched in a window?"""
    missing = missing_for_window()
    if missing:
        pygame = 'pip install pygame, or ' if 'pygame' in missing else ''
        return Answer(WARNING, missing, pygame + shell_command('breakout', 'record', '--out', 'game.mp4'))
    with contextlib.closing(open_window('breakout doctor')) as window:
        window.present(np.zeros((*SCREEN_SHAPE, 3), np.uint8))
    return Answer(OK, 'a window was opened and closed')


def ffmpeg() -> Answer:
    """Can games be recorded?"""
    return Answer(OK, f'{imageio_ffmpeg.get_ffmpeg_version()} in {imageio_ffmpeg.get_ffmpeg_exe()}')


CHECKS = [
    Check('packages', requirements, fix='pip install . in the checkout, or its wheel'),
    Check('CPU', cpu, needed=False),
    Check('GPU', gpu, needed=False, fix='nvidia-smi, which shows whether the driver answers'),
    Check('ROM', rom, fix=f"{REINSTALL}--no-deps 'ale-py>=0.11'"),
    Check('worker process', worker, fix='ulimit -u, which may be too low; docker run --init --ipc=host'),
    Check('memory', memory, needed=False),
    Check('shared memory', shared_memory, fix=SHARED_MEMORY_FIX),
    Check('disk', disk),
    Check('window', window, needed=False, fix='xvfb-run -a before the command'),
    Check('FFmpeg', ffmpeg, needed=False, fix=f'unset IMAGEIO_FFMPEG_EXE; {REINSTALL}imageio-ffmpeg'),
]
