"""Upstream behaviour worked around (Python 3.10 to 3.13, ``multiprocessing``): a process that ``os.fork`` makes keeps
the list of its parent's children, which it cannot wait for. When it exits, it terminates those that are daemons, such
as the workers of env managers. A process that multiprocessing itself forks begins with an empty list.
"""

import multiprocessing.process
import os


def forget_children() -> None:
    """In a forked process: the children of its parent are not its own."""
    multiprocessing.process._children.clear()  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=forget_children)
