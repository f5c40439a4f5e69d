"""What setup.py declares agrees with the tested versions."""

from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers.processes import ROOT

EXTRAS = ['', *metadata.metadata('ding-breakout').get_all('Provides-Extra')]
PINS = [Requirement(line) for line in (ROOT / 'constraints.txt').read_text().splitlines() if line[:1] not in ('#', '')]


def applies(requirement: Requirement, python: str) -> bool:
    marker, environments = requirement.marker, [dict(python_version=python, extra=extra) for extra in EXTRAS]
    return marker is None or any(map(marker.evaluate, environments))


@pytest.mark.parametrize('python', ['3.10', '3.11', '3.12'])
def test_tested_versions_are_within_the_bounds(python):
    pins = {canonicalize_name(pin.name): pin for pin in PINS if applies(pin, python)}
    required = [each for each in map(Requirement, metadata.requires('ding-breakout')) if applies(each, python)]
    assert len(required) > 40
    for requirement in required:
        (pin,) = pins[canonicalize_name(requirement.name)].specifier
        assert Version(pin.version) in requirement.specifier, requirement
