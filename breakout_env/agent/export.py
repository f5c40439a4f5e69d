"""Export an agent to programs that have neither DI-engine nor this package, and check the result on random screens."""

import contextlib
import importlib.util
import logging
import os
import tempfile
import warnings
from pathlib import Path
from typing import Callable, Dict, Iterator, Tuple, Union

import numpy as np
import torch

from ..utils.atomic_file import write_bytes
from .agent import Agent, load_agent, save_agent

# An exported agent: the content of its file, and what runs it.
Exported = Tuple[bytes, Callable[[np.ndarray], np.ndarray]]
ONNX_PACKAGES = ('onnx', 'onnxscript', 'onnxruntime')
# Relative to the largest value; float32 sums in another order differ by some 1e-6.
TOLERANCE = 1e-4
CHECK_OBSERVATIONS = 64


class ExportDiffers(ValueError):
    """The exported agent does not give the values of its source. No file is kept."""


def export_agent(agent: Agent, path: Union[str, Path], format: str) -> float:
    """
    Overview:
        Write an agent for other programs. It takes uint8 pixels 0..255 in batches of any size, called ``pixels``, \
        and gives float32 ``q_values``. It is compared with its source on random pixels before it is kept.
    Arguments:
        - agent (:obj:`Agent`): The agent, on the CPU.
        - format (:obj:`str`): One of ``FORMATS``.
    Returns:
        - difference (:obj:`float`): The largest difference between a value and the source's.
    Raises:
        - ExportDiffers: If a difference is above ``TOLERANCE``.
        - OSError: If the file cannot be written.
        - ValueError: If the format is unknown, or packages that it needs are missing.
    Shapes:
        - pixels: :math:`(B, F, S, S)`, B batch size, F ``frame_stack``, S ``screen_size``.
        - q_values: :math:`(B, A)`, A number of actions.
    """
    if format not in FORMATS:
        raise ValueError(f'the format is {format!r}; expected one of {", ".join(FORMATS)}')
    content, run = FORMATS[format][1](agent)
    shape = CHECK_OBSERVATIONS, agent.frame_stack, agent.screen_size, agent.screen_size
    observations = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    difference = 0.0
    for batch_size in (1, len(observations)):  # two sizes, as an export may have fixed one
        source, found = agent.q_values(observations[:batch_size]), run(observations[:batch_size])
        if found.shape != source.shape:
            raise ExportDiffers(f'{format} gives values of shape {found.shape}; expected {source.shape}')
        largest = float(np.abs(found - source).max())
        allowed = TOLERANCE * max(1.0, float(np.abs(source).max()))
        if not largest <= allowed:  # so that NaN does not pass
            raise ExportDiffers(f'{format} differs from its source by {largest:g}; expected {allowed:g} at most')
        difference = max(difference, largest)
    write_bytes(Path(path), content)
    return difference


class _Values(torch.nn.Module):
    """The values alone: exported networks give tensors, not dicts."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.model = agent.model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.model(pixels)['logit']


def _onnx(agent: Agent) -> Exported:
    missing = [package for package in ONNX_PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(
            f'ONNX needs {", ".join(missing)}, not found here: pip install {" ".join(ONNX_PACKAGES)} '
            "(the extra 'onnx' of this package has their versions)"
        )
    # two, as an export takes a size of 1 for fixed
    example = torch.zeros(2, agent.frame_stack, agent.screen_size, agent.screen_size, dtype=torch.uint8)
    with _quiet():
        import onnxruntime

        program = torch.onnx.export(
            _Values(agent).eval(),
            (example,),
            dynamo=True,
            input_names=['pixels'],
            output_names=['q_values'],
            dynamic_shapes=({0: torch.export.Dim('batch')},),
            verbose=False,
        )
        assert program is not None  # only for the exporter that dynamo=False selects
        content = program.model_proto.SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=['CPUExecutionProvider'])
    return content, lambda pixels: session.run(['q_values'], {'pixels': pixels})[0]


def _safetensors(agent: Agent) -> Exported:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'agent.safetensors')
        save_agent(path, agent.model.state_dict(), agent.card, agent.screen_size)
        return Path(path).read_bytes(), load_agent(path).q_values


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch warns that torchvision is missing, and of its own deprecations; the caller can change neither."""
    disabled_before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            yield
    finally:
        logging.disable(disabled_before)


# The usual suffix of a file, and what makes its content.
FORMATS: Dict[str, Tuple[str, Callable[[Agent], Exported]]] = dict(
    onnx=('.onnx', _onnx), safetensors=('.safetensors', _safetensors)
)
