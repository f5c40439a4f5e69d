"""Small training runs, and what they leave."""

import json
import math
import os
import re
import signal
import sys
from pathlib import Path
from typing import Callable

import numpy as np
import pytest
import torch
import xxhash
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from breakout_env.cli.train_command import _entry
from breakout_env.run.paths import saves_in
from helpers.processes import BIN, ROOT

DQN = ROOT / 'configs' / 'breakout_dqn_config.py'
RANDOM, N_SAMPLE, UPDATES = 64, 8, 2  # steps of random play, transitions and updates of a collection
NAME = 'experiments/breakout_dqn'
ENTRY = [sys.executable, str(ROOT / 'entry' / 'serial.py')]
# A change for ``config_in``: our env manager in place of DI-engine's.
OURS = (
    r"env_manager=dict\(type='subprocess', shared_memory=True, reset_inplace=True\)",
    "env_manager=dict(type='breakout', import_names=['breakout_env'], worker_num=2)",
)


def scalars(experiment: Path, name_part: str) -> list:
    """Values of all TensorBoard scalars whose name holds this."""
    accumulator = EventAccumulator(str(experiment / 'log' / 'serial'), size_guidance=dict(scalars=0)).Reload()
    return [
        event.value for tag in accumulator.Tags()['scalars'] if name_part in tag for event in accumulator.Scalars(tag)
    ]


def weights(checkpoint: Path) -> dict:
    return torch.load(checkpoint, map_location='cpu', weights_only=True)['model']


def check_trained(experiment: Path) -> Path:
    """Finite losses, changed weights, an evaluation; the last checkpoint."""
    losses = scalars(experiment, 'total_loss')
    assert losses and all(map(math.isfinite, losses))
    checkpoints = sorted(
        (experiment / 'ckpt').glob('iteration_*.pth.tar'), key=lambda path: int(re.findall(r'\d+', path.name)[0])
    )
    first, last = weights(checkpoints[0]), weights(checkpoints[-1])
    assert len(checkpoints) > 1 and not any(torch.equal(first[k], last[k]) for k in first if k.endswith('weight'))
    assert all(torch.isfinite(value).all() for value in last.values())
    assert scalars(experiment, 'reward_mean') and (experiment / 'ckpt' / 'ckpt_best.pth.tar').exists()
    return checkpoints[-1]


def shortened(config: Path, folder: Path, *changes) -> Path:
    """A copy of a config in which regular expressions are replaced; each must match."""
    text = config.read_text()
    for pattern, value in changes:
        text, count = re.subn(pattern, value, text)
        assert count, f'{config.name} does not match {pattern}'
    (folder / config.name).write_text(text)
    return folder / config.name


def config_in(folder: Path, save_every_s: float = 900, *changes) -> Path:
    """The DQN config with small networks and collections, which saves and resumes and shows no progress."""
    return shortened(
        DQN,
        folder,
        (r'collector_env_num=\d+', 'collector_env_num=2'),
        (r'evaluator_env_num=\d+', 'evaluator_env_num=1'),
        (r'n_evaluator_episode=\d+', 'n_evaluator_episode=1'),
        (r'action_shape=4,', 'action_shape=4, encoder_hidden_size_list=[4, 4, 4, 8],'),
        (r'random_collect_size=\d+', f'random_collect_size={RANDOM}'),
        (r'update_per_collect=\d+', f'update_per_collect={UPDATES}'),
        (r'n_sample=\d+', f'n_sample={N_SAMPLE}'),
        (r'batch_size=\d+', 'batch_size=8'),
        (r'target_update_freq=\d+', 'target_update_freq=25'),
        (r'resume_training=False', 'resume_training=True'),
        (r'progress=dict\(.*\),', 'log_show_after_iter=1,'),
        (r"name='resume', ", f"name='resume', ext_args=dict(save_every_s={save_every_s}), "),
        (r'eval_freq=\d+', 'eval_freq=500'),
        (r'decay=\d+', 'decay=5000'),
        (r'replay_buffer_size=\d+', 'replay_buffer_size=8000'),
        *changes,
    )


def expected_transitions(iteration: int, random: int = RANDOM) -> int:
    return random + N_SAMPLE * iteration // UPDATES


def saved_transitions(buffer_file: Path) -> int:
    """Transitions ever pushed, according to the file."""
    with np.load(buffer_file) as arrays:
        return json.loads(bytes(arrays['meta']))['next_id']


def check_saves(folder: Path, random: int = RANDOM, surplus: int = 3 * N_SAMPLE) -> list:
    """
    All listed saves are readable, each of one moment; the newest first. Where an episode ends, a collection returns
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
            more = saved_transitions(folder / save['buffer']) - expected_transitions(save['iteration'], random)
            assert 0 <= more <= surplus
        else:  # of PPO
            assert save['env_step'] == N_SAMPLE * save['iteration'] // UPDATES
    return saves


def curves(folder: Path) -> list:
    """For each process that trained, in order: the iterations in its learner's curve."""
    files = sorted((folder / 'log' / 'serial').glob('events*'), key=lambda path: int(path.name.split('.')[3]))
    found = []
    for file in files:
        steps = []
        for event in EventFileLoader(str(file)).Load():
            steps += [event.step for value in event.summary.value if value.tag == 'learner_iter/total_loss_avg']
        found.append(steps)
    return found


def entry():
    """Our entry as a module."""
    return _entry('serial')


def has_learned(folder: Path) -> Callable[[], bool]:
    """Whether a run has made an update, after which DI-engine writes its first checkpoint."""
    return (folder / NAME / 'ckpt' / 'iteration_0.pth.tar').exists


def ding_serial(config: Path, env_step: int = 1_000_000) -> list:
    return [str(BIN / 'ding'), '-m', 'serial', '-c', str(config), '-s', '0', '--env-step', str(env_step)]


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


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
