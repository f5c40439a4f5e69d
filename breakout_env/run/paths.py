"""Where the files of a run are, below its folder (``exp_name``), and which of its saves are complete::

    ckpt/iteration_<updates>.pth.tar    DI-engine's checkpoints
    ckpt/ckpt_best.pth.tar              the checkpoint with the best score, which is in resume/best_score.json
    ckpt/resume_<updates>.pth.tar       the checkpoint of a save
    resume/buffer_<updates>.npz         the replay buffer of the same save
    resume/pairs.json                   the list of saves, the newest first
    log/progress.jsonl                  what `breakout plot` draws; log/serial has TensorBoard's curves
    log/lock                            held by the process that trains here
    replay/                             frames of storage `memmap`, while the run trains (breakout_env/replay)
    averaged.safetensors                what `breakout average` writes
    total_config.py                     the merged config; formatted_total_config.py, the same for people

The list names a save when both of its files are on the disk, so what a kill leaves of a save that was being written is
never read. The two newest saves are kept: where the newest is damaged, the run is resumed from the other.
"""

import contextlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ..utils.atomic_file import DamagedFile, write_bytes

CHECKPOINTS = Path('ckpt')
BEST_CHECKPOINT = CHECKPOINTS / 'ckpt_best.pth.tar'
SAVES = Path('resume')
SAVE_LIST = SAVES / 'pairs.json'
BEST_SCORE = SAVES / 'best_score.json'
LOGS = Path('log')
PROGRESS_LOG = LOGS / 'progress.jsonl'
CURVES = LOGS / 'serial'
LOCK = LOGS / 'lock'
MERGED_CONFIG = Path('total_config.py')
AVERAGED_AGENT = Path('averaged.safetensors')

_KEPT_SAVES = 2
_NUMBERED = re.compile(r'(?:iteration|resume)_(\d+)\.pth\.tar')
# files of a save, and what a kill leaves of a file that was being written
_REMOVABLE = re.compile(r'resume_\d+\.pth\.tar|buffer_\d+\.npz|.*\.unfinished')

NonNegative = Annotated[int, Field(ge=0, strict=True)]


class Save(TypedDict):
    """A save, as the list describes it; the files are named relative to the run's folder."""

    iteration: NonNegative
    """Updates done."""
    env_step: NonNegative
    # the patterns keep a list from elsewhere from having other files read
    checkpoint: Annotated[str, Field(pattern=r'^ckpt/resume_[0-9]+\.pth\.tar$')]
    checkpoint_digest: str
    """XXH3 of the checkpoint file, 128 bits."""
    buffer: Annotated[str, Field(pattern=r'^resume/buffer_[0-9]+\.npz$')] | None
    """None for a run with DI-engine's buffer, which does not save itself."""
    time: Annotated[float, Field(allow_inf_nan=False)]
    """When it began, in seconds since 1970."""


_SAVES = TypeAdapter(list[Save])


def numbered_checkpoint(updates: int) -> Path:
    """A checkpoint of DI-engine's."""
    return CHECKPOINTS / f'iteration_{updates}.pth.tar'


def numbered_checkpoints(folder: str | Path, of: str = 'iteration') -> list[Path]:
    """DI-engine's checkpoints of a run, or those of its saves (``'resume'``), by the updates in their names."""
    found = [path for path in (Path(folder) / CHECKPOINTS).glob(f'{of}_*') if _NUMBERED.fullmatch(path.name)]
    return sorted(found, key=updates_of)


def updates_of(checkpoint: Path) -> int:
    """The number of updates before a numbered checkpoint."""
    match = _NUMBERED.fullmatch(checkpoint.name)
    assert match is not None, checkpoint
    return int(match[1])


def newest_checkpoint(folder: str | Path) -> Path:
    """The best checkpoint if it has a score, which an untrained network has not, else that after the most updates."""
    best = Path(folder) / BEST_CHECKPOINT
    found = [*numbered_checkpoints(folder, 'resume'), *numbered_checkpoints(folder)]
    is_best = best.exists() and read_best_score(folder) > -math.inf
    return best if is_best or not found else max(found, key=updates_of)


def read_best_score(folder: str | Path) -> float:
    """The score of a run's best checkpoint; minus infinity if the file is missing or damaged."""
    try:
        return float(json.loads((Path(folder) / BEST_SCORE).read_text()))
    except (OSError, ValueError, TypeError):
        return -math.inf


def write_best_score(folder: str | Path, score: float) -> None:
    """Write the score with the best checkpoint: a run that is killed now resumes from a save that has neither."""
    write_bytes(Path(folder) / BEST_SCORE, json.dumps(score).encode())


def saves_in(folder: str | Path) -> list[Save]:
    """The saves of the run in a folder, the newest first; ``DamagedFile`` if the list cannot be read."""
    path = Path(folder) / SAVE_LIST
    try:
        return _SAVES.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DamagedFile(f'{path} cannot be read: {error.strerror}') from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ''.join(f'[{part!r}]' for part in first['loc'])
        raise DamagedFile(f'{path} is damaged: {where}{" " * bool(where)}{first["msg"]}') from None


def list_save(folder: Path, save: Save) -> None:
    """Write the list with a new save, and remove files of saves that are no longer listed or that a kill left
    unfinished. Saves with more updates are unusable: otherwise the run would have been resumed from them.
    """
    older = [before for before in saves_in(folder) if before['iteration'] < save['iteration']]
    saves: Sequence[Save] = [save, *older[: _KEPT_SAVES - 1]]
    write_bytes(folder / SAVE_LIST, json.dumps(saves, indent=2).encode())
    kept = {name for each in saves for name in (each['checkpoint'], each['buffer'])}
    for part in (CHECKPOINTS, SAVES):
        for path in (folder / part).glob('*'):
            if _REMOVABLE.fullmatch(path.name) and f'{part}/{path.name}' not in kept:
                with contextlib.suppress(OSError):  # the user may have removed it already
                    path.unlink()
