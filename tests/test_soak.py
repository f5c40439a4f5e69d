"""The soak: it passes over a package that gives everything back, and each thing that is kept is found and named."""

import contextlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from breakout_env.env_manager import worker_pool
from breakout_env.envs import emulator
from breakout_env.rendering import window
from breakout_env.rendering.video import GameRecorder
from breakout_env.replay.frames import index as frame_index
from helpers.processes import ROOT, wait_until, watched_by_nobody

sys.path.insert(0, str(ROOT / 'reliability'))
sys.path.insert(0, str(ROOT / 'docs'))
import make_reliability_figures  # noqa: E402
import soak  # noqa: E402
from soak_sections import SECTIONS, Section  # noqa: E402
from watching import MEMORY_LIMIT_BYTES, POINTS, Look, judge  # noqa: E402

MB = 1_000_000
NAMED = {section.name: section for section in SECTIONS}


def failures_of(name: str, least_cycles: int = 16) -> list:
    """What a section says, with as few cycles as will do; what it breaks stays in its processes."""
    (run,) = soak.soak([replace(NAMED[name], least_cycles=least_cycles)], share=0.0)
    return run.failures


def is_told(failures: list, section: str, resource: str) -> bool:
    return any(each.startswith(f'{section}: {resource} grew by ') and 'expected' in each for each in failures)


# ---------------------------------------------------------------- nothing is wrong


@pytest.mark.timeout(900)
def test_all_sections_pass_and_are_kept_and_drawn(tmp_path):
    out = tmp_path / 'results' / 'soak.json'
    command = [sys.executable, str(ROOT / 'reliability' / 'soak.py'), '--hours', '0.0001', '--out', str(out)]
    environ = watched_by_nobody()  # what was seen would be a file more with each process
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=800, env=environ)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    assert {'machine', 'date', 'versions'} <= set(results) and str(tmp_path) not in out.read_text()
    for section in results['sections']:
        assert section['failures'] == [] and section['name'] in done.stdout
        # what is to be there is there: a look at nothing would see no growth, too
        series = section['series']
        assert 4 < len(series['cycle']) <= POINTS and series['cycle'][-1] >= 0.9 * section['cycles']
        assert min(series['resident_bytes']) > 100 * MB and min(series['descriptors']) > 5
        assert min(series['processes']) == min(series['threads']) == 1 or section['name'] in (
            'training', 'evaluations', 'run saves', 'buffer prioritised',
        )  # fmt: skip
    by_name = {section['name']: section for section in results['sections']}
    assert set(by_name) >= {name for name, section in NAMED.items() if not section.needs}
    notes = by_name['environments']['notes']
    assert notes['recorded'] > 0 and notes['different_object_ids'] < notes['environments_made']
    assert ('windows' in by_name['environments']['series']) == (notes['shown'] > 0)
    assert by_name['managers']['notes']['workers_killed'] > 0
    assert max(by_name['training']['series']['processes']) >= 3
    assert by_name['buffer compressed']['notes']['pushed'] > 10 * by_name['buffer compressed']['notes']['capacity']

    drawn = make_reliability_figures.make(tmp_path)
    assert [path.name for path in drawn] == ['soak.png'] and drawn[0].stat().st_size > 10_000
    assert 'environments' in make_reliability_figures.table(results)


# ---------------------------------------------------------------- something is kept

kept: list = []


def keep_more(monkeypatch, keep) -> None:
    """An emulator that keeps something at each close, in the processes that are forked from now on."""
    close = emulator.Emulator.close

    def closing(self) -> None:
        close(self)
        kept.append(keep())

    monkeypatch.setattr(emulator.Emulator, 'close', closing)


def endless_thread() -> threading.Thread:
    thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)
    thread.start()
    return thread


def temporary_file() -> None:
    descriptor, _ = tempfile.mkstemp()
    os.close(descriptor)


def shared_segment() -> None:
    descriptor, _ = tempfile.mkstemp(prefix='soak_planted_', dir='/dev/shm')
    os.close(descriptor)


@pytest.fixture(autouse=True)
def nothing_planted_stays(monkeypatch):
    monkeypatch.setattr('keeper.LEFTOVERS_MAY_TAKE_S', 0.5)  # what is planted does not end by itself
    yield
    for segment in Path('/dev/shm').glob('soak_planted_*'):  # where this user may not have one of its own
        segment.unlink()


