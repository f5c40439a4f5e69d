"""Weights in files, read as data: nothing in a file is run, whoever it comes from."""

import json
import logging
import os
import pickle
import warnings
import zipfile
from typing import Any, Dict, Mapping, Tuple

import torch
from safetensors import SafetensorError, safe_open

logger = logging.getLogger(__name__)
Weights = Dict[str, torch.Tensor]


def read_weights(path: str) -> Tuple[Weights, Dict[str, str]]:
    """
    Overview:
        The weights of a network, from an agent in safetensors or from a checkpoint that PyTorch wrote.
    Arguments:
        - path (:obj:`str`): The file; what it is shows in its first bytes, not in its name.
    Returns:
        - weights (:obj:`Weights`): Floating tensors by name, on the CPU. Of a checkpoint of DI-engine's, its ``model``.
        - metadata (:obj:`Dict[str, str]`): What safetensors keeps beside them; of a checkpoint, nothing.
    Raises:
        - OSError: If the file can not be opened.
        - ValueError: If it is neither, or damaged, or holds more than tensors and numbers.
    """
    try:
        with open(path, 'rb') as file:
            start = file.read(9)
    except OSError as error:
        raise type(error)(f'{path} can not be read ({error.strerror}); expected a checkpoint or an agent') from None
    # safetensors: the length of the header in eight bytes, then the header, a JSON object
    if start[8:] == b'{':
        return _read_safetensors(path)
    content = _read_checkpoint(path)
    weights = content.get('model', content) if isinstance(content, Mapping) else None
    if not isinstance(weights, Mapping) or not weights or not all(map(_is_weight, weights.items())):
        raise ValueError(
            f"{path} holds no weights of a network; expected a checkpoint of DI-engine's with tensors under `model`"
        )
    return dict(weights), {}


def _read_safetensors(path: str) -> Tuple[Weights, Dict[str, str]]:
    try:
        with safe_open(path, framework='pt') as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f'{path} is no whole safetensors file: it is cut off or damaged ({error})') from None
    if not weights or not all(map(_is_weight, weights.items())):
        raise ValueError(f'{path} holds no weights of a network; expected floating tensors')
    return weights, metadata


def _read_checkpoint(path: str) -> Any:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                # PyTorch compresses nothing; what someone else compressed may fill the memory out of a small file
                if sum(member.file_size for member in archive.infolist()) > os.path.getsize(path):
                    raise ValueError('it is compressed')
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # about formats that are then refused
            return torch.load(path, map_location='cpu', weights_only=True)
    except pickle.UnpicklingError as error:
        logger.debug('%s', error)
        # PyTorch's own message proposes to load the file all the same, and to run what is in it
        reason = 'it is damaged, or holds Python objects other than tensors and numbers, of which nothing was run'
    except Exception as error:  # torch.load raises nearly anything, depending on what the bytes happen to say
        logger.debug('%s', error)
        reason = 'it is cut off, damaged, or something else'
    raise ValueError(f'{path} is neither a checkpoint nor an agent in safetensors: {reason}')


def _is_weight(item: Tuple[Any, Any]) -> bool:
    name, tensor = item
    return (
        isinstance(name, str)
        and isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and tensor.device.type == 'cpu'
        and tensor.is_floating_point()
        # a view may claim any size over little memory
        and tensor.nbytes <= tensor.untyped_storage().nbytes()
    )


def read_json_object(text: str, what: str) -> Dict[str, Any]:
    """
    Overview:
        A JSON object from a file that anyone may have written.
    Raises:
        - ValueError: If it is none.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # the latter for brackets by the thousand
        value = None
    if not isinstance(value, dict):
        raise ValueError(f'{what} is no JSON object')
    return value
