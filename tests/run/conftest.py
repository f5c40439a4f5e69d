"""What every test of a run gets."""

from helpers.runs import as_before  # noqa: F401  a run in this process listens to signals
