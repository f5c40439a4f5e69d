"""The doctor tries what it reports on, says what mends it, and survives whatever it finds."""

import importlib.metadata
import json
import os
import re
import resource
import signal
import subprocess
import time

import psutil
import pytest
from click.testing import CliRunner

from breakout_env.cli import doctor_checks, doctor_command, main
from breakout_env.cli.doctor import Check, Finding, run_checks
from breakout_env.rendering import window
from helpers.processes import wait_until
from helpers.resources import footprint, grown_since


def only(check):
    (row,) = run_checks([check])
    return row


def test_this_machine_is_found_fit_to_train(same_footprint):
    result = CliRunner().invoke(main, ['doctor', '--json'])
    rows = {row['name']: row for row in json.loads(result.stdout)}
    assert [name for name, row in rows.items() if row['state'] == 'fails'] == []
    assert result.exit_code == 0
    assert rows['torch']['found'].startswith(importlib.metadata.version('torch'))
    assert '<2' in rows['numpy']['found']  # DI-engine's bound, which is not among our own
    assert set(rows) >= {'Python', 'DI-engine', 'CPU', 'GPU', 'ROM', 'worker process', 'memory', 'disk', 'FFmpeg'}
    assert all(row['found'] for row in rows.values())


@pytest.mark.parametrize('check', doctor_checks.CHECKS, ids=lambda check: check.name)
def test_a_check_finds_the_same_without_a_process_of_its_own_and_gives_back_what_it_opens(check):
    check.look()  # what is imported stays
    before = footprint()
    finding, row = check.look(), only(check)
    assert not grown_since(before)
    without_numbers = [re.sub(r'[\d.,]+', '', found) for found in (finding.found, row.found)]
    assert without_numbers[0] == without_numbers[1] and finding.mend == row.mend


def test_the_table_shows_each_finding_and_below_it_what_can_be_copied(monkeypatch):
    long = 'pip install ' + ' '.join(f'package-{number}' for number in range(40))
    checks = [
        Check('well', lambda: Finding('ok', 'all [is] well')),
        Check('ill', lambda: Finding('warning', 'something is not', long)),
    ]
    monkeypatch.setattr(doctor_command, 'CHECKS', checks)
    result = CliRunner().invoke(main, ['doctor'])
    assert result.exit_code == 0
    assert 'all [is] well' in result.stdout
    assert long in result.stdout  # in one line


def test_what_training_needs_and_fails_is_exit_code_1(monkeypatch):
    for needed, code in ((True, 1), (False, 0)):
        monkeypatch.setattr(doctor_command, 'CHECKS', [Check('it', lambda: Finding('fails', 'no'), needed=needed)])
        assert CliRunner().invoke(main, ['doctor']).exit_code == code


def test_a_check_that_raises_is_a_row(same_footprint):
    def look():
        raise RuntimeError('planted\nin two lines')

    row = only(Check('it', look, mend='mend it'))
    assert (row.state, row.found, row.mend) == ('fails', 'RuntimeError: planted in two lines', 'mend it')


def test_a_check_that_hangs_is_cut_off_with_its_children(same_footprint, tmp_path):
    def look():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(['sleep', '100'])
        (tmp_path / 'pid').write_text(str(child.pid))
        child.wait()

    start = time.monotonic()
    row = only(Check('it', look, timeout_s=1))
    assert time.monotonic() - start < 5
    assert (row.state, row.found) == ('fails', 'did not end within 1 s and was cut off')
    pid = int((tmp_path / 'pid').read_text())
    assert wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_a_check_that_crashes_its_process_is_a_row(same_footprint):
    row = only(Check('it', lambda: os.kill(os.getpid(), signal.SIGSEGV)))
    assert row.state == 'fails' and 'without an answer' in row.found


def test_a_child_that_a_check_leaves_behind_does_not_hold_its_answer_up(same_footprint):
    def look():
        if os.fork() == 0:
            time.sleep(100)
        return Finding('ok', 'done')

    start = time.monotonic()
    assert only(Check('it', look)).found == 'done'
    assert time.monotonic() - start < 5


