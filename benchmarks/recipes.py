"""What does a variant of a shipped config score, for the time or the env steps that it takes, beside other libraries?

    python -m benchmarks.recipes --out experiments/recipes --variant ppo --seed 1 --minutes 80
    python -m benchmarks.recipes --out experiments/recipes --variant ppo --env-steps 7000000
    python -m benchmarks.recipes --out experiments/recipes --variant 'SB3 PPO' --minutes 40

This package trains by ``breakout train`` or ``ding -m serial``; then the averaged weights play 40 games of the protocol
``nature``. Other libraries (benchmarks/training/peers.py) train by name, too. The same command resumes a training that
was stopped, from its last save, unless ``ding`` trains; time counts only while it trains. Trainings by the clock need a
machine that does nothing else, one after the other; those by env steps may run beside each other, in separate folders.

docs/results/recipes.json has a row for each training by the clock, recipes_env_steps.json for each by env steps. Curves
of this game coincide before 2 million env steps, so a short training chooses nothing.
"""

from pathlib import Path
from typing import Any, NamedTuple

import click

from breakout_env.run.config import read_config_file

from .common.rounds import ROOT
from .common.trainings import add_row, judged_run, last_of, run_python
from .training.peers import PEERS

# A bound on games of agents that have learned nothing yet: evaluations take from the time of a training.
COMMON = ('env.evaluator.max_episode_frames=20000',)
DING = 'from ding.entry.cli import cli; cli()'
RESULTS = ROOT / 'docs' / 'results' / 'recipes.json'
ENV_STEPS_RESULTS = RESULTS.with_name('recipes_env_steps.json')


class Variant(NamedTuple):
    """What is trained: a config, other values in it (``--set``), and options of ``breakout train``; or a config as it
    is, by DI-engine's command.
    """

    config: str
    changes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    by_ding: bool = False


PPO, DQN = 'configs/breakout_ppo_config.py', 'configs/breakout_dqn_cpu_config.py'
# For few env steps instead of little time: one thread for each of two trainings, and fewer evaluations.
FEW_EVALUATIONS = ('policy.learn.autocast=bfloat16', 'policy.eval.evaluator.eval_freq=75000')
ONE_THREAD = ('--threads', '1')
VARIANTS: dict[str, Variant] = {
    'ppo': Variant(PPO),
    'ppo_by_ding': Variant(PPO, by_ding=True),
    'ppo_on_ray': Variant(PPO, options=('--collectors', '2')),
    'lean_dqn': Variant(DQN, options=('--threads', '2')),
    'lean_dqn_ema': Variant(DQN, (*FEW_EVALUATIONS, 'policy.learn.ema_decay=0.999'), ONE_THREAD),
}


def train(variant: Variant, run: Path, seed: int, budget: dict[str, float]) -> dict[str, Any]:
    """Train a run until its budget is used up, and let its averaged weights play; the row of the results."""
    by_clock = 'minutes' in budget
    if variant.by_ding:
        run /= read_config_file(str(ROOT / variant.config)).main.exp_name
    asked = budget['minutes'] if by_clock else budget['budget_env_steps']

    def trained() -> float:
        return 60 * last_of(run, 'hours') if by_clock else last_of(run, 'env_step')

    if trained() < asked:
        if variant.by_ding:
            words = ['-c', DING, '-m', 'serial', '-c', ROOT / variant.config, '-s', seed, '--env-step', int(asked)]
            folder = run.parents[1]
            folder.mkdir()  # the name of its run is taken in one that is there
        else:
            limit: list[Any] = ['--hours', asked / 60] if by_clock else ['--env-steps', int(asked)]
            words = ['-m', 'breakout_env', 'train', '--device', 'cpu', '--config', ROOT / variant.config]
            words += ['--seed', seed, *limit, '--exp-name', run.name, '--auto-resume', *variant.options]
            words += [word for change in (*COMMON, *variant.changes) for word in ('--set', change)]
            folder = run.parent
        run_python(words, folder)
    # a collection, or a minute in which the run is saved, may come on top
    if not 0.99 * asked <= trained() <= 1.01 * asked + by_clock:
        unit = 'minutes' if by_clock else 'env steps'
        raise click.ClickException(f'{run} has trained for {trained():,.1f} {unit}; expected {asked:,.0f}')
    return dict(changes=[variant.config, *variant.options, *variant.changes], **judged_run(run))


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--out', required=True, type=click.Path(file_okay=False, path_type=Path), help='Folder of the runs.')
@click.option(
    '--results',
    type=click.Path(dir_okay=False, path_type=Path),
    help='JSON file of rows; one of those in docs/results by default.',
)
@click.option('--variant', required=True, type=click.Choice([*VARIANTS, *PEERS]), help='What to train.')
@click.option('--seed', default=0, type=click.IntRange(min=0), help='Of the training.')
@click.option('--minutes', default=80.0, type=click.FloatRange(min=0, min_open=True), help='How long to train.')
@click.option('--env-steps', type=click.IntRange(min=1), help='Instead of --minutes; not for other libraries.')
def main(out: Path, results: Path | None, variant: str, seed: int, minutes: float, env_steps: int | None) -> None:
    """Train one variant, or another library, and add its row to the results."""
    if env_steps is not None and variant not in VARIANTS:
        raise click.UsageError(f'--env-steps beside --variant {variant}; expected a variant of this package')
    if env_steps is None and variant in VARIANTS and VARIANTS[variant].by_ding:
        raise click.UsageError(f'--variant {variant} without --env-steps; DI-engine has no budget in minutes')
    out.mkdir(parents=True, exist_ok=True)
    budget: dict[str, float] = dict(minutes=minutes) if env_steps is None else dict(budget_env_steps=env_steps)
    if variant in PEERS:
        row = PEERS[variant](name=variant, seed=seed, minutes=minutes, out=out.resolve())
    else:
        row = train(VARIANTS[variant], out.resolve() / f'{variant}_{seed}', seed, budget)
    path = results or (RESULTS if env_steps is None else ENV_STEPS_RESULTS)
    add_row(path, dict(variant=variant, seed=seed, **budget, **row))
    click.echo(f'{variant}, seed {seed}: {row["score"]:.1f} points after {row["env_steps"]:,.0f} env steps')


if __name__ == '__main__':
    main()
