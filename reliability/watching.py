"""What a section of the soak takes of the machine while it runs, and whether any of it grows."""

import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import psutil
from scipy.stats import theilslopes
from screen import Windows

from breakout_env.utils.resources import sample

# Samples of a section at most: enough for a curve, few enough to be kept in the repository.
POINTS = 200
# The bar: growth of memory by trend, from the end of the warm-up to the end.
MEMORY_LIMIT_BYTES = 10_000_000
# Of the cycles, at the start, that nobody judges: allocators, first batches, buffers that fill, the first evaluation.
WARM_UP_SHARE = 0.2
# The lowest of so many samples, or of a quarter of all where there are few, stands for them in the trend of memory:
# allocators go back and forth between levels, and what is taken for a moment is not what is kept.
WINDOW_SAMPLES = 8
# Samples that stand for the beginning and for the end where things are counted: the lowest of them is what stays, as a
# process that was just told to end, or a save under way, is there for a moment.
STANDING_SAMPLES = 5
TELL_EVERY_S = 10.0

MEMORY = ('resident_bytes', 'anonymous_bytes')
COUNTS = ('descriptors', 'threads', 'processes', 'shared_memory', 'windows', 'files')
NAMES = dict(
    resident_bytes='resident memory',
    anonymous_bytes='anonymous memory',
    buffer_bytes='memory that the buffer says it holds',
    descriptors='descriptors',
    threads='threads',
    processes='processes',
    shared_memory='segments of shared memory',
    windows='windows',
    files='files',
    frames='frames in the buffer',
    transitions='transitions in the buffer',
    living_environments='environments that nobody holds any more',
    living_emulators='emulators that nobody holds any more',
)
Sample = Dict[str, float]


class Watch(object):
    """
    Overview:
        Takes samples of the process it is made in, of all below it, and of those that were below it and lost their \
        parent; the process above is expected to adopt these (see ``keeper.py``).
    Interfaces:
        ``sample``.
    """

    def __init__(self, folder: Path, display: Optional[str]) -> None:
        """
        Arguments:
            - folder (:obj:`Path`): Files in it and below are counted.
            - display (:obj:`Optional[str]`): The X display whose windows are counted; None for none.
        """
        self._folder = folder
        self._windows = None if display is None else Windows(display)
        self._keeper = psutil.Process(os.getppid())
        self._start_s = time.monotonic()

    def sample(self) -> Sample:
        """What there is now, by the names in ``MEMORY`` and ``COUNTS``, with the time since the start."""
        taken = sample()
        found: Sample = dict(
            time_s=round(time.monotonic() - self._start_s, 2),
            resident_bytes=taken.resident_bytes + taken.workers_resident_bytes,
            anonymous_bytes=taken.anonymous_bytes + sum(taken.workers_anonymous_bytes.values()),
            descriptors=taken.descriptors,
            threads=taken.threads,
            # with those that have ended and that nobody has asked about yet: they have a place in the process table
            processes=len(self._keeper.children(recursive=True)),
            shared_memory=len(os.listdir('/dev/shm')),
            files=sum(len(files) for _, _, files in os.walk(self._folder)),
        )
        if self._windows is not None:
            found['windows'] = self._windows.count()
        return found


