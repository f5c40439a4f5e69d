"""A virtual screen of our own, and how many windows are on one."""

import contextlib
import os
import shutil
import subprocess
from typing import Iterator, Optional

from process_tree import end_with_parent

PACKAGES = 'Xvfb and python-xlib (apt-get install xvfb, pip install python-xlib)'


@contextlib.contextmanager
def virtual_screen() -> Iterator[Optional[str]]:
    """
    Overview:
        An X server without a screen, for the time of the context.
    Returns:
        - display (:obj:`Optional[str]`): Its name, such as ``':99'``; None where this machine has none to offer.
    """
    if not _can_count():
        yield None
        return
    read_end, write_end = os.pipe()
    server = subprocess.Popen(
        ['Xvfb', '-displayfd', str(write_end), '-screen', '0', '800x800x24', '-nolisten', 'tcp', '-noreset'],
        pass_fds=[write_end],
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us; we end it
        preexec_fn=end_with_parent,
    )
    try:
        os.close(write_end)
        with os.fdopen(read_end) as numbers:
            number = numbers.readline().strip()  # it picks a free one and says so when it is up
        yield f':{number}' if number else None
    finally:
        server.kill()
        server.wait()


def _can_count() -> bool:
    try:
        import Xlib.display  # noqa: F401
    except ImportError:
        return False
    return shutil.which('Xvfb') is not None


class Windows(object):
    """
    Overview:
        Counts the windows on a display, whoever opened them. One connection for all counts: python-xlib's are in \
        cycles of references, and what each leaves behind (some 40 kB) would be taken for growth.
    Interfaces:
        ``count``.
    """

    def __init__(self, display: str) -> None:
        """
        Arguments:
            - display (:obj:`str`): Such as ``':99'``.
        """
        import Xlib.display

        self._connection = Xlib.display.Display(display)

    def count(self) -> int:
        """How many there are now."""
        import Xlib.error

        pending, count = [self._connection.screen().root], 0
        while pending:
            with contextlib.suppress(Xlib.error.BadWindow):  # it goes while we look
                children = pending.pop().query_tree().children
                pending += children
                count += len(children)
        return count
