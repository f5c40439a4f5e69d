r"""
Does a learner's speed change the score? The same training with DI-engine's learner and with ours, evaluated alike.

    for learner in stock lean bf16; do
        python -m benchmarks.training.score --learner $learner --folder experiments/score \
            --out docs/results/bench_score.json
    done

All three train the same double, dueling, 3-step DQN for the same env steps with the same ratio of updates; only
``create_config.policy`` differs. The network is a small one, so that DI-engine's learner is done within an hour on one
core. Four checkpoints towards the end of the run play full games (protocol ``nature``, another seed than the
training's), and their mean is the run's score: one checkpoint of a DQN alone varies by half from one to the next.

The margin was fixed before the first run: a learner's score, averaged over the seeds, is within 35% of the stock one's.
Part of that is between two runs of the same learner already, as floating-point order alone makes them diverge.
"""

import json
import os
from pathlib import Path
from typing import Dict, List, Tuple

import click
import numpy as np
import torch
from ding.config import read_config
from ding.entry import serial_pipeline
from easydict import EasyDict

from breakout_env.agent.agent import load_agent
from breakout_env.agent.evaluation import evaluate

from ..common.processes import ROOT
from ..common.rounds import Result

CONFIG = ROOT / 'configs' / 'breakout_dqn_cpu_config.py'
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
    """The recipe for the CPU with fewer updates and smaller steps of Adam; only the learner differs."""
    main, create = read_config(str(CONFIG))
    every = checkpoint_every(env_step)
    policy, learn = LEARNERS[learner]
    main.exp_name = exp_name
    main.env.stop_value = 1e6
    main.env.evaluator.max_episode_frames = 20000  # a bound on games of a network that has learned nothing yet
    main.policy.cuda = False
    main.policy.random_collect_size = min(10_000, env_step // 20)
    main.policy.learn.update(update_per_collect=UPDATES_PER_COLLECTION, learning_rate=0.0001, **learn)
    main.policy.learn.learner = dict(hook=dict(save_ckpt_after_iter=every, log_show_after_iter=1000))
    main.policy.collect.n_sample = STEPS_PER_COLLECTION
    main.policy.eval.evaluator.eval_freq = 4 * every
    main.policy.other.eps.decay = 80000
    create.policy = policy
    create.env_manager = dict(type='base')
    create.pop('evaluator')
    create.pop('collector')
    return EasyDict(main), EasyDict(create)


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--learner', type=click.Choice(list(LEARNERS)), required=True)
@click.option('--seed', default=0)
@click.option('--env-step', default=211_650)
@click.option('--games', default=GAMES, help='Of each checkpoint.')
@click.option('--folder', required=True, help='Of the runs, below the current one.')
@click.option('--out', type=click.Path(dir_okay=False), required=True, help='JSON file that the run is added to.')
def main(learner: str, seed: int, env_step: int, games: int, folder: str, out: str) -> None:
    """Train once, and play with the last checkpoints."""
    torch.set_num_threads(1)
    earlier = json.loads(Path(out).read_text())['runs'] if Path(out).exists() else []
    result = Result(out, ['DI-engine', 'torch', 'numpy'], margin=MARGIN, runs=earlier)
    name, every = f'{learner}_{seed}', checkpoint_every(env_step)
    cfg, create_cfg = config(learner, os.path.join(folder, name), env_step)
    serial_pipeline((cfg, create_cfg), seed=seed, max_env_step=env_step)
    scores: Dict[int, List[float]] = {}
    for number in (every * i for i in range(12 - CHECKPOINTS + 1, 13)):
        agent = load_agent(str(Path(folder, name, 'ckpt', f'iteration_{number}.pth.tar')))
        scores[number] = evaluate(agent, 'nature', games, seed=1000 + 100 * seed).scores.tolist()
    means = [float(np.mean(of_checkpoint)) for of_checkpoint in scores.values()]
    run = dict(learner=learner, seed=seed, env_step=env_step, games=scores, means=means, score=float(np.mean(means)))
    earlier.append(run)
    result.write()
    click.echo(f'{name}: {run["score"]:.1f} ({", ".join(f"{mean:.1f}" for mean in means)})')


if __name__ == '__main__':
    main()
