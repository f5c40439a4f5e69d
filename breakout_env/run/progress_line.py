"""Where a run stands: a line on the terminal, or lines that are printed into a file or a pipe."""

import contextlib
import datetime
import math
import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional, TextIO, Union

from tqdm import tqdm

from ..utils.command_line import show_only_warnings


class Standing(NamedTuple):
    """Where a run stands; None is unknown and not shown."""

    env_step: int
    updates: int
    env_steps_per_s: Optional[float]
    updates_per_s: Optional[float]
    scores: Dict[str, float]
    train_return: Optional[float]
    memory_bytes: Optional[int]
    left_s: Optional[float]

    def parts(self) -> List[str]:
        """All but the env steps, in words."""
        parts = [] if self.updates else ['random play']
        if self.updates_per_s:
            parts.append(f'{self.updates_per_s:.0f} updates/s')
        if self.scores:
            parts.append(f'score {self.scores["last"]:.1f} (best {self.scores["best"]:.1f})')
        if self.train_return is not None:
            parts.append(f'playing {self.train_return:.1f}')
        if self.memory_bytes is not None:
            parts.append(f'{self.memory_bytes / 1e9:.1f} GB')
        if self.left_s is not None:
            parts.append(f'at most {duration(self.left_s)} left')
        return parts


def duration(seconds: float) -> datetime.timedelta:
    """Whole seconds, to print."""
    return datetime.timedelta(seconds=round(max(0.0, seconds)))


def displays(title: str, total: Optional[int], print_every_s: Optional[float]) -> 'List[Union[ProgressLine, Printed]]':
    """
    What shows a run: a line on stderr if that is a terminal; printed lines every ``print_every_s`` seconds if stderr or
    stdout is not one. Without ``print_every_s``, as under plain ``ding``, there are no printed lines.
    """
    shown: List[Union[ProgressLine, Printed]] = []
    if _is_terminal(sys.stderr):
        show_only_warnings()  # else the workers' logs would be mixed up with the line
        # a terminal that does not tell its size, such as a new pseudo-terminal, would get an empty line
        knows_its_size = os.get_terminal_size(sys.stderr.fileno()).columns > 0
        size = dict(dynamic_ncols=True) if knows_its_size else dict(ncols=120, nrows=20)
        line = ProgressLine(total=total, unit=' env steps', unit_scale=True, mininterval=0, file=sys.stderr, **size)
        shown.append(line)
    if print_every_s is not None and not (shown and _is_terminal(sys.stdout)):
        shown.append(Printed(title, total, print_every_s))
    return shown


def _is_terminal(stream: Optional[TextIO]) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


class ProgressLine(tqdm):
    """
    Percent, env steps, time and speed as tqdm shows them; behind them the rest of the ``Standing``. Speed and time
    left are those of about the last minute, where tqdm's own are of two or three seconds.
    """

    env_steps_per_s: Optional[float] = None
    n: int  # tqdm's: env steps shown so far

    @property
    def format_dict(self) -> Dict[str, Any]:
        # for None, tqdm would divide all env steps by the time since the start; it shows 0 as unknown
        return {**super().format_dict, 'rate': self.env_steps_per_s or 0.0}

    def say(self, text: str) -> None:
        """A message above the line; lost where the terminal is gone."""
        with contextlib.suppress(OSError, ValueError):
            self.write(text)

    def show(self, standing: Standing, now_s: float) -> None:
        """Draw it."""
        if not self.n and standing.env_step:  # the speed of a resumed run does not include the steps before it
            self.initial = self.n = self.last_print_n = standing.env_step
        self.env_steps_per_s = standing.env_steps_per_s
        self.set_postfix_str(', '.join(standing.parts()), refresh=False)
        try:
            self.update(standing.env_step - self.n)
            self.refresh()
        except (OSError, ValueError):  # the terminal is gone, or does not take the characters
            self.disable = True


class Printed(object):
    """
    The same for a file or a pipe: a line on stdout from time to time, after the title. A pipe that nobody reads any
    more ends the lines, not the training.
    """

    def __init__(self, title: str, total: Optional[int], every_s: float) -> None:
        self._title, self._total, self._every_s = title, total, every_s
        self._due_s = -math.inf

    def show(self, standing: Standing, now_s: float) -> None:
        """Print it if that is due."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s
        if self._title:
            self.say(self._title)
            self._title = ''
        steps, speed, total = f'{standing.env_step:,} env steps', standing.env_steps_per_s, self._total
        if total is not None:
            steps = f'{standing.env_step:,} of {total:,} env steps ({standing.env_step / total:.0%})'
        parts = [steps, *([f'{speed:.0f} env steps/s'] if speed else []), *standing.parts()]
        if total is not None and speed:
            parts.append(f'{duration((total - standing.env_step) / speed)} left at this speed')
        self.say(', '.join(parts))

    def say(self, text: str) -> None:
        """Print a line."""
        try:
            print(text, flush=True)
        except (OSError, ValueError):  # such as a `head` that has ended
            self._due_s = math.inf

    def close(self) -> None:
        """As the line's."""