def test_a_package_out_of_bounds_or_missing_comes_with_its_pip_command(monkeypatch):
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, 'version', lambda name: '2.13.0' if name == 'torch' else real(name))
    finding = doctor_checks.requirement_version('torch')
    assert finding.state == 'fails' and finding.found.startswith('2.13.0; expected')
    assert finding.mend.startswith('pip install ') and 'torch' in finding.mend and '<2.13' in finding.mend

    def missing(name):
        if name == 'xxhash':
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, 'version', missing)
    finding = doctor_checks.other_requirements()
    assert finding.state == 'fails' and 'xxhash is not installed' in finding.found and 'xxhash' in finding.mend


def test_a_real_window_is_opened(display):
    row = only(Check('window', doctor_checks.window))
    assert (row.state, row.found) == ('ok', f'a window was opened on display {os.environ["DISPLAY"]} and closed')


def test_a_display_that_hangs_is_a_warning_and_not_a_wait(display, monkeypatch, same_footprint):
    monkeypatch.setattr(window, 'OPEN_TIMEOUT_S', 2)
    display.send_signal(signal.SIGSTOP)
    try:
        row = only(Check('window', doctor_checks.window, needed=False))
    finally:
        display.send_signal(signal.SIGCONT)
    assert row.state == 'warning' and 'did not answer' in row.found


def test_no_display_says_where_else_games_can_be_seen(monkeypatch):
    monkeypatch.delenv('DISPLAY', raising=False)
    monkeypatch.delenv('WAYLAND_DISPLAY', raising=False)
    finding = doctor_checks.window()
    assert finding.state == 'warning' and 'breakout play --terminal' in finding.mend


def test_an_ffmpeg_that_is_not_there_is_a_warning(monkeypatch):
    monkeypatch.setenv('IMAGEIO_FFMPEG_EXE', '/nowhere/ffmpeg')
    (row,) = run_checks([check for check in doctor_checks.CHECKS if check.name == 'FFmpeg'])
    assert row.state == 'warning' and '/nowhere/ffmpeg' in row.found and 'imageio-ffmpeg' in row.mend


def test_dockers_small_shared_memory_is_a_warning_and_a_full_one_fails(small_disk):
    finding = doctor_checks.shared_memory(str(small_disk))
    assert finding.state == 'warning' and '--shm-size' in finding.mend
    (small_disk / 'full').write_bytes(b'x' * 22 * 2**20)
    assert doctor_checks.shared_memory(str(small_disk)).state == 'fails'


def test_few_open_files_are_a_warning_with_the_limit_that_can_be_set(monkeypatch):
    monkeypatch.setattr(resource, 'getrlimit', lambda which: (256, 4096))
    finding = doctor_checks.open_files()
    assert finding.state == 'warning' and '256' in finding.found and finding.mend == 'ulimit -n 1024'


@pytest.mark.parametrize('version', [1, 2])
def test_the_cores_that_a_container_allows_are_those_of_its_control_group(version, tmp_path):
    group = tmp_path / 'root' / ('cpu,cpuacct' if version == 1 else '') / 'job'
    group.mkdir(parents=True)
    if version == 1:
        (group / 'cpu.cfs_quota_us').write_text('150000\n')
        (group / 'cpu.cfs_period_us').write_text('100000\n')
    else:
        (group / 'cpu.max').write_text('150000 100000\n')
        (group.parent / 'cpu.max').write_text('max 100000\n')
    membership = tmp_path / 'membership'
    membership.write_text('4:cpu,cpuacct:/job/task\n3:memory:/\n' if version == 1 else '0::/job/task\n')
    assert doctor_checks.cpu_quota(str(tmp_path / 'root'), str(membership)) == 1.5


def test_a_gpu_that_pytorch_can_not_use_is_told_apart_from_none(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor_checks.torch.cuda, 'is_available', lambda: False)
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    monkeypatch.setattr(doctor_checks, '_nvidia_driver', lambda: None)
    assert doctor_checks.gpu() == Finding('ok', 'none: training uses the CPU')
    monkeypatch.undo()
    monkeypatch.setattr(doctor_checks.torch.cuda, 'is_available', lambda: False)
    (tmp_path / 'nvidia-smi').write_text('#!/bin/sh\necho 550.54.15\n')
    (tmp_path / 'nvidia-smi').chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    finding = doctor_checks.gpu()
    assert finding.state == 'warning' and finding.mend == 'unset CUDA_VISIBLE_DEVICES'
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES')
    monkeypatch.setattr(doctor_checks.torch.version, 'cuda', None)
    finding = doctor_checks.gpu()
    assert finding.state == 'warning' and '550.54.15' in finding.found and 'built for the CPU' in finding.found
