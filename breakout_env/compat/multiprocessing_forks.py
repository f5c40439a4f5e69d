"""Python 3.10 to 3.13: a process that ``os.fork`` makes keeps multiprocessing's list of its parent's children, and
terminates the daemons among them, such as workers of env managers, when it exits.
"""

import multiprocessing.process
import os

os.register_at_fork(after_in_child=multiprocessing.process._children.clear)  # type: ignore[attr-defined]
