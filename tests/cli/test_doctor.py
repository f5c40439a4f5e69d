"""``breakout doctor`` tries what it reports on, says how to fix it, and survives whatever it finds."""

import importlib.metadata
import importlib.util
import os
import re
import signal
import subprocess

import psutil
import pytest
import torch
from click.testing import CliRunner

from breakout_cli import doctor_checks, main
from breakout_cli.common import device_of
from breakout_cli.doctor_checks import Answer, Check, run_checks
from breakout_env.utils.memory_limits import Room
from helpers.processes import wait_until


def only(look, timeout_s=60.0, **options):
    (row,) = run_checks([Check('it', look, **options)], timeout_s)
    return row


def test_this_machine_is_fit_for_training(same_footprint):
    result = CliRunner().invoke(main, ['doctor'])
    assert result.exit_code == 0 and not re.search('^fails', result.stdout, re.M), result.stdout
    assert f'torch {importlib.metadata.version("torch")}, ' in result.stdout
    for name in ('CPU', 'GPU', 'ROM', 'worker process', 'memory', 'shared memory', 'disk', 'FFmpeg'):
        assert re.search(rf'^(ok|warning) +{name} +\S', result.stdout, re.M), result.stdout


@pytest.mark.parametrize('needed, code', [(True, 1), (False, 0)])
def test_each_finding_is_shown_with_a_fix_that_can_be_copied(needed, code, monkeypatch):
    fix = 'pip install ' + ' '.join(f'package-{number}' for number in range(40))
    check = Check('it', lambda: Answer('fails', 'all [is] ill', fix), needed=needed)
    monkeypatch.setattr(doctor_checks, 'CHECKS', [check])
    result = CliRunner().invoke(main, ['doctor'])
    # the exit code is 1 if something fails that training needs
    assert result.exit_code == code and 'all [is] ill' in result.stdout and fix in result.stdout


def test_check_that_raises_or_crashes_has_failed(same_footprint):
    def look():
        raise RuntimeError('planted\nin two lines')

    row = only(look, fix='do this')
    assert (row.state, row.found, row.fix) == ('fails', 'RuntimeError: planted in two lines', 'do this')
    row = only(lambda: os.kill(os.getpid(), signal.SIGSEGV))
    assert row.state == 'fails' and 'crashed' in row.found


def test_check_that_hangs_is_ended_with_its_children(same_footprint, tmp_path):
    def look():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(['sleep', '100'])
        (tmp_path / 'pid').write_text(str(child.pid))
        child.wait()

    row = only(look, timeout_s=5)
    assert (row.state, row.found) == ('fails', 'did not end within 5 s and was ended')
    pid = int((tmp_path / 'pid').read_text())
    assert wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_packages_out_of_bounds_or_missing_come_with_their_pip_command(monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name in ('xxhash', 'opencv-python'):
            raise importlib.metadata.PackageNotFoundError(name)
        return {'torch': '2.13.0', 'numpy': '2.0', 'opencv-python-headless': '4.10.0.84'}.get(name) or real(name)

    monkeypatch.setattr(importlib.metadata, 'version', version)
    finding = doctor_checks.requirements()
    assert finding.state == 'fails' and 'xxhash is not installed' in finding.found
    assert 'torch is 2.13.0; expected ' in finding.found and 'numpy is 2.0' in finding.found  # DI-engine's bound
    assert finding.fix.startswith('pip install ') and '<2.13' in finding.fix and 'xxhash' in finding.fix
    assert 'opencv' not in finding.found  # the headless one provides the same modules


@pytest.mark.parametrize('display, pygame, fix', [(None, True, 'record'), (':1', False, 'pip install pygame')])
def test_a_window_needs_a_display_and_pygame(display, pygame, fix, monkeypatch):
    monkeypatch.setenv('DISPLAY', display or '')
    monkeypatch.setenv('WAYLAND_DISPLAY', '')
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: pygame or None)
    finding = doctor_checks.window()
    assert finding.state == 'warning' and ('no display' in finding.found) is pygame
    assert fix in finding.fix and 'breakout record' in finding.fix


def test_small_shared_memory_is_a_warning_and_a_full_one_fails(small_disk):
    finding = doctor_checks.shared_memory(str(small_disk))
    assert finding.state == 'warning' and '--shm-size' in finding.fix
    (small_disk / 'full').write_bytes(b'x' * 22 * 2**20)
    assert doctor_checks.shared_memory(str(small_disk)).state == 'fails'


def test_too_little_of_this_machine_is_a_warning_with_its_fix(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor_checks.os, 'sched_getaffinity', lambda pid: {3, 5})
    (tmp_path / 'cpu.max').write_text('150000 100000')
    monkeypatch.setattr(doctor_checks, 'control_groups', lambda: [tmp_path / 'none', tmp_path])
    finding = doctor_checks.cpu()
    assert finding.state == 'warning' and 'the time of 1.5' in finding.found
    assert re.fullmatch(r'OMP_NUM_THREADS=1 taskset -c 3 .*breakout train', finding.fix)
    little = Room(10**9, 2 * 10**9, 'a container')
    monkeypatch.setattr(doctor_checks, 'memory_room', lambda: little)
    monkeypatch.setattr(doctor_checks, 'disk_room', lambda folder: little)
    for check, found in ((doctor_checks.memory, 'free of 2.0 GB (a container)'), (doctor_checks.disk, 'free in ')):
        assert check().state == 'warning' and f'1.0 GB {found}' in check().found and check().fix


@pytest.mark.parametrize('has', [True, False])
def test_doctor_says_to_which_column_of_the_guides_this_cpu_belongs(has, monkeypatch):
    monkeypatch.setattr(doctor_checks, 'control_groups', lambda: [])
    monkeypatch.setattr(doctor_checks, 'fastest_dtype', lambda *where: torch.bfloat16 if has else torch.float32)
    assert doctor_checks.cpu().found.endswith('with bfloat16' if has else 'without bfloat16')


def test_unusable_gpu_is_told_apart_from_none(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor_checks.torch.cuda, 'is_available', lambda: False)
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    monkeypatch.setenv('PATH', str(tmp_path))
    assert doctor_checks.gpu() == Answer('ok', 'none: training uses the CPU')
    (tmp_path / 'nvidia-smi').touch(mode=0o755)
    finding = doctor_checks.gpu()
    assert finding.state == 'warning' and 'finds no GPU that it can use' in finding.found


WHEEL = ['sm_75', 'sm_80', 'sm_86', 'sm_90']


@pytest.mark.parametrize(
    'capability, built_for, is_fit',
    [
        ((8, 9), WHEEL, True),
        ((6, 0), WHEEL, False),
        ((10, 0), [*WHEEL, 'compute_90'], True),
        ((9, 0), ['gfx90a'], True),
    ],
)
def test_gpu_without_code_in_this_pytorch_is_not_used_and_the_wheel_named(capability, built_for, is_fit, monkeypatch):
    cuda = doctor_checks.torch.cuda
    for name, value in dict(is_available=True, get_device_name='P100', get_arch_list=built_for).items():
        monkeypatch.setattr(cuda, name, lambda value=value: value)
    monkeypatch.setattr(cuda, 'get_device_capability', lambda: capability)
    assert device_of('auto') == ('cuda' if is_fit else 'cpu')
    if not is_fit:
        finding = doctor_checks.gpu()
        assert finding.state == 'warning' and 'P100 has compute' in finding.found and '/cu126' in finding.fix
