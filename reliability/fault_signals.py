"""Faults by signals: processes of a run, and its helpers, are killed, asked to end, or stopped."""

import copy
import os
import signal
import time
from types import SimpleNamespace
from typing import Any, Callable, Dict, Tuple

from fault_case import Case, Seen, expect, wait_until
from fault_games import Screen, recorded_games, watched_game
from fault_runs import (
    UNENDING,
    continues,
    random_moment,
    resumed,
    start,
    wait_for_save,
)

from breakout_env.run import saver as resume

# Seconds that a worker has for a step where one is stopped for good; a machine may be busy.
STEP_TIMEOUT_S = 2.0
# One in so many kills of the whole run is one of the command in an interpreter of its own.
REAL_COMMAND_EVERY = 10


def _after_a_pause(case: Case) -> None:
    """So that a fault does not always meet a run in the step that it was counted at."""
    time.sleep(case.rng.uniform(0, 0.01))


def env_worker(number: int, overlap: bool = False, of_evaluator: bool = False) -> Callable[[Case], Seen]:
    """
    Overview:
        A signal to a worker process. SIGSTOP is for good here.
    """

    def fault(case: Case) -> Seen:
        moment = random_moment(case)
        options = dict(env__manager__step_timeout=STEP_TIMEOUT_S) if number == signal.SIGSTOP else {}
        run = start(case, arm=moment.arm, overlap=overlap, **options)
        moment.wait(run)
        _after_a_pause(case)
        *collectors, evaluators = run.workers()
        os.kill((evaluators if of_evaluator else case.rng.choice(collectors)).pid, number)
        return continues(case, run)

    return fault


def env_worker_pauses(case: Case) -> Seen:
    """A worker that stands still for less than its timeout."""
    moment = random_moment(case)
    run = start(case, arm=moment.arm)
    moment.wait(run)
    worker = case.rng.choice(run.workers())
    worker.suspend()
    time.sleep(case.rng.uniform(0.1, 1))
    worker.resume()
    return continues(case, run)


def killed(group: bool, overlap: bool = False) -> Callable[[Case], Seen]:
    """
    Overview:
        SIGKILL to the learner's process alone, or to all of the run, while it saves all the time.
    """

    def fault(case: Case) -> Seen:
        real = group and case.seed % REAL_COMMAND_EVERY == 0
        run = start(case, UNENDING, overlap=overlap, command=real)
        case.facts['real command'] = real
        wait_for_save(case, run)
        time.sleep(case.rng.uniform(0, 0.7))
        run.send(signal.SIGKILL, group)
        expect(run.wait() == -signal.SIGKILL, 'the run had ended before it was killed')
        _wait_for_workers(case)
        return resumed(case, run.text, overlap=overlap)

    return fault


def _wait_for_workers(case: Case) -> None:
    """Whoever starts a run again right after a kill does not meet the old one's workers, which end by themselves."""
    expect(wait_until(lambda: not case.processes(), 20), 'workers of a killed run are there after 20 s')


def asked_to_end(number: int, group: bool, overlap: bool = False) -> Callable[[Case], Seen]:
    """
    Overview:
        SIGTERM, or Ctrl-C, to the learner's process alone or to all of the run.
    """

    def fault(case: Case) -> Seen:
        moment = random_moment(case)
        run = start(case, UNENDING, arm=moment.arm, overlap=overlap)
        moment.wait(run)
        _after_a_pause(case)
        run.send(number, group)
        case.facts['exit code'] = run.wait()
        expect('Traceback' not in run.text, 'a traceback, for a request to stop')
        return resumed(case, run.text, 'stops', overlap=overlap)

    return fault


def pauses(group: bool) -> Callable[[Case], Seen]:
    """
    Overview:
        SIGSTOP and, later, SIGCONT: Ctrl-Z and fg.
    """

    def fault(case: Case) -> Seen:
        moment = random_moment(case)
        run = start(case, arm=moment.arm)
        moment.wait(run)
        run.send(signal.SIGSTOP, group)
        time.sleep(case.rng.uniform(0.1, 1.5))
        run.send(signal.SIGCONT, group)
        return continues(case, run)

    return fault


def stopped_for_good(case: Case) -> Seen:
    """The learner is stopped, and nobody lets it go on: somebody kills it at last."""
    run = start(case, UNENDING)
    wait_for_save(case, run)
    time.sleep(case.rng.uniform(0, 0.3))
    run.send(signal.SIGSTOP)
    time.sleep(case.rng.uniform(0.5, 1))
    run.send(signal.SIGKILL)
    run.wait()
    _wait_for_workers(case)
    return resumed(case, run.text)


