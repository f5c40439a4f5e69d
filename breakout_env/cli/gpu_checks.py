"""
The questions that ``breakout doctor --gpu`` asks: does learning on this machine's GPU compute what a CPU computes?

Each runs in a process of its own, which is the first to use the GPU. Those that take a ``device`` run on a CPU, too:
the tests do that.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Union, cast

import numpy as np
import torch
from ding.utils import POLICY_REGISTRY, deep_merge_dicts
from easydict import EasyDict

from ..replay.batch import FrameBatch
from ..replay.buffer import FrameReplayBuffer
from ..replay.frames.device import DeviceFrames
from ..replay.options import ReplayOptions
from ..replay.size_check import DoesNotFit, check_room
from ..utils.gpu import gpu_problem
from ..utils.memory_limits import gpu_room
from ..utils.streams import Uploader
from .common import shipped
from .doctor import FAILS, OK, Check, Finding, run_checks

PASS, FAIL, NOT_APPLICABLE = 'pass', 'fail', 'not applicable'
POLICIES = ('dqn', 'lean_dqn', 'lean_ppo')
FROM_ROLLOUTS = ('lean_ppo',)
MODELS: Dict[str, Dict[str, Any]] = dict(lean_ppo=dict(type='pixel_actor_critic'))
UPDATES, BATCH, NSTEP = 50, 32, 3
FRAME_BYTES = 84 * 84
# Rounding makes millionths of the distance that the weights move; a target network that is never copied makes 0.019.
LARGEST_DIFFERENCE = 0.01
# bfloat16 has 8 bits for a number.
LARGEST_LOSS_DIFFERENCE = {None: 0.001, 'bfloat16': 0.02}
# Rarely rounding decides between two actions of the same value, after which two learners diverge.
TRIES = 3
# Of a replay buffer of a million transitions of Breakout.
LARGEST_FRAMES_BYTES = 7.2e9
# What PyTorch's allocator may keep or lose in rounding.
LEVEL_BYTES = 2**20
# A short training.
SMALL = {
    'policy.random_collect_size': 64,
    'policy.collect.n_sample': 16,
    'policy.learn.update_per_collect': 4,
    'env.collector_env_num': 2,
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'env.evaluator.max_episode_frames': 400,
}

Batch = Union[Dict[str, torch.Tensor], List[Dict[str, Any]]]


def policy_on(device: str, kind: str, seed: int = 0, **learn: Any) -> Any:
    """A policy of DI-engine's registry with Nature's network, on a device; a seed gives the same weights anywhere."""
    policy_class = POLICY_REGISTRY.get(kind)
    sizes = dict(obs_shape=[4, 84, 84], action_shape=4)
    options: Dict[str, Any] = dict(
        cuda=torch.device(device).type == 'cuda',
        nstep=NSTEP,
        discount_factor=0.99,
        model=dict(import_names=['breakout_env'], **sizes, **MODELS.get(kind, dict(type='pixel_dqn'))),
        learn=dict(learning_rate=0.0001, target_update_freq=10, log_every_updates=1, autocast=None),
    )
    cfg = deep_merge_dicts(deep_merge_dicts(policy_class.default_config(), options), dict(learn=learn))
    torch.manual_seed(seed)
    return policy_class(EasyDict(cfg), enable_field=['learn', 'collect'])


def transitions(count: int, seed: int) -> List[Dict[str, Any]]:
    """Transitions of noise, as a collector makes them."""
    make = torch.Generator().manual_seed(seed)
    screens = torch.randint(0, 256, (count, 5, 84, 84), dtype=torch.uint8, generator=make)
    action = torch.randint(0, 4, (count, 1), generator=make)
    reward = torch.randint(-1, 2, (count, NSTEP), generator=make).float()
    return [
        dict(obs=screens[i, :-1], next_obs=screens[i, 1:], action=action[i], reward=reward[i], done=i % 8 == 0)
        for i in range(count)
    ]


def batch_for(kind: str, seed: int) -> Batch:
    """A batch that a policy learns from."""
    made = transitions(BATCH, seed)
    if kind not in FROM_ROLLOUTS:
        return made
    obs, action = (torch.stack([one[key] for one in made]) for key in ('obs', 'action'))
    batch, learned = dict(obs=obs, action=action[:, 0], weight=torch.ones(BATCH)), torch.linspace(-1, 1, BATCH)
    return {**batch, 'advantage': learned, 'return': learned.flip(0), 'log_prob': torch.full([BATCH], 0.25).log()}


def filled_buffer(count: int = 256, **options: Any) -> FrameReplayBuffer:
    """A buffer with the same transitions each time, which it samples in the same order."""
    np.random.seed(0)  # from which the buffer takes its own seed
    buffer = FrameReplayBuffer(dict(dict(replay_buffer_size=2 * count, pin_memory=False), **options))
    buffer.push(transitions(count, 0))
    return buffer


# ---------------------------------------------------------------- the same numbers as on a CPU


def same_updates(kind: str, autocast: Optional[str] = None, device: str = 'cuda') -> Finding:
    """The same loss at first and, in float32, the same weights after 50 updates from the same batches."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for seed in range(TRIES):
        loss, weights = _differences(kind, autocast, device, seed)
        found = f'first loss differs by {loss:.1e}, weights after {UPDATES} updates by {weights:.1e} of their way'
        if loss <= LARGEST_LOSS_DIFFERENCE[autocast] and (autocast or weights <= LARGEST_DIFFERENCE):
            return Finding(OK, found)
    return Finding(FAILS, found)


