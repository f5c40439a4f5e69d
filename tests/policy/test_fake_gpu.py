"""What a CPU can prove of the way to a GPU: that tensors are on the right device, and work in the right order."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from ding.policy import create_policy
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from breakout_env.run.config import checked_config
from breakout_env.run.recipes import shipped
from helpers.policies import batch_for, filled_buffer, part, policy_on

aten = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Work that streams wait for, copies between devices, and operations on the GPU, in their order."""

    def __init__(self, patch):
        super().__init__()
        self.calls = []
        stream = SimpleNamespace(wait_stream=lambda other: self.calls.append('waits for a stream'))
        patch.setattr(torch.cuda, 'Stream', lambda device=None: stream)
        patch.setattr(torch.cuda, 'current_stream', lambda device=None: stream)
        patch.setattr(torch.cuda, 'stream', self.on)
        patch.setattr(torch.Tensor, 'record_stream', lambda tensor, stream: self.calls.append('keeps'))

    @contextlib.contextmanager
    def on(self, stream):
        self.calls.append('begin stream')
        yield
        self.calls.append('end stream')

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        devices = {tensor.device.type for tensor in [*args, result] if isinstance(tensor, torch.Tensor)}
        non_blocking = kwargs.get('non_blocking', len(args) > 2 and args[2])
        if operation is aten._local_scalar_dense.default:
            self.calls.append('waits')
        elif operation in (aten._to_copy.default, aten.copy_.default) and len(devices) > 1:
            self.calls.append('copies' if non_blocking else 'waits')
        elif 'cuda' in devices:
            self.calls.append('computes')
        return result


def replace_weights(module, function):
    """``Module._apply``, which cannot exchange the content of tensors without any."""
    for submodule in module.modules():
        for name, weight in submodule._parameters.items():
            if weight is not None:
                submodule._parameters[name] = torch.nn.Parameter(function(weight.detach()))
    return module


@pytest.fixture
def gpu(monkeypatch):
    """A GPU whose tensors have shape, type and device, and no content."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)  # older ones ask here, newer ones later, whether there is a GPU
    monkeypatch.setattr(FakeTensorMode, 'avoid_device_init', True, raising=False)
    found = dict(is_available=True, device_count=1, current_device=0, is_bf16_supported=True)
    found.update(get_device_capability=(9, 0), get_arch_list=[])
    for name, value in found.items():
        monkeypatch.setattr(torch.cuda, name, lambda *args, value=value: value)
    # these need more of a GPU
    monkeypatch.setattr(torch.nn.Module, 'cuda', lambda module: module.to('cuda:0'))
    monkeypatch.setattr(torch.nn.Module, '_apply', replace_weights)
    monkeypatch.setattr(torch.Tensor, 'backward', lambda loss: None)
    monkeypatch.setattr(torch.optim.Adam, 'step', lambda optimizer: None)
    monkeypatch.setattr(torch.Tensor, 'numpy', lambda tensor: tensor)
    recorder = Recorder(monkeypatch)
    with mode, recorder:
        yield recorder


def calls_of_an_update(request, kind, storage, **learn):
    # made before there is a fake GPU, which has no content to decompress
    batch = filled_buffer(32, storage=storage).sample(32) if storage else batch_for(kind, 0)
    if storage:
        batch.collated()
    gpu = request.getfixturevalue('gpu')
    policy = policy_on('cuda', kind, log_every_updates=10**6, **learn)
    part(policy, 'updater').means = dict(total_loss=0.0, return_variance=0.0, residual_variance=0.0)  # none is due
    gpu.calls.clear()
    policy.learn_mode.forward(batch)
    return gpu.calls


@pytest.mark.parametrize(
    'kind, storage, learn',
    [
        ('lean_dqn', 'compressed', {}),
        ('lean_dqn', 'ring', {}),
        ('lean_dqn', 'ring', dict(autocast='bfloat16')),
        ('lean_dqn', 'ring', dict(ema_decay=0.9, grad_clip=1.0)),
        ('lean_ppo', None, {}),
    ],
)
def test_all_tensors_are_on_the_gpu_and_nothing_waits_for_it(request, kind, storage, learn):
    calls = calls_of_an_update(request, kind, storage, **learn)
    assert 'computes' in calls and 'copies' in calls and 'waits' not in calls


@pytest.mark.parametrize('config', ['breakout_dqn_config', 'breakout_lean_dqn_config', 'breakout_ppo_gpu_config'])
def test_the_policies_of_the_configs_for_a_gpu_act_there(gpu, config):
    policy = create_policy(checked_config(str(shipped(f'configs/{config}.py')), 0).policy, enable_field=['collect'])
    gpu.calls.clear()
    output = policy.collect_mode.forward({i: torch.zeros(4, 84, 84, dtype=torch.uint8) for i in range(3)}, eps=0.0)
    assert 'computes' in gpu.calls and output[0]['action'].device.type == 'cpu'


def test_a_batch_is_copied_on_its_own_stream_and_computing_waits_for_it(request):
    calls = calls_of_an_update(request, 'lean_dqn', 'ring')
    begin, end, computes = (calls.index(call) for call in ('begin stream', 'end stream', 'computes'))
    count = end - begin - 1
    assert count >= 5 and calls[begin + 1 : end] == ['copies'] * count
    assert calls[end + 1 : computes] == ['waits for a stream'] + ['keeps'] * count
