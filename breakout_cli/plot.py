"""``breakout plot``: curves of runs."""

import click

from .program import Program


@click.command('plot', cls=Program)
@click.argument('runs', metavar='RUN...', nargs=-1, required=True)
@click.option('--out', default='curves.png', show_default=True, help='Where to: .png, .svg and others.')
@click.option('--x', default='env_step', show_default=True, type=click.Choice(['env_step', 'hours', 'updates']))
@click.option('--what', multiple=True, metavar='PANEL', help='Such as score; may be repeated.  [default: all]')
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
    from breakout_env.run.plotting import draw_curves, save_figure
    from breakout_env.utils.command_line import listed_commands

    from .next_commands import run_commands

    figure = draw_curves({run: RunLog.read(run) for run in runs}, what, x)
    try:
        save_figure(figure, out)
    except (ValueError, OSError) as error:
        raise click.UsageError(f'--out {out}: {error}') from None
    click.echo(out)
    for run in runs:
        if commands := run_commands(run):
            next_command = commands.get('a better agent') or commands['its score']
            click.echo('\n'.join(listed_commands({'next': next_command})))
