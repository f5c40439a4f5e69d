"""
What a learner's speed does to the score: the same training with DI-engine's learner and with ours, played out.

    python benchmarks/bench_score.py train --learner stock --seed 0 --folder experiments/score
    python benchmarks/bench_score.py train --learner lean --seed 0 --folder experiments/score
    python benchmarks/bench_score.py train --learner bf16 --seed 0 --folder experiments/score
    python benchmarks/bench_score.py table --folder experiments/score --out docs/results/bench_score.json

All three train the same double, dueling, 3-step DQN on the same number of env steps with the same ratio of updates;
only ``create_config.policy`` differs. The network is a small one, so that DI-engine's learner is done within an hour on
one core. Four checkpoints towards the end of the run play whole games (epsilon 0.01, other seeds than the training's),
and their mean is the run's score: one checkpoint of a DQN alone goes up and down by half from one to the next.

The margin was fixed before the first run: a learner's score, meaned over the seeds, is within 35% of the stock one's.
Some of these percent are between two runs of the same learner to begin with, as floating-point order alone makes them
go apart.
"""

import copy
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Tuple

import click
import numpy as np
import torch
from ding.config import compile_config
from ding.entry import serial_pipeline
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.torch_utils import to_ndarray, to_tensor
from ding.utils import set_pkg_seed
from easydict import EasyDict

MARGIN = 0.35
UPDATES_PER_COLLECTION, STEPS_PER_COLLECTION = 43, 128
# a run is judged by this many checkpoints, each by this many games
CHECKPOINTS, GAMES = 4, 40
LEARNERS = {
    'stock': dict(type='dqn'),
    'lean': dict(type='lean_dqn', import_names=['breakout_env']),
    'bf16': dict(type='lean_dqn', import_names=['breakout_env']),
}


def checkpoint_every(env_step: int) -> int:
    """Updates from one checkpoint to the next: 12 of them in a run, and some updates more."""
    return env_step // 42


def config(learner: str, exp_name: str, env_step: int) -> Tuple[EasyDict, EasyDict]:
    """
    Overview:
        The training's config: everything but the learner the same.
    """
    updates_per_checkpoint = checkpoint_every(env_step)
    main_config = dict(
        exp_name=exp_name,
        env=dict(
            collector_env_num=8,
            evaluator_env_num=8,
            n_evaluator_episode=8,
            stop_value=1e6,
            # a bound on the evaluation of a network that has learned nothing yet
            evaluator=dict(random_action_probability=0.01, max_episode_frames=20000),
        ),
        policy=dict(
            cuda=False,
            priority=False,
            model=dict(
                type='pixel_dqn',
                import_names=['breakout_env'],
                obs_shape=[4, 84, 84],
                action_shape=4,
                encoder_hidden_size_list=[16, 32, 32, 256],
                dueling=True,
            ),
            nstep=3,
            discount_factor=0.99,
            random_collect_size=10000,
            learn=dict(
                update_per_collect=UPDATES_PER_COLLECTION,
                batch_size=32,
                learning_rate=0.0001,
                target_update_freq=1000,
                learner=dict(
                    hook=dict(save_ckpt_after_iter=updates_per_checkpoint, log_show_after_iter=1000),
                ),
            ),
            collect=dict(n_sample=STEPS_PER_COLLECTION),
            eval=dict(evaluator=dict(eval_freq=4 * updates_per_checkpoint)),
            other=dict(
                eps=dict(type='linear', start=1.0, end=0.01, decay=80000),
                replay_buffer=dict(replay_buffer_size=1000000),
            ),
        ),
    )
    if learner == 'bf16':
        main_config['policy']['learn']['autocast'] = 'bfloat16'
    create_config = dict(
        env=dict(type='breakout', import_names=['breakout_env']),
        env_manager=dict(type='base'),
        policy=dict(LEARNERS[learner]),
        replay_buffer=dict(type='frame', import_names=['breakout_env']),
    )
    return EasyDict(main_config), EasyDict(create_config)


