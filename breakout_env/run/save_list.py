"""
Which saves of a run there are: the list ``resume/pairs.json`` in the experiment's folder, the newest save first.

A save is a checkpoint and a buffer snapshot of the same moment. The list names a save when both files are on the disk,
so what a kill leaves of a save that was being written is never read. The two newest saves are kept: where the newest is
damaged, the run is resumed from the other.
"""

import contextlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Annotated, List, Optional, Sequence

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ..utils.atomic_file import DamagedFile, write_bytes

FOLDER = 'resume'
LIST = Path(FOLDER, 'pairs.json')
_KEPT_SAVES = 2
# files of a save, finished or not
_SAVED = re.compile(
    r'(resume_\d+\.pth\.tar|buffer_\d+\.npz)(\.previous|\.[\d-]+\.unfinished)?$|buffer_\d+\.torchrl(\.\w+(\.old)?)?$'
)
# what a kill leaves of the other files; the number in the middle is the process that wrote it
_UNFINISHED = re.compile(r'((?:pairs|best_score)\.json|(?:iteration_\d+|ckpt_best)\.pth\.tar)\.(\d+)-\d+\.unfinished')

Count = Annotated[int, Field(ge=0, strict=True)]


class Save(TypedDict):
    """A save, as the list describes it; the files are named relative to the experiment's folder."""

    iteration: Count
    """Updates done."""
    env_step: Count
    # the patterns keep a list from elsewhere from having other files read
    checkpoint: Annotated[str, Field(pattern=r'^ckpt/resume_[0-9]+\.pth\.tar$')]
    checkpoint_digest: str
    """XXH3 of the checkpoint file, 128 bits."""
    buffer: Optional[Annotated[str, Field(pattern=r'^resume/buffer_[0-9]+\.(npz|torchrl)$')]]
    """None for a run whose buffer is DI-engine's own: it does not save itself."""


_SAVES = TypeAdapter(List[Save])


def saves_in(folder: Path) -> List[Save]:
    """The saves of the run in an experiment's folder, the newest first; ``DamagedFile`` if the list cannot be read."""
    path = Path(folder) / LIST
    try:
        return _SAVES.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DamagedFile(f'{path} cannot be read: {error.strerror}') from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ''.join(f'[{part!r}]' for part in first['loc'])
        raise DamagedFile(f'{path} is damaged: {place}{" " * bool(place)}{first["msg"]}') from None


def older_saves(folder: Path, save: Save) -> List[Save]:
    """
    The saves to keep beside a new one. Those with more updates are unusable: else the run would not have been resumed
    from an earlier one.
    """
    return [older for older in saves_in(folder) if older['iteration'] < save['iteration']][: _KEPT_SAVES - 1]


def list_saves(folder: Path, saves: Sequence[Save]) -> None:
    """Write the list, the newest save first; remove the files of other saves, and those that a kill left unfinished."""
    write_bytes(folder / LIST, json.dumps(saves, indent=2).encode())
    kept = {name for save in saves for name in (save['checkpoint'], save['buffer'])}
    for place in ('ckpt', FOLDER):
        for path in (folder / place).glob('*'):
            is_older = _SAVED.match(path.name) and f'{place}/{path.name}' not in kept
            if is_older or _is_unfinished(path.name):
                with contextlib.suppress(OSError):  # the user may have removed it already
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_unfinished(name: str) -> bool:
    """Whether a kill left a file unfinished; this process may be writing any but the list just now."""
    match = _UNFINISHED.fullmatch(name)
    return match is not None and (match[1] == 'pairs.json' or int(match[2]) != os.getpid())
