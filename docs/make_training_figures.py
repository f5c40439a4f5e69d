"""
Draws the curves of the trainings whose logs are kept, and puts their table into docs/training.md and its translation.

    python docs/make_training_figures.py

reads docs/results/training/*.jsonl.gz, each a run's log/progress.jsonl, writes docs/figures/training_curve_steps.png
and docs/figures/training_curve_hours.png, and replaces what stands in the guides between ``<!-- runs -->`` and
``<!-- end -->``.
"""

from pathlib import Path
from typing import Dict, List

import click
import numpy as np
from blocks import fill
from tabulate import tabulate

from breakout_env.run.log import RunLog
from breakout_env.run.plotting import Curve, draw_curves, panels_with_values, save_figure

DOCS = Path(__file__).resolve().parent
# The runs that are drawn, and what the legend calls them; runs of the same label are seeds of one curve. A run that is
# not there is left out, one that is not named here stands in the table alone.
RUNS = {
    'cpu_seed0': 'recipe for the CPU, 1 thread',
    'gpu_seed0': 'recipe for the GPU',
}
PANELS = ('score', 'train_return', 'loss', 'q_value', 'epsilon', 'env_steps_per_s', 'memory')
FIGURES = {'env_step': 'training_curve_steps.png', 'hours': 'training_curve_hours.png'}
SCORE_AT = 1_000_000
GUIDES = ('training.md', 'training.zh-CN.md')


def read_runs(folder: Path) -> Dict[str, RunLog]:
    """All logs that are kept, by the names of their files."""
    return {path.name.split('.')[0]: RunLog.read(path) for path in sorted(folder.glob('*.jsonl.gz'))}


def _highest(*columns: np.ndarray) -> float:
    values = np.concatenate(columns)
    return np.max(values, initial=-np.inf, where=np.isfinite(values))


def _cell(value: float, form: str, unit: str = '') -> str:
    return format(value, form) + unit if np.isfinite(value) else ''


def row(name: str, log: RunLog) -> List[str]:
    """
    Overview:
        A line of the table. What a run has no values of, or has not come to, stays empty.
    """
    progress, evaluation = log.progress, log.evaluation
    judged = np.isfinite(evaluation['score'])
    scores, steps = evaluation['score'][judged], evaluation['env_step'][judged]
    reached = scores[steps >= SCORE_AT]
    best = f'{scores.max():.1f} at {steps[scores.argmax()] / 1e6:.2f}M' if len(scores) else ''
    speeds = progress['env_steps_per_s'][np.isfinite(progress['env_steps_per_s'])]
    return [
        name,
        '' if log.seed is None else str(log.seed),
        ', '.join(dict.fromkeys(start['commit'] for start in log.starts if start.get('commit'))),
        _cell(_highest(progress['env_step'], evaluation['env_step']), ',.0f'),
        _cell(_highest(progress['updates'], evaluation['updates']), ',.0f'),
        _cell(_highest(progress['hours'], evaluation['hours']), '.1f'),
        f'{reached[0]:.1f}' if len(reached) else '',
        f'{scores[-1]:.1f}' if len(scores) else '',
        best,
        f'{np.median(speeds):,.0f}' if len(speeds) else '',
        _cell(_highest(progress['memory_bytes']) / 1e9, '.2f', ' GB'),
    ]


def table(logs: Dict[str, RunLog]) -> str:
    """
    Overview:
        The table of all runs, in Markdown. The score at a million steps is the first evaluation's from there on.
    """
    headers = ['run', 'seed', 'commit', 'env steps', 'updates', 'hours', 'score at 1M', 'at the end', 'best evaluation']
    headers += ['env steps/s, median', 'peak memory']
    cells = [row(name, log) for name, log in logs.items()]
    align = ('left', *['right'] * (len(headers) - 1))
    return tabulate(cells, headers, tablefmt='github', disable_numparse=True, colalign=align)


def curves_of(logs: Dict[str, RunLog]) -> List[Curve]:
    """
    Overview:
        What is drawn: the runs of ``RUNS`` that are there, seeds together.
    """
    by_label: Dict[str, List[RunLog]] = {}
    for name, label in RUNS.items():
        if name in logs:
            by_label.setdefault(label, []).append(logs[name])
    return [Curve(label, tuple(runs)) for label, runs in by_label.items()]


def make(docs: Path) -> List[Path]:
    """
    Overview:
        Draw the figures and fill in the guides.
    Arguments:
        - docs (:obj:`Path`): The folder of the guides, with ``results/training`` in it.
    Returns:
        - written (:obj:`List[Path]`): The files that were written.
    Raises:
        - ValueError: If a log is damaged, or a guide has no place for the table.
    """
    logs = read_runs(docs / 'results' / 'training')
    if not logs:
        return []
    written = []
    written += fill([docs / guide for guide in GUIDES], 'runs', table(logs))
    curves = curves_of(logs)
    for x, name in FIGURES.items():
        there = [panel for panel in PANELS if panel in panels_with_values(curves, x)]
        if there:
            path = docs / 'figures' / name
            path.parent.mkdir(exist_ok=True)
            save_figure(draw_curves(curves, there, x), path)
            written.append(path)
    return written


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
def main() -> None:
    """Put the table of the kept trainings into the guides, and draw their curves."""
    try:
        written = make(DOCS)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for path in written:
        click.echo(path)
    if not written:
        click.echo(f'no runs are kept in {DOCS / "results" / "training"}; nothing was changed')


if __name__ == '__main__':
    main()
