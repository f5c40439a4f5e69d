import importlib
import sys

import pytest

from helpers.processes import ROOT


@pytest.fixture
def scripts(monkeypatch):
    """Import a program of docs/scripts."""
    monkeypatch.syspath_prepend(ROOT / 'docs' / 'scripts')
    monkeypatch.setattr(sys, 'path', [*sys.path])
    return importlib.import_module
