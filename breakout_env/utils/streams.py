"""
The order of work on a GPU: streams, events, pinned memory, uploads.

A GPU has queues of work (streams), which know nothing of each other. All calls that order them are here, so that a test
without a GPU can put a recorder in their place and see their order. On a CPU there is nothing to order: None stands for
its stream.
"""

from typing import ContextManager, Dict, Optional, Union

import torch

Device = Union[str, torch.device]
Stream = Optional[torch.cuda.Stream]


def new_stream(device: Device) -> Stream:
    """Another stream of a GPU; None for a CPU."""
    return torch.cuda.Stream(device) if torch.device(device).type == 'cuda' else None


def on(stream: Stream) -> ContextManager:
    """What the calling thread begins inside goes to this stream."""
    return torch.cuda.stream(stream)


def wait_for(stream: torch.cuda.Stream) -> None:
    """What the current stream gets from now on waits for all that the other one has got so far."""
    torch.cuda.current_stream(stream.device).wait_stream(stream)


def keep_until_used(tensor: torch.Tensor) -> None:
    """A tensor of another stream is read on the current one: until then its memory must not be given out again."""
    tensor.record_stream(torch.cuda.current_stream(tensor.device))


def mark() -> torch.cuda.Event:
    """An event behind all that the current stream has got so far."""
    return torch.cuda.current_stream().record_event()


def wait_for_mark(event: torch.cuda.Event) -> None:
    """What the current stream gets from now on waits for the event."""
    torch.cuda.current_stream().wait_event(event)


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
        """The tensors on the device. It makes Python wait for nothing on a GPU."""
        on_gpu = self._stream is not None
        with on(self._stream):
            # needed on a CPU, too: the buffer may keep its frames on another device
            uploaded = {key: tensor.to(self._device, non_blocking=on_gpu) for key, tensor in tensors.items()}
        if self._stream is not None:
            wait_for(self._stream)
            for tensor in uploaded.values():
                keep_until_used(tensor)
        return uploaded
