"""Disks that are full, read-only or slow, under a run and under a recorder; a clock that is set while a run goes on."""

import contextlib
import copy
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Tuple

from fault_case import Case, Seen, expect
from fault_games import recorded_games
from fault_runs import (
    NAME,
    UNENDING,
    check_saves,
    continues,
    resumed,
    see_saving,
    start,
    wait_for_save,
)

from breakout_env.rendering.video import GameRecorder
from breakout_env.run import saver as resume

HOUR_S = 3600.0


def fill(disk: Path) -> Path:
    """
    Overview:
        Take all the room that a disk has.
    Returns:
        - path (:obj:`Path`): The file to remove to give it back.
    """
    path = disk / 'other'
    with open(path, 'wb', buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b'\0' * size)
            except OSError:
                pass
    return path


def _goes_on_and_saves_again(case: Case, run: Any, folder: Path) -> Seen:
    """The disk is well again: a new save comes, and the run can be stopped in order."""
    see_saving(case, run, folder)
    run.send(signal.SIGTERM)
    run.wait()
    return resumed(case, run.text, 'continues', folder)


def full(case: Case) -> Seen:
    """The disk of a run is full for a while."""
    disk = case.small_disk('disk')
    run = start(case, UNENDING, folder=disk)
    wait_for_save(case, run, disk)
    time.sleep(case.rng.uniform(0, 0.5))
    other = fill(disk)
    time.sleep(case.rng.uniform(0.5, 1.5))
    expect(not run.ended, f'the run has ended with exit code {run.code}; expected that it goes on')
    check_saves(disk / NAME)
    other.unlink()
    return _goes_on_and_saves_again(case, run, disk)


def full_at_the_end(case: Case) -> Seen:
    """The disk of a run is full when it is asked to end: the save before is what it goes on from."""
    disk = case.small_disk('disk')
    run = start(case, UNENDING, folder=disk)
    wait_for_save(case, run, disk)
    time.sleep(case.rng.uniform(0, 0.5))
    other = fill(disk)
    run.send(signal.SIGTERM)
    case.facts['exit code'] = run.wait()
    other.unlink()
    return resumed(case, run.text, 'stops', disk)


def read_only(case: Case) -> Seen:
    """The disk of a run becomes read-only for a while."""
    run = start(case, UNENDING)
    wait_for_save(case, run)
    time.sleep(case.rng.uniform(0, 0.5))
    with case.read_only(case.folder / NAME):
        time.sleep(case.rng.uniform(0.5, 1.5))
        expect(not run.ended, f'the run has ended with exit code {run.code}; expected that it goes on')
        check_saves(case.folder / NAME)
    return _goes_on_and_saves_again(case, run, case.folder)


def slow(case: Case) -> Seen:
    """Each flush to the disk takes up to half a second."""
    longest_s = case.facts['longest_s'] = case.rng.uniform(0.1, 0.5)

    def arm() -> None:
        fsync = os.fsync

        def slowly(descriptor: int) -> None:
            time.sleep(case.rng.uniform(0, longest_s))
            fsync(descriptor)

        os.fsync = slowly

    return continues(case, start(case, arm=arm))


def copied_slowly(case: Case) -> Seen:
    """Copying the networks for a save takes longer than the save before it: no moment is saved twice."""
    longest_s = case.facts['longest_s'] = case.rng.uniform(0.1, 0.3)

    def arm() -> None:
        list_pair = resume.RunSaver._list_pair

        def slowly(state: Any) -> Any:
            time.sleep(case.rng.uniform(0.1, longest_s))
            return copy.deepcopy(state)

        def told(saver: Any, pair: Any) -> None:
            list_pair(saver, pair)
            print(f'listed {pair["iteration"]}', flush=True)

        resume.copy = SimpleNamespace(deepcopy=slowly)
        resume.RunSaver._list_pair = told

    seen = continues(case, start(case, arm=arm))
    listed = re.findall(r'^listed (\d+)$', seen.text, re.M)
    twice = sorted({iteration for iteration in listed if listed.count(iteration) > 1}, key=int)
    expect(listed and not twice, f'saved twice, the second time over files that are listed: {", ".join(twice)}')
    return seen


def plant_before(owner: Any, name: str, act: Callable[[], Any]) -> None:
    """
    Overview:
        Do something before the first call of a function.
    """
    function = getattr(owner, name)

    def first(*args: Any, **kwargs: Any) -> Any:
        setattr(owner, name, function)
        act()
        return function(*args, **kwargs)

    setattr(owner, name, first)


def recorder_full(case: Case) -> Seen:
    """The disk of the videos is full, until the first game is over."""
    disk = case.small_disk('disk', 2)
    return recorded_games(case, lambda env: fill(disk), folder=disk, after=(disk / 'other').unlink)


def recorder_read_only(case: Case) -> Seen:
    """The disk of the videos is read-only until the first game is over; it was not when the recorder was made."""
    folder = case.folder / 'video'
    with contextlib.ExitStack() as until_then:
        return recorded_games(
            case,
            lambda env: None,
            folder=folder,
            # in the game's own process, which is of the same mount namespace
            arm=lambda: plant_before(GameRecorder, '_open', lambda: until_then.enter_context(case.read_only(folder))),
            after=until_then.close,
        )


def clock(sign: int) -> Callable[[Case], Seen]:
    """
    Overview:
        The clock of the machine is set, back or on, by some hours in the midst of a run, for all of its processes.
    """

    def fault(case: Case) -> Seen:
        hours, after_s = case.rng.uniform(1, 48), case.rng.uniform(0.2, 2.5)
        case.facts.update(hours=sign * hours, after_s=after_s)

        def arm() -> None:
            now, now_ns, set_at_s = time.time, time.time_ns, time.monotonic() + after_s

            def offset_s() -> float:
                return sign * hours * HOUR_S if time.monotonic() > set_at_s else 0.0

            time.time = lambda: now() + offset_s()
            time.time_ns = lambda: now_ns() + int(offset_s() * 1e9)

        run = start(case, UNENDING, arm=arm)
        wait_for_save(case, run)
        time.sleep(after_s)
        return _goes_on_and_saves_again(case, run, case.folder)

    return fault


CASES: Dict[Tuple[str, str], Callable[[Case], Seen]] = {
    ('full', 'disk of the run'): full,
    ('full', 'disk of the run, at its end'): full_at_the_end,
    ('read-only', 'disk of the run'): read_only,
    ('slow', 'disk of the run'): slow,
    ('slow', 'copies for saves'): copied_slowly,
    ('full', 'disk of the videos'): recorder_full,
    ('read-only', 'disk of the videos'): recorder_read_only,
    ('clock set back', 'whole run'): clock(-1),
    ('clock set on', 'whole run'): clock(1),
}
