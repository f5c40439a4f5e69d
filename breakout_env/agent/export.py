"""Export an agent to programs that have neither DI-engine nor this package, and check the result on random screens."""

import importlib.util
import logging
import warnings
from pathlib import Path
from typing import Union

import numpy as np
import torch

from ..utils.atomic_file import write_bytes
from .agent import Agent

ONNX_PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
# Relative to the largest value; float32 sums in another order differ by some 1e-6.
TOLERANCE = 1e-4
CHECK_OBSERVATIONS = 64


def export_onnx(agent: Agent, path: Union[str, Path]) -> float:
    """
    Overview:
        Write an agent as ONNX. It takes uint8 pixels 0..255 in batches of any size, called ``pixels``, and gives \
        float32 ``q_values``. It is compared with its source on random pixels before it is kept.
    Arguments:
        - agent (:obj:`Agent`): The agent, on the CPU.
    Returns:
        - difference (:obj:`float`): The largest difference between a value and the source's.
    Raises:
        - OSError: If the file cannot be written.
        - ValueError: If packages that ONNX needs are missing, or a difference is above ``TOLERANCE``.
    Shapes:
        - pixels: :math:`(B, F, S, S)`, B batch size, F ``frame_stack``, S ``screen_size``.
        - q_values: :math:`(B, A)`, A number of actions.
    """
    missing = [package for package in ONNX_PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(
            f'ONNX needs {", ".join(missing)}, not found here: pip install {" ".join(ONNX_PACKAGES)} '
            "(the extra 'onnx' of this package has their versions)"
        )
    content = _onnx(agent)
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=['CPUExecutionProvider'])
    shape = CHECK_OBSERVATIONS, agent.frame_stack, agent.screen_size, agent.screen_size
    observations = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    difference = 0.0
    for pixels in (observations[:1], observations):  # two batch sizes, as an export may have fixed one
        source = agent.q_values(pixels)
        largest = float(np.abs(session.run(['q_values'], {'pixels': pixels})[0] - source).max())
        allowed = TOLERANCE * max(1.0, float(np.abs(source).max()))
        if not largest <= allowed:  # so that NaN does not pass
            raise ValueError(f'ONNX differs from its source by {largest:g}; expected {allowed:g} at most')
        difference = max(difference, largest)
    write_bytes(Path(path), content)
    return difference


def _onnx(agent: Agent) -> bytes:
    # two, as an export takes a size of 1 for fixed
    example = torch.zeros(2, agent.frame_stack, agent.screen_size, agent.screen_size, dtype=torch.uint8)
    disabled_before = logging.root.manager.disable
    # PyTorch warns that torchvision is missing, and of its own deprecations; the caller can change neither
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            program = torch.onnx.export(
                agent.model,  # its one output is `logit`
                (example,),
                dynamo=True,
                input_names=['pixels'],
                output_names=['q_values'],
                dynamic_shapes=({0: torch.export.Dim('batch')},),
                verbose=False,
            )
    finally:
        logging.disable(disabled_before)
    assert program is not None  # only for the exporter that dynamo=False selects
    return program.model_proto.SerializeToString()
