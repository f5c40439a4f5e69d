"""Where a run stands: a line on the terminal, or lines that are printed into a file or a pipe."""

import contextlib
import datetime
import math
import sys
from collections.abc import Mapping

from tqdm import tqdm
from tqdm.utils import disp_trim

from ..utils import output
from ..utils.command_line import only_warnings
from .log import Row


def print_message(text: str) -> None:
    """Print a line about a run, above the progress line if there is one; it raises no error."""
    with tqdm.external_write_mode():
        output.print_line(text)


class Display:
    """A line on stderr if that is a terminal, else printed lines every ``print_every_s`` seconds, after a title.
    Without ``print_every_s``, as under plain ``ding``, nothing is printed.
    """

    def __init__(self, title: str, total: int | None, print_every_s: float | None) -> None:
        self._title, self._total, self._every_s = title, total, print_every_s
        self._print_due_s = -math.inf
        self._line: _Line | None = None
        self._at_the_end = contextlib.ExitStack()
        if sys.stderr is not None and sys.stderr.isatty():
            # else the workers' logs would be mixed up with the line
            self._at_the_end.enter_context(only_warnings())
            options = dict(unit=' env steps', unit_scale=True, file=sys.stderr, dynamic_ncols=True)
            self._line = self._at_the_end.enter_context(_Line(total=total, **options))

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
        activity, parts = random_play or evaluation, _parts(row, scores, left_s)
        if self._line is not None:
            self._line.bar_format = '{desc} [{elapsed}{postfix}]' if random_play else None
            self._line.set_description_str(activity, refresh=False)
            self._line.set_postfix_str(', '.join(parts), refresh=False)
            self._line.n, self._line.env_steps_per_s = row['env_step'], row['env_steps_per_s']
            self._line.refresh()
        elif self._every_s is not None and now_s >= self._print_due_s:
            self._print_due_s = now_s + self._every_s
            if self._title:
                output.print_line(self._title)
                self._title = ''
            steps = [activity] if activity else []
            if not random_play:
                steps += _steps(row, self._total)
            output.print_line(', '.join([*steps, *parts]))

    def close(self) -> None:
        """Leave the line as it is, and begin a new one."""
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


def _steps(row: Row, total: int | None) -> list[str]:
    """The env steps, in words, and the time that is left at their speed."""
    env_step, speed = row['env_step'], row['env_steps_per_s']
    steps = [f'{env_step:,} env steps']
    if total is not None:
        steps = [f'{env_step:,} of {total:,} env steps ({env_step / total:.0%})']
    if speed:
        steps.append(f'{rate(speed)} env steps/s')
    if speed and total is not None:
        steps.append(f'{duration((total - env_step) / speed)} left at this speed')
    return steps


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
