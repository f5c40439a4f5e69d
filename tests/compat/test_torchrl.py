"""What TorchRL does, for which there are workarounds; when a test fails, its workaround can go."""

import gc
import weakref

import pytest
import torch

pytest.importorskip('torchrl', reason="TorchRL is not installed (pip install 'torchrl>=0.14,<0.15')")


def test_storage_keeps_its_buffer_alive_until_a_garbage_collection(request):
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    gc.disable()
    request.addfinalizer(gc.enable)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(TensorDict(dict(a=torch.arange(10)), batch_size=[10]))
    storage = weakref.ref(buffer.storage)
    del buffer
    assert storage() is not None
