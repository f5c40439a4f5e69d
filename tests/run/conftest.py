"""What every test of a run gets."""

import pytest

from helpers.runs import as_before, config_in  # noqa: F401  a run in this process listens to signals


@pytest.fixture
def config(tmp_path):
    """The config of a small run, in the current folder."""
    return config_in(tmp_path)
