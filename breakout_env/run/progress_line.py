"""Where a run stands: a line on the terminal, or lines that are printed into a file or a pipe."""

import contextlib
import datetime
import math
import sys
from collections.abc import Mapping
from typing import TextIO

from tqdm import tqdm
from tqdm.utils import disp_trim

from ..utils.command_line import only_warnings
from .log import Row


class Display:
    """A line on stderr if that is a terminal; printed lines every ``print_every_s`` seconds, after a title, unless both
    stderr and stdout are terminals. Without ``print_every_s``, as under plain ``ding``, nothing is printed. A closed
    terminal or pipe ends what is shown there, not the training.
    """

    def __init__(self, title: str, total: int | None, print_every_s: float | None) -> None:
        self._title, self._total, self._every_s = title, total, print_every_s
        self._line: _Line | None = None
        self._at_the_end = contextlib.ExitStack()
        if _is_terminal(sys.stderr):
            # else the workers' logs would be mixed up with the line
            self._at_the_end.enter_context(only_warnings())
            options = dict(unit=' env steps', unit_scale=True, mininterval=0, file=sys.stderr, dynamic_ncols=True)
            self._line = _Line(total=total, **options)
        self._prints = print_every_s is not None and not (self._line is not None and _is_terminal(sys.stdout))
        self._print_due_s = -math.inf if self._prints else math.inf

    @property
    def is_on(self) -> bool:
        """Whether anything is shown."""
        return self._line is not None or self._prints

    def print_line(self, text: str) -> None:
        """A message above the line, and among those printed."""
        if self._line is not None:
            with contextlib.suppress(OSError, ValueError):
                self._line.write(text, file=sys.stderr if self._prints else None)
        self._print(text)

    def _print(self, text: str) -> None:
        if self._prints:
            try:
                print(text, flush=True)
            except (OSError, ValueError):  # such as a `head` that has ended
                self._print_due_s = math.inf

    def show(
        self,
        row: Row,
        scores: Mapping[str, float],
        left_s: float | None,
        now_s: float,
        random_play: str | None = None,
        evaluation: str | None = None,
    ) -> None:
        """Show the fields of a row of the log, the scores, and the time that is left at most; None is unknown. An
        evaluation is named before the bar and the percentage of the budget. Random play, from which nothing is learned
        yet, is shown in their place.
        """
        env_step, speed, total, line = row['env_step'], row['env_steps_per_s'], self._total, self._line
        activity = random_play or evaluation
        parts = _parts(row, scores, left_s)
        if line is not None:
            if not line.n and env_step:  # the speed of a resumed run does not include the steps before it
                line.initial = line.n = line.last_print_n = env_step
            line.env_steps_per_s = speed
            line.bar_format = '{desc} [{elapsed}{postfix}]' if random_play else None
            line.set_description_str(activity, refresh=False)
            line.set_postfix_str(', '.join(parts), refresh=False)
            try:
                line.update(env_step - line.n)
                line.refresh()
            except (OSError, ValueError):  # the terminal is gone, or does not take the characters
                line.disable = True
        if now_s < self._print_due_s:
            return
        self._print_due_s = now_s + (self._every_s or 0.0)
        if self._title:
            self._print(self._title)
            self._title = ''
        steps = [activity] if activity else []
        if not random_play:
            steps.append(
                f'{env_step:,} env steps'
                if total is None
                else f'{env_step:,} of {total:,} env steps ({env_step / total:.0%})'
            )
            if speed:
                steps.append(f'{rate(speed)} env steps/s')
                if total is not None:
                    parts.append(f'{duration((total - env_step) / speed)} left at this speed')
        self._print(', '.join([*steps, *parts]))

    def close(self) -> None:
        """Leave the line as it is, and begin a new one."""
        if self._line is not None:
            self._line.close()
        self._at_the_end.close()


class _Line(tqdm):
    """tqdm's line, with the speed of the last minute and the time left at this speed; tqdm averages over seconds."""

    env_steps_per_s: float | None = None
    n: int  # tqdm's: env steps shown so far

    @property
    def format_dict(self) -> Row:
        # for None, tqdm would divide all env steps by the time since the start; it shows 0 as unknown
        return {**super().format_dict, 'rate': self.env_steps_per_s or 0.0}

    def __str__(self) -> str:
        # tqdm cuts off only lines with a bar; another one would wrap, and its first part would stay on the screen
        columns = self.format_dict['ncols']
        return disp_trim(super().__str__(), columns) if columns else super().__str__()


def _parts(row: Row, scores: Mapping[str, float], left_s: float | None) -> list[str]:
    """All but the env steps, in words."""
    parts = [] if row['updates'] else ['before the first update']
    if row['updates_per_s']:
        parts.append(f'{rate(row["updates_per_s"])} updates/s')
    if scores:
        parts.append(f'evaluation score {scores["last"]:.1f} (best {scores["best"]:.1f})')
    if row['train_return'] is not None:
        parts.append(f'training score {row["train_return"]:.1f}')
    if row['memory_bytes'] is not None:
        parts.append(f'{row["memory_bytes"] / 1e9:.1f} GB')
    if left_s is not None:
        parts.append(f'at most {duration(left_s)} left')
    return parts


def rate(per_s: float) -> str:
    """A whole number, below 1 two digits: '0 updates/s' would look as if nothing happened."""
    return f'{per_s:#.2g}' if per_s < 1 else f'{per_s:,.0f}'


def duration(seconds: float) -> datetime.timedelta:
    """Whole seconds, to print."""
    return datetime.timedelta(seconds=round(max(0.0, seconds)))


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False
