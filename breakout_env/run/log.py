"""
The log of a training: JSON lines, appended to over stops, resumes and crashes.

A line is of kind ``run`` at each start, ``progress`` every few seconds, ``evaluation`` after each evaluation.
"""

import gzip
import json
import logging
import math
import os
import time
import zlib
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

import numpy as np

from ..utils.options import shortened

logger = logging.getLogger(__name__)

PLACE = Path('log') / 'progress.jsonl'  # inside an experiment's folder
POSITION = ('time', 'run_s', 'env_step', 'updates')
PROGRESS = POSITION + (
    'env_steps_per_s',
    'updates_per_s',
    'epsilon',
    'loss',
    'q_value',
    'value',
    'entropy',
    'learning_rate',
    'train_return',
    'games',
    'resident_bytes',
    'memory_bytes',
    'transitions',
    'replay_bytes',
)
EVALUATION = POSITION + ('held_out_q',)
# Unpacked; a run of months has a few hundredths of this.
LARGEST_BYTES = 2**30


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: lists for arrays, null for NaN and infinities."""
    if hasattr(value, 'tolist'):  # numpy's and torch's, scalars as well
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class RunLogWriter(object):
    """
    Appends lines to a run's log. The file is closed between two lines, so that forked workers inherit nothing.
    A log never ends a training: a line that can not be written, on a full disk for example, is lost, and the
    first one is a warning. The first line makes the file and its folder.
    """

    def __init__(self, path: Union[str, Path]) -> None:
        self.path = Path(path)
        self._warned = False

    def write(self, kind: str, /, **values: Any) -> None:
        """Append a line of a kind with these fields and the time."""
        fields = _plain({'kind': kind, 'time': round(time.time(), 3), **values})
        line = json.dumps(fields, allow_nan=False, default=str).encode() + b'\n'
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _cut_off_partial_line(file)
                written = os.write(file, line)
            finally:
                os.close(file)
            if written < len(line):
                raise OSError(f'only {written} of {len(line)} bytes could be written')
        except OSError as error:
            if not self._warned:
                logger.warning('%s misses lines, the training continues: %s', self.path, error)
            self._warned = True


def _cut_off_partial_line(file: int) -> None:
    """Remove the part of a line that a crash or a full disk left, or the next line would be damaged as well."""
    size = os.fstat(file).st_size
    if size == 0 or os.pread(file, 1, size - 1) == b'\n':
        return
    start, block = size, b''
    while start > 0 and b'\n' not in block:
        start = max(0, start - 65536)
        block = os.pread(file, size - start, start)
    os.ftruncate(file, start + block.rfind(b'\n') + 1)


class RunLog(object):
    """
    Overview:
        A run's log as arrays. It leaves out rows beyond the save that a later start resumed from, which a crash left.
    Attributes:
        - path (:obj:`Path`): The file.
        - starts (:obj:`List[Dict[str, Any]]`): The rows of kind ``run``, the first start and the resumes.
        - exp_name (:obj:`str`), seed (:obj:`Optional[int]`), version (:obj:`Optional[str]`), \
            commit (:obj:`Optional[str]`): Of the last start; without one, ``exp_name`` is the name of the folder.
        - progress (:obj:`Dict[str, np.ndarray]`): Columns ``PROGRESS`` and ``hours``, float64 with NaN for null.
        - evaluation (:obj:`Dict[str, np.ndarray]`): Columns ``EVALUATION``, ``hours`` and ``score``, the mean of the \
            returns.
        - returns (:obj:`List[np.ndarray]`): The returns of each evaluation's games.
    """

    def __init__(self, path: Path, rows: List[Tuple[int, Dict[str, Any]]]) -> None:
        """Rows with their line numbers, in the order of the file; a ValueError names a value of the wrong type."""
        self.path = path
        kept: List[Tuple[int, Dict[str, Any]]] = []
        for line, row in rows:
            at = _number(path, line, row, 'env_step')
            if row['kind'] == 'run':
                # beyond the save that this start resumed from; rows without a step are kept, as NaN compares false
                kept = [(number, other) for number, other in kept if not _number(path, number, other, 'env_step') > at]
            kept.append((line, row))
        of_kind = {
            kind: [(line, row) for line, row in kept if row['kind'] == kind]
            for kind in ('run', 'progress', 'evaluation')
        }
        self.starts = [row for _, row in of_kind['run']]
        last = self.starts[-1] if self.starts else {}
        folder = path.parent.parent if path.parent.name == 'log' else path
        self.exp_name = str(last.get('exp_name') or folder.resolve().name.split('.')[0])
        self.seed, self.version, self.commit = (last.get(field) for field in ('seed', 'version', 'commit'))
        self.progress = _columns(path, of_kind['progress'], PROGRESS)
        self.evaluation = _columns(path, of_kind['evaluation'], EVALUATION)
        self.returns = [_returns(path, line, row) for line, row in of_kind['evaluation']]
        self.evaluation['score'] = np.array([games.mean() if len(games) else np.nan for games in self.returns])

    @classmethod
    def read(cls, path: Union[str, Path]) -> 'RunLog':
        """
        Overview:
            Read a log from an experiment's folder, or from a ``progress.jsonl``, gzipped or not, even of a run that \
            is training. A last line that is incomplete is left out.
        Raises:
            - FileNotFoundError: If there is none.
            - ValueError: If a line is damaged, with its number.
        """
        file = _find(Path(path))
        lines = _content(file).split(b'\n')
        rows = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                # without a newline: a crash cut it off, or it is being written
                if number == len(lines) and line.startswith(b'{'):
                    continue
                raise ValueError(f'{file}, line {number} is damaged: {_short(line)}; expected a JSON object') from None
            if not isinstance(row, dict) or not isinstance(row.get('kind'), str):
                raise ValueError(
                    f"{file}, line {number} is no line of a run's log: {_short(line)}; "
                    'expected a JSON object with a "kind"'
                )
            rows.append((number, row))
        return cls(file, rows)


def _find(path: Path) -> Path:
    candidates = [path / PLACE, path / f'{PLACE}.gz'] if path.is_dir() else [path]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    found = f'no {PLACE} is in it' if path.is_dir() else 'there is no such file'
    raise FileNotFoundError(
        f"{path} is no run: {found}; expected an experiment's folder, or its {PLACE.name}, gzipped or not"
    )


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    if not content.startswith(b'\x1f\x8b'):
        return content
    try:
        with gzip.open(file) as unpacked:
            content = unpacked.read(LARGEST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f'{file} is a damaged gzip file: {error}') from None
    if len(content) > LARGEST_BYTES:
        raise ValueError(f'{file} unpacks to more than {LARGEST_BYTES:,} bytes; expected the log of a run')
    return content


def _short(line: bytes) -> str:
    return repr(line[:60].decode(errors='replace')) + (' ...' if len(line) > 60 else '')


def _number(path: Path, line: int, row: Dict[str, Any], field: str) -> float:
    value = row.get(field)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f'{path}, line {line}: {field} is {shortened(value)}; expected a number or null')
    return _float(value)


def _float(value: Union[int, float]) -> float:
    try:
        return float(value)
    except OverflowError:  # JSON has integers of any length
        return math.inf if value > 0 else -math.inf


def _columns(path: Path, rows: List[Tuple[int, Dict[str, Any]]], fields: Tuple[str, ...]) -> Dict[str, np.ndarray]:
    columns = {field: np.array([_number(path, line, row, field) for line, row in rows], float) for field in fields}
    columns['hours'] = columns['run_s'] / 3600
    return columns


def _returns(path: Path, line: int, row: Dict[str, Any]) -> np.ndarray:
    games = row.get('returns') or []
    if not isinstance(games, list) or not all(isinstance(game, (int, float, type(None))) for game in games):
        raise ValueError(f'{path}, line {line}: returns is {games!r:.60}; expected a list of numbers')
    return np.array([_float(game) for game in games if game is not None], float)
