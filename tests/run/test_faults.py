"""Faults at random moments of a small but real training: after each, the outcome is the one that the guide promises.

A run is ``breakout train`` with a tiny network and a few hundred env steps, by DQN with a replay buffer or by the
default recipe, PPO. It saves all the time, so that a fault at a random moment often meets a save, and so many updates,
env steps and transitions belong to each save.

An outcome is one of three. The run *continues*: it goes to its end by itself. It *stops*: it ends by itself and says
why. It is *resumed*: the run, or a file of it, is gone, and ``--resume`` continues from a complete save. Afterwards
nothing of the run is left, and its saves are complete and each of one moment. ``RELIABILITY_TRIES=10`` tries each ten
times, at moments that the test's name repeats.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from breakout_env.run.paths import SAVE_LIST
from helpers.processes import ROOT, Command, environ_now, is_there, wait_until
from helpers.runs import SMALL, SMALL_DQN, check_saves

pytestmark = pytest.mark.release

NAME, TEMPORARY = 'run', 'temporary'
CONFIG = {
    'env.max_episode_frames': 80,
    'policy.learn.learner.hook.log_show_after_iter': 10,
    'policy.learn.learner.hook.save_ckpt_after_iter': 100,
    'policy.learn.learner.hook.resume.ext_args': {'save_every_s': 0},
    'policy.learn.learner.hook.progress.ext_args': {'log_every_s': 0.2},
    'policy.eval.evaluator.eval_freq': 24,
}
ENV_STEPS = 160
UNENDING = 10**9


def processes_of(folder: Path) -> list[psutil.Process]:
    """The processes of all runs in a folder; those that have lost their parent still have its temporary folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if process.environ().get('TMPDIR') == str(folder / TEMPORARY) and is_there(process):
                found.append(process)
    return found


class FaultyRun(Command):
    def __init__(
        self,
        folder: Path,
        env_steps: int = ENV_STEPS,
        faults: dict[str, dict[str, Any]] | None = None,
        resume: bool = False,
        overlap: bool = False,
        ppo: bool = False,
        changes: dict[str, Any] | None = None,
        disk: Path | None = None,
    ) -> None:
        """Its output and temporary files are in ``folder``, where it starts, unless it starts on a ``disk``. ``faults``
        are those of ``faulty_program.py``, ``changes`` other values of the config, by their paths; ``ppo`` is the
        default recipe in place of DQN.
        """
        self._same, self.has_saved = dict(folder=folder, disk=disk, overlap=overlap, ppo=ppo), False
        self.folder = (disk or folder) / NAME
        values = {**(SMALL if ppo else SMALL_DQN), **CONFIG, **(changes or {})}
        options = [word for path, value in values.items() for word in ('--set', f'{path}={value!r}')]
        options += [] if ppo else ['--config', str(ROOT / 'configs' / 'breakout_dqn_cpu_config.py')]
        options += ['--overlap'] * overlap + ['--resume'] * resume
        words = ['train', '--device', 'cpu', '--threads', '1', '--exp-name', NAME, '--env-steps', str(env_steps)]
        program = [str(Path(__file__).with_name('faulty_program.py')), json.dumps(faults or {})]
        (folder / TEMPORARY).mkdir(exist_ok=True)
        # DI-engine's log otherwise breaks its lines to fit a terminal
        environ = {**environ_now(), 'TMPDIR': str(folder / TEMPORARY), 'DISABLE_RICH': '1'}
        super().__init__([sys.executable, *program, *words, *options], folder, environ, cwd=disk)

    def send(self, number: int, to_all: bool = False) -> None:
        """A signal, to the learner's process or to all processes of the run, as a terminal or a scheduler sends it."""
        os.killpg(self.pid, number) if to_all else self.process.send_signal(number)

    def workers(self) -> list[psutil.Process]:
        """The processes of its environments, the oldest first: the collector's, then the evaluator's."""
        children = psutil.Process(self.pid).children()
        forks = [child for child in children if not any('resource_tracker' in word for word in child.cmdline())]
        return sorted(forks, key=lambda process: (process.create_time(), process.pid))

    def until_save(self) -> None:
        self.wait_for((self.folder / SAVE_LIST).exists)
        self.has_saved = True

    def until_next_save(self) -> None:
        before = (self.folder / SAVE_LIST).stat().st_mtime_ns
        self.wait_for(lambda: (self.folder / SAVE_LIST).stat().st_mtime_ns > before)

    def completes(self, env_steps: int = ENV_STEPS) -> None:
        """It goes to the end of its budget and saves that; no file of an unfinished or old save is left."""
        assert self.process.wait() == 0 and 'is used up' in self.text, self.text
        saves = check_saves(self.folder)
        assert saves and saves[0]['env_step'] >= env_steps
        listed = {self.folder / name for save in saves for name in (save['checkpoint'], save['buffer']) if name}
        pattern = re.compile(r'resume_\d+\.pth\.tar|buffer_\d+\.npz|.*unfinished')
        files = [path for part in ('ckpt', 'resume') for path in (self.folder / part).iterdir()]
        assert not [path for path in files if pattern.match(path.name) and path not in listed]

    def is_resumed(self) -> None:
        """Another process resumes this run from its newest save, and completes it. A run that ended before its first
        update has no save, and that is what the other says, unless ``until_save`` has seen one.
        """
        saves = check_saves(self.folder)
        assert saves or not self.has_saved
        if not saves:
            again = FaultyRun(**self._same, resume=True)
            assert again.process.wait() == 2 and 'found no saved run' in again.text, again.text
            return
        env_steps = saves[0]['env_step'] + 40
        again = FaultyRun(**self._same, env_steps=env_steps, resume=True)
        again.completes(env_steps)
        expected = f'at {saves[0]["iteration"]:,} updates and {saves[0]["env_step"]:,} env steps'
        if saves[0]['buffer']:
            expected += r', [\d,]+ transitions'
        (found,) = re.findall(rf'{NAME} (at \d.*)\.$', again.text, re.M)
        assert re.fullmatch(expected, found), again.text

    def stops(self) -> None:
        """It can be asked to stop, and then resumed."""
        self.send(signal.SIGTERM)
        self.process.wait()
        self.is_resumed()


