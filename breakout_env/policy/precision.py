"""Which floating-point type a network computes with fastest."""

import copy
from typing import Literal, Optional, TypeVar, Union

import torch

Precision = Literal[None, 'bfloat16', 'auto']
_Model = TypeVar('_Model', bound=torch.nn.Module)


def fastest_precision(option: Optional[str], device: Union[str, torch.device]) -> Optional[str]:
    """
    Overview:
        What ``autocast='auto'`` means on this machine: ``bfloat16`` where the CPU has instructions for it \
        (AVX512-BF16 or AMX) or the GPU does (compute capability 8 and higher), else None, float32.
    Examples:
        >>> fastest_precision('bfloat16', 'cpu'), fastest_precision(None, 'cpu')
        ('bfloat16', None)
    """
    if option != 'auto':
        return option
    if torch.device(device).type == 'cuda':
        return 'bfloat16' if torch.cuda.get_device_capability(device) >= (8, 0) else None
    has_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return 'bfloat16' if has_bfloat16 else None


def cast_copy(model: _Model, dtype: torch.dtype) -> _Model:
    """
    A frozen copy with the encoder's weights (all, without an encoder) cast to ``dtype``, which saves casting them at
    each forward. The head of ``pixel_dqn`` always computes in float32.
    """
    model = copy.deepcopy(model).requires_grad_(False)
    getattr(model, 'encoder', model).to(dtype)
    return model