@pytest.mark.parametrize(
    'keep, resource',
    [
        (lambda: os.open(os.devnull, os.O_RDONLY), 'descriptors'),
        (lambda: np.ones(2 * MB, np.uint8), 'resident memory'),
        (endless_thread, 'threads'),
        (temporary_file, 'files'),
        (shared_segment, 'segments of shared memory'),
        (lambda: subprocess.Popen(['sleep', '600']), 'processes'),
        # one that ends, but whose parent never asks
        (lambda: subprocess.Popen(['true']), 'processes'),
    ],
    ids=['descriptor', 'memory', 'thread', 'file', 'shared memory', 'process', 'zombie'],
)
def test_what_an_environment_keeps_is_named(monkeypatch, keep, resource):
    keep_more(monkeypatch, keep)
    monkeypatch.setattr(soak, 'virtual_screen', lambda: contextlib.nullcontext(None))  # windows take a second each
    failures = failures_of('environments')
    assert is_told(failures, 'environments', resource), failures
    if resource != 'processes':  # which have descriptors and threads of their own
        assert all(f': {resource} grew' in each or ' memory grew' in each for each in failures), failures


def test_a_window_that_is_not_closed_is_named(monkeypatch, display):
    monkeypatch.setattr(window.GameWindow, 'close', lambda self: kept.append(self._process))
    failures = failures_of('environments')
    assert is_told(failures, 'environments', 'windows'), failures


def test_a_video_that_is_not_completed_is_named(monkeypatch):
    monkeypatch.setattr(GameRecorder, 'close', lambda self: kept.append(self._encoder))
    failures = failures_of('environments')
    assert failures and all(each.startswith('environments: ') for each in failures), failures


def test_an_emulator_that_lives_on_is_named(monkeypatch):
    monkeypatch.setattr(emulator.Emulator, 'close', kept.append)
    failures = failures_of('environments')
    assert is_told(failures, 'environments', 'emulators that nobody holds any more'), failures


def test_a_worker_that_a_manager_does_not_end_is_named(monkeypatch):
    monkeypatch.setattr(worker_pool, '_end', lambda workers, owner_pid: (kept.extend(workers), workers.clear()))
    failures = failures_of('managers', 10)
    assert is_told(failures, 'managers', 'processes') and is_told(failures, 'managers', 'descriptors'), failures


def test_a_frame_whose_references_are_not_given_back_is_named(monkeypatch):
    drop = frame_index.FrameIndex.drop
    calls = iter(range(10**9))

    def dropping(self, *args, **kwargs):
        if next(calls) % 1000:
            return drop(self, *args, **kwargs)

    monkeypatch.setattr(frame_index.FrameIndex, 'drop', dropping)
    failures = failures_of('buffer compressed', 10)
    assert is_told(failures, 'buffer compressed', 'frames in the buffer'), failures


# ---------------------------------------------------------------- sections that do not come to their end


def section_of(run, name: str = 'made up') -> Section:
    return Section(name, 'nothing', 10, 10, 2, run)


def looks(look, cycles: int) -> None:
    for cycle in range(cycles):
        look(cycle + 1)


def test_an_error_in_a_section_is_told_and_the_others_go_on():
    def fails(cycles, seed, look):
        raise ValueError('planted')

    def passes(cycles, seed, look):
        looks(look, cycles)
        return dict(seed=seed)

    failed, passed = soak.soak([section_of(fails), section_of(passes, 'another')], seed=7, at_once=1)
    assert failed.failures == ['made up: it did not run to its end: ValueError: planted']
    assert passed.failures == [] and passed.notes == dict(seed=7)


def test_a_section_that_is_killed_or_stands_still_is_told(monkeypatch):
    monkeypatch.setattr(soak, 'SILENCE_S', 2)
    killed, silent = soak.soak(
        [section_of(lambda *args: os.kill(os.getpid(), 9)), section_of(lambda *args: time.sleep(600), 'silent')]
    )
    assert killed.failures == ['made up: it did not run to its end: the process was ended by signal 9']
    assert 'silent: it did not run to its end: no cycle ended for 2 seconds' in silent.failures


def test_a_process_that_outlives_its_section_is_told_and_ended():
    def leaves(cycles, seed, look):
        # its parent is gone at once, so that it is nobody's child that we know of
        subprocess.run(['sh', '-c', 'sleep 611 >/dev/null 2>&1 &'], start_new_session=True)
        looks(look, cycles)
        return {}

    (run,) = soak.soak([section_of(leaves)])
    assert run.failures == ['made up: left a process behind: sleep 611']
    assert wait_until(lambda: not any(p.info['cmdline'] == ['sleep', '611'] for p in psutil.process_iter(['cmdline'])))


