"""Exceptions and hangs in the parts of an environment, and in what draws and records it."""

import os
import signal
import time
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import imageio_ffmpeg
from fault_case import Case, Seen, expect
from fault_games import recorded_games, watched_game
from fault_runs import UNENDING, continues, resumed, see_saving, start, wait_for_save, wait_for_text

from breakout_env.env_manager.worker_main import EnvGroup
from breakout_env.envs import emulator, preprocessing
from breakout_env.rendering import video as recording

# Of one environment where one hangs; what does not hang takes milliseconds, but a machine may be busy.
STEP_TIMEOUT_S = 2.0
RESET_TIMEOUT_S = 5.0
ERRORS = (OSError, RuntimeError, ValueError, MemoryError)
# Run by the window's interpreter before its program: a signal makes it raise, or hang, in whatever it is doing.
SITE = """
import signal, time
def hit(number, frame):
    if {hangs}:
        while True:
            time.sleep(1)
    raise RuntimeError('planted')
signal.signal(signal.SIGUSR1, hit)
"""
# In place of FFmpeg: takes some bytes, then fails or hangs; from the second time on it is FFmpeg.
ENCODER = """#!/bin/sh
if mkdir {flag} 2>/dev/null; then
    head -c {count} >/dev/null
    {then}
fi
exec {ffmpeg} "$@"
"""
HANG, FAIL = 'exec sleep 1000', 'echo planted >&2; exit 3'


def _raise(error: type = RuntimeError) -> None:
    raise error('planted')


def _hang() -> None:
    time.sleep(10**6)


def plant(owner: Any, name: str, at_call: int, act: Callable[[], None], flag: Path) -> None:
    """
    Overview:
        Have one call of a function fail, in whichever process comes to it first; a process that takes its place is
        a fork of the same parent, and is not to fail again.
    Arguments:
        - owner, name (:obj:`Any`): Where the function is.
        - at_call (:obj:`int`): Which call of a process, from 1.
        - act (:obj:`Callable`): Raises or hangs.
        - flag (:obj:`Path`): A file that is made then.
    """
    function, count = getattr(owner, name), [0]

    def call(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] >= at_call and not flag.exists():
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return function(*args, **kwargs)
            act()
        return function(*args, **kwargs)

    call.sound = function
    setattr(owner, name, call)


PARTS = {
    # where it is, its name, and from which call to which the fault may come
    'emulator step': (emulator.Emulator, 'advance', 1, 60),
    'emulator reset in a step': (emulator.Emulator, 'reset_game', 1, 3),
    'first emulator reset': (emulator.Emulator, 'reset_game', 1, 2),
    'resize': (preprocessing.cv2, 'resize', 1, 100),
}


def plant_in(case: Case, part: str, act: Callable[[], None]) -> Callable[[], None]:
    """
    Overview:
        What plants a fault in a part of all environments of a run.
    """
    owner, name, first, end = PARTS[part]
    at_call = case.facts['call'] = case.rng.randrange(first, end)

    def arm() -> None:
        plant(owner, name, at_call, act, case.folder / 'planted')
        if part.endswith('in a step'):
            only_in_steps(owner, name)

    return arm


def only_in_steps(owner: Any, name: str) -> None:
    """
    Overview:
        Have a function be as it was before it was planted in, but for calls in the midst of a worker's step.
    """
    step, planted = EnvGroup.step, getattr(owner, name)
    sound, is_stepping = planted.sound, [False]

    def stepping(*args: Any, **kwargs: Any) -> Any:
        is_stepping[0] = True
        try:
            return step(*args, **kwargs)
        finally:
            is_stepping[0] = False

    EnvGroup.step = stepping
    setattr(owner, name, lambda *args, **kwargs: (planted if is_stepping[0] else sound)(*args, **kwargs))


def raises(part: str) -> Callable[[Case], Seen]:
    """
    Overview:
        A part of an environment raises.
    """

    def fault(case: Case) -> Seen:
        run = start(case, arm=plant_in(case, part, _raise))
        expect(run.wait() not in (0, 2), f'the run ended with exit code {run.code}; expected that of an error')
        return resumed(case, run.text, 'stops')

    return fault


def hangs(part: str, outcome: str = 'continues', **changes: Any) -> Callable[[Case], Seen]:
    """
    Overview:
        A part of an environment does not come back.
    """

    def fault(case: Case) -> Seen:
        run = start(
            case,
            arm=plant_in(case, part, _hang),
            env__manager__step_timeout=STEP_TIMEOUT_S,
            **changes,
        )
        if outcome == 'continues':
            return continues(case, run)
        expect(run.wait() not in (0, 2), f'the run ended with exit code {run.code}; expected that of an error')
        return resumed(case, run.text, 'stops')

    return fault


