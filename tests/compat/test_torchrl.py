"""What TorchRL does, for which there are workarounds; when a test fails, its workaround can go."""

import gc
import weakref

import pytest
import torch

pytest.importorskip('torchrl', reason="TorchRL is not installed (pip install 'torchrl>=0.14,<0.15')")


def buffer_of(**options):
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10), **options)
    buffer.extend(TensorDict(dict(a=torch.arange(10)), batch_size=[10]))
    return buffer


def test_storage_keeps_its_buffer_alive_until_a_garbage_collection(request):
    gc.disable()
    request.addfinalizer(gc.enable)
    buffer = buffer_of()
    storage = weakref.ref(buffer.storage)
    del buffer
    assert storage() is not None


def test_prioritised_sampler_needs_an_extension_that_does_not_load():
    from torchrl.data import PrioritizedSampler

    with pytest.raises(RuntimeError, match='is not available'):
        PrioritizedSampler(10, 0.6, 0.4)
