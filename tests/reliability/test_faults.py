"""
Faults at random moments of a small but real training: after each, the outcome is the one that the guide promises.

An outcome is one of three. The run *continues*: it goes to its end by itself. It *stops*: it ends by itself and says
why. It is *resumed*: the run, or a file of it, is gone, and ``--resume`` continues from a complete save. Afterwards
nothing of the run is left, and its saves are complete and each of one moment. A test's seed repeats it.
"""

import contextlib
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest

from helpers.faulty_runs import ENV_STEPS, UNENDING, FaultyRun, processes_of
from helpers.processes import wait_until
from helpers.runs import check_saves

# Seconds that a worker has for a step, and for the first reset, in tests where it hangs.
STEP_TIMEOUT = {'env.manager.step_timeout': 2.0}
RESET_TIMEOUT = {'env.manager.reset_timeout': 5.0}
# How a run trains: by DQN with a replay buffer, unless it says otherwise.
DQN, OVERLAPPED, PPO = {}, dict(overlap=True), dict(ppo=True)


def at_random_moment(place: Any, env_steps: int = ENV_STEPS, **options: Any) -> FaultyRun:
    """A run that has come to a moment in its first half, evaluations and random play included."""
    steps = place.rng.randrange(5, 70)
    run = FaultyRun(place.folder, env_steps, dict(moment=dict(steps=steps)), **options)
    run.until_moment()
    time.sleep(place.rng.uniform(0, 0.01))
    return run


def all_ended(place: Any) -> None:
    """Whoever resumes a run right after a kill may meet the old one's workers, which end by themselves."""
    assert wait_until(lambda: not processes_of(place.folder), 20)


# ---------------------------------------------------------------- processes


@pytest.mark.parametrize(
    'name, how, of_evaluator',
    [
        ('SIGKILL', DQN, False),
        ('SIGSTOP', DQN, False),
        ('SIGKILL', DQN, True),
        ('SIGKILL', OVERLAPPED, False),
        ('SIGKILL', PPO, False),
    ],
)
def test_a_run_replaces_a_lost_worker(place, seed, name, how, of_evaluator):
    run = at_random_moment(place, changes=STEP_TIMEOUT if name == 'SIGSTOP' else {}, **how)
    *collectors, evaluators = run.workers()
    (evaluators if of_evaluator else place.rng.choice(collectors)).send_signal(getattr(signal, name))
    run.completes()
    reason = 'did not answer within' if name == 'SIGSTOP' else 'has ended'
    assert of_evaluator or re.search(rf'lost a step: worker process \d+ {reason}', run.text), run.text


@pytest.mark.parametrize('whole_run', [False, True])
def test_a_pause_loses_nothing(place, seed, whole_run):
    run = at_random_moment(place)
    worker, pause_s = place.rng.choice(run.workers()), place.rng.uniform(0.1, 1.5)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        run.send(number, to_all=True) if whole_run else worker.send_signal(number)
        time.sleep(pause_s)
    run.completes()
    assert 'lost a step' not in run.text


@pytest.mark.tries(3)
@pytest.mark.parametrize('to_all, how', [(False, DQN), (False, OVERLAPPED), (False, PPO), (True, DQN)])
def test_a_killed_run_is_resumed_from_a_complete_save(place, seed, to_all, how):
    run = FaultyRun(place.folder, UNENDING, **how)
    run.until_save()
    time.sleep(place.rng.uniform(0, 0.7))
    run.send(signal.SIGKILL, to_all)
    assert run.wait() == -signal.SIGKILL
    all_ended(place)
    run.is_resumed()


@pytest.mark.tries(3)
def test_a_run_killed_between_two_system_calls_of_a_save_is_resumed(place, seed):
    fault = dict(
        call=place.rng.randrange(20, 80), before=place.rng.random() < 0.5, copy_s=place.rng.choice((0.0, 0.05))
    )
    run = FaultyRun(place.folder, UNENDING, dict(killed_while_saving=fault))
    assert run.wait() == -signal.SIGKILL
    all_ended(place)
    run.is_resumed()


