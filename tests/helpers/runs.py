"""Small training runs, and what they leave."""

import contextlib
import json
import math
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xxhash
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator, ScalarEvent

from breakout_env import FrameReplayBuffer
from breakout_env.run.paths import Save, saves_in
from helpers.processes import BIN, ROOT

DQN = ROOT / 'configs' / 'breakout_dqn_config.py'
RANDOM, N_SAMPLE, UPDATES = 32, 8, 2  # steps of random play, transitions and updates of a collection
BUFFER_SIZE = 8000
# What makes a config of this package small: values by their paths.
SMALL = {
    'env.collector_env_num': 2,
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'policy.model.encoder_hidden_size_list': [4, 4, 4, 8],
    'policy.learn.update_per_collect': UPDATES,
    'policy.learn.batch_size': 8,
    'policy.collect.n_sample': N_SAMPLE,
}
SMALL_DQN = {
    **SMALL,
    'policy.random_collect_size': RANDOM,
    'policy.learn.target_update_freq': 25,
    'policy.other.replay_buffer.replay_buffer_size': BUFFER_SIZE,
}
NAME = 'experiments/breakout_dqn'
ENTRY = [sys.executable, str(ROOT / 'entry' / 'serial.py')]
# A change for ``config_in``: our env manager in place of DI-engine's.
OURS = (
    r"env_manager=dict\(type='subprocess', shared_memory=True, reset_inplace=True\)",
    "env_manager=dict(type='breakout', import_names=['breakout_env'], worker_num=2)",
)
PROGRESS = (
    r'log_show_after_iter=1,',
    "log_show_after_iter=1, progress=dict(type='progress', name='progress', position='before_run', "
    'ext_args=dict(max_env_step=3000, log_every_s=0.5)),',
)


def events(log: Path, name_part: str) -> list[ScalarEvent]:
    """What TensorBoard has in a folder or a file, of all scalars whose name holds this."""
    accumulator = EventAccumulator(str(log), size_guidance=dict(scalars=0)).Reload()
    return [event for tag in accumulator.Tags()['scalars'] if name_part in tag for event in accumulator.Scalars(tag)]


def weights(checkpoint: Path) -> dict:
    return torch.load(checkpoint, map_location='cpu', weights_only=True)['model']


def check_trained(experiment: Path) -> Path:
    """Finite losses, changed weights, an evaluation; the last checkpoint."""
    losses = events(experiment / 'log' / 'serial', 'total_loss')
    assert losses and all(math.isfinite(event.value) for event in losses)
    checkpoints = sorted(
        (experiment / 'ckpt').glob('iteration_*.pth.tar'), key=lambda path: int(re.findall(r'\d+', path.name)[0])
    )
    first, last = weights(checkpoints[0]), weights(checkpoints[-1])
    assert len(checkpoints) > 1 and not any(torch.equal(first[k], last[k]) for k in first if k.endswith('weight'))
    assert all(torch.isfinite(value).all() for value in last.values())
    assert events(experiment / 'log' / 'serial', 'reward_mean')
    assert (experiment / 'ckpt' / 'ckpt_best.pth.tar').exists()
    return checkpoints[-1]


def shortened(config: Path, folder: Path, *changes) -> Path:
    """A copy of a config in which regular expressions are replaced; each must match."""
    text = config.read_text()
    for pattern, value in changes:
        text, count = re.subn(pattern, value, text)
        assert count, f'{config.name} does not match {pattern}'
    (folder / config.name).write_text(text)
    return folder / config.name


def with_values(config: Path, folder: Path, values: dict, *changes) -> Path:
    """A copy of a config with other values, by their paths, and with ``changes`` as above."""
    lines = ''.join(f'main_config.{path}={value!r}\n' for path, value in values.items())
    return shortened(config, folder, (r'\Z', lines), *changes)


def config_in(folder: Path, save_every_s: float = 900, *changes) -> Path:
    """The DQN config in small, which saves and resumes and shows no progress."""
    values = {
        **SMALL_DQN,
        'policy.learn.resume_training': True,
        'policy.learn.learner.hook.resume.ext_args': dict(save_every_s=save_every_s),
        'policy.eval.evaluator.eval_freq': 500,
        'policy.other.eps.decay': 5000,
    }
    return with_values(DQN, folder, values, (r'progress=dict\(.*\),', 'log_show_after_iter=1,'), *changes)


def expected_transitions(iteration: int) -> int:
    return RANDOM + N_SAMPLE * iteration // UPDATES


def saved_transitions(buffer_file: Path) -> int:
    """Transitions ever pushed, according to the file."""
    with np.load(buffer_file) as arrays:
        return json.loads(bytes(arrays['meta']))['next_id']


def check_saves(folder: Path, surplus: int = 3 * N_SAMPLE) -> list[Save]:
    """The saves that are listed, the newest first: all are complete, and each is of one moment. The screens of each
    transition follow each other: the agent learns from what was played. Where an episode ends, a collection returns
    more than ``n_sample`` transitions, for which the next ones make up: at most ``surplus`` at a time.
    """
    saves = saves_in(folder)
    for save in saves:
        content = (folder / save['checkpoint']).read_bytes()
        assert xxhash.xxh3_128_hexdigest(content) == save['checkpoint_digest']
        state = torch.load(folder / save['checkpoint'], weights_only=True)
        assert (state['last_iter'], state['last_step']) == (save['iteration'], save['env_step'])
        assert save['iteration'] % UPDATES == 0, 'saved in the middle of a collection'
        if save['buffer']:
            more = saved_transitions(folder / save['buffer']) - expected_transitions(save['iteration'])
            assert 0 <= more <= surplus
        else:  # of PPO
            assert save['env_step'] == N_SAMPLE * save['iteration'] // UPDATES
    if saves and saves[0]['buffer']:
        cfg = dict(FrameReplayBuffer.default_config(), replay_buffer_size=BUFFER_SIZE)
        with contextlib.closing(FrameReplayBuffer(cfg)) as buffer:
            buffer.load_data(str(folder / saves[0]['buffer']))
            for transition in buffer.sample(buffer.count(), 0):
                obs, after = np.asarray(transition['obs']), np.asarray(transition['next_obs'])
                assert obs.shape == (4, 84, 84) and obs.dtype == np.uint8 and obs.any()
                assert transition['done'] or any(np.array_equal(obs[k:], after[: 4 - k]) for k in (1, 2, 3))
    return saves


def has_learned(folder: Path) -> Callable[[], bool]:
    """Whether a run has made an update, after which DI-engine writes its first checkpoint."""
    return (folder / NAME / 'ckpt' / 'iteration_0.pth.tar').exists


def ding_serial(config: Path, env_step: int = 1_000_000) -> list:
    return [str(BIN / 'ding'), '-m', 'serial', '-c', str(config), '-s', '0', '--env-step', str(env_step)]


def training(program: str, config: Path) -> list:
    """The command that trains with a config, by ``ding`` or by ``breakout train`` with this option."""
    return ding_serial(config) if program == 'ding' else [BIN / 'breakout', 'train', '-c', config, f'--{program}']


def rows_of(folder: Path, kind: str = None) -> list:
    rows = [json.loads(line) for line in (folder / 'log' / 'progress.jsonl').read_text().splitlines()]
    return [row for row in rows if kind in (None, row['kind'])]


@pytest.fixture(autouse=True)
def as_before():
    """Restores the signal handlers after a run in this process; its networks are so small that one thread is best."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for number, handler in before.items():
        signal.signal(number, handler)
