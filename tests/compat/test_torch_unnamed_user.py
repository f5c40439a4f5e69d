"""A user id without a name, as in `docker run -u 12345`: agents are read, networks are built."""

import os
import sys

import pytest

from breakout_env.compat.torch_unnamed_user import name_user
from helpers.processes import completed

# the last one is the answer, which PyTorch has put there if a test before this one has built a network
ASKED = ('LOGNAME', 'USER', 'LNAME', 'USERNAME', 'TORCHINDUCTOR_CACHE_DIR')
UNNAMED = ['unshare', '--user', '--map-user=12345']


def test_an_agent_is_read_by_a_user_without_a_name():
    if completed([*UNNAMED, 'true']).returncode:
        pytest.skip('this user can not take another user id')
    python = [*UNNAMED, sys.executable, '-W', 'ignore', '-c']
    environ = {name: value for name, value in os.environ.items() if name not in ASKED}
    upstream = completed([*python, 'import torch._dynamo'], environ=environ)
    assert 'uid not found' in upstream.stderr, 'upstream asks for no name now: remove the workaround'
    program = 'import breakout_env.agent.agent as a; print(a.load_agent().name)'
    done = completed([*python, program], environ=environ)
    assert done.returncode == 0 and done.stdout.strip() == 'breakout_ppo', done.stderr


def test_a_user_with_a_name_keeps_it(monkeypatch):
    monkeypatch.setenv('LOGNAME', 'somebody')
    name_user()
    assert os.environ['LOGNAME'] == 'somebody'
