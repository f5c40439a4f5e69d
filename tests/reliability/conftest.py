"""
How often the release tests try each promise: ``RELIABILITY_TRIES=10`` repeats each test that takes a ``seed`` so many
times.
"""

import os
import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Iterator

import pytest

from helpers.faulty_runs import processes_of
from helpers.processes import wait_until

TRIES = int(os.environ.get('RELIABILITY_TRIES', '1'))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line('markers', 'tries(factor): how often a promise is tried, compared to the others')


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if 'seed' in metafunc.fixturenames:
        factor = metafunc.definition.get_closest_marker('tries')
        metafunc.parametrize('seed', range(TRIES * (factor.args[0] if factor and TRIES > 1 else 1)))


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """
    A ``folder`` where a fault is tried, and random numbers (``rng``) that the test's parameters fix. Afterwards no
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