def recorder_raises(case: Case) -> Seen:
    """What the recorder needs raises: opening a file, starting FFmpeg, handing it a picture."""
    error, at_call = case.rng.choice(ERRORS), case.rng.randrange(1, 40)
    owner, name = case.rng.choice(
        [(recording.HelperProcess, 'write'), (recording.GameRecorder, '_open'), (recording.HelperProcess, 'close')]
    )
    at_call = at_call if name == 'write' else 1
    case.facts.update(error=error.__name__, call=f'{name} {at_call}')
    return recorded_games(
        case,
        lambda env: None,
        arm=lambda: plant(owner, name, at_call, lambda: _raise(error), case.folder / 'planted'),
    )


def encoder_fails(then: str) -> Callable[[Case], Seen]:
    """
    Overview:
        FFmpeg ends with an error, or takes no more, after some bytes.
    """

    def fault(case: Case) -> Seen:
        program = case.folder / 'encoder'
        # of a game of some 8 MB; the pipe between takes 64 KB more
        count = case.facts['bytes'] = case.rng.randrange(0, 4_000_000)
        ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
        program.write_text(ENCODER.format(flag=case.folder / 'planted', count=count, then=then, ffmpeg=ffmpeg))
        program.chmod(0o755)

        def arm() -> None:
            os.environ['IMAGEIO_FFMPEG_EXE'] = str(program)

        return recorded_games(case, lambda env: None, arm=arm)

    return fault


def window_fails(hangs: bool) -> Callable[[Case], Seen]:
    """
    Overview:
        The program behind the window raises, or hangs, in whatever it is doing.
    """

    def fault(case: Case) -> Seen:
        (case.folder / 'site').mkdir()
        (case.folder / 'site' / 'sitecustomize.py').write_text(SITE.format(hangs=hangs))

        def arm() -> None:
            os.environ['PYTHONPATH'] = str(case.folder / 'site')

        return watched_game(case, lambda env: os.kill(env._window._process.pid, signal.SIGUSR1), arm=arm)

    return fault


def saver_raises(case: Case) -> Seen:
    """The thread that saves meets an error of the disk, once or some times in a row; then it is well again."""
    error, times = case.rng.choice((OSError, MemoryError)), case.rng.randrange(1, 6)
    first = case.rng.randrange(8, 40)
    case.facts.update(error=error.__name__, times=times, call=first)

    def arm() -> None:
        fsync, count = os.fsync, [0]

        def failing(descriptor: int) -> None:
            count[0] += 1
            if first <= count[0] < first + times:
                raise error(5, 'planted')
            if count[0] == first + times:
                print('the disk is well again', flush=True)
            fsync(descriptor)

        os.fsync = failing

    run = start(case, UNENDING, arm=arm)
    wait_for_save(case, run)
    wait_for_text(run, 'the disk is well again')
    see_saving(case, run)
    run.send(signal.SIGTERM)
    run.wait()
    return resumed(case, run.text, 'continues')


CASES: Dict[Tuple[str, str], Callable[[Case], Seen]] = {
    ('exception', 'emulator step'): raises('emulator step'),
    ('exception', 'emulator reset in a step'): raises('emulator reset in a step'),
    ('exception', 'first emulator reset'): raises('first emulator reset'),
    ('exception', 'resize'): raises('resize'),
    ('hang', 'emulator step'): hangs('emulator step'),
    ('hang', 'emulator reset in a step'): hangs('emulator reset in a step'),
    ('hang', 'first emulator reset'): hangs(
        'first emulator reset', 'stops', env__manager__reset_timeout=RESET_TIMEOUT_S
    ),
    ('hang', 'first emulator reset, two tries'): hangs(
        'first emulator reset', env__manager__reset_timeout=RESET_TIMEOUT_S, env__manager__max_retry=2
    ),
    ('hang', 'resize'): hangs('resize'),
    ('exception', 'recorder'): recorder_raises,
    ('exception', 'encoder'): encoder_fails(FAIL),
    ('hang', 'encoder'): encoder_fails(HANG),
    ('exception', 'window'): window_fails(hangs=False),
    ('hang', 'window'): window_fails(hangs=True),
    ('exception', 'background saver'): saver_raises,
}
