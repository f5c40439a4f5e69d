"""No option is accepted and ignored: another value makes a difference that a user can see, or an error."""

import re
import threading
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from easydict import EasyDict

from breakout_env import BreakoutEnv, FrameBuffer, FrameReplayBuffer, TorchRLReplayBuffer
from breakout_env.env_manager.options import EnvManagerOptions
from breakout_env.envs import env as env_module
from breakout_env.envs.options import BreakoutOptions
from breakout_env.policy.lean_dqn import LeanDQNOptions
from breakout_env.replay.batch import FrameBatch
from breakout_env.replay.options import ReplayOptions
from breakout_env.replay.torchrl.options import TorchRLOptions
from breakout_env.run.progress import ProgressOptions
from breakout_env.run.resume_hook import ResumeOptions
from helpers.processes import ROOT

PIXELS = torch.arange(60 * 16, dtype=torch.int64).view(60, 1, 4, 4).expand(60, 2, 4, 4).to(torch.uint8)
STEPS = [
    dict(obs=PIXELS[i], reward=torch.ones(1), done=False, episode_id=i // 20, step_id=i % 20, collect_iter=0)
    for i in range(60)
]


def played(options, monkeypatch):
    """A few hundred steps of random play."""
    outside = Mock()
    monkeypatch.setattr(env_module, 'GameWindow', outside.window)
    monkeypatch.setattr(env_module, 'watch_of_process', outside.watch)
    env = BreakoutEnv(options)
    env.seed(0)
    shown = [str((env.observation_space, env.action_space, env.reward_space)), env.reset().tobytes()]
    for _ in range(300):
        step = env.step(env.random_action())
        shown.append((step.obs.tobytes(), step.reward.item(), step.done, str(sorted(step.info.items()))))
        if step.done:
            shown.append(env.reset().tobytes())
    env.close()
    return shown, outside.window.called, outside.watch.called


def threads_and_files():
    return sorted(t.name for t in threading.enumerate()), sorted(map(str, Path().rglob('*')))


def sampled(buffer_class, options, monkeypatch):
    """What a buffer answers, takes and leaves."""
    np.random.seed(0)
    torch.manual_seed(0)
    writer = Mock()
    buffer = buffer_class(EasyDict(options), tb_logger=writer, exp_name='exp')
    for i in range(0, 60, 10):
        buffer.push(STEPS[i : i + 10], i)
    shown = [buffer.count(), getattr(buffer, 'nbytes', None)]
    for i in range(4):
        batch = buffer.sample(8, 5)
        shown.append(str(batch and [sorted(map(str, step.items())) for step in batch]))
        if batch and 'replay_buffer_idx' in batch[0] and options.get('sampler') != 'uniform':
            names = ('replay_unique_id', 'replay_buffer_idx')
            info = {name: [step[name] for step in batch] for name in names}
            if buffer_class is FrameReplayBuffer or options.get('sampler') == 'prioritized':
                buffer.update(dict(info, priority=[float(j + i) for j in range(8)]))
    shown += [*threads_and_files(), len(writer.mock_calls)]
    if buffer_class is FrameReplayBuffer:
        is_pinned = isinstance(batch, FrameBatch) and batch.collated()['obs'].is_pinned()
        shown += [buffer._memory.usage(), is_pinned]
    buffer.close()
    return shown


def frame(options, monkeypatch):
    return sampled(FrameReplayBuffer, options, monkeypatch)


def torchrl(options, monkeypatch):
    pytest.importorskip('torchrl')
    return sampled(TorchRLReplayBuffer, options, monkeypatch)


def in_tasks(options, monkeypatch):
    np.random.seed(0)
    buffer = FrameBuffer(options.pop('replay_buffer_size', 50), **options)
    for step in STEPS:
        buffer.push(step)
    shown = [str([item.data['step_id'] for item in buffer]), buffer._memory.usage(), *threads_and_files()]
    buffer.close()
    return shown


SLICES, MEMMAP = dict(slice_len=4), dict(storage='memmap', replay_buffer_size=50)
PRIORITISED = dict(sampler='prioritized', replay_buffer_size=50)
# Another value of each option, after what it goes with.
ENV = dict(
    frame_skip=({}, 3), frame_stack=({}, 3), screen_size=({}, 42), noop_max=({}, 3),
    repeat_action_probability=({}, 0.3), fire_on_reset=({}, False), fire_on_life_loss=(dict(episodic_life=False), True),
    episodic_life=({}, False), clip_reward=({}, False), life_loss_penalty=({}, -1.0), max_episode_frames=({}, 300),
    full_action_space=({}, True), obs_dtype=({}, 'float32'), random_action_probability=({}, 0.5),
    render_mode=({}, 'human'), resource_watch_s=({}, 1.0), is_train=({}, False),
)  # fmt: skip
FRAME = dict(
    replay_buffer_size=({}, 20), storage=({}, 'ring'), eviction=(dict(replay_buffer_size=30), 'random'),
    folder=(MEMMAP, 'elsewhere'), device=(dict(storage='device', device='cpu'), 'meta'), alpha=({}, 0.1),
    beta=({}, 0.9), anneal_step=({}, 2), max_use=({}, 1), max_staleness=({}, 1), prefetch=({}, True),
    pin_memory=({}, not torch.cuda.is_available()),
    save_path=(dict(save_every_pushes=1), 'there.npz'), save_every_pushes=({}, 1), save_every_s=({}, 1e-9),
    report_every_s=({}, 0.0), slice_len=({}, 4), slice_every=(SLICES, 2),
)  # fmt: skip
TORCHRL = dict(
    replay_buffer_size=({}, 20), storage=({}, 'memmap'), folder=(MEMMAP, 'elsewhere'), sampler=({}, 'prioritized'),
    slice_len=(dict(sampler='slice', slice_len=3), 4), alpha=(PRIORITISED, 0.1), beta=(PRIORITISED, 0.9),
    anneal_step=(PRIORITISED, 2), prefetch=({}, True),
)  # fmt: skip
SECTIONS = dict(
    env=(BreakoutOptions, ENV, played),
    frame=(ReplayOptions, FRAME, frame),
    torchrl=(TorchRLOptions, TORCHRL, torchrl),
    in_tasks=(ReplayOptions, FRAME, in_tasks),
)


@pytest.mark.parametrize(
    'section, name', [(s, name) for s, parts in SECTIONS.items() for name in parts[0].model_fields]
)
def test_each_option_makes_a_difference_or_an_error(section, name, tmp_path, monkeypatch):
    _, values, outcome = SECTIONS[section]
    before, value = values[name]
    with monkeypatch.context() as patch:
        folder = tmp_path / 'before'
        folder.mkdir()
        patch.chdir(folder)
        try:
            expected = outcome(dict(before), patch)
        except ValueError:
            assert section == 'in_tasks'  # what it goes with has no effect in task pipelines either
            return
    (tmp_path / 'after').mkdir()
    monkeypatch.chdir(tmp_path / 'after')
    try:
        found = outcome({**before, name: value}, monkeypatch)
    except (ValueError, RuntimeError):  # PyTorch refuses to pin memory without a GPU
        return
    assert found != expected


@pytest.mark.parametrize('section', [EnvManagerOptions, LeanDQNOptions, ProgressOptions, ResumeOptions])
def test_each_option_of_what_takes_a_whole_run_to_see_is_read(section):
    sources = ''.join(path.read_text() for path in (ROOT / 'breakout_env').rglob('*.py'))
    read = r"(?:options|learn)\._?{0}\b|self\._{0}\b|\['{0}'\]|get\('{0}'"
    ignored = [name for name in section.model_fields if not re.search(read.format(name), sources)]
    assert not ignored
