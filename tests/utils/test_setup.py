"""What setup.py declares agrees with the tested versions."""

import ast

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
