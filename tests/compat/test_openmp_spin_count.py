"""The spin count of PyTorch's threads is set before PyTorch is imported, and a user's setting stays."""

import os
import re
import subprocess
import sys

import pytest

from breakout_env.compat.openmp_spin_count import SPIN_COUNT, set_spin_count, spinning_warning

RELATED = ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')


def spin_counts(program: str) -> set:
    """The spin counts that the copies of libgomp in a new process report."""
    environ = {name: value for name, value in os.environ.items() if name not in RELATED}
    command = [sys.executable, '-W', 'ignore', '-c', program]
    environ['OMP_DISPLAY_ENV'] = 'verbose'
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(map(int, re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)))


def test_the_import_of_the_package_sets_what_upstream_still_sets_too_high():
    assert min(spin_counts('import torch')) > 100_000, 'upstream spins for a shorter time now: remove the workaround'
    assert spin_counts('import breakout_env') == {SPIN_COUNT}


@pytest.mark.parametrize(
    'environ, has_torch, expected',
    [
        ({}, False, {'GOMP_SPINCOUNT': '10000'}),
        ({}, True, {}),  # it would come too late
        ({'GOMP_SPINCOUNT': '77'}, False, {'GOMP_SPINCOUNT': '77'}),
        ({'OMP_WAIT_POLICY': 'active'}, False, {'OMP_WAIT_POLICY': 'active'}),
    ],
)
def test_a_setting_of_the_user_stays(environ, has_torch, expected, monkeypatch):
    monkeypatch.setattr(os, 'environ', dict(environ))
    monkeypatch.setattr(sys, 'modules', {'torch': None} if has_torch else {})
    set_spin_count()
    assert os.environ == expected


@pytest.mark.parametrize(
    'environ, threads, load, warns',
    [
        ({}, 2, 8.0, True),
        ({}, 1, 8.0, False),
        ({}, 2, 1.0, False),
        ({'GOMP_SPINCOUNT': '77'}, 2, 8.0, False),
        ({'OMP_WAIT_POLICY': 'passive'}, 2, 8.0, False),
    ],
)
def test_a_busy_machine_gets_a_warning_with_the_command(environ, threads, load, warns, monkeypatch):
    monkeypatch.setattr(os, 'environ', dict(environ))
    monkeypatch.setattr(os, 'getloadavg', lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: {0, 1})
    monkeypatch.setattr(sys, 'argv', ['/somewhere/bin/ding', '-m', 'serial', '-c', 'my config.py'])
    warning = spinning_warning(threads)
    assert bool(warning) == warns
    assert not warns or warning.endswith("GOMP_SPINCOUNT=10000 ding -m serial -c 'my config.py'")
