"""No option is accepted and ignored: another value makes a difference that a user can see, or an error."""

import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from easydict import EasyDict

from breakout_env import BreakoutEnv, FrameBuffer, FrameReplayBuffer, LeanDQNPolicy, PixelDQN, TorchRLReplayBuffer
from breakout_env.env_manager.options import EnvManagerOptions
from breakout_env.envs import session
from breakout_env.envs.options import BreakoutOptions
from breakout_env.policy.lean_dqn import LeanDQNOptions
from breakout_env.policy.lean_ppo import LeanPPOOptions
from breakout_env.policy.pixel_models import PixelModelOptions
from breakout_env.replay.batch import FrameBatch
from breakout_env.replay.options import ReplayOptions, TorchRLOptions
from breakout_env.run.progress import ProgressOptions
from breakout_env.run.resume_hook import ResumeOptions
from breakout_env.utils import resources
from helpers.managers import InProcessManager, InProcessWorker, build_in_process, course, launched
from helpers.policies import parameters, policy, ppo, rollout, transitions
from helpers.progress_run import ProgressRun
from helpers.runs import config_in
from helpers.serial_run import SerialRun

PIXELS = torch.arange(60 * 16, dtype=torch.int64).view(60, 1, 4, 4).expand(60, 2, 4, 4).to(torch.uint8)
STEPS = [
    dict(obs=PIXELS[i], reward=torch.ones(1), done=False, episode_id=i // 20, step_id=i % 20, collect_iter=0)
    for i in range(60)
]


def played(options, monkeypatch):
    """A few hundred steps of random play."""
    outside = Mock()
    monkeypatch.setattr(session, 'GameWindow', outside.window)
    env = BreakoutEnv(options)
    env.seed(0)
    shown = [str((env.observation_space, env.action_space, env.reward_space)), env.reset().tobytes()]
    for _ in range(300):
        step = env.step(env.random_action())
        shown.append((step.obs.tobytes(), step.reward.item(), step.done, str(sorted(step.info.items()))))
        if step.done:
            shown.append(env.reset().tobytes())
    env.close()
    return shown, outside.window.called


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
    buffer.wait_for_saving()
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


def managed(options, monkeypatch):
    """Play of three environments; one of the first resets fails, which is tried again."""
    made, slept = [], []

    class Worker(InProcessWorker):
        def __init__(self, context, env_fns, *others):
            super().__init__(context, env_fns, *others)
            made.append(self)
            self.about = type(context).__name__, list(env_fns), [type(other).__name__ for other in others]

    class Manager(InProcessManager):
        _worker_class = Worker

    monkeypatch.setattr('breakout_env.env_manager.manager.time', SimpleNamespace(sleep=slept.append))
    Path('faults').write_text('raise\n')
    cfgs = [{}, {}, dict(events='events', reset_faults='faults')]
    options = dict(worker_num=None, retry_waiting_time=0.1, max_retry=2) | options
    with launched(build_in_process(3, cfgs, manager_class=Manager, **options)) as manager:
        shown = course(manager, 20, 0, forced_resets=False)
    return shown, slept, Path('events').read_text(), [(worker.about, worker.timeouts) for worker in made]


def updated_dqn(options, monkeypatch):
    """A few updates of ``lean_dqn``."""
    learner, shown = policy(LeanDQNPolicy, learn=options), []
    for seed in range(3):
        learner._forward_learn(transitions(8, seed=seed))
        shown.append(str(learner._forward_learn(transitions(8, seed=seed))))
    networks = [learner._learn_model, learner._target_model, learner._collect_model, learner._eval_model]
    return shown, [[weight.tolist() for weight in network.parameters()] for network in networks]


def updated_by_rollouts(make):
    """What is learned from a rollout, and a few updates from it."""

    def updated(options, monkeypatch):
        learner = make(**options)
        learner._budget_used = 0.5
        samples = learner._get_train_sample(rollout())
        shown = [str(learner._forward_learn(samples)) for _ in range(3)]
        shown.append(learner._forward_collect({0: samples['obs'][0]}, eps=0.0)[0]['value'])
        return shown, {key: samples[key].tolist() for key in samples if key != 'obs'}, parameters(learner).tolist()

    return updated


def model(options, monkeypatch):
    sizes = dict(obs_shape=[4, 84, 84], action_shape=4) | options
    return [weight.shape for weight in PixelDQN(**sizes).parameters()]


def progress(options, monkeypatch):
    """What a run of a minute prints and writes, and how often it looks at the memory."""
    printed, looks = [], Mock(wraps=resources.sample)
    monkeypatch.setattr(resources, 'sample', looks)
    monkeypatch.setattr('breakout_env.run.progress_line.print', lambda *said, **_: printed.append(said), raising=False)
    run = ProgressRun(Path('run'), **options)
    for second in range(60):
        run.look(float(second), 10 * second, second)
    return printed, looks.call_count, [row['run_s'] for row in run.rows()]


def saved(options, monkeypatch):
    """Saves of a short run, before its end."""
    run = SerialRun(config_in(Path().resolve(), **options))
    run.train(2)
    run.buffer.wait_for_saving()
    return len(list(Path().rglob('resume_*.pth.tar')))


SLICES, MEMMAP = dict(slice_len=4), dict(storage='memmap', replay_buffer_size=50)
PRIORITISED = dict(sampler='prioritized', replay_buffer_size=50)
# Another value of each option, after what it goes with.
ENV = dict(
    frame_skip=({}, 3), frame_stack=({}, 3), screen_size=({}, 42), noop_max=({}, 3),
    repeat_action_probability=({}, 0.3), fire_on_reset=({}, False), fire_on_life_loss=(dict(episodic_life=False), True),
    episodic_life=({}, False), clip_reward=({}, False), life_loss_penalty=({}, -1.0), max_episode_frames=({}, 300),
    full_action_space=({}, True), obs_dtype=({}, 'float32'), random_action_probability=({}, 0.5),
    render_mode=({}, 'human'), is_train=({}, False),
)  # fmt: skip
FRAME = dict(
    replay_buffer_size=({}, 20), storage=({}, 'ring'), eviction=(dict(replay_buffer_size=30), 'random'),
    folder=(MEMMAP, 'elsewhere'), alpha=({}, 0.1), beta=({}, 0.9), anneal_step=({}, 2), prefetch=({}, True),
    pin_memory=({}, not torch.cuda.is_available()),
    report_every_s=({}, 0.0), slice_len=({}, 4), slice_every=(SLICES, 2),
)  # fmt: skip
TORCHRL = dict(
    replay_buffer_size=({}, 20), storage=({}, 'memmap'), folder=(MEMMAP, 'elsewhere'), sampler=({}, 'prioritized'),
    slice_len=(dict(sampler='slice', slice_len=3), 4), alpha=(PRIORITISED, 0.1), beta=(PRIORITISED, 0.9),
    anneal_step=(PRIORITISED, 2), prefetch=({}, True),
)  # fmt: skip
# With shared memory, `spawn` starts multiprocessing's tracker, which stays until the end of all tests.
PIPES = dict(shared_memory=False)
MANAGER = dict(
    episode_num=({}, 1), max_retry=({}, 0), retry_type=({}, 'renew'), auto_reset=({}, False),
    reset_inplace=({}, False), step_timeout=({}, 5.0), reset_timeout=({}, 5.0), retry_waiting_time=({}, 0.3),
    worker_num=(dict(worker_num=1), 3), shared_memory=({}, False), context=(PIPES, 'spawn'), connect_timeout=({}, 5.0),
)  # fmt: skip
LEARNER = dict(
    grad_clip=({}, 1e-3), autocast=({}, 'bfloat16'), log_every_updates=({}, 2), ema_decay=({}, 0.5),
)  # fmt: skip
LEAN_DQN = dict(LEARNER, target_theta=({}, 0.5), loss=({}, 'huber'))
LEAN_PPO = dict(
    LEARNER, lr_decay_updates=({}, 2), lr_end=(dict(lr_decay_updates=2), 0.0005), gae_lambda=({}, 0.1),
    clip_ratio=({}, 0.5), value_weight=({}, 0.1), entropy_weight=({}, 0.5), anneal=({}, True),
    entropy_end=(dict(anneal=True), 0.1),
)  # fmt: skip
MODEL = dict(
    obs_shape=({}, [2, 84, 84]), action_shape=({}, 6), encoder_hidden_size_list=({}, [8, 8, 8, 16]),
    rows=({}, [12, 79]), head=({}, 'paper'),
)  # fmt: skip
LINES = dict(print_every_s=10.0)
PROGRESS = dict(
    max_env_step=(LINES, 1000), max_hours=(LINES, 2.0), log_every_s=({}, 1.0), print_every_s=({}, 10.0),
    watch_resources_s=({}, 1.0),
)  # fmt: skip
SECTIONS = dict(
    env=(BreakoutOptions, ENV, played),
    frame=(ReplayOptions, FRAME, frame),
    torchrl=(TorchRLOptions, TORCHRL, torchrl),
    in_tasks=(ReplayOptions, FRAME, in_tasks),
    env_manager=(EnvManagerOptions, MANAGER, managed),
    lean_dqn=(LeanDQNOptions, LEAN_DQN, updated_dqn),
    lean_ppo=(LeanPPOOptions, LEAN_PPO, updated_by_rollouts(ppo)),
    model=(PixelModelOptions, MODEL, model),
    progress=(ProgressOptions, PROGRESS, progress),
    resume=(ResumeOptions, dict(save_every_s=({}, 0.0)), saved),
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
