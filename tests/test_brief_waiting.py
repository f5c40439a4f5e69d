"""How PyTorch's threads wait: set before PyTorch is there, and never over what the user has set."""

import os
import re
import subprocess
import sys

import pytest

SHOW = '; import os; print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_WAIT_POLICY"))'


def spins(program: str, **environ: str) -> tuple:
    """What libgomp says that it goes by, in a new process, and what the environment is afterwards."""
    unset = ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')
    clean = {name: value for name, value in os.environ.items() if name not in unset}
    command = [sys.executable, '-W', 'ignore', '-c', program + SHOW]
    environ = {**clean, 'OMP_DISPLAY_ENV': 'verbose', **environ}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # each copy of libgomp that is loaded says it
    return set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)), done.stdout.split()


def test_threads_wait_briefly_in_programs_that_import_the_package_first():
    assert spins('import breakout_env') == ({'10000'}, ['10000', 'None'])


@pytest.mark.parametrize(
    'environ, expected',
    [(dict(GOMP_SPINCOUNT='77'), ['77', 'None']), (dict(OMP_WAIT_POLICY='active'), ['None', 'active'])],
)
def test_what_the_user_has_set_stays(environ, expected):
    said, after = spins('import breakout_env', **environ)
    assert '10000' not in said and after == expected


def test_nothing_is_set_where_pytorch_waits_in_its_own_way_already():
    said, after = spins('import torch, breakout_env')
    assert '10000' not in said and after == ['None', 'None']
