"""States that no run trains on, the same for all: what a network thinks of them is comparable from run to run."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Optional

import numpy as np

FILE = Path(__file__).parent / 'held_out_states.npz'


@lru_cache(maxsize=1)
def _states() -> np.ndarray:
    with np.load(FILE, allow_pickle=False) as arrays:
        return arrays['states']


def held_out_states(obs_shape: Any, action_shape: Any) -> Optional[np.ndarray]:
    """
    Overview:
        Observations from games of the agent that comes with the package, at any stage of a game. \
        ``tools/make_held_out_states.py`` made them.
    Arguments:
        - obs_shape, action_shape (:obj:`Any`): Those of the model's config.
    Returns:
        - states (:obj:`Optional[np.ndarray]`): None for screens or actions of another kind.
    Shapes:
        - states (:obj:`np.ndarray`): :math:`(256, 4, 84, 84)`, uint8.
    """
    if list(obs_shape or ()) != [4, 84, 84] or action_shape != 4:
        return None
    return _states()
