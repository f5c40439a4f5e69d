"""``breakout plot``: curves of runs."""

from pathlib import Path
from typing import Optional, Tuple

import click

from ..run.log import RunLog
from ..run.plotting import PANELS, X_AXES, check_names, check_suffix, draw_curves, group_runs, save_figure
from .common import CONTEXT, errors_in_a_line


@click.command(context_settings=CONTEXT)
@click.argument('runs', metavar='RUN...', nargs=-1, required=True)
@click.option(
    '--out',
    'outs',
    multiple=True,
    default=['curves.png'],
    show_default=True,
    help='Where to: .png or .svg; several times for several files.',
)
@click.option(
    '--x',
    default='env_step',
    show_default=True,
    type=click.Choice(list(X_AXES)),
    help='What the curves are drawn over.',
)
@click.option(
    '--what',
    metavar='PANEL,...',
    help=f'Out of {", ".join(PANELS)}.  [default: those that the runs have values of]',
)
@click.option(
    '--smooth',
    type=click.IntRange(1, 1_000_000),
    metavar='N',
    help='Rows of the log in a moving average, 1 for none.  [default: a fortieth of a run]',
)
@click.option(
    '--label', 'labels', multiple=True, metavar='NAME', help='A name in the legend; as many times as there are curves.'
)
@click.option(
    '--group/--no-group',
    default=None,
    help='All runs are seeds of one curve, or none are.  [default: those whose names differ in _seedN alone]',
)
def command(
    runs: Tuple[str, ...],
    outs: Tuple[str, ...],
    x: str,
    what: Optional[str],
    smooth: Optional[int],
    labels: Tuple[str, ...],
    group: Optional[bool],
) -> None:
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
    names = None
    try:
        if what is not None:
            names = check_names([name.strip() for name in what.split(',')], x)
    except ValueError as error:
        raise click.UsageError(f'--what: {error}') from None
    for out in outs:
        try:
            check_suffix(out)
        except ValueError as error:
            raise click.UsageError(f'--out: {error}') from None
        if not Path(out).resolve().parent.is_dir():
            raise click.UsageError(f'--out: {out} is to be in a folder that is not there')
    with errors_in_a_line():
        logs = [RunLog.read(run) for run in runs]
    twice = [str(log.path) for log in logs if sum(other.path.samefile(log.path) for other in logs) > 1]
    if twice:
        raise click.UsageError(f'{twice[0]} is named twice; expected each run once')
    try:
        curves = group_runs(logs, group, labels)
    except ValueError as error:
        raise click.UsageError(f'--label: {error}') from None
    with errors_in_a_line():
        figure = draw_curves(curves, names, x, smooth)
        for out in outs:
            save_figure(figure, out)
            click.echo(out)
