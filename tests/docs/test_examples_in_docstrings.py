"""The examples in the package's docstrings run and print what they show."""

import doctest
import importlib

import pytest

from helpers.processes import ROOT

FILES = sorted((ROOT / 'breakout_env').rglob('*.py'))
MODULES = ['.'.join(file.relative_to(ROOT).with_suffix('').parts) for file in FILES if '>>>' in file.read_text()]


@pytest.mark.parametrize('name', MODULES)
def test_the_examples_of_a_module_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed
