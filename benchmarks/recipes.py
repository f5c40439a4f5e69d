"""
Which recipe scores most for the time that it takes? Successive halving over named variants of the shipped configs.

    python -m benchmarks.recipes --out experiments/recipes
    python -m benchmarks.recipes --out experiments/recipes --round 0 15 1 --round 4 40 2 --round 1 80 3
    python -m benchmarks.recipes --out experiments/recipes --variant ppo_overlap --seed 1 --minutes 40
    python -m benchmarks.recipes --out experiments/recipes --variant 'SB3 PPO' --minutes 40

All variants of a round train for the same time, one after the other. Those whose averaged weights score most in 40
games of the nature protocol go to the next round (Jamieson & Talwalkar 2016), where their runs are resumed, not begun
again. Each training is ``breakout train``. Whatever stopped the search, the same command resumes it, a run from its
last save: time counts only while a run trains. It takes about 16 hours of an idle machine by default.
docs/results/recipes.json has a row for each training that is done. Other libraries (benchmarks/training/peers.py) train
by name, too.
"""

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import click
import numpy as np
from filelock import FileLock

from .common.processes import ROOT
from .common.trainings import Program, Rows, hours_of, judged_run, run_python
from .training.peers import PEERS

# A bound on games of agents that have learned nothing yet: evaluations take from the time of a training.
COMMON = ('env.evaluator.max_episode_frames=20000',)
RESULTS = ROOT / 'docs' / 'results' / 'recipes.json'
# variants that train (0 for all), minutes, seeds
ROUNDS = ((0, 15.0, 1), (4, 40.0, 2), (1, 80.0, 3))
# Trains and judges a variant by name, seed and minutes; returns its mean score, None if it fails.
Trainer = Callable[[str, int, float], Optional[float]]


class Variant(NamedTuple):
    """What is trained: a config, other values in it (``--set``), and options of ``breakout train``."""

    config: str
    changes: Tuple[str, ...] = ()
    options: Tuple[str, ...] = ()


def ppo(*changes: str, options: Tuple[str, ...] = ('--serial',)) -> Variant:
    """PPO's config with other values; most were measured before PPO collected while it learned."""
    return Variant('configs/breakout_ppo_config.py', changes, options)


def pqn(*changes: str) -> Variant:
    """PQN's config with other values."""
    return Variant('configs/breakout_pqn_config.py', changes)


def dqn(*changes: str, config: str = 'configs/breakout_dqn_cpu_config.py') -> Variant:
    """DQN's config for a CPU with other values."""
    return Variant(config, changes, ('--threads', '2'))


FULL_WIDTH = 'policy.model.encoder_hidden_size_list=[32,64,64,512]'
VARIANTS: Dict[str, Variant] = {
    'ppo': ppo(),
    'ppo_overlap': ppo(options=('--overlap',)),
    'ppo_overlap_learning_rate_5e-4': ppo('policy.learn.learning_rate=0.0005', options=('--overlap',)),
    'ppo_full_width': ppo(FULL_WIDTH),
    'ppo_layer_norm': ppo('policy.model.layer_norm=True'),
    'ppo_random_shifts': ppo(
        'policy.model.type=shifted_actor_critic', "policy.model.import_names=['benchmarks.learner.networks']"
    ),
    'ppo_batch_32': ppo('policy.learn.batch_size=32', 'policy.learn.update_per_collect=96'),
    'ppo_batch_128': ppo('policy.learn.batch_size=128', 'policy.learn.update_per_collect=24'),
    'ppo_2_passes': ppo('policy.learn.update_per_collect=32'),
    'ppo_learning_rate_5e-4': ppo('policy.learn.learning_rate=0.0005'),
    'ppo_learning_rate_2.5e-3': ppo('policy.learn.learning_rate=0.0025'),
    'ppo_entropy_0.003': ppo('policy.learn.entropy_weight=0.003'),
    'ppo_discount_0.997': ppo('policy.discount_factor=0.997'),
    'ppo_ema_0.999': ppo('policy.learn.ema_decay=0.999'),
    'ppo_whole_games': ppo('env.episodic_life=False'),
    'ppo_life_loss_penalty': ppo('env.life_loss_penalty=-1.0'),
    # the critic's errors are larger by the square of the points
    'ppo_points': ppo('env.clip_reward=False', 'policy.learn.value_weight=0.05'),
    'pqn': pqn(),
    'pqn_no_ema': pqn('policy.learn.ema_decay=None'),
    'pqn_full_width': pqn(FULL_WIDTH),
    'pqn_lambda_0.95': pqn('policy.learn.q_lambda=0.95'),
    'lean_dqn': dqn(),
    'lean_dqn_nstep_5': dqn('policy.nstep=5'),
    'lean_dqn_nstep_10': dqn('policy.nstep=10'),
    'lean_dqn_prioritised': dqn('policy.priority=True', 'policy.priority_IS_weight=True'),
    'lean_dqn_munchausen': dqn(config='benchmarks/training/munchausen_config.py'),
    'lean_dqn_quantiles': dqn(config='benchmarks/training/quantile_config.py'),
    # update ratios; the config's is one update for 4 env steps
    'lean_dqn_1_update_in_2': dqn('policy.learn.update_per_collect=128'),
    'lean_dqn_1_update_in_8': dqn('policy.learn.update_per_collect=32'),
    'lean_dqn_1_update_in_16': dqn('policy.learn.update_per_collect=16'),
    # for few env steps instead of little time
    'lean_dqn_full_width_1_update_in_3': dqn(
        FULL_WIDTH,
        'policy.learn.autocast=bfloat16',
        'policy.learn.update_per_collect=85',
        'policy.eval.evaluator.eval_freq=75000',
    ),
}


def search(names: Sequence[str], rounds: Sequence[Tuple[int, float, int]], train: Trainer) -> List[str]:
    """
    Successive halving, with ``rounds`` as in the command's help. A variant with a training that fails is out. Returns
    the variants of the last round, the best first.
    """
    ranked = list(names)
    for keep, minutes, seeds in rounds:
        scores: Dict[str, List[Optional[float]]] = {name: [] for name in (ranked[:keep] if keep else ranked)}
        for seed in range(seeds):
            for name, of_name in scores.items():
                of_name.append(train(name, seed, minutes))
        means = {name: np.mean(of_name) for name, of_name in scores.items() if None not in of_name}
        ranked = sorted(means, key=lambda name: means[name], reverse=True)
        click.echo(f'after {minutes:g} minutes: ' + ', '.join(f'{name} {means[name]:.1f}' for name in ranked))
    return ranked


def train_and_judge(name: str, seed: int, minutes: float, out: Path, rows: Rows, execute: Program) -> Optional[float]:
    """Train one variant or peer for so many minutes in all, unless that is done; returns its mean score."""
    row = rows.find(name, seed, minutes)
    if row is None:
        try:
            if name in PEERS:
                found = PEERS[name](name=name, seed=seed, minutes=minutes, out=out)
            else:
                found = train_variant(VARIANTS[name], out / f'{name}_{seed}', seed, minutes, execute)
        except (click.ClickException, ValueError) as error:  # the others continue
            click.echo(f'{name}, seed {seed}: {error}', err=True)
            return None
        row = dict(variant=name, seed=seed, minutes=minutes, **found)
        rows.add(row)
        click.echo(f'{name}, seed {seed}, {minutes:g} minutes: {row["score"]:.1f} points')
    return row['score']


def train_variant(variant: Variant, run: Path, seed: int, minutes: float, execute: Program) -> Dict[str, Any]:
    """Train one run until it has had its time, and let its averaged weights play; returns its row."""
    if hours_of(run) < minutes / 60:
        words = ['-m', 'breakout_env', 'train', '--device', 'cpu', '--config', ROOT / variant.config, '--seed', seed]
        words += ['--hours', minutes / 60, '--exp-name', run.name, '--auto-resume', *variant.options]
        words += [word for change in (*COMMON, *variant.changes) for word in ('--set', change)]
        execute(words, run.parent)
    trained = 60 * hours_of(run)
    if not 0.99 * minutes <= trained <= 1.01 * minutes + 1:  # stopped by a signal to it alone, or trained before
        raise click.ClickException(f'{run} has trained for {trained:.1f} minutes; expected {minutes:g}')
    return dict(changes=[variant.config, *variant.options, *variant.changes], **judged_run(run, execute))


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--out', required=True, type=click.Path(file_okay=False, path_type=Path), help='Folder of the runs.')
@click.option('--results', default=RESULTS, type=click.Path(dir_okay=False, path_type=Path), help='JSON file of rows.')
@click.option(
    '--round',
    'rounds',
    multiple=True,
    type=(click.IntRange(min=0), click.FloatRange(min=0, min_open=True), click.IntRange(min=1)),
    default=ROUNDS,
    metavar='VARIANTS MINUTES SEEDS',
    help='A round: how many of the best variants (0 for all), minutes of each training, seeds; may be repeated.',
)
@click.option('--only', multiple=True, type=click.Choice(list(VARIANTS)), help='Search among these; all by default.')
@click.option('--variant', type=click.Choice([*VARIANTS, *PEERS]), help='Train this one, and no others.')
@click.option('--seed', default=0, type=click.IntRange(min=0), help='With --variant.')
@click.option('--minutes', default=15.0, type=click.FloatRange(min=0, min_open=True), help='With --variant.')
def main(
    out: Path,
    results: Path,
    rounds: Tuple[Tuple[int, float, int], ...],
    only: Tuple[str, ...],
    variant: Optional[str],
    seed: int,
    minutes: float,
) -> None:
    """Search for the best recipe, or train one variant."""
    out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / 'lock', timeout=0):  # trainings beside each other would measure each other
        train = partial(train_and_judge, out=out.resolve(), rows=Rows(results), execute=run_python)
        if variant is None:
            search(only or list(VARIANTS), rounds, train)
        elif train(variant, seed, minutes) is None:
            raise SystemExit(1)


if __name__ == '__main__':
    main()
