"""
How often the release tests try each promise, and the record of what came out.

``RELIABILITY_TRIES=10`` repeats each test that takes a ``seed`` so many times. ``RELIABILITY_RECORD=1`` puts what was
tried into docs/results/reliability.json, in the place of earlier results of the same promises;
docs/scripts/make_tables.py makes the tables of the guide from that file.
"""

import json
import os
import platform
import random
import shutil
import subprocess
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, Set, Tuple

import psutil
import pytest

from helpers.faulty_runs import processes_of
from helpers.processes import ROOT, wait_until

RESULTS = ROOT / 'docs' / 'results' / 'reliability.json'
TRIES = int(os.environ.get('RELIABILITY_TRIES', '1'))
PACKAGES = ('DI-engine', 'torch', 'numpy', 'ale-py', 'gymnasium', 'opencv-python')
# A worker checks once a second whether its manager exists, and then closes its environments; a machine may be busy.
LEAVING_S = 20.0

# What was tried in this session, by suite, subject and fault.
_tried: Dict[Tuple[str, str, str], Dict[str, Any]] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line('markers', 'promise(suite, on, fault, promise): the row of the guide that a test is for')
    config.addinivalue_line('markers', 'tries(factor): how often a promise is tried, compared to the others')


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if 'seed' in metafunc.fixturenames:
        factor = metafunc.definition.get_closest_marker('tries')
        metafunc.parametrize('seed', range(TRIES * (factor.args[0] if factor and TRIES > 1 else 1)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    promise = item.get_closest_marker('promise')
    # a test that passes may fail at its end, by what it leaves behind
    if promise and (report.when == 'teardown' or report.failed) and not item.stash.get(_REPORTED, False):
        item.stash[_REPORTED] = True
        suite, on, fault, words = promise.args
        row = _tried.setdefault((suite, on, fault), dict(suite=suite, on=on, fault=fault, promise=words))
        row['tries'] = row.get('tries', 0) + 1
        row['passed'] = row.get('passed', 0) + (report.passed and not item.stash.get(_SKIPPED, False))
        row.update({name: value for name, value in item.user_properties})
    if report.skipped:
        item.stash[_SKIPPED] = item.stash[_REPORTED] = True
    return report


_REPORTED, _SKIPPED = pytest.StashKey[bool](), pytest.StashKey[bool]()


def pytest_sessionfinish() -> None:
    if not _tried or not os.environ.get('RELIABILITY_RECORD'):
        return
    described = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=ROOT, capture_output=True, text=True)
    about = dict(
        date=datetime.now(timezone.utc).date().isoformat(),
        commit=described.stdout.strip(),
        machine=f'{len(os.sched_getaffinity(0))} cores, {psutil.virtual_memory().total / 2**30:.0f} GB',
        python=platform.python_version(),
        versions={name: metadata.version(name) for name in PACKAGES},
    )
    earlier = json.loads(RESULTS.read_text())['rows'] if RESULTS.exists() else []
    rows = {(row['suite'], row['on'], row['fault']): row for row in earlier}
    rows.update({key: dict(row, date=about['date'], commit=about['commit']) for key, row in _tried.items()})
    RESULTS.write_text(json.dumps(dict(about, rows=list(rows.values())), indent=1, ensure_ascii=False) + '\n')


def shared_memory() -> Set[str]:
    """Segments; named semaphores are other programs'."""
    return {name for name in os.listdir('/dev/shm') if not name.startswith('sem.')}


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SimpleNamespace]:
    """
    A ``folder`` where a fault is tried, and random numbers (``rng``) that the test's parameters fix. Afterwards no
    process, shared memory or temporary file may be left.
    """
    before = shared_memory()
    yield SimpleNamespace(folder=tmp_path, rng=random.Random(request.node.name))
    assert wait_until(lambda: not processes_of(tmp_path), LEAVING_S), f'left: {processes_of(tmp_path)}'
    assert shared_memory() <= before, f'shared memory is left: {shared_memory() - before}'
    # the cache of PyTorch's compiler is made by its import
    left = [path.name for path in tmp_path.glob('temporary/*') if not path.name.startswith('torchinductor_')]
    assert not left, f'temporary files are left: {left}'
    shutil.rmtree(tmp_path / 'run', ignore_errors=True)  # pytest keeps the folders of all tests of a session
