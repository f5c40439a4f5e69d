"""
Messages that the import of DI-engine prints.

Upstream behaviour worked around (DI-engine 0.5.3, gym 0.25.1, treevalue 1.4): the import writes gym's notice that it is
unmaintained, a deprecation warning and hints at optional packages to stderr. A user can change none of it.
"""

import contextlib
import logging
import os
import sys
import warnings
from typing import Any, Iterator, List, Optional, TextIO


class _HeldBack(object):
    """
    A stream that keeps what is written until it is released, and passes on what comes after that: loggers that are
    made during the import write to the stderr of that moment for the rest of the process.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._kept: Optional[List[str]] = []

    def write(self, text: str) -> int:
        if self._kept is None:
            return self._stream.write(text)
        self._kept.append(text)
        return len(text)

    def release(self) -> str:
        """What was kept; later output passes through."""
        kept, self._kept = ''.join(self._kept or []), None
        return kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Import DI-engine in this context: what it writes to stderr is shown only if the import fails."""
    # closed by 2>&-: print(file=None) would go to stdout
    held_back = _HeldBack(open(os.devnull, 'w') if sys.stderr is None else sys.stderr)
    disabled_before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(held_back):
            warnings.simplefilter('ignore')
            yield
    except BaseException:  # a failed import or Ctrl-C within it: what was held back may say why
        if sys.stderr is not None:
            sys.stderr.write(held_back.release())
        raise
    finally:
        held_back.release()
        logging.disable(disabled_before)
