"""The weights of a network as bytes to be sent, which run nothing when they are read."""

from typing import Dict, Mapping

import safetensors.torch
import torch


def to_bytes(model: Mapping[str, torch.Tensor]) -> bytes:
    """
    Overview:
        The state of a model as safetensors, from any device.
    Arguments:
        - model (:obj:`Mapping[str, torch.Tensor]`): Tensors by name.
    """
    return safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in model.items()})


def from_bytes(content: bytes) -> Dict[str, torch.Tensor]:
    """
    Overview:
        What ``to_bytes`` was given, on the CPU.
    Arguments:
        - content (:obj:`bytes`): The bytes.
    Raises:
        - ValueError: If they are damaged, or none of ``to_bytes``'s.
    """
    try:
        return safetensors.torch.load(content)
    except Exception as error:  # safetensors' own, and whatever PyTorch says of what it was told to make
        raise ValueError(f'the weights of a network can not be read: {error}') from None