@pytest.fixture(params=range(int(os.environ.get('RELIABILITY_TRIES', '1'))))
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """A ``folder`` where a fault is tried, and random numbers (``rng``) that the test's name fixes. Afterwards no
    process, shared memory or temporary file may be left.
    """
    before = set(os.listdir('/dev/shm'))
    yield SimpleNamespace(folder=tmp_path, rng=random.Random(request.node.name))
    assert wait_until(lambda: not processes_of(tmp_path)), f'left: {processes_of(tmp_path)}'
    left = {name for name in os.listdir('/dev/shm') if not name.startswith('sem.')} - before  # semaphores are others'
    assert not left, f'shared memory is left: {left}'
    # the cache of PyTorch's compiler is made by its import
    left = {path.name for path in tmp_path.glob('temporary/*') if not path.name.startswith('torchinductor_')}
    assert not left, f'temporary files are left: {left}'
    shutil.rmtree(tmp_path / 'run', ignore_errors=True)  # pytest keeps the folders of all tests of a session


STEP_TIMEOUT = {'env.manager.step_timeout': 2.0}
RESET_TIMEOUT = {'env.manager.reset_timeout': 5.0}
DQN, OVERLAPPED, PPO = {}, dict(overlap=True), dict(ppo=True)


def at_random_moment(place: Any, env_steps: int = ENV_STEPS, **options: Any) -> FaultyRun:
    """A run that has come to a moment in its first half, evaluations and random play included."""
    steps = place.rng.randrange(5, 70)
    run = FaultyRun(place.folder, env_steps, dict(moment=dict(steps=steps)), **options)
    run.wait_for((place.folder / 'moment').exists)
    time.sleep(place.rng.uniform(0, 0.01))
    return run


def all_ended(place: Any) -> None:
    """Whoever resumes a run right after a kill may meet the old one's workers, which end by themselves."""
    assert wait_until(lambda: not processes_of(place.folder), 20)


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
def test_a_run_replaces_a_lost_worker(place, name, how, of_evaluator):
    run = at_random_moment(place, changes=STEP_TIMEOUT if name == 'SIGSTOP' else {}, **how)
    *collectors, evaluators = run.workers()
    (evaluators if of_evaluator else place.rng.choice(collectors)).send_signal(getattr(signal, name))
    run.completes()
    reason = 'did not answer within' if name == 'SIGSTOP' else 'has ended'
    assert of_evaluator or re.search(rf'lost a step: worker process \d+ {reason}', run.text), run.text


@pytest.mark.parametrize('whole_run', [False, True])
def test_a_pause_loses_nothing(place, whole_run):
    run = at_random_moment(place)
    worker, pause_s = place.rng.choice(run.workers()), place.rng.uniform(0.1, 1.5)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        run.send(number, to_all=True) if whole_run else worker.send_signal(number)
        time.sleep(pause_s)
    run.completes()
    assert 'lost a step' not in run.text


