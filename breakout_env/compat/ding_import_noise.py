"""DI-engine 0.5.3, gym 0.25.1, treevalue 1.4: the import writes notices, warnings and hints to stderr that a user
cannot act on.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Import DI-engine in this context without noise."""
    disabled_before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            # gym alone: loggers that DI-engine makes during its import write to the stderr of that moment for ever
            with contextlib.redirect_stderr(io.StringIO()):
                import gym  # noqa: F401
            yield
    finally:
        logging.disable(disabled_before)
