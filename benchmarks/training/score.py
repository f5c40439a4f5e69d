"""
Does a learner's speed change the score? The same training with DI-engine's learner and with ours, evaluated alike.

    python -m benchmarks.training.score train --learner stock --seed 0 --folder experiments/score
    python -m benchmarks.training.score train --learner lean --seed 0 --folder experiments/score
    python -m benchmarks.training.score train --learner bf16 --seed 0 --folder experiments/score
    python -m benchmarks.training.score collect --folder experiments/score --out docs/results/bench_score.json

All three train the same double, dueling, 3-step DQN for the same env steps with the same ratio of updates; only
``create_config.policy`` differs. The network is a small one, so that DI-engine's learner is done within an hour on one
core. Four checkpoints towards the end of the run play full games (protocol ``nature``, another seed than the
training's), and their mean is the run's score: one checkpoint of a DQN alone varies by half from one to the next.

The margin was fixed before the first run: a learner's score, averaged over the seeds, is within 35% of the stock one's.
Part of that is between two runs of the same learner already, as floating-point order alone makes them diverge.
"""

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import click
import numpy as np
import torch
from ding.entry import serial_pipeline
from easydict import EasyDict

from ..common.rounds import Result

MARGIN = 0.35
UPDATES_PER_COLLECTION, STEPS_PER_COLLECTION = 43, 128
# a run is scored by this many checkpoints of 12, each by this many games
CHECKPOINTS, GAMES = 4, 40
OURS = dict(type='lean_dqn', import_names=['breakout_env'])
LEARNERS: Dict[str, Tuple[dict, dict]] = {
    'stock': (dict(type='dqn'), {}),
    'lean': (OURS, {}),
    'bf16': (OURS, dict(autocast='bfloat16')),
}


def checkpoint_every(env_step: int) -> int:
    """Updates from one checkpoint to the next."""
    return env_step // 42


def config(learner: str, exp_name: str, env_step: int) -> Tuple[EasyDict, EasyDict]:
    """The training's config: everything but the learner is the same."""
    every = checkpoint_every(env_step)
    policy, learn = LEARNERS[learner]
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
            random_collect_size=min(10_000, env_step // 20),
            learn=dict(
                update_per_collect=UPDATES_PER_COLLECTION,
                batch_size=32,
                learning_rate=0.0001,
                target_update_freq=1000,
                learner=dict(hook=dict(save_ckpt_after_iter=every, log_show_after_iter=1000)),
                **learn,
            ),
            collect=dict(n_sample=STEPS_PER_COLLECTION),
            eval=dict(evaluator=dict(eval_freq=4 * every)),
            other=dict(
                eps=dict(type='linear', start=1.0, end=0.01, decay=80000),
                replay_buffer=dict(replay_buffer_size=1000000),
            ),
        ),
    )
    create_config = dict(
        env=dict(type='breakout', import_names=['breakout_env']),
        env_manager=dict(type='base'),
        policy=dict(policy),
        replay_buffer=dict(type='frame', import_names=['breakout_env']),
    )
    return EasyDict(main_config), EasyDict(create_config)


@click.group(context_settings=dict(help_option_names=['-h', '--help']))
def main() -> None:
    """The score with DI-engine's learner and with ours."""


@main.command()
@click.option('--learner', type=click.Choice(list(LEARNERS)), required=True)
@click.option('--seed', default=0, show_default=True)
@click.option('--env-step', default=211_650, show_default=True)
@click.option('--games', default=GAMES, show_default=True, help='Of each checkpoint.')
@click.option('--folder', required=True, help='Below the current one.')
def train(learner: str, seed: int, env_step: int, games: int, folder: str) -> None:
    """Train once, and play with the last checkpoints."""
    from breakout_env.agent.agent import load_agent
    from breakout_env.agent.evaluation import evaluate

    torch.set_num_threads(1)
    name, every = f'{learner}_{seed}', checkpoint_every(env_step)
    cfg, create_cfg = config(learner, os.path.join(folder, name), env_step)
    serial_pipeline((copy.deepcopy(cfg), copy.deepcopy(create_cfg)), seed=seed, max_env_step=env_step)
    scores: Dict[int, List[float]] = {}
    for number in (every * i for i in range(12 - CHECKPOINTS + 1, 13)):
        agent = load_agent(str(Path(folder, name, 'ckpt', f'iteration_{number}.pth.tar')))
        scores[number] = evaluate(agent, 'nature', games, seed=1000 + 100 * seed).scores.tolist()
    means = [float(np.mean(of_checkpoint)) for of_checkpoint in scores.values()]
    run = dict(learner=learner, seed=seed, env_step=env_step, games=scores, means=means, score=float(np.mean(means)))
    Path(folder, f'{name}.json').write_text(json.dumps(run))
    click.echo(f'{name}: {run["score"]:.1f} ({", ".join(f"{mean:.1f}" for mean in means)})')


@main.command()
@click.option('--folder', required=True, type=click.Path(exists=True))
@click.option('--out', type=click.Path(dir_okay=False), required=True, help='JSON file to write.')
def collect(folder: str, out: str) -> None:
    """Put the runs of a folder into one file; ends with 1 if a learner is off by more than the margin."""
    runs: List[Dict[str, Any]] = [json.loads(path.read_text()) for path in sorted(Path(folder).glob('*.json'))]
    result = Result(out, ['DI-engine', 'torch', 'numpy'], margin=MARGIN, runs=runs)
    result.write()
    by_learner = {name: [run['score'] for run in runs if run['learner'] == name] for name in LEARNERS}
    stock = np.mean(by_learner['stock'])
    within = True
    for name, scores in by_learner.items():
        if scores:
            ratio = np.mean(scores) / stock
            within &= bool(abs(ratio - 1) <= MARGIN)
            click.echo(f'{name}: {np.mean(scores):.1f}, {ratio:.2f} of stock')
    sys.exit(not within)


if __name__ == '__main__':
    main()