@pytest.mark.parametrize('to_all, how', [(False, DQN), (False, OVERLAPPED), (False, PPO), (True, DQN)])
def test_a_killed_run_is_resumed_from_a_complete_save(place, to_all, how):
    run = FaultyRun(place.folder, UNENDING, **how)
    run.until_save()
    time.sleep(place.rng.uniform(0, 0.7))
    run.send(signal.SIGKILL, to_all)
    assert run.process.wait() == -signal.SIGKILL
    all_ended(place)
    run.is_resumed()


def test_a_run_killed_between_two_system_calls_of_a_save_is_resumed(place):
    run = FaultyRun(place.folder, UNENDING, dict(killed_while_saving=dict(moment=place.rng.randrange(40, 160))))
    assert run.process.wait() == -signal.SIGKILL
    all_ended(place)
    run.is_resumed()


CALLS = {'advance': 60, 'reset_game': 2}  # of a step and of the first reset


def with_broken_emulator(place: Any, method: str, hangs: bool, changes: dict[str, Any]) -> FaultyRun:
    fault = dict(method=method, call=place.rng.randrange(1, CALLS[method]), hangs=hangs)
    return FaultyRun(place.folder, faults=dict(broken_emulator=fault), changes={**STEP_TIMEOUT, **changes})


@pytest.mark.parametrize('method, hangs', [('advance', False), ('reset_game', False), ('reset_game', True)])
def test_an_error_of_an_environment_ends_the_run_after_a_save(place, method, hangs):
    run = with_broken_emulator(place, method, hangs, RESET_TIMEOUT)
    assert run.process.wait() not in (0, 2), run.text
    assert ('did not answer within' if hangs else 'planted') in run.text, run.text
    run.is_resumed()


@pytest.mark.parametrize(
    'method, changes',
    [('advance', {}), ('reset_game', {**RESET_TIMEOUT, 'env.manager.max_retry': 2})],
)
def test_a_hanging_environment_is_replaced(place, method, changes):
    run = with_broken_emulator(place, method, True, changes)
    run.completes()
    assert method == 'reset_game' or 'did not answer within' in run.text, run.text


def saving_run(place: Any, disk: Path) -> FaultyRun:
    run = FaultyRun(place.folder, UNENDING, disk=disk)
    run.until_save()
    time.sleep(place.rng.uniform(0, 0.5))
    return run


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    other = folder.parent / 'other'
    with other.open('wb', buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b'\0' * size)
    yield
    other.unlink()


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """As the operating system does with a disk that has errors. What is open for writing stays so."""
    subprocess.run(['mount', '--bind', folder, folder], check=True)
    remount = ['mount', '-o', 'remount,bind,ro', folder]
    assert wait_until(lambda: not subprocess.run(remount).returncode)  # it is refused while a file is being written
    try:
        yield
    finally:
        subprocess.run(['umount', '--lazy', folder], check=True)


@pytest.mark.parametrize('fault, message', [(full, 'No space left on device'), (read_only, 'Read-only file system')])
def test_a_run_outlives_a_disk_that_takes_nothing(small_disk, place, fault, message):
    run = saving_run(place, small_disk)
    with fault(run.folder):
        time.sleep(place.rng.uniform(0.5, 1.5))
        assert run.process.poll() is None, run.text
        check_saves(run.folder)
    run.until_next_save()
    assert message in run.text
    run.stops()


def test_a_run_that_ends_on_a_full_disk_is_resumed_from_the_save_before(small_disk, place):
    run = saving_run(place, small_disk)
    with full(run.folder):
        run.send(signal.SIGTERM)
        run.process.wait()
        assert 'No space left on device' in run.text
    run.is_resumed()


def test_a_save_that_fails_leaves_the_one_before(place):
    fault = dict(first=place.rng.randrange(8, 40), times=place.rng.randrange(1, 6))
    run = FaultyRun(place.folder, UNENDING, dict(failing_disk=fault))
    run.wait_for(lambda: 'the disk works again' in run.text)
    run.until_next_save()
    assert re.search('was not saved.*The save before it is kept', run.text), run.text
    run.stops()


def test_a_run_continues_when_the_clock_is_set(place):
    run = FaultyRun(place.folder, UNENDING, dict(changed_clock=dict(hours=place.rng.uniform(1, 48))))
    run.until_save()
    (place.folder / 'moment').touch()
    run.until_next_save()
    run.stops()
