"""The line on the terminal that shows where a run stands."""

import datetime
import logging
import os
import sys
from typing import Any, Dict, Optional

from tqdm import tqdm


class ProgressLine(tqdm):
    """
    Overview:
        Percent, env steps, time and speed as tqdm shows them; behind them whatever ``draw`` is given. Speed and time \
        left are those of about the last minute, where tqdm's own are of two or three seconds.
    """

    env_steps_per_s: Optional[float] = None
    n: int  # tqdm's: env steps shown so far

    @classmethod
    def on_terminal(cls, total: Optional[int]) -> 'Optional[ProgressLine]':
        """A line on stderr, if that is a terminal; DI-engine's logs then go only to their files."""
        if not sys.stderr.isatty():
            return None
        for handler in logging.getLogger().handlers:  # the workers' logs, which would be mixed up with the line
            handler.setLevel(max(handler.level, logging.WARNING))
        # a terminal that does not tell its size, such as a new pseudo-terminal, would get an empty line
        knows_its_size = os.get_terminal_size(sys.stderr.fileno()).columns > 0
        size = dict(dynamic_ncols=True) if knows_its_size else dict(ncols=120, nrows=20)
        return cls(total=total, unit=' env steps', unit_scale=True, mininterval=0, file=sys.stderr, **size)

    @property
    def format_dict(self) -> Dict[str, Any]:
        # for None, tqdm would divide all env steps by the time since the start; it shows 0 as unknown
        return {**super().format_dict, 'rate': self.env_steps_per_s or 0.0}

    def draw(
        self,
        env_step: int,
        updates: int,
        env_steps_per_s: Optional[float],
        updates_per_s: Optional[float],
        scores: Dict[str, float],
        train_return: Optional[float],
        memory_bytes: Optional[int],
        left_s: Optional[float],
    ) -> None:
        """Show these; None is unknown and left out."""
        parts = [] if updates else ['random play']
        if updates_per_s:
            parts.append(f'{updates_per_s:.0f} updates/s')
        if scores:
            parts.append(f'score {scores["last"]:.1f} (best {scores["best"]:.1f})')
        if train_return is not None:
            parts.append(f'playing {train_return:.1f}')
        if memory_bytes is not None:
            parts.append(f'{memory_bytes / 1e9:.1f} GB')
        if left_s is not None:
            parts.append(f'at most {datetime.timedelta(seconds=round(max(0.0, left_s)))} left')
        if not self.n and env_step:  # the speed of a resumed run does not include the steps before it
            self.initial = self.n = self.last_print_n = env_step
        self.env_steps_per_s = env_steps_per_s
        self.set_postfix_str(', '.join(parts), refresh=False)
        self.update(env_step - self.n)
        self.refresh()
