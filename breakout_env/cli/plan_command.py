"""``breakout plan``: how fast a distributed training would be, on paper, and what would hold it up."""

import json
import math
from pathlib import Path
from typing import Any, List, Optional, Tuple

import click
from rich.console import Console
from rich.table import Table

from ..scale_model import MEANING, QUEUES, SHIPPED, Constants, Plan, Prediction, predict
from .common import CONTEXT, errors_in_a_line

DEFAULTS = Plan()
UNITS = ((1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k'))


@click.command('plan', context_settings=CONTEXT)
@click.option('--collectors', default=DEFAULTS.collectors, show_default=True, help='Processes that play.')
@click.option(
    '--envs-per-collector',
    default=DEFAULTS.envs_per_collector,
    show_default=True,
    help='Environments that each of them steps together, on one core.',
)
@click.option(
    '--evaluators', default=DEFAULTS.evaluators, show_default=True, help='Processes that evaluate now and then.'
)
@click.option('--hosts', type=int, help='Machines; by default as many as give each process a core.')
@click.option('--cores-per-host', default=DEFAULTS.cores_per_host, show_default=True, help='Of each machine.')
@click.option(
    '--gpus',
    default=DEFAULTS.gpus,
    show_default=True,
    help='Data-parallel learners, a GPU each; 0 for one learner on one core. Needs --update-ms.',
)
@click.option('--gpus-per-host', default=DEFAULTS.gpus_per_host, show_default=True, help='That share a machine.')
@click.option(
    '--update-ms',
    type=float,
    help='Milliseconds of an update: yours to measure for a GPU, as nobody has for this project; by default that of '
    'a core, measured.',
)
@click.option(
    '--batch-size', default=DEFAULTS.batch_size, show_default=True, help='Transitions of an update, of each learner.'
)
@click.option(
    '--ratio', default=DEFAULTS.ratio, show_default=True, help='Env steps to each batch that is learned from.'
)
@click.option('--network-gbit', default=DEFAULTS.network_gbit, show_default=True, help='Of each machine, each way.')
@click.option('--buffer-size', default=DEFAULTS.buffer_size, show_default=True, help='Transitions kept.')
@click.option(
    '--weights-every',
    'weights_every_s',
    default=DEFAULTS.weights_every_s,
    show_default=True,
    help='Seconds between two broadcasts of the weights.',
)
@click.option('--small', 'network', flag_value='small', default=True, help="The CPU recipe's network (the default) ...")
@click.option('--nature', 'network', flag_value='nature', help="... or the GPU's: Nature's.")
@click.option(
    '--mq-type', 'queue', default=DEFAULTS.queue, show_default=True, type=click.Choice(QUEUES), help='As in training.'
)
@click.option(
    '--constants',
    'constants_path',
    type=click.Path(exists=True, dir_okay=False),
    help='What benchmarks/scale_constants.py measured on your machine.',
)
@click.option('--json', 'as_json', is_flag=True, help='For programs: plan and prediction.')
def command(constants_path: Optional[str], as_json: bool, **options: Any) -> None:
    """
    Say how fast a distributed training would be, and what would hold it up.

    Each part of it is a ceiling over env steps a second, and the lowest is what can be reached. The seconds and bytes
    behind that are measured, on the machine that is named; docs/scale.md has the formulas, and the runs they were
    compared with.

    \b
    Examples:
      breakout plan --collectors 4 --hosts 1 --cores-per-host 2
      breakout plan --collectors 64 --gpus 4 --update-ms 2 --nature
      breakout plan --collectors 4096 --weights-every 10 --json
    """
    try:
        plan = Plan(**options)
    except ValueError as error:
        raise click.UsageError(_with_options(str(error))) from None
    with errors_in_a_line():
        constants = Constants.read(Path(constants_path) if constants_path else SHIPPED)
    prediction = predict(plan, constants)
    if as_json:
        measured = dict(machine=constants.machine, date=constants.date)
        click.echo(
            json.dumps(dict(plan=plan.__dict__, prediction=prediction.as_dict(), measured_on=measured), indent=2)
        )
    else:
        show(plan, prediction, constants)


def _with_options(text: str) -> str:
    """The names of options in place of those of the plan's fields."""
    names = {option.name: option.opts[-1] for option in command.params}
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(f'{name} is', f'{names[name]} is')
    return text


def show(plan: Plan, prediction: Prediction, constants: Constants) -> None:
    """Print the prediction."""
    console = Console()
    table = Table()
    for title, justify in (('ceiling', 'left'), ('env steps/s', 'right'), ('by', 'left')):
        table.add_column(title, justify=justify, overflow='fold')
    for name, steps_per_s in prediction.ceilings.items():
        style = 'bold yellow' if name == prediction.bottleneck else ''
        table.add_row(name, _count(steps_per_s), MEANING[name], style=style)
    console.print(table)
    for label, value in rows(plan, prediction):
        console.print(f'{label:20}{value}', markup=False, highlight=False)
    console.print(f'What would move it: {prediction.hint}', markup=False, highlight=False)
    console.print(f'Measured on {constants.machine}, {constants.date[:10]}.', markup=False, highlight=False)


def rows(plan: Plan, prediction: Prediction) -> List[Tuple[str, str]]:
    """What goes with the lowest ceiling, by label."""
    found = [
        ('env steps/s', f'{_count(prediction.env_steps_per_s)}, held up by: {prediction.bottleneck}'),
        ('updates/s', _count(prediction.updates_per_s)),
        ('hosts', f"{prediction.hosts:,}, with {prediction.collectors_at_learner:,} collectors on the learner's"),
        ('network, learner', f'in {_bytes(prediction.in_bytes_per_s)}/s, out {_bytes(prediction.out_bytes_per_s)}/s'),
    ]
    if plan.queue == 'redis':
        found.append(('network, Redis', f'out {_bytes(prediction.server_out_bytes_per_s)}/s'))
    memory = f'{_bytes(prediction.learner_host_bytes)} at the learner'
    if prediction.collector_host_bytes:
        memory += f', {_bytes(prediction.collector_host_bytes)} on each other host'
    found.append(('memory', memory))
    if math.isfinite(prediction.staleness_s):
        age = f'{_count(prediction.staleness_updates)} updates, {prediction.staleness_s:,.1f} s'
        found.append(('age of weights', f'{age} when play is learned from'))
    found.append(('a new collector', f'plays after {prediction.start_s:.1f} s'))
    return found


def _count(value: float) -> str:
    """Three digits, with commas where there are more; words where there is no such number."""
    if not math.isfinite(value):
        return 'no limit'
    return f'{value:,.0f}' if value >= 100 or not value else f'{value:.3g}'


def _bytes(value: float) -> str:
    for size, prefix in UNITS:
        if value >= size:
            return f'{value / size:.3g} {prefix}B'
    return f'{value:.0f} B'
