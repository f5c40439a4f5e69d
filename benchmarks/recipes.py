"""
Which recipe scores most for the time that it takes? Successive halving over named variants of the shipped configs.

    python -m benchmarks.recipes --out experiments/recipes
    python -m benchmarks.recipes --out experiments/recipes --round 0 15 1 --round 4 40 2 --round 1 80 3
    python -m benchmarks.recipes --out experiments/recipes --variant ppo_overlap --seed 1 --minutes 40
    python -m benchmarks.recipes --out experiments/recipes --variant 'SB3 PPO' --minutes 40
    python -m benchmarks.recipes --out experiments/recipes --variant lean_dqn_ema --env-steps 1000000

All variants of a round train for the same time, one after the other. Those whose averaged weights score most in 40
games of the nature protocol go to the next round (Jamieson & Talwalkar 2016), where their runs are resumed, not begun
again. Each training is ``breakout train``. Whatever stopped the search, the same command resumes it, a run from its
last save: time counts only while a run trains. It takes about 16 hours of an idle machine by default.
docs/results/recipes.json has a row for each training that is done. Other libraries (benchmarks/training/peers.py) train
by name, too.

With ``--env-steps`` a variant trains for as many env steps, whatever time they take: two such trainings may run beside
each other, in two folders. Their rows are in docs/results/recipes_env_steps.json.
"""

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import click
import numpy as np

from breakout_env.run.lock import RunLock

from .common.processes import ROOT
from .common.trainings import Program, Rows, env_steps_of, hours_of, judged_run, run_python
from .training.peers import PEERS

# A bound on games of agents that have learned nothing yet: evaluations take from the time of a training.
COMMON = ('env.evaluator.max_episode_frames=20000',)
RESULTS = ROOT / 'docs' / 'results' / 'recipes.json'
ENV_STEPS_RESULTS = RESULTS.with_name('recipes_env_steps.json')
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


def dqn(*changes: str, config: str = 'configs/breakout_dqn_cpu_config.py', threads: int = 2) -> Variant:
    """DQN's config for a CPU with other values."""
    return Variant(config, changes, ('--threads', str(threads)))


def dqn_for_env_steps(*changes: str, threads: int = 1) -> Variant:
    """DQN for few env steps instead of little time: one thread for each of two trainings, and fewer evaluations."""
    return dqn('policy.learn.autocast=bfloat16', 'policy.eval.evaluator.eval_freq=75000', *changes, threads=threads)


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
    'ppo_points': ppo('env.clip_reward=False', 'policy.learn.value_weight=0.025'),
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
    'lean_dqn_full_width_1_update_in_3': dqn_for_env_steps(FULL_WIDTH, 'policy.learn.update_per_collect=85', threads=2),
    'lean_dqn_layer_norm': dqn_for_env_steps('policy.model.layer_norm=True'),
    'lean_dqn_ema': dqn_for_env_steps('policy.learn.ema_decay=0.999'),
    'lean_dqn_ema_target': dqn_for_env_steps(
        'policy.learn.ema_decay=0.999', 'policy.learn.target_theta=0.002', 'policy.learn.target_update_freq=None'
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
    row = rows.find(variant=name, seed=seed, minutes=minutes)
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
        train(variant, run, seed, ['--hours', minutes / 60], execute)
    trained = 60 * hours_of(run)
    if not 0.99 * minutes <= trained <= 1.01 * minutes + 1:  # stopped by a signal to it alone, or trained before
        raise click.ClickException(f'{run} has trained for {trained:.1f} minutes; expected {minutes:g}')
    return judged_variant(variant, run, execute)


def train_for_env_steps(name: str, seed: int, env_steps: int, out: Path, rows: Rows, execute: Program) -> float:
    """Train one variant for so many env steps in all, unless that is done; returns its mean score."""
    asked = dict(variant=name, seed=seed, budget_env_steps=env_steps)
    row = rows.find(**asked)
    if row is None:
        run = out / f'{name}_{seed}'
        if env_steps_of(run) < env_steps:
            train(VARIANTS[name], run, seed, ['--env-steps', env_steps], execute)
        if not env_steps <= (trained := env_steps_of(run)) <= 1.01 * env_steps:
            raise click.ClickException(f'{run} has trained for {trained:,} env steps; expected {env_steps:,}')
        row = dict(asked, **judged_variant(VARIANTS[name], run, execute))
        rows.add(row)
        click.echo(f'{name}, seed {seed}, {env_steps:,} env steps: {row["score"]:.1f} points')
    return row['score']


def train(variant: Variant, run: Path, seed: int, budget: Sequence[Any], execute: Program) -> None:
    """Train one run until its budget, options of ``breakout train``, is used up; resume it if it has begun."""
    words = ['-m', 'breakout_env', 'train', '--device', 'cpu', '--config', ROOT / variant.config, '--seed', seed]
    words += [*budget, '--exp-name', run.name, '--auto-resume', *variant.options]
    words += [word for change in (*COMMON, *variant.changes) for word in ('--set', change)]
    execute(words, run.parent)


def judged_variant(variant: Variant, run: Path, execute: Program) -> Dict[str, Any]:
    """The row of a run: what the variant is, and what its averaged weights score."""
    return dict(changes=[variant.config, *variant.options, *variant.changes], **judged_run(run, execute))


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--out', required=True, type=click.Path(file_okay=False, path_type=Path), help='Folder of the runs.')
@click.option(
    '--results',
    type=click.Path(dir_okay=False, path_type=Path),
    help='JSON file of rows; one of those in docs/results by default.',
)
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
@click.option('--env-steps', type=click.IntRange(min=1), help='With --variant, instead of --minutes.')
def main(
    out: Path,
    results: Optional[Path],
    rounds: Tuple[Tuple[int, float, int], ...],
    only: Tuple[str, ...],
    variant: Optional[str],
    seed: int,
    minutes: float,
    env_steps: Optional[int],
) -> None:
    """Search for the best recipe, or train one variant."""
    if env_steps is not None and variant not in VARIANTS:
        raise click.UsageError(f'--env-steps beside --variant {variant}; expected a variant of this package')
    out.mkdir(parents=True, exist_ok=True)
    rows = Rows(results or (RESULTS if env_steps is None else ENV_STEPS_RESULTS))
    lock = RunLock(out)  # trainings beside each other would measure each other
    trainer = partial(train_and_judge, out=out.resolve(), rows=rows, execute=run_python)
    if env_steps is not None and variant is not None:
        train_for_env_steps(variant, seed, env_steps, out.resolve(), rows, run_python)
    elif variant is None:
        search(only or list(VARIANTS), rounds, trainer)
    elif trainer(variant, seed, minutes) is None:
        raise SystemExit(1)
    lock.release()


if __name__ == '__main__':
    main()
