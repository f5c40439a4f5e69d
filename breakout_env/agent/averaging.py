"""
One agent out of many checkpoints of a run: the mean of their weights (Polyak & Juditsky 1992; Izmailov et al. 2018).

A DQN's weights wander about from update to update, and its score with them, up and down by half. Their mean over the
last tens of thousands of updates wanders less, and on Breakout mostly plays better: docs/training.md has the figures.
"""

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import torch

from .weights_file import read_weights

_NUMBERED = re.compile(r'iteration_(\d+)\.pth\.tar')


def checkpoints_of(folder: str, until_updates: Optional[int] = None) -> List[Path]:
    """
    Overview:
        The numbered checkpoints of a run, in the order they were made.
    Arguments:
        - folder (:obj:`str`): Experiment folder.
        - until_updates (:obj:`Optional[int]`): Leave out those that were made after so many updates.
    Returns:
        - paths (:obj:`List[Path]`): ``ckpt/iteration_<updates>.pth.tar``, without the one of the untrained network.
    Raises:
        - ValueError: If there is none.
    """
    numbered = {}
    for path in Path(folder, 'ckpt').glob('iteration_*.pth.tar'):
        match = _NUMBERED.fullmatch(path.name)
        if match and 0 < int(match[1]) <= (until_updates or int(match[1])):
            numbered[int(match[1])] = path
    if not numbered:
        before = f' of up to {until_updates} updates' if until_updates else ''
        raise ValueError(
            f'{folder} has no checkpoint{before}; expected ckpt/iteration_<updates>.pth.tar, which '
            'policy.learn.learner.hook.save_ckpt_after_iter asks for'
        )
    return [numbered[updates] for updates in sorted(numbered)]


def updates_of(path: Path) -> int:
    """How many updates a numbered checkpoint was made after."""
    return int(_NUMBERED.fullmatch(Path(path).name)[1])


def average_weights(paths: Sequence[Path]) -> Dict[str, torch.Tensor]:
    """
    Overview:
        The mean of the online networks' weights.
    Arguments:
        - paths (:obj:`Sequence[Path]`): Checkpoints of one run, or agents in safetensors.
    Returns:
        - weights (:obj:`Dict[str, torch.Tensor]`): In float32.
    Raises:
        - OSError: If a file can not be read.
        - ValueError: If one is no agent, or they are not of the same network.
    """
    total: Dict[str, Any] = {}
    for path in paths:
        weights, _ = read_weights(str(path))
        if total and {name: value.shape for name, value in weights.items()} != {k: v.shape for k, v in total.items()}:
            raise ValueError(f'{path} is of another network than {paths[0]}; expected checkpoints of one run')
        # in float64, so that the order of the files does not matter
        total = {name: total.get(name, 0) + value.to(torch.float64) for name, value in weights.items()}
    return {name: (value / len(paths)).to(torch.float32) for name, value in total.items()}
