"""``breakout plot``: curves of runs."""

from typing import Annotated, Any, Optional, Tuple

import click

from ..run.log import RunLog
from ..run.plotting import PANELS, X_AXES, check_names, draw_curves, group_runs, save_figure
from ..utils.options import Between, CommandLineType
from .common import CONTEXT, user_errors


@click.command(context_settings=CONTEXT)
@click.argument('runs', metavar='RUN...', nargs=-1, required=True)
@click.option(
    '--out',
    'outs',
    multiple=True,
    default=['curves.png'],
    show_default=True,
    help='Where to: .png, .svg and others; several times for several files.',
)
@click.option('--x', default='env_step', show_default=True, type=click.Choice(list(X_AXES)), help='The x axis.')
@click.option(
    '--what', metavar='PANEL,...', help=f'Out of {", ".join(PANELS)}.  [default: those that the runs have values of]'
)
@click.option(
    '--smooth',
    type=CommandLineType(Annotated[int, Between(1, 1_000_000)]),
    metavar='N',
    help='Rows of the log in a moving average, 1 for no smoothing.  [default: a fortieth of a run]',
)
@click.option(
    '--label', 'labels', multiple=True, metavar='NAME', help='A name in the legend; as many times as there are curves.'
)
@click.option(
    '--group/--no-group',
    default=None,
    help='All runs are seeds of one curve, or none is.  [default: those whose names differ in _seedN alone]',
)
def command(runs: Tuple[str, ...], outs: Tuple[str, ...], what: Optional[str], **options: Any) -> None:
    """
    Draw the curves of runs.

    A RUN is an experiment's folder or its log/progress.jsonl, also gzipped, also while it trains. Runs that differ in
    their seed alone become one curve with a band around it.

    \b
    Examples:
      breakout plot experiments/breakout_dqn
      breakout plot experiments/dqn_seed* --x hours --out curves.svg
      breakout plot RUN OTHER --label 'lr 1e-4' --label 'lr 2.5e-4'
    """
    with user_errors(option='--what'):
        names = None if what is None else check_names([name.strip() for name in what.split(',')])
    with user_errors():
        logs = [RunLog.read(run) for run in runs]
    twice = [str(log.path) for log in logs if sum(other.path.samefile(log.path) for other in logs) > 1]
    if twice:
        raise click.UsageError(f'{twice[0]} is named twice; expected each run once')
    with user_errors(option='--label'):
        curves = group_runs(logs, options['group'], options['labels'])
    with user_errors():
        figure = draw_curves(curves, names, options['x'], options['smooth'])
    for out in outs:
        with user_errors(option=f'--out {out}'):
            save_figure(figure, out)
        click.echo(out)
