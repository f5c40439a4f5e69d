"""``breakout plot``: curves of runs."""

from pathlib import Path

import click

from .program import Program

# As in breakout_env/run/plotting.py.
PANELS = 'score train_return loss q_value value epsilon entropy env_steps_per_s memory'.split()
X_AXES = ['env_step', 'hours', 'updates']


@click.command('plot', cls=Program)
@click.argument('runs', metavar='RUN...', nargs=-1, required=True)
@click.option('--out', default='curves.png', show_default=True, help='Where to: .png, .svg and others.')
@click.option('--x', default='env_step', show_default=True, type=click.Choice(X_AXES), help='The x axis.')
@click.option(
    '--what',
    multiple=True,
    type=click.Choice(PANELS),
    metavar='PANEL',
    help=f'One of {", ".join(PANELS)}; may be repeated.  [default: those that the runs have values of]',
)
def command(runs: tuple[str, ...], out: str, x: str, what: tuple[str, ...]) -> None:
    """Draw the curves of runs.

    A RUN is an experiment's folder or its log/progress.jsonl, also gzipped, also while it trains.

    \b
    Examples:
      breakout plot experiments/breakout_dqn
      breakout plot experiments/dqn_seed* --x hours --out curves.svg
      breakout plot RUN OTHER --what score --what loss
    """
    from breakout_env.run.log import RunLog
    from breakout_env.run.plotting import Curve, draw_curves, save_figure
    from breakout_env.utils.command_line import listed_commands

    from .next_commands import run_commands

    figure = draw_curves([Curve(run, (RunLog.read(run),)) for run in runs], what, x)
    out = out if Path(out).suffix else f'{out}.png'  # as matplotlib would call it
    try:
        save_figure(figure, out)
    except (ValueError, OSError) as error:
        raise click.UsageError(f'--out {out}: {error}') from None
    click.echo(out)
    for run in runs:
        if commands := run_commands(run):
            next_command = commands.get('a better agent') or commands['its score']
            click.echo('\n'.join(listed_commands({'next': next_command})))
