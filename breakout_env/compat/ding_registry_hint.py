"""DI-engine 0.5.3: when a constructor raises, the registry prints the constructor's arguments as a hint, whatever the
error is about.
"""

import contextlib
from collections.abc import Iterator

from ding.utils import registry


@contextlib.contextmanager
def without_registry_hint() -> Iterator[None]:
    """Keep the registry from printing its hint."""
    prints_hint = registry._innest_error
    registry._innest_error = False
    try:
        yield
    finally:
        registry._innest_error = prints_hint
