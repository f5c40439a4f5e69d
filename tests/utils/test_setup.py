"""What setup.py declares agrees with the tested versions, and with the files that lie here."""

import ast
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers.processes import ROOT

PYTHONS = ('3.10', '3.11', '3.12')


def declared(name: str):
    """An argument that setup.py gives to setup(), without running it."""
    (call,) = [
        node.value
        for node in ast.parse((ROOT / 'setup.py').read_text()).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    return ast.literal_eval(next(keyword.value for keyword in call.keywords if keyword.arg == name))


REQUIREMENTS = [Requirement(line) for line in declared('install_requires')]
EXTRAS = [Requirement(line) for lines in declared('extras_require').values() for line in lines]
PINS = [Requirement(line) for line in (ROOT / 'constraints.txt').read_text().splitlines() if line[:1] not in ('#', '')]


def applies(requirement: Requirement, python: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({'python_version': python})


@pytest.mark.parametrize('python', PYTHONS)
def test_tested_versions_are_within_the_bounds(python):
    pins = {canonicalize_name(pin.name): pin for pin in PINS if applies(pin, python)}
    for requirement in [*REQUIREMENTS, *EXTRAS]:
        if not applies(requirement, python):
            continue
        (pin,) = pins[canonicalize_name(requirement.name)].specifier
        assert Version(pin.version) in requirement.specifier, requirement


def files_of_the_clone():
    listed = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip('this is no clone')
    return [name for name in listed.stdout.split('\0') if name and (ROOT / name).exists()]


def test_no_text_tells_to_install_by_a_name_that_is_not_a_requirement():
    """This package is on no index, and a stranger's has its import name: texts name a path to a checkout instead."""
    known = {canonicalize_name(each.name) for each in [*REQUIREMENTS, *EXTRAS]} | {'uv', 'box2d', 'rl-games'}
    wrong = []
    for name in files_of_the_clone():
        text = (ROOT / name).read_text(errors='ignore')
        for found in re.findall(r'pip3? install(?: +-\S+)* +[\'"]?([\w./~$@][\w./~$@-]*)', text):
            if not found.startswith(('.', '/', '~', '$')) and not found.endswith('.txt'):
                wrong += [(name, found)] * (canonicalize_name(found) not in known)
        wrong += [(name, found) for found in re.findall(r'\b(?:breakout-env\b|breakout_env\[\w+\])', text)]
    assert [each for each in wrong if each[0] not in ('CHANGELOG.md', 'tests/utils/test_setup.py')] == []


def test_source_distribution_has_every_file(tmp_path):
    command = [sys.executable, 'setup.py', '-q', 'egg_info', '--egg-base', str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    there = set((tmp_path / 'ding_breakout.egg-info' / 'SOURCES.txt').read_text().splitlines())
    assert sorted({*files_of_the_clone()} - {'.gitignore'} - there) == []
