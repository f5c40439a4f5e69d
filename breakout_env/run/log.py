"""The log of a training: JSON lines, appended to over stops, resumes and crashes.

A line is of kind ``run`` at each start, ``progress`` every few seconds, ``evaluation`` after each evaluation.
"""

import gzip
import json
import logging
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from .paths import PROGRESS_LOG

logger = logging.getLogger(__name__)

Row = dict[str, Any]
POSITION = ('time', 'run_s', 'env_step', 'updates')
PROGRESS = (
    *(*POSITION, 'env_steps_per_s', 'updates_per_s', 'epsilon', 'loss', 'q_value', 'value', 'entropy', 'learning_rate'),
    *('approx_kl', 'clip_fraction', 'explained_variance', 'grad_norm'),
    *('train_return', 'games', 'memory_bytes', 'transitions', 'replay_bytes'),
)


class RunLogWriter:
    """Appends lines to a run's log. The file is closed between two lines, so that forked workers inherit nothing. A log
    never ends a training: a line that cannot be written, on a full disk for example, is lost, and the first one is a
    warning. The first line makes the file and its folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._warned = False

    def write(self, kind: str, /, **values: object) -> None:
        """Append a line of a kind with these fields and the time; NaN and infinities are null."""
        fields = {'kind': kind, 'time': round(time.time(), 3), **values}
        text = json.dumps(fields, default=lambda value: value.tolist())  # numpy's and torch's, scalars as well
        line = json.dumps(json.loads(text, parse_constant=lambda name: None)).encode() + b'\n'
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, 'a+b') as file:
                _cut_off_partial_line(file.fileno())
                file.write(line)
        except OSError as error:
            if not self._warned:
                logger.warning('%s misses lines, the training continues: %s', self.path, error)
            self._warned = True


def _cut_off_partial_line(file: int) -> None:
    """Remove the part of a line that a crash or a full disk left, or the next line would be damaged as well."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b'\n':
        os.ftruncate(file, os.pread(file, size, 0).rfind(b'\n') + 1)


class RunLog:
    """A run's log as arrays. Rows that a crash left after the save from which the run was resumed are left out.

    Attributes:
        starts: The rows of kind ``run``, the first start and the resumes, with ``exp_name``, ``seed``, ``version`` and
            ``commit``.
        progress: Columns ``PROGRESS`` and ``hours``, float64 with NaN for null.
        evaluation: Columns ``POSITION``, ``hours`` and ``score``, the mean of the returns.
    """

    def __init__(self, rows: list[Row]) -> None:
        kept: dict[str, list[Row]] = dict(run=[], progress=[], evaluation=[])
        resumed_from = math.inf  # the env step of the lowest save that a later start resumed from
        for row in reversed(rows):
            if row['kind'] in kept and row.get('env_step', 0) <= resumed_from:
                kept[row['kind']].append(row)
            if row['kind'] == 'run':
                resumed_from = min(resumed_from, row['env_step'])
        for of_kind in kept.values():
            of_kind.reverse()
        self.starts = kept['run']
        self.progress = _columns(kept['progress'], PROGRESS)
        self.evaluation = _columns(kept['evaluation'], POSITION)
        returns = [np.array(row.get('returns') or [], float) for row in kept['evaluation']]
        self.evaluation['score'] = np.array([np.nanmean(games) if len(games) else np.nan for games in returns])

    @classmethod
    def read(cls, path: str | Path) -> 'RunLog':
        """Read a log from an experiment's folder, or from a ``progress.jsonl``, gzipped or not, even of a run that is
        training. A last line that is incomplete is left out.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If the file is not a log, or a line of it is damaged.
        """
        file = Path(path)
        if file.is_dir():
            file = file / PROGRESS_LOG if (file / PROGRESS_LOG).exists() else file / f'{PROGRESS_LOG}.gz'
        if not file.is_file():
            raise FileNotFoundError(f"{path} is not a run; expected an experiment's folder, or its {PROGRESS_LOG}")
        rows: list[Row] = []
        number = 1
        try:
            with gzip.open(file) if file.suffix == '.gz' else open(file, 'rb') as lines:
                for number, line in enumerate(lines, start=1):  # noqa: B007
                    is_partial = line.startswith(b'{') and not line.endswith((b'\n', b'}'))
                    if not is_partial:  # else a crash cut it off, or it is being written
                        rows.append(json.loads(line))
                        rows[-1]['kind']
            return cls(rows)
        except (ValueError, TypeError, KeyError, EOFError, gzip.BadGzipFile) as error:
            raise ValueError(
                f'{file}, line {number} is damaged, or it is not a log of a run ({error}); expected a JSON object '
                'with a "kind" in each line, and numbers or null'
            ) from None


def _columns(rows: list[Row], fields: tuple[str, ...]) -> dict[str, np.ndarray]:
    columns = {field: np.array([row.get(field) for row in rows], float) for field in fields}  # NaN for null
    columns['hours'] = columns['run_s'] / 3600
    return columns
