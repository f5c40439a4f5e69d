"""The spin count of PyTorch's threads is set before PyTorch is imported, and a user's setting stays."""

import os
import re
import sys

import pytest

from breakout_env.compat.openmp_spin_count import SPIN_COUNT, set_spin_count
from helpers.processes import completed


def spin_counts(program: str) -> set:
    """The spin counts that the copies of libgomp in a new process report."""
    environ = dict(os.environ, OMP_DISPLAY_ENV='verbose')
    for decided in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY'):
        environ.pop(decided, None)
    done = completed([sys.executable, '-W', 'ignore', '-c', program], environ=environ)
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
