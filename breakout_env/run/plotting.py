"""Curves of runs, from their logs: scores, losses, speed and memory over env steps, updates or hours.

A figure depends on the logs alone: the user's matplotlib settings and the date change no byte of the file. matplotlib
and pandas are imported by the functions that draw, so that a training that imports this package does not pay for them.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .log import RunLog

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """What one panel shows: ``column`` of a log's ``rows``, smoothed if noisy."""

    title: str
    unit: str
    column: str
    rows: str = 'progress'
    is_noisy: bool = True


PANELS = {
    'score': Panel('Evaluation score', 'points a game', 'score', 'evaluation'),
    'train_return': Panel('Score while training', 'points a game', 'train_return'),
    'loss': Panel('Loss', 'mean over updates', 'loss'),
    'q_value': Panel('Q values of training batches', 'discounted clipped points', 'q_value'),
    'value': Panel('Values of training batches', 'discounted clipped points', 'value'),
    'epsilon': Panel('Exploration', 'epsilon', 'epsilon', is_noisy=False),
    'entropy': Panel('Entropy of the policy', 'nats', 'entropy'),
    'env_steps_per_s': Panel('Speed', 'env steps a second', 'env_steps_per_s'),
    'memory': Panel('Resident memory, with workers', 'bytes', 'memory_bytes', is_noisy=False),
}
X_AXES = {'env_step': 'env steps', 'hours': 'hours of training', 'updates': 'updates'}
HUMAN_SCORE = 31.8  # Mnih et al. 2015, extended data table 2
SMOOTHED_POINTS = 40  # a moving average takes in one of so many parts of a run
# Okabe and Ito's palette for colour-blind readers, without the yellow, which is too light for a line
COLORS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#56b4e9', '#e69f00', '#000000')
STYLE = {
    'font.family': 'DejaVu Sans',  # comes with matplotlib
    'font.size': 9,
    'text.parse_math': False,  # a $ in a run's name is a $
    'axes.titlesize': 10,
    'axes.titlelocation': 'left',
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.grid': True,
    'grid.color': '#e8e8e8',
    'legend.frameon': False,
    'svg.fonttype': 'none',  # text stays text
    'svg.hashsalt': 'breakout_env',
}


def _values(log: RunLog, panel: Panel, x: str) -> 'pandas.Series':
    """What a log has for a panel, with increasing x."""
    import pandas

    rows = getattr(log, panel.rows)
    values = pandas.Series(rows[panel.column], rows[x])
    if panel.column == 'env_steps_per_s':  # the random play before the first update is many times as fast
        values = values[rows['updates'] > 0]
    values = values[np.isfinite(values.index) & np.isfinite(values)]
    return values[values.index > values.index.to_series().cummax().shift(fill_value=-np.inf)]  # a resume repeats x


def draw_curves(logs: Mapping[str, RunLog], what: Sequence[str] = (), x: str = 'env_step') -> 'Figure':
    """A figure of panels for ``save_figure``, with a legend over them.

    Arguments:
        logs: The runs, by their labels in the legend.
        what: Names out of ``PANELS``; none for those that have values.
        x: One of ``X_AXES``.
    Raises:
        ValueError: If there is nothing to draw.
    """
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    there = [name for name, panel in PANELS.items() if any(len(_values(log, panel, x)) for log in logs.values())]
    missing = [name for name in what if name not in there]
    if missing or not there:
        raise ValueError(
            f'no run has values of {", ".join(missing) or "any panel"} over {x} yet; '
            f'there are values of {", ".join(there) or "nothing"}'
        )
    what = what or there
    columns = min(len(what), 3)
    rows = -(-len(what) // columns)
    width, height = (8.6, 4.2) if len(what) == 1 else (1.4 + 3.6 * columns, 0.6 + 2.4 * rows)
    with style.context(['default', STYLE]):
        figure = Figure(figsize=(width, height), layout='constrained')
        for number, name in enumerate(what, start=1):
            axes = figure.add_subplot(rows, columns, number, sharex=figure.axes[0] if figure.axes else None)
            _draw_panel(axes, PANELS[name], logs, x)
        if x != 'hours':
            axes.xaxis.set_major_formatter(EngFormatter(sep=''))
        axes.set_xlim(left=0)
        figure.supxlabel(X_AXES[x], fontsize=STYLE['font.size'])
        entries = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels())}
        figure.set_figheight(height + 0.2 * len(entries))  # inches, at this size of letters
        figure.legend(entries.values(), entries.keys(), loc='outside upper left')
    return figure


def _draw_panel(axes: 'Axes', panel: Panel, logs: Mapping[str, RunLog], x: str) -> None:
    from matplotlib.ticker import EngFormatter

    for color, (label, log) in zip(itertools.cycle(COLORS), logs.items()):
        values = _values(log, panel, x)
        if panel.is_noisy:
            values = values.rolling(max(1, len(values) // SMOOTHED_POINTS), center=True, min_periods=1).mean()
        if len(values):
            marker = 'o' if len(values) <= 2 * SMOOTHED_POINTS and panel.rows == 'evaluation' else None
            # matplotlib leaves out labels that begin with an underscore
            axes.plot(values, color=color, marker=marker, markersize=2.5, label=label.lstrip('_'))
    if panel.unit == 'points a game':
        human = f'human, {HUMAN_SCORE} (Mnih et al. 2015)'
        axes.axhline(HUMAN_SCORE, color='#606060', linestyle=(0, (5, 3)), linewidth=1, label=human)
    if axes.dataLim.y0 >= 0:  # every panel shows something whose zero means something
        axes.set_ylim(0, 1.06 * (axes.dataLim.y1 or 1))
    axes.set_title(panel.title)
    axes.set_ylabel(panel.unit)
    if panel.unit == 'bytes':
        axes.yaxis.set_major_formatter(EngFormatter(unit='B'))


def save_figure(figure: 'Figure', path: str | Path) -> None:
    """Write a figure of ``draw_curves`` as .png or .svg; the same figure gives the same bytes."""
    from matplotlib import style

    undated: dict[str, Any] = {'.svg': {'Date': None}, '.png': {'Software': None}}
    with style.context(['default', STYLE]):  # svg.fonttype is read here
        figure.savefig(path, dpi=150, metadata=undated.get(Path(path).suffix.lower()))
