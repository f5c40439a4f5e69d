"""Whether a resource that goes up and down goes up for good."""

import math
from collections import deque
from itertools import combinations
from typing import Deque, List, NamedTuple, Optional, Sequence

# Samples in the finest window. The third lowest stands for it: what is taken for a moment is not what is kept, and two
# samples may have been taken while something was given back and fetched again, as trainings do.
WINDOW_SAMPLES = 6
_STANDS_FOR_IT = 2
# Windows that a verdict is made of.
SPAN_WINDOWS = 14
# Windows at the start that nobody looks at: allocators, imports, first batches and the first evaluation.
WARM_UP_WINDOWS = 4
# Each scale has windows twice as long as the one before: with samples 5 s apart, spans of 7 minutes to 60 hours.
SCALES = 10

# Jumps that are no rise, however well they are in order: of the finest scale, each next one allows for one more, as
# more happens in its time.
_JUMPS, _MOST_JUMPS = 2, 5
# Slope of the second half, in parts of that of the first: what is settling has less.
_LEAST_LATE_SLOPE = 0.4
# Verdicts in a row that a rise takes.
_AGREE = 2
# How wrong an explanation may be: allocators round up, and a page holds more than what is counted.
_EXPLANATION_ERROR = 0.2
# How far a span must lie above all earlier ones, in parts of its rise: what was once as high goes up and down.
_ABOVE_THE_PAST = 0.25


class Rise(NamedTuple):
    """A span of windows in which a resource went up all the time."""

    per_s: float
    since_s: float
    since_value: float
    value: float  # at its end


class _Window(NamedTuple):
    """The sample that stands for a window."""

    value: float  # what is not explained
    time_s: float
    explained: float


class Trend(object):
    """
    Overview:
        Finds what grows for good in a series of samples, of whatever length, from a history of at most 300 points.

        The history is kept on several scales. Each is a row of windows, and of a window one of its lower samples \
        counts, so that peaks and saw teeth within it do not. A window of one scale is made of two of the scale \
        before. When a window is complete, the last ``SPAN_WINDOWS`` of its scale are a rise if all of this holds:

        - They grow by enough, and by more than a share of what the explanation grew by.
        - They lie closer to a line than to a few levels with jumps between: starting something costs memory once. \
          Noise fails here as well, and does so on each scale by itself: a leak under much noise is found on a later \
          scale, when it is larger than the noise.
        - They still grow in their second half: what is settling does not.
        - They lie above what has been there before: what goes up and down slowly does so once.
        - The span before was a rise, too: chance, and a jump within a wave, pass soon.
    Interfaces:
        ``add``.
    """

    def __init__(self, least_growth: float) -> None:
        """
        Arguments:
            - least_growth (:obj:`float`): Growth within a span below which nothing is said.
        """
        self._scales = [_Scale(least_growth, min(_JUMPS + number, _MOST_JUMPS)) for number in range(SCALES)]
        self._samples: List[_Window] = []
        self._windows_to_skip = WARM_UP_WINDOWS

    @property
    def points(self) -> int:
        """How many points the history holds."""
        return len(self._samples) + sum(scale.points for scale in self._scales)

    def add(self, time_s: float, value: float, explained: float = 0.0) -> Optional[Rise]:
        """
        Overview:
            Take a sample, and judge what is new.
        Arguments:
            - time_s (:obj:`float`): When it was taken.
            - value (:obj:`float`): All there is of the resource.
            - explained (:obj:`float`): What somebody holds on purpose of it.
        Returns:
            - rise (:obj:`Optional[Rise]`): What grows, on the longest scale that shows it; None for nothing.
        """
        self._samples.append(_Window(value - explained, time_s, explained))
        if len(self._samples) < WINDOW_SAMPLES:
            return None
        window, self._samples = sorted(self._samples)[_STANDS_FOR_IT], []
        if self._windows_to_skip:
            self._windows_to_skip -= 1
            return None
        found = None
        for scale in self._scales:
            found = scale.push(window) or found
            window = scale.pair(window)
            if window is None:
                break
        return found


