"""
What does one changed option do to a training? The recipe for the CPU with one thing changed, for docs/training.md.

    python -m benchmarks.training.variants --folder experiments/variants
    python -m benchmarks.training.variants --folder experiments/variants --only unscaled

The recipe itself is the beginning of its long run in docs/results/training. Each variant is ``breakout train`` with
``--set``, on one thread, about ten minutes on a free core. A variant that is done is skipped, and one that was stopped
is resumed, so that the command can be repeated. The logs go to docs/results/variants.
"""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Tuple

import click

ROOT = Path(__file__).resolve().parents[2]
MODELS = "policy.model.import_names=['benchmarks.training.wrong_models']"
# name -> what is changed
VARIANTS: Dict[str, Tuple[str, ...]] = {
    'lr_0.0001': ('policy.learn.learning_rate=0.0001',),
    'nstep_1': ('policy.nstep=1',),
    'unscaled': ('policy.model.type=unscaled_dqn', MODELS),
    'scaled_twice': ('policy.model.type=twice_scaled_dqn', MODELS),
    'no_exploration': ('policy.other.eps.start=0.01',),
    'whole_games': ('env.episodic_life=False',),
}


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--folder', required=True, help='Runs go there, below the current folder.')
@click.option('--env-steps', default=120_000)
@click.option('--seed', default=0)
@click.option('--only', multiple=True, type=click.Choice(list(VARIANTS)), help='These variants; all by default.')
@click.option('--results', default=str(ROOT / 'docs' / 'results' / 'variants'), help='Folder of the logs.')
def main(folder: str, env_steps: int, seed: int, only: Tuple[str, ...], results: str) -> None:
    """Train the variants, one after the other."""
    environ = {**os.environ, 'PYTHONPATH': str(ROOT)}
    for name in only or VARIANTS:
        result = Path(results, f'{name}_{seed}.jsonl.gz')
        if result.exists():
            continue
        run = Path(folder, f'{name}_{seed}')
        changes = (*VARIANTS[name], 'env.evaluator.max_episode_frames=20000')  # a bound on games of agents that idle
        command = [sys.executable, '-m', 'breakout_env', 'train', '--device', 'cpu', '--threads', '1']
        command += ['--seed', str(seed), '--env-steps', str(env_steps), '--exp-name', str(run)]
        command += [part for change in changes for part in ('--set', change)]
        if (run / 'resume').exists():
            command += ['--resume', str(run)]
        click.echo(f'{name}: {" ".join(command[2:])}')
        if subprocess.run(command, env=environ).returncode:
            sys.exit(f'{name} failed')
        result.parent.mkdir(parents=True, exist_ok=True)
        with open(run / 'log' / 'progress.jsonl', 'rb') as log, gzip.GzipFile(result, 'wb', mtime=0) as packed:
            shutil.copyfileobj(log, packed)


if __name__ == '__main__':
    main()
