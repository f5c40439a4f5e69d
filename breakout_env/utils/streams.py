"""
The order of work on a GPU: streams and uploads.

A GPU has queues of work (streams), which know nothing of each other. All calls that order them are here, so that a test
without a GPU can record them. On a CPU there is nothing to order: None stands for its stream.
"""

from typing import ContextManager, Dict, Optional, Union

import torch

Device = Union[str, torch.device]
Stream = Optional[torch.cuda.Stream]


def new_stream(device: Device) -> Stream:
    """Another stream of a GPU; None for a CPU."""
    return torch.cuda.Stream(device) if torch.device(device).type == 'cuda' else None


def on(stream: Stream) -> ContextManager:
    """Within, the calling thread queues its work on this stream."""
    return torch.cuda.stream(stream)


def wait_for(stream: torch.cuda.Stream) -> None:
    """The current stream waits for the work already queued on ``stream``."""
    torch.cuda.current_stream(stream.device).wait_stream(stream)


def wait_for_current(stream: torch.cuda.Stream) -> None:
    """``stream`` waits for the work already queued on the current stream."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))


def keep_until_used(tensor: torch.Tensor) -> None:
    """Keep the memory of another stream's tensor until the current stream has read it."""
    tensor.record_stream(torch.cuda.current_stream(tensor.device))


class Uploader(object):
    """
    Overview:
        Brings batches to the learner's device. To a GPU they are copied on a stream of their own: from pinned memory \
        that happens while the previous update is computed.
    Examples:
        >>> Uploader('cpu').upload(dict(action=torch.tensor([1, 3])))
        {'action': tensor([1, 3])}
    """

    def __init__(self, device: Device) -> None:
        self._device = torch.device(device)
        self._stream = new_stream(device)

    def upload(self, tensors: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
        """The tensors on the device; Python does not wait for a GPU."""
        on_gpu = self._stream is not None
        with on(self._stream):
            uploaded = {key: tensor.to(self._device, non_blocking=on_gpu) for key, tensor in tensors.items()}
        if self._stream is not None:
            wait_for(self._stream)
            for tensor in uploaded.values():
                keep_until_used(tensor)
        return uploaded
