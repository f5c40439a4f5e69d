"""
One agent out of many checkpoints of a run: the mean of their weights (Polyak & Juditsky 1992; Izmailov et al. 2018).

A DQN's weights fluctuate from update to update, and its score with them, up and down by half. The mean over the last
tens of thousands of updates fluctuates less, and on Breakout it usually plays better: docs/training.md has the figures.
"""

import math
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

import torch

from ..run.paths import numbered_checkpoints, updates_of
from .weights_file import read_weights

# By default the last eighth of the checkpoints is averaged, within these bounds.
_SHARE, _FEWEST, _MOST = 8, 2, 16


def checkpoints_of(folder: Union[str, Path], until_updates: Optional[int] = None) -> List[Path]:
    """
    Overview:
        The numbered checkpoints of a run (``ckpt/iteration_<updates>.pth.tar``) by their number of updates, without \
        that of the untrained network and those after more updates than ``until_updates``.
    Raises:
        - ValueError: If there is none.
    """
    chosen = [path for path in numbered_checkpoints(folder) if 0 < updates_of(path) <= (until_updates or math.inf)]
    if not chosen:
        before = f' of up to {until_updates} updates' if until_updates else ''
        raise ValueError(
            f'{folder} has no checkpoint{before}; expected ckpt/iteration_<updates>.pth.tar, which '
            'policy.learn.learner.hook.save_ckpt_after_iter asks for'
        )
    return chosen


def last_eighth(paths: List[Path]) -> List[Path]:
    """The checkpoints to average where nothing else is asked for: the last eighth of them, 2 to 16."""
    return paths[-min(_MOST, max(_FEWEST, len(paths) // _SHARE)) :]


def average_weights(paths: Sequence[Path]) -> Dict[str, torch.Tensor]:
    """
    Overview:
        The mean, in float32, of the weights that act (the EMA's, where there is one) of checkpoints of one run, or of \
        agents in safetensors.
    Raises:
        - OSError: If a file cannot be read.
        - ValueError: If one is not an agent, or they do not have the same network.
    """
    total: Dict[str, torch.Tensor] = {}
    for path in paths:
        # in float64, so that the order of the files does not matter
        weights = {name: value.to(torch.float64) for name, value in read_weights(path)[0].items()}
        total = total or {name: torch.zeros_like(value) for name, value in weights.items()}
        if {name: value.shape for name, value in weights.items()} != {name: part.shape for name, part in total.items()}:
            raise ValueError(f'{path} has another network than {paths[0]}; expected checkpoints of one run')
        for name, value in weights.items():
            total[name] += value
    return {name: (value / len(paths)).to(torch.float32) for name, value in total.items()}