@pytest.mark.parametrize(
    'name, to_all, how',
    [('SIGTERM', False, DQN), ('SIGTERM', False, OVERLAPPED), ('SIGINT', True, DQN), ('SIGINT', True, PPO)],
)
def test_a_run_that_is_asked_to_stop_saves_everything(place, seed, name, to_all, how):
    run = at_random_moment(place, UNENDING, **how)
    run.send(getattr(signal, name), to_all)
    run.wait()
    assert 'Stopping: ' in run.text and 'Traceback' not in run.text, run.text
    run.is_resumed()


# ---------------------------------------------------------------- environments

CALLS = {'advance': 60, 'reset_game': 2}  # of a step and of the first reset


def with_broken_emulator(place: Any, method: str, hangs: bool, changes: Dict[str, Any]) -> FaultyRun:
    fault = dict(method=method, call=place.rng.randrange(1, CALLS[method]), hangs=hangs)
    return FaultyRun(place.folder, faults=dict(broken_emulator=fault), changes={**STEP_TIMEOUT, **changes})


@pytest.mark.parametrize('method, hangs', [('advance', False), ('reset_game', False), ('reset_game', True)])
def test_an_error_of_an_environment_ends_the_run_after_a_save(place, seed, method, hangs):
    run = with_broken_emulator(place, method, hangs, RESET_TIMEOUT)
    assert run.wait() not in (0, 2), run.text
    assert ('did not answer within' if hangs else 'planted') in run.text, run.text
    assert method != 'reset_game' or 'reset has exceeded max retries(1)' in run.text
    run.is_resumed()


@pytest.mark.parametrize(
    'method, changes',
    [('advance', {}), ('reset_game', {**RESET_TIMEOUT, 'env.manager.max_retry': 2})],
)
def test_a_hanging_environment_is_replaced(place, seed, method, changes):
    run = with_broken_emulator(place, method, True, changes)
    run.completes()
    assert method == 'reset_game' or 'did not answer within' in run.text, run.text


# ---------------------------------------------------------------- disks and clocks


def fill(disk: Path) -> Path:
    """Take all the room that a disk has; the file to remove to give it back."""
    path = disk / 'other'
    with path.open('wb', buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b'\0' * size)
    return path


def saving_run(place: Any, disk: Path) -> FaultyRun:
    run = FaultyRun(place.folder, UNENDING, disk=disk)
    run.until_save()
    time.sleep(place.rng.uniform(0, 0.5))
    return run


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    other = fill(folder.parent)
    yield
    other.unlink()


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """As the operating system does with a disk that has errors. What is open for writing stays so."""
    subprocess.run(['mount', '--bind', folder, folder], check=True)
    subprocess.run(['mount', '-o', 'remount,bind,ro', folder], check=True)
    try:
        yield
    finally:
        subprocess.run(['umount', '--lazy', folder], check=True)


@pytest.mark.parametrize('fault, message', [(full, 'No space left on device'), (read_only, 'Read-only file system')])
def test_a_run_outlives_a_disk_that_takes_nothing(small_disk, place, seed, fault, message):
    run = saving_run(place, small_disk)
    with fault(run.folder):
        time.sleep(place.rng.uniform(0.5, 1.5))
        assert run.process.poll() is None, run.text
        check_saves(run.folder)
    run.until_next_save()
    assert message in run.text
    run.stops()


def test_a_run_that_ends_on_a_full_disk_is_resumed_from_the_save_before(small_disk, place, seed):
    run = saving_run(place, small_disk)
    with full(run.folder):
        run.send(signal.SIGTERM)
        run.wait()
        assert 'No space left on device' in run.text
    run.is_resumed()


def test_a_save_that_fails_leaves_the_one_before(place, seed):
    fault = dict(first=place.rng.randrange(8, 40), times=place.rng.randrange(1, 6))
    run = FaultyRun(place.folder, UNENDING, dict(failing_disk=fault))
    run.wait_for(lambda: 'the disk works again' in run.text)
    run.until_next_save()
    assert re.search('was not saved.*The save before it is kept', run.text), run.text
    run.stops()


def test_a_run_continues_when_the_clock_is_set(place, seed):
    hours, after_s = place.rng.uniform(1, 48), place.rng.uniform(0.2, 2.5)
    run = FaultyRun(place.folder, UNENDING, dict(changed_clock=dict(hours=-hours, after_s=after_s)))
    run.until_save()
    time.sleep(after_s)
    run.until_next_save()
    run.stops()
