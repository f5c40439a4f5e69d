"""Batches on their way to a GPU."""

from typing import Dict, Union

import torch


class Uploader(object):
    """
    Overview:
        Brings batches to the learner's device. To a GPU they are copied on a stream of their own: from pinned memory \
        that happens while the previous update is computed.
    Examples:
        >>> Uploader('cpu').upload(dict(action=torch.tensor([1, 3])))
        {'action': tensor([1, 3])}
    """

    def __init__(self, device: Union[str, torch.device]) -> None:
        self._device = torch.device(device)
        self._stream = torch.cuda.Stream(self._device) if self._device.type == 'cuda' else None

    def upload(self, tensors: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
        """The tensors on the device; Python does not wait for a GPU."""
        if self._stream is None:
            return {key: tensor.to(self._device) for key, tensor in tensors.items()}
        with torch.cuda.stream(self._stream):
            uploaded = {key: tensor.to(self._device, non_blocking=True) for key, tensor in tensors.items()}
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        for tensor in uploaded.values():
            tensor.record_stream(current)  # keeps its memory until that stream has read it
        return uploaded