def _differences(kind: str, autocast: Optional[str], device: str, seed: int) -> List[float]:
    there, here = policy_on(device, kind, seed, autocast=autocast), policy_on('cpu', kind, seed)
    start, losses = _weights(here), []
    for update in range(UPDATES):
        batch = batch_for(kind, UPDATES * seed + update)
        losses.append([policy._forward_learn(batch)['total_loss'] for policy in (there, here)])
    found, expected = losses[0]
    weights = _weights(here)
    apart, moved = (_weights(there) - weights).norm(), (weights - start).norm()
    return [abs(found - expected) / abs(expected), float(apart / moved)]


def _weights(policy: Any) -> torch.Tensor:
    return torch.cat([weight.detach().cpu().flatten() for weight in policy._model.parameters()])


def same_actions(kind: str, device: str = 'cuda') -> Finding:
    """The same greedy actions."""
    obs = {i: one['obs'] for i, one in enumerate(transitions(BATCH, 1))}
    chosen = []
    for policy in (policy_on(where, kind) for where in (device, 'cpu')):
        torch.manual_seed(0)
        output = policy._forward_collect(obs, eps=0.0)
        chosen.append([int(output[i]['action']) for i in obs])
    equal = sum(ours == theirs for ours, theirs in zip(*chosen))
    # rounding decides between equal values
    return Finding(OK if equal >= BATCH - 1 else FAILS, f'{equal} of {BATCH} actions are equal')


def same_batches(device: str = 'cuda') -> Finding:
    """The same batches, bit for bit, whatever way they take."""
    ways: Dict[str, Dict[str, Any]] = dict(compressed={}, ring=dict(storage='ring'), prefetched=dict(prefetch=True))
    if torch.device(device).type == 'cuda':
        ways['pinned'] = dict(prefetch=True, pin_memory=True)
    ways['on the device'] = dict(storage='device', device=device)
    uploader, expected = Uploader(device), None
    for way, options in ways.items():
        buffer, found = filled_buffer(**options), []
        for _ in range(20):
            sampled = cast(FrameBatch, buffer.sample(BATCH)).collated()
            batch = uploader.upload({key: sampled[key] for key in ('obs', 'next_obs', 'action', 'reward')})
            if any(tensor.device.type != torch.device(device).type for tensor in batch.values()):
                return Finding(FAILS, f'batches that are {way} stay on {batch["obs"].device}')
            found += [tensor.cpu() for tensor in batch.values()]
        buffer.close()
        expected = expected or found
        if not all(torch.equal(ours, first) for ours, first in zip(found, expected)):
            return Finding(FAILS, f'batches that are {way} differ')
    return Finding(OK, f'20 batches are equal: {", ".join(ways)}')


def saves_fit(kind: str, device: str = 'cuda') -> Finding:
    """A state that was saved on one device is loaded on the other, and learning continues with the same numbers."""
    for first, then in ((device, 'cpu'), ('cpu', device)):
        one, other = policy_on(first, kind), policy_on(then, kind, seed=1)
        for update in range(5):
            one._forward_learn(batch_for(kind, update))
        with tempfile.TemporaryFile() as file:
            torch.save(one._state_dict_learn(), file)
            file.seek(0)
            other._load_state_dict_learn(torch.load(file, map_location='cpu', weights_only=True))
        if not torch.equal(_weights(one), _weights(other)):
            return Finding(FAILS, f'weights differ after loading what {first} saved on {then}')
        losses = [policy._forward_learn(batch_for(kind, 5))['total_loss'] for policy in (one, other)]
        if abs(losses[0] - losses[1]) > 0.01 * abs(losses[0]):
            return Finding(FAILS, f'saved on {first}, the loss is {losses[0]}; on {then} it is {losses[1]}')
    return Finding(OK, 'saved and loaded both ways')


