"""What every test of a collector gets."""

from helpers.runs import as_before  # noqa: F401  a training in this process listens to signals