class _Scale(object):
    """Windows of one length: the last ones, and how high earlier ones were."""

    def __init__(self, least_growth: float, jumps: int) -> None:
        self._jumps = jumps
        self._least_growth = least_growth
        self._windows: Deque[_Window] = deque(maxlen=SPAN_WINDOWS)
        self._odd: Optional[_Window] = None
        self._levels: Deque[float] = deque(maxlen=SPAN_WINDOWS)  # of spans that the next one overlaps
        self._highest_before = -math.inf
        self._agreed = 0

    @property
    def points(self) -> int:
        return len(self._windows) + len(self._levels) + (self._odd is not None)

    def pair(self, window: _Window) -> Optional[_Window]:
        """One window of the next scale for two of this."""
        if self._odd is None:
            self._odd = window
            return None
        window, self._odd = min(self._odd, window), None
        return window

    def push(self, window: _Window) -> Optional[Rise]:
        """Take a window; a rise if the last ones are one, and those before were."""
        rise = self._verdict(window)
        self._agreed = self._agreed + 1 if rise is not None else 0
        return rise if self._agreed >= _AGREE else None

    def _verdict(self, window: _Window) -> Optional[Rise]:
        self._windows.append(window)
        if len(self._windows) < SPAN_WINDOWS:
            return None
        values = [w.value for w in self._windows]
        level = _middle(values)
        if len(self._levels) == SPAN_WINDOWS:
            self._highest_before = max(self._highest_before, self._levels[0])
        self._levels.append(level)
        # most spans are done with here, at next to no cost
        if _middle(values[-4:]) - _middle(values[:4]) < self._least_growth / 2:
            return None
        return self._judge(values, level)

    def _judge(self, values: List[float], level: float) -> Optional[Rise]:
        times = [w.time_s for w in self._windows]
        explained = [w.explained for w in self._windows]
        slope = _slope(times, values)
        growth = slope * (times[-1] - times[0])
        half = SPAN_WINDOWS // 2
        if (
            growth < self._least_growth + _EXPLANATION_ERROR * (max(explained) - min(explained))
            or level < self._highest_before + _ABOVE_THE_PAST * growth
            or not _is_a_line(times, values, slope, self._jumps)
            or _slope(times[half:], values[half:]) < _LEAST_LATE_SLOPE * _slope(times[:half], values[:half])
        ):
            return None
        return Rise(slope, times[0], values[0], values[-1])


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _slope(times: List[float], values: List[float]) -> float:
    """Theil and Sen's: the middle one of the slopes between any two points, which a few wrong points do not move."""
    points = list(zip(times, values))
    return _middle([(b - a) / (t - s) for (s, a), (t, b) in combinations(points, 2)])


def _is_a_line(times: List[float], values: List[float], slope: float, jumps: int) -> bool:
    """Whether the values lie closer to a line of that slope than to a few levels with jumps between them."""
    rests = [value - slope * time for time, value in zip(times, values)]
    middle = _middle(rests)
    # a peak that outlasts a window is neither; it must not decide
    most = 3 * _middle([abs(rest - middle) for rest in rests])
    rests = [min(max(rest - middle, -most), most) for rest in rests]
    return _spread(rests) < _off_levels([rest + slope * time for time, rest in zip(times, rests)], jumps)


def _off_levels(values: List[float], jumps: int) -> float:
    """Sum of the squares by which the values miss the best row of levels with that many jumps between them."""
    size = len(values)
    best = [_spread(values[:end]) for end in range(1, size + 1)]  # with no jump, of the first values
    for _ in range(jumps):
        best = [
            min([best[end]] + [best[start - 1] + _spread(values[start : end + 1]) for start in range(1, end + 1)])
            for end in range(size)
        ]
    return best[-1]


def _spread(values: List[float]) -> float:
    """Sum of the squares by which the values miss their mean."""
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values)