# ---------------------------------------------------------------- no waiting, no lost memory


def no_waiting(kind: str, storage: str, device: str = 'cuda') -> Finding:
    """An update, its batch included, never makes Python wait for the GPU, but where means are logged."""
    policy = policy_on(device, kind, log_every_updates=10**6)
    made = batch_for(kind, 0)
    options = dict(device=device) if storage == 'device' else dict(pin_memory=torch.device(device).type == 'cuda')
    buffer = filled_buffer(storage=storage, **options)

    def sample() -> Any:
        return made if kind in FROM_ROLLOUTS else buffer.sample(BATCH)

    for _ in range(5):  # libraries prepare themselves, and the first means are fetched
        policy._forward_learn(sample())
    with _waiting_is_an_error():
        for _ in range(UPDATES):
            policy._forward_learn(sample())
        try:
            torch.zeros(1, device=device).item()
        except RuntimeError:
            return Finding(OK, f'{UPDATES} updates without waiting')
    return Finding(FAILS, 'waiting is not detected: torch.cuda.set_sync_debug_mode has no effect')


@contextlib.contextmanager
def _waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode('error')
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode('default')


def _allocated() -> int:
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def level_memory(updates: int = 2000, device: str = 'cuda', allocated: Callable[[], int] = _allocated) -> Finding:
    """The device's memory does not grow with updates, and is released with policy and buffer."""

    def growth(updates: int) -> int:
        policy, buffer = policy_on(device, 'lean_dqn'), filled_buffer(storage='device', device=device)
        used = []
        for update in range(updates):
            policy._forward_learn(buffer.sample(BATCH))
            if update in (19, updates - 1):  # past two copies into the target network
                used.append(allocated())
        buffer.close()
        return used[-1] - used[0]

    growth(20)  # what libraries take for themselves stays
    before = allocated()
    grown = growth(updates)
    kept = allocated() - before
    found = f'{grown:,} bytes more after {updates:,} updates, {kept:,} after the end'
    return Finding(OK if max(grown, kept) <= LEVEL_BYTES else FAILS, found)


def frames_of_a_million(device: str = 'cuda', count: int = 1_000_000) -> Finding:
    """What the screens of a full buffer take on the device."""
    room = gpu_room(device).free_bytes if torch.device(device).type == 'cuda' else 0
    if 0 < room < LARGEST_FRAMES_BYTES:
        return Finding(NOT_APPLICABLE, f'needs {LARGEST_FRAMES_BYTES / 1e9} GB; {room / 1e9:.1f} GB are free')
    frames = DeviceFrames(FRAME_BYTES, count, device)
    frames.put(count - 1, memoryview(bytes(FRAME_BYTES)))
    found = f'{frames.device_bytes / 1e9:.2f} GB for {count:,}'
    return Finding(OK if frames.device_bytes <= LARGEST_FRAMES_BYTES else FAILS, found)


def full_gpu_is_refused() -> Finding:
    """A buffer that has no room on the GPU is refused before it takes any."""
    size = int(gpu_room('cuda').limit_bytes / FRAME_BYTES) + 1
    try:
        check_room(ReplayOptions(replay_buffer_size=size, storage='device', device='cuda'), FRAME_BYTES, '')
    except DoesNotFit as error:
        return Finding(OK, str(error))
    return Finding(FAILS, f'a buffer of {size:,} transitions was not refused')


# ---------------------------------------------------------------- whole programs

# Fills its share of the GPU (with 'cpu', says that it did) in the 23rd update, for as long as the error is handled.
_FULL = """
import sys, torch
from breakout_env.cli import main
from breakout_env.policy.lean_dqn import LeanDQNPolicy as Policy

learn, updates = Policy._forward_learn, []

def fill(policy, data):
    updates.append(None)
    if len(updates) == 1 and policy._cuda:
        torch.cuda.set_per_process_memory_fraction(0.25)
    if len(updates) > 22 and not policy._cuda:
        raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 16.00 MiB.')
    held = []
    while len(updates) > 22:
        held.append(torch.empty(2**26, dtype=torch.uint8, device=policy._device))
    return learn(policy, data)

Policy._forward_learn = fill
main(sys.argv[1:])
"""


