"""Upstream behaviour worked around (DI-engine 0.5.3): closing an env manager whose workers have ended raises.
Collectors and evaluators close their managers in ``__del__``. The error is then shown after the message that matters,
as when a scheduler sends SIGTERM to all processes of a run.
"""

import contextlib


class ClosesWithoutWorkers:
    """For collectors and evaluators of DI-engine's: to be named before their class."""

    def close(self) -> None:
        """Close the env manager, whose workers may have ended already."""
        with contextlib.suppress(OSError, EOFError):
            super().close()  # type: ignore[misc]  # of that class