def test_a_soak_that_is_killed_leaves_nobody(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))  # it can not tidy up
    soaking = multiprocessing.get_context('fork').Process(
        target=soak.soak, args=([section_of(lambda *args: time.sleep(613))],)
    )
    soaking.start()
    below = []

    def is_at_work() -> bool:
        below[:] = psutil.Process(soaking.pid).children(recursive=True)
        return len(below) >= (3 if shutil.which('Xvfb') else 2)  # the section, who keeps it, and the screen

    assert wait_until(is_at_work, 30)
    soaking.kill()
    soaking.join()
    assert wait_until(lambda: not any(process.is_running() for process in below)), below


def test_a_section_without_samples_is_no_section_that_passes():
    (run,) = soak.soak([section_of(lambda cycles, seed, look: {})])
    assert run.failures == ['made up: 0 samples after the warm-up are too few to tell; expected 4 or more']


def test_a_failure_ends_the_command_with_exit_code_1_and_its_sentence(monkeypatch, tmp_path):
    def grows(cycles, seed, look):
        for cycle in range(cycles):
            kept.append(os.open(os.devnull, os.O_RDONLY))
            look(cycle + 1)
        return {}

    out = tmp_path / 'soak.json'
    out.write_text(json.dumps(dict(soak.surroundings(), sections=[dict(name='training', resources={})])))
    monkeypatch.setattr(soak, 'SECTIONS', (section_of(grows), NAMED['training']))
    done = CliRunner().invoke(soak.main, ['--only', 'made', '--out', str(out)])
    assert done.exit_code == 1 and 'made up: descriptors grew by ' in done.output
    # sections that were not run this time are kept
    assert [section['name'] for section in json.loads(out.read_text())['sections']] == ['made up', 'training']
    unknown = CliRunner().invoke(soak.main, ['--only', 'nothing'])
    assert unknown.exit_code == 2 and "--only is 'nothing'; expected the beginning of one of" in unknown.output


# ---------------------------------------------------------------- the verdict


def judged(values, name: str = 'resident_bytes'):
    samples = [{'cycle': i + 1, name: float(value)} for i, value in enumerate(values)]
    return judge(samples, len(samples) // 5)[name]


def test_noise_waves_jumps_and_a_warm_up_are_no_growth_of_memory():
    rng, at = np.random.default_rng(0), np.arange(200)
    for shape in (
        rng.normal(0, 20 * MB, 200),
        57 * MB * rng.integers(0, 2, 200),
        30 * MB * (at % 20) / 20,
        100 * MB * (at > 60) * (at < 80),
        80 * MB * (at > 190),
        500 * MB * np.minimum(at, 40) / 40,
        -1 * MB * at,
    ):
        assert not judged(1000 * MB + shape).is_growth


def test_a_leak_is_growth_whatever_the_noise_and_is_told_in_full():
    rng = np.random.default_rng(0)
    leak = 1000 * MB + np.arange(200) * 0.1 * MB + rng.normal(0, 3 * MB, 200)
    verdict = judged(leak)
    assert verdict.is_growth and verdict.growth == pytest.approx(16 * MB, rel=0.2)
    assert not judged(1000 * MB + np.arange(200) * 0.9 * MEMORY_LIMIT_BYTES / 200).is_growth


def test_a_single_thing_more_that_stays_is_growth_and_one_that_passes_is_not():
    stays, passes = np.full(200, 11.0), np.full(200, 11.0)
    stays[150:] += 1
    passes[45:60] += 5
    passes[197] += 5
    assert judged(stays, 'descriptors').growth == 1 and judged(stays, 'descriptors').is_growth
    assert not judged(passes, 'descriptors').is_growth


@pytest.mark.parametrize('cycles', [1, 7, 199, 200, 201, 399, 10_000])
def test_no_section_keeps_more_samples_than_the_curve_needs(cycles):
    class NoWatch(object):
        def sample(self) -> dict:
            return {}

    told = []
    look = Look(NoWatch(), cycles, lambda kind, sample: told.append(sample['cycle']))
    looks(look, cycles)
    assert len(told) <= POINTS and len(told) >= min(cycles, POINTS // 2)
    assert told[-1] > cycles - cycles / 100 - 1
