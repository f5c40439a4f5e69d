"""Weights in files, read as data: nothing in a file is run, whoever wrote it. Also averages them: a DQN's weights
fluctuate from update to update, and its score with them, up and down by half. The mean over the last tens of thousands
of updates fluctuates less (Polyak & Juditsky 1992; Izmailov et al. 2018), and on Breakout it usually plays better:
docs/experiments.md has the figures.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from ..policy.learner import EMA_KEY
from ..run.paths import numbered_checkpoints, updates_of

Weights = dict[str, torch.Tensor]
# By default the last eighth of a run's checkpoints is averaged, within these bounds.
_SHARE, _FEWEST, _MOST = 8, 2, 16


class SavedNetwork(NamedTuple):
    """What a file holds of a network."""

    # On the CPU. Of a DI-engine checkpoint the averaged weights if it has them, else those of ``model``.
    weights: Weights
    # Of a safetensors file; None for a checkpoint.
    metadata: dict[str, str] | None
    # Of a checkpoint: its `return_scale`, unchecked; None if it has none.
    return_scale: object


def read_weights(path: str | Path) -> SavedNetwork:
    """The weights of a network, from an agent in safetensors or a checkpoint in PyTorch's format. The first bytes of
    the file tell which, not its name.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If it has neither format, is damaged, or holds more than tensors and numbers.
    """
    try:
        with open(path, 'rb') as file:
            start = file.read(9)
    except OSError as error:
        raise type(error)(f'{path} cannot be read ({error.strerror}); expected a checkpoint or an agent') from None
    # safetensors: the length of the header in eight bytes, then the header, a JSON object
    if start[8:] == b'{':
        found = _read_safetensors(path)
    else:
        content = _read_checkpoint(path)
        found = SavedNetwork(content.get(EMA_KEY, content.get('model', content)), None, content.get('return_scale'))
    weights = found.weights
    if not isinstance(weights, Mapping) or not weights or not all(_is_weight(*item) for item in weights.items()):
        raise ValueError(f'{path} holds no weights of a network; expected tensors, in a checkpoint under `model`')
    return found._replace(weights=dict(weights))


def _read_safetensors(path: str | Path) -> SavedNetwork:
    try:
        with safe_open(path, framework='pt') as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            return SavedNetwork(tensors, file.metadata() or {}, None)
    except SafetensorError as error:
        raise ValueError(f'{path} is not a complete safetensors file: it is truncated or damaged ({error})') from None


def _read_checkpoint(path: str | Path) -> Mapping[str, Any]:
    """What is in a checkpoint; nothing, if that is not a dict."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # about formats that are then rejected
            content = torch.load(path, map_location='cpu', weights_only=True)
    except Exception:  # torch.load raises nearly anything, depending on what the bytes happen to say
        # not PyTorch's own message, which proposes to load the file anyway and so to run what is in it
        raise ValueError(
            f'{path} is neither a checkpoint nor an agent in safetensors: it is damaged, has another format, or holds '
            'Python objects other than tensors and numbers (none of them was run)'
        ) from None
    return content if isinstance(content, Mapping) else {}


def _is_weight(name: object, tensor: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and (tensor.is_floating_point() or tensor.dtype == torch.int64)  # the latter counts batches (BatchNorm)
    )


def checkpoints_of(folder: str | Path, until_updates: int | None = None) -> list[Path]:
    """The numbered checkpoints of a run (``ckpt/iteration_<updates>.pth.tar``) by their number of updates, without that
    of the untrained network and those after more updates than ``until_updates``. Raises ValueError if there is none.
    """
    chosen = [path for path in numbered_checkpoints(folder) if 0 < updates_of(path) <= (until_updates or math.inf)]
    if not chosen:
        before = f' of up to {until_updates} updates' if until_updates else ''
        raise ValueError(
            f'{folder} has no checkpoint{before}; expected ckpt/iteration_<updates>.pth.tar, which '
            'policy.learn.learner.hook.save_ckpt_after_iter asks for'
        )
    return chosen


def last_eighth(paths: list[Path]) -> list[Path]:
    """The checkpoints to average where nothing else is asked for: the last eighth of them, 2 to 16."""
    return paths[-min(_MOST, max(_FEWEST, len(paths) // _SHARE)) :]


def average_weights(paths: Sequence[Path]) -> Weights:
    """The mean, in float32, of the weights that act (the EMA's, where there is one) of checkpoints of one run, or of
    agents in safetensors.

    Raises:
        ValueError: If one is not an agent, or they do not have the same network.
    """
    total: Weights = {}
    for path in paths:
        # in float64, so that the order of the files does not matter
        weights = {name: value.to(torch.float64) for name, value in read_weights(path).weights.items()}
        total = total or {name: torch.zeros_like(value) for name, value in weights.items()}
        if {name: value.shape for name, value in weights.items()} != {name: part.shape for name, part in total.items()}:
            raise ValueError(f'{path} has another network than {paths[0]}; expected checkpoints of one run')
        for name, value in weights.items():
            total[name] += value
    return {name: (value / len(paths)).to(torch.float32) for name, value in total.items()}
