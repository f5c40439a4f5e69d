"""Whether something that is done again and again makes anything grow: memory, descriptors, processes, files, ..."""

import os
from pathlib import Path
from typing import Dict, List, Optional

import psutil
import Xlib.display
from scipy.stats import theilslopes

# At most so many samples are taken: enough for a trend.
SAMPLES = 200
MEMORY_LIMIT_BYTES = 10_000_000
# Cycles at the start that are not judged: allocators, first batches, buffers that fill, the first evaluation.
WARM_UP_SHARE = 0.2
# Allocators go back and forth between levels, so the lowest of some samples stands for them in the trend.
WINDOW_SAMPLES = 8
# A process that was just told to end, or a save under way, exists for a moment: the lowest of some counts is kept.
STANDING_SAMPLES = 5


class Watch(object):
    """Takes samples of this process and all below it, to be called after each cycle, when all is closed again."""

    def __init__(self, folder: Path, cycles: int, display: str) -> None:
        """Files in a folder and windows of an X display are counted, in so many cycles."""
        self._folder, self._cycles = folder, cycles
        self._every = -(-cycles // SAMPLES)
        # one for all samples: python-xlib's displays are in cycles of references
        self._display = Xlib.display.Display(display)
        self.samples: List[Dict[str, float]] = []
        self.cycle = 0

    def __call__(self, cycle: Optional[int] = None, **own: float) -> None:
        """``cycle`` cycles are done, one more than before by default; ``own`` is what else is counted."""
        before, self.cycle = self.cycle, self.cycle + 1 if cycle is None else cycle
        if self.cycle // self._every > before // self._every:
            self.samples.append(dict(self._sample(), cycle=self.cycle, **own))

    def _sample(self) -> Dict[str, float]:
        ours = psutil.Process()
        below, memory = ours.children(recursive=True), 0
        for process in (ours, *below):
            try:
                memory += process.memory_info().rss
            except psutil.Error:  # it has just ended
                continue
        return dict(
            memory_bytes=memory,
            descriptors=ours.num_fds(),
            threads=ours.num_threads(),
            processes=len(below),  # with those that have ended and that nobody has waited for
            shared_memory=sum(not name.startswith('sem.') for name in os.listdir('/dev/shm')),
            files=sum(len(files) for _, _, files in os.walk(self._folder)),
            windows=len(self._display.screen().root.query_tree().children),
        )

    def close(self) -> None:
        self._display.close()

    def check(self) -> None:
        """
        Nothing has grown. Memory is judged by its trend, the slope of Theil and Sen times the length, which neither
        noise nor a single jump moves; counts by their lowest value at the end and after the warm-up.
        """
        judged = [sample for sample in self.samples if sample['cycle'] > WARM_UP_SHARE * self._cycles]
        assert len(judged) >= 4, f'{len(judged)} samples after the warm-up are too few to judge'
        standing, growth = min(STANDING_SAMPLES, len(judged) // 2), {}
        for name in sorted(judged[0].keys() - {'cycle'}):
            values = [sample[name] for sample in judged]
            growth[name] = round(min(values[-standing:]) - min(values[:standing]))
        size = max(1, min(WINDOW_SAMPLES, len(judged) // 4))
        windows = [judged[max(0, end - size) : end] for end in range(len(judged), 0, -size)]
        lowest = [min((sample['memory_bytes'], sample['cycle']) for sample in window) for window in windows]
        trend = theilslopes(*zip(*lowest)).slope * (judged[-1]['cycle'] - judged[0]['cycle'])
        growth['memory_bytes'] = round(trend)
        limits = {name: MEMORY_LIMIT_BYTES if name == 'memory_bytes' else 1 for name in growth}
        too_much = {name: value for name, value in growth.items() if value >= limits[name]}
        assert not too_much, too_much
