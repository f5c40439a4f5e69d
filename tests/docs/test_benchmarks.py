"""Benchmarks can be imported; tests/process runs some of them."""

import importlib
import pkgutil

import pytest

import benchmarks

PROGRAMS = [
    module.name
    for module in pkgutil.walk_packages(benchmarks.__path__, 'benchmarks.')
    if not module.ispkg and '.common.' not in module.name
]


@pytest.mark.parametrize('name', PROGRAMS)
def test_each_benchmark_can_be_imported(name):
    importlib.import_module(name)