def killed_while_saving(case: Case) -> Seen:
    """
    SIGKILL between two steps of a save: before or after something is flushed, linked, moved or removed. Where copying
    the networks takes as long as a save, one save often begins when another ends.
    """
    calls_left, before = [case.rng.randrange(20, 80)], case.rng.random() < 0.5
    copying_s = case.rng.choice((0.0, 0.05))
    case.facts.update(system_call=calls_left[0], before_it=before, copying_s=copying_s)

    def arm() -> None:
        for name in ('fsync', 'replace', 'link', 'unlink'):
            setattr(os, name, counted(getattr(os, name)))
        if copying_s:
            resume.copy = SimpleNamespace(deepcopy=lambda state: (time.sleep(copying_s), copy.deepcopy(state))[1])

    def counted(function: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls_left[0] -= 1
            if calls_left[0] == 0 and before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            if calls_left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    run = start(case, UNENDING, arm=arm)
    expect(run.wait() == -signal.SIGKILL, 'the run was not killed')
    _wait_for_workers(case)
    return resumed(case, run.text)


def encoder(number: int, goes_on: bool = False) -> Callable[[Case], Seen]:
    """
    Overview:
        A signal to the process that encodes a video; with ``goes_on``, SIGCONT after it.
    """

    def fault(case: Case) -> Seen:
        def hit(env: Any) -> None:
            _signal(env._recorder._encoder.pid, number, case.rng.uniform(0.1, 0.8) if goes_on else None)

        return recorded_games(case, hit, whole_games=2 if goes_on else 1)

    return fault


def window(number: int, goes_on: bool = False) -> Callable[[Case], Seen]:
    """
    Overview:
        A signal to the process of the window; with ``goes_on``, SIGCONT after it.
    """

    def fault(case: Case) -> Seen:
        def hit(env: Any) -> None:
            _signal(env._window._process.pid, number, case.rng.uniform(0.1, 0.8) if goes_on else None)

        return watched_game(case, hit, stays=goes_on)

    return fault


def display(number: int) -> Callable[[Case], Seen]:
    """
    Overview:
        A signal to the X server.
    """

    def fault(case: Case) -> Seen:
        screen = Screen(case)
        return watched_game(case, lambda env: os.kill(screen.pid, number), screen=screen, display_is_gone=True)

    return fault


def _signal(pid: int, number: int, pause_s: Any) -> None:
    os.kill(pid, number)
    if pause_s is not None:
        time.sleep(pause_s)
        os.kill(pid, signal.SIGCONT)


CASES: Dict[Tuple[str, str], Callable[[Case], Seen]] = {
    ('SIGKILL', 'env worker'): env_worker(signal.SIGKILL),
    ('SIGTERM', 'env worker'): env_worker(signal.SIGTERM),
    ('SIGSTOP', 'env worker'): env_worker(signal.SIGSTOP),
    ('SIGSTOP, SIGCONT', 'env worker'): env_worker_pauses,
    ('SIGKILL', "evaluator's env worker"): env_worker(signal.SIGKILL, of_evaluator=True),
    ('SIGKILL', 'env worker, overlapped run'): env_worker(signal.SIGKILL, overlap=True),
    ('SIGSTOP', 'env worker, overlapped run'): env_worker(signal.SIGSTOP, overlap=True),
    ('SIGKILL', 'learner'): killed(group=False),
    ('SIGTERM', 'learner'): asked_to_end(signal.SIGTERM, group=False),
    ('SIGSTOP', 'learner'): stopped_for_good,
    ('SIGSTOP, SIGCONT', 'learner'): pauses(group=False),
    ('SIGKILL', 'learner, overlapped run'): killed(group=False, overlap=True),
    ('SIGTERM', 'learner, overlapped run'): asked_to_end(signal.SIGTERM, group=False, overlap=True),
    ('SIGKILL', 'whole run'): killed(group=True),
    ('SIGTERM', 'whole run'): asked_to_end(signal.SIGTERM, group=True),
    ('SIGINT', 'whole run'): asked_to_end(signal.SIGINT, group=True),
    ('SIGSTOP, SIGCONT', 'whole run'): pauses(group=True),
    ('SIGKILL', 'background saver'): killed_while_saving,
    ('SIGKILL', 'encoder'): encoder(signal.SIGKILL),
    ('SIGTERM', 'encoder'): encoder(signal.SIGTERM),
    ('SIGSTOP', 'encoder'): encoder(signal.SIGSTOP),
    ('SIGSTOP, SIGCONT', 'encoder'): encoder(signal.SIGSTOP, goes_on=True),
    ('SIGKILL', 'window'): window(signal.SIGKILL),
    ('SIGTERM', 'window'): window(signal.SIGTERM),
    ('SIGSTOP', 'window'): window(signal.SIGSTOP),
    ('SIGSTOP, SIGCONT', 'window'): window(signal.SIGSTOP, goes_on=True),
    ('SIGKILL', 'display'): display(signal.SIGKILL),
    ('SIGTERM', 'display'): display(signal.SIGTERM),
    ('SIGSTOP', 'display'): display(signal.SIGSTOP),
}
