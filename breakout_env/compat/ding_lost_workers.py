"""DI-engine 0.5.3: closing an env manager whose workers have ended raises, also in ``__del__`` of collectors and
evaluators, after the message that matters.
"""

import contextlib


class ClosesWithoutWorkers:
    """A base class to name before DI-engine's collector or evaluator."""

    def close(self) -> None:
        """Close the env manager, whose workers may have ended already."""
        with contextlib.suppress(OSError, EOFError):
            super().close()  # type: ignore[misc]  # of that class
