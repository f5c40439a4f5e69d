"""
The short trainings that docs/training.md shows: the recipe for the CPU with one thing changed. The recipe itself is
drawn from the beginning of its long run.

    python benchmarks/train_variants.py --folder experiments/variants
    python benchmarks/train_variants.py --folder experiments/variants --only unscaled

Each is ``breakout train`` with ``--set``, on one thread, ten minutes or so on a free core. A variant that is done is
passed over, and one that was stopped goes on, so that the command can be given again. The logs go to
docs/results/variants, from which docs/make_training_figures.py draws.
"""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Tuple

import click

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / 'docs' / 'results' / 'variants'

# name -> what is changed
VARIANTS: Dict[str, Tuple[str, ...]] = {
    'unscaled': ('policy.model.type=unscaled_dqn', "policy.model.import_names=['unscaled_model']"),
    'lr_0.0001': ('policy.learn.learning_rate=0.0001',),
    'scaled_twice': ('policy.model.type=twice_scaled_dqn', "policy.model.import_names=['unscaled_model']"),
    'no_exploration': ('policy.other.eps.start=0.01',),
    'nstep_1': ('policy.nstep=1',),
    'whole_games': ('env.episodic_life=False',),
    'no_fire': ('env.fire_on_reset=False', 'env.evaluator.fire_on_life_loss=False'),
    'lr_0.001': ('policy.learn.learning_rate=0.001',),
    'slow_epsilon': ('policy.other.eps.decay=1000000',),
    'half_updates': ('policy.learn.update_per_collect=32',),
    'no_clipping': ('env.clip_reward=False',),
}


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
@click.option('--folder', required=True, help='Experiments go there, below the current folder.')
@click.option('--env-steps', default=120_000, show_default=True)
@click.option('--seed', default=0, show_default=True)
@click.option('--only', multiple=True, type=click.Choice(list(VARIANTS)), help='These variants; all by default.')
def main(folder: str, env_steps: int, seed: int, only: Tuple[str, ...]) -> None:
    """Train the variants, one after the other."""
    environ = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(HERE), os.environ.get('PYTHONPATH', '')])}
    for name in only or VARIANTS:
        result = RESULTS / f'{name}_{seed}.jsonl.gz'
        if result.exists():
            continue
        run = Path(folder, f'{name}_{seed}')
        changes = (*VARIANTS[name], 'env.evaluator.max_episode_frames=20000')  # a bound on games of agents that idle
        command = [sys.executable, '-m', 'breakout_env', 'train', '--device', 'cpu', '--threads', '1']
        command += ['--seed', str(seed), '--env-steps', str(env_steps), '--exp-name', str(run)]
        command += [part for change in changes for part in ('--set', change)]
        if (run / 'resume' / 'pairs.json').exists():
            command += ['--resume', str(run)]
        click.echo(f'{name}: {" ".join(command[2:])}')
        if subprocess.run(command, env=environ).returncode:
            sys.exit(f'{name} failed')
        RESULTS.mkdir(parents=True, exist_ok=True)
        with open(run / 'log' / 'progress.jsonl', 'rb') as log, gzip.GzipFile(result, 'wb', mtime=0) as packed:
            shutil.copyfileobj(log, packed)


if __name__ == '__main__':
    main()
