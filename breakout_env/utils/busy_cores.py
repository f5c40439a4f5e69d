"""Do other programs keep the cores busy? The load average says so for a whole host; this asks for this process."""

from pathlib import Path


def waits_more_than_it_runs(schedstat: str = '/proc/self/schedstat') -> bool:
    """Whether the main thread of this process has so far waited longer for a core than it computed. Linux counts both
    in nanoseconds (Documentation/scheduler/sched-stats); False where it does not.
    """
    try:
        ran_ns, waited_ns = map(int, Path(schedstat).read_text().split()[:2])
    except (OSError, ValueError):
        return False
    return waited_ns > ran_ns