def play(cfg: EasyDict, create_cfg: EasyDict, checkpoint: Path, seed: int) -> List[float]:
    """
    Overview:
        Scores of whole games with a checkpoint, each environment its share of them.
    """
    cfg, create_cfg = copy.deepcopy(cfg), copy.deepcopy(create_cfg)
    cfg = compile_config(cfg, seed=seed, auto=True, create_cfg=create_cfg, save_cfg=False)
    env_class, _, evaluator_cfgs = get_vec_env_setting(cfg.env, collect=False)
    env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs])
    env.seed(seed, dynamic_seed=True)
    set_pkg_seed(seed, use_cuda=False)
    policy = create_policy(cfg.policy, enable_field=['eval'])
    policy.eval_mode.load_state_dict(torch.load(checkpoint, map_location='cpu', weights_only=True))
    scores: List[List[float]] = [[] for _ in range(env.env_num)]
    env.launch()
    try:
        while any(len(done) < GAMES // env.env_num for done in scores):
            actions = policy.eval_mode.forward(to_tensor(env.ready_obs))
            for i, timestep in env.step({i: to_ndarray(o['action']) for i, o in actions.items()}).items():
                if timestep.done:
                    scores[i].append(float(timestep.info['eval_episode_return']))
    finally:
        env.close()
    return [score for done in scores for score in done[: GAMES // env.env_num]]


@click.group(context_settings=dict(help_option_names=['-h', '--help']))
def main() -> None:
    """The score with DI-engine's learner and with ours."""


@main.command()
@click.option('--learner', type=click.Choice(list(LEARNERS)), required=True)
@click.option('--seed', default=0, show_default=True)
@click.option('--env-step', default=211_650, show_default=True)
@click.option('--threads', default=1, show_default=True, help="torch's.")
@click.option('--folder', required=True, help='Below the current one.')
def train(learner: str, seed: int, env_step: int, threads: int, folder: str) -> None:
    """Train once and play with the checkpoints."""
    torch.set_num_threads(threads)
    name = f'{learner}_{seed}'
    cfg, create_cfg = config(learner, os.path.join(folder, name), env_step)
    serial_pipeline((copy.deepcopy(cfg), copy.deepcopy(create_cfg)), seed=seed, max_env_step=env_step)
    judge(learner, seed, env_step, folder)


@main.command('judge')
@click.option('--learner', type=click.Choice(list(LEARNERS)), required=True)
@click.option('--seed', default=0, show_default=True)
@click.option('--env-step', default=211_650, show_default=True)
@click.option('--folder', required=True)
def judge_command(learner: str, seed: int, env_step: int, folder: str) -> None:
    """Play with the checkpoints of a training that was ended by hand."""
    torch.set_num_threads(1)
    judge(learner, seed, env_step, folder)


def judge(learner: str, seed: int, env_step: int, folder: str) -> None:
    """
    Overview:
        Play with the last checkpoints of a training, and write down the scores.
    """
    name, every = f'{learner}_{seed}', checkpoint_every(env_step)
    cfg, create_cfg = config(learner, os.path.join(folder, name), env_step)
    numbers = [every * i for i in range(12 - CHECKPOINTS + 1, 13)]
    games = {
        number: play(cfg, create_cfg, Path(folder, name, 'ckpt', f'iteration_{number}.pth.tar'), 1000 + 100 * seed)
        for number in numbers
    }
    means = [float(np.mean(scores)) for scores in games.values()]
    result = dict(learner=learner, seed=seed, env_step=env_step, games=games, means=means, score=float(np.mean(means)))
    Path(folder, f'{name}.json').write_text(json.dumps(result))
    click.echo(f'{name}: {result["score"]:.1f} ({", ".join(f"{mean:.1f}" for mean in means)})')


@main.command()
@click.option('--folder', required=True, type=click.Path(exists=True))
@click.option('--out', type=click.Path(dir_okay=False), required=True, help='JSON to write.')
def table(folder: str, out: str) -> None:
    """Put the runs of a folder into one table; ends with 1 if a learner is off by more than the margin."""
    runs: Dict[str, List[Any]] = {learner: [] for learner in LEARNERS}
    for path in sorted(Path(folder).glob('*.json')):
        run = json.loads(path.read_text())
        runs[run['learner']].append(run)
    stock = np.mean([run['score'] for run in runs['stock']])
    within = True
    click.echo(f'{"learner":8} {"score":>6} {"of stock":>9}  by seed')
    for learner, ours in runs.items():
        if ours:
            score = np.mean([run['score'] for run in ours])
            within &= abs(score / stock - 1) <= MARGIN
            seeds = ', '.join(f'{run["score"]:.1f}' for run in ours)
            click.echo(f'{learner:8} {score:6.1f} {score / stock:9.2f}  {seeds}')
    Path(out).write_text(json.dumps(dict(margin=MARGIN, runs=[run for ours in runs.values() for run in ours])))
    sys.exit(not within)


if __name__ == '__main__':
    main()
