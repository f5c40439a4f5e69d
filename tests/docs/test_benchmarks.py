"""Benchmarks can be imported, and compare contestants in interleaved rounds."""

import importlib
import os
import pkgutil

import pytest

import benchmarks
from benchmarks.common import rounds

PROGRAMS = [
    module.name
    for module in pkgutil.walk_packages(benchmarks.__path__, 'benchmarks.')
    if not module.ispkg and '.common.' not in module.name
]


@pytest.mark.parametrize('name', PROGRAMS)
def test_each_benchmark_can_be_imported(name):
    importlib.import_module(name)


class Steady(object):
    def measure(self, value):
        print('not for the screen')
        return dict(value=value)

    def close(self):
        pass


class Dying(Steady):
    def measure(self, value):
        os._exit(3)


class Raising(Steady):
    def measure(self, value):
        raise ValueError(f'{value} is wrong')


def test_contestant_that_fails_becomes_a_row_and_the_others_continue(capfd):
    factories = dict(steady=Steady, dying=Dying, raising=Raising)
    runs, failures = rounds.interleaved(factories, 2, value=7)
    section = rounds.section('who', runs, failures, 'value', 'steady')
    assert [run['value'] for run in runs['steady']] == [7, 7]
    assert failures == dict(dying='died, exit code 3', raising='ValueError: 7 is wrong')
    by_name = {row['name']: row for row in section['rows']}
    assert by_name['steady']['ratio'] == 1 and by_name['dying']['failure'] == 'died, exit code 3'
    printed = capfd.readouterr().out
    assert 'died, exit code 3' in printed and 'not for the screen' not in printed
