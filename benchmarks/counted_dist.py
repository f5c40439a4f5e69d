"""
entry/breakout_dqn_dist.py as it is, with what its processes send and receive counted, for the benchmarks.

    BREAKOUT_COUNTS=FOLDER python benchmarks/counted_dist.py OPTIONS OF THE ENTRY

Each process writes FOLDER/<its number>.json; see counted_queue.py.
"""

import importlib.util
import os
import sys
from pathlib import Path

ENTRY = Path(__file__).resolve().parent.parent / 'entry' / 'breakout_dqn_dist.py'


def main() -> None:
    """Run the entry, and the processes that it starts, through this file."""
    spec = importlib.util.spec_from_file_location('breakout_dqn_dist', ENTRY)
    entry = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = entry  # where its dataclass looks itself up
    spec.loader.exec_module(entry)
    entry.__file__ = os.path.abspath(__file__)  # what it starts its other processes with

    import counted_queue

    counted_queue.count(Path(os.environ['BREAKOUT_COUNTS'], f'{os.getpid()}.json'))
    entry.program()


if __name__ == '__main__':
    main()
