"""The folder that TorchRL writes a buffer to, and what of it is safe to load."""

import pickle
from pathlib import Path
from typing import Dict

MANIFEST = 'breakout_replay.json'
# Upstream behaviour worked around (TorchRL 0.14): a buffer saves its prefetched batches as a pickle, and unpickles the
# one it finds in any folder that it loads. We prefetch outside of it; earlier versions left this pickle of nothing.
PREFETCHED = 'prefetch.pkl'
_NOTHING_PREFETCHED = pickle.dumps(dict(version=1, capacity=0, queue=()))


def refuse_programs(folder: Path) -> None:
    """Raise a ValueError if there is anything but numbers and JSON in a folder."""
    for path in sorted(folder.rglob('*')):
        is_data = path.is_dir() or path.suffix in ('.json', '.memmap') or path.name == 'weights.pt'
        if path.is_symlink() or not (is_data or (path.name == PREFETCHED and path.read_bytes() == _NOTHING_PREFETCHED)):
            raise ValueError(
                f'{folder} holds {path.relative_to(folder)}, which save_data did not write and loading may run; '
                'expected numbers and JSON only'
            )


def file_sizes(folder: Path) -> Dict[str, int]:
    """The bytes of each file of a save, besides the one that lists them."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob('*'))
        if path.is_file() and path.name != MANIFEST
    }