class Look(object):
    """
    Overview:
        What a section calls after each cycle, when all that the cycle opened is closed again. It takes a sample when \
        one is due.
    """

    def __init__(self, watch: Watch, cycles: int, tell: Callable[[str, Any], None]) -> None:
        """
        Arguments:
            - watch (:obj:`Watch`): Takes the samples.
            - cycles (:obj:`int`): Of the section.
            - tell (:obj:`Callable`): Given ``'sample'`` and each sample, and every few seconds ``'cycle'`` and how \
                many are done.
        """
        self._watch, self._tell = watch, tell
        self._every = -(-cycles // POINTS)
        self._due = self._every
        self._told_s = time.monotonic()

    def __call__(self, cycle: int, own: Callable[[], Mapping[str, float]] = dict) -> None:
        """
        Arguments:
            - cycle (:obj:`int`): Cycles done.
            - own (:obj:`Callable`): What else is to be watched, by names in ``NAMES``; called for a sample only.
        """
        if cycle >= self._due:
            self._due = cycle - cycle % self._every + self._every
            self._tell('sample', dict(self._watch.sample(), cycle=cycle, **own()))
        if time.monotonic() - self._told_s > TELL_EVERY_S:
            self._told_s = time.monotonic()
            self._tell('cycle', cycle)


class Verdict(NamedTuple):
    """How a resource has changed from the end of the warm-up to the end of a section."""

    first: float
    last: float
    growth: float
    limit: float

    @property
    def is_growth(self) -> bool:
        """Whether it is more than the bar allows."""
        return self.growth >= self.limit


def judge(samples: Sequence[Sample], warm_up_cycles: int) -> Dict[str, Verdict]:
    """
    Overview:
        Judge a section. Memory by its trend: the slope of Theil and Sen, the middle one of the slopes between any two \
        points, times the length; neither noise nor a single jump moves it. What is counted by its lowest value at \
        the end and after the warm-up.
    Arguments:
        - samples (:obj:`Sequence[Sample]`): All samples, the first of them first.
        - warm_up_cycles (:obj:`int`): Samples up to there are not judged.
    Returns:
        - verdicts (:obj:`Dict[str, Verdict]`): By the resource's name.
    Raises:
        - ValueError: If there are too few samples to tell.
    """
    judged = [sample for sample in samples if sample['cycle'] > warm_up_cycles]
    if len(judged) < 4:
        raise ValueError(f'{len(judged)} samples after the warm-up are too few to tell; expected 4 or more')
    at = [sample['cycle'] for sample in judged]
    standing = min(STANDING_SAMPLES, len(judged) // 2)
    verdicts = {}
    for name in NAMES:
        if name not in judged[0]:
            continue
        values = [sample[name] for sample in judged]
        first, last = min(values[:standing]), min(values[-standing:])
        if name.endswith('_bytes'):
            growth, limit = _slope(at, values) * (at[-1] - at[0]), MEMORY_LIMIT_BYTES
        else:
            growth, limit = last - first, 1
        verdicts[name] = Verdict(first, last, growth, limit)
    return verdicts


def _slope(at: List[float], values: List[float]) -> float:
    size = max(1, min(WINDOW_SAMPLES, len(values) // 4))
    # from the end, so that the newest samples are whole windows
    windows = [list(zip(values, at))[max(0, end - size) : end] for end in range(len(values), 0, -size)]
    lowest, places = zip(*map(min, windows))
    return float(theilslopes(lowest, places).slope)


def sentence(section: str, name: str, verdict: Verdict, cycles: int) -> str:
    """What is said of a resource that grows."""
    if name.endswith('_bytes'):
        return (
            f'{section}: {NAMES[name]} grew by {verdict.growth / 1e6:.1f} MB by trend over {cycles:,} cycles, from '
            f'{verdict.first / 1e6:.1f} MB after the warm-up to {verdict.last / 1e6:.1f} MB; expected less than '
            f'{verdict.limit / 1e6:.0f} MB'
        )
    return (
        f'{section}: {NAMES[name]} grew by {verdict.growth:.0f} over {cycles:,} cycles, from {verdict.first:.0f} after '
        f'the warm-up to {verdict.last:.0f}; expected no growth'
    )


def columns(samples: Sequence[Sample]) -> Dict[str, List[Any]]:
    """Samples as one list for each thing that was watched, for JSON."""
    if not samples:
        return {}
    whole = {name: [sample.get(name) for sample in samples] for name in samples[0]}
    return {
        name: [value if name == 'time_s' or value is None else int(value) for value in values]
        for name, values in whole.items()
    }