def _program(folder: str, *words: Any) -> 'subprocess.CompletedProcess[str]':
    """Run Python in a folder of its own."""
    path = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *sys.path])
    environment = dict(os.environ, PYTHONPATH=path)
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _last_line(done: 'subprocess.CompletedProcess[str]') -> str:
    return (done.stdout.strip().splitlines() or ['nothing'])[-1][:200]


def out_of_memory(device: str = 'cuda') -> Finding:
    """A training that the GPU has no memory left for ends with a message and a save, which a CPU resumes."""
    words = ['train', '-c', shipped('configs/breakout_lean_dqn_config.py'), '--updates', 40]
    words += [word for key, value in SMALL.items() for word in ('--set', f'{key}={value}')]
    with tempfile.TemporaryDirectory() as folder:
        full = _program(folder, '-c', _FULL, *words, '--device', device, '--exp-name', 'full')
        if full.returncode != 1 or 'out of memory' not in _last_line(full) or 'Traceback' in full.stdout:
            return Finding(FAILS, f'it ended with {full.returncode}: {_last_line(full)}')
        resumed = _program(folder, '-m', 'breakout_env', *words, '--device', 'cpu', '--resume', 'full')
        if resumed.returncode or 'Resuming full at 22 updates' not in resumed.stdout:
            return Finding(FAILS, f'a CPU does not resume it ({resumed.returncode}): {_last_line(resumed)}')
    return Finding(OK, 'it ended with a message and a save, which a CPU resumed')


def two_ranks(cuda: bool = True) -> Finding:
    """Two processes learn together: by NCCL with two GPUs, by gloo on one."""
    config = shipped('configs/breakout_dqn_ddp_config.py').read_text().split("if __name__ == '__main__'")[0]
    changes = {**SMALL, 'policy.cuda': cuda}
    config += ''.join(f'main_config.{key} = {value}\n' for key, value in changes.items())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, 'config.py').write_text(config)
        launch = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', 2]
        entry = [shipped('entry/breakout_dqn_ddp.py'), '-c', 'config.py', '--env-step', 400]
        done = _program(folder, *launch, *entry)
    backend = 'nccl' if cuda and torch.cuda.device_count() > 1 else 'gloo'
    if done.returncode or f'2 rank(s) by {backend}' not in done.stdout:
        return Finding(FAILS, f'they ended with {done.returncode}: {_last_line(done)}')
    return Finding(OK, f'two ranks learned together by {backend}')


# ---------------------------------------------------------------- all of them


def _on_gpu(look: Callable[[], Finding]) -> Callable[[], Finding]:
    """A question that needs a GPU."""

    def looked() -> Finding:
        problem = gpu_problem()
        return Finding(NOT_APPLICABLE, f'needs a GPU: {problem}') if problem else look()

    return looked


def _check(name: str, look: Callable[..., Finding], *args: Any, timeout_s: float = 60) -> Check:
    return Check(name, _on_gpu(partial(look, *args)), timeout_s=timeout_s)


CHECKS = [
    *(_check(f'{kind}: losses and weights', same_updates, kind) for kind in POLICIES),
    _check('lean_dqn: losses in bfloat16', same_updates, 'lean_dqn', 'bfloat16'),
    *(_check(f'{kind}: actions', same_actions, kind) for kind in POLICIES),
    _check('batches', same_batches),
    *(_check(f'{kind}: saved and resumed', saves_fit, kind) for kind in POLICIES),
    *(_check(f'{kind}: no waiting', no_waiting, kind, 'compressed') for kind in ('lean_dqn', *FROM_ROLLOUTS)),
    _check('lean_dqn: no waiting, frames on the GPU', no_waiting, 'lean_dqn', 'device'),
    _check('memory is level', level_memory),
    _check('frames of a million transitions', frames_of_a_million),
    _check('too large a buffer', full_gpu_is_refused),
    _check('GPU out of memory', out_of_memory, timeout_s=120),
    _check('two ranks', two_ranks, timeout_s=120),
]


def gpu_rows(checks: List[Check] = CHECKS) -> Iterator[Finding]:
    """
    Overview:
        Run the checks; each row says ``pass``, ``fail`` or ``not applicable``, and how many seconds it took.
    """
    words = {OK: PASS, FAILS: FAIL}
    for check in checks:
        start = time.monotonic()
        (row,) = run_checks([check])
        yield row._replace(
            state=words.get(row.state, row.state), found=f'{row.found} ({time.monotonic() - start:.0f} s)'
        )
