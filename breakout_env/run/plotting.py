"""
Curves of runs, from their logs: scores, losses, speed and memory over env steps, updates or hours.

A figure depends on the logs alone: the user's matplotlib settings and the date change no byte of the file. matplotlib
and pandas are imported by the functions that draw, so that a training that imports this package does not pay for them.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from .log import RunLog

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """What one panel shows: ``column`` of a log's ``rows`` (``'progress'`` or ``'evaluation'``), smoothed if noisy.
    ``of_learning``: without the random play before the first update, which is many times as fast."""

    title: str
    unit: str
    rows: str
    column: str
    is_noisy: bool = True
    of_learning: bool = False


PANELS = {
    'score': Panel('Evaluation score', 'points a game', 'evaluation', 'score'),
    'train_return': Panel('Score while training', 'points a game', 'progress', 'train_return'),
    'loss': Panel('Loss', 'mean over updates', 'progress', 'loss'),
    'q_value': Panel('Q values of training batches', 'discounted clipped points', 'progress', 'q_value'),
    'value': Panel('Values of training batches', 'discounted clipped points', 'progress', 'value'),
    'held_out_q': Panel('Q values of held-out states', 'discounted clipped points', 'evaluation', 'held_out_q'),
    'epsilon': Panel('Exploration', 'epsilon', 'progress', 'epsilon', is_noisy=False),
    'entropy': Panel('Entropy of the policy', 'nats', 'progress', 'entropy'),
    'env_steps_per_s': Panel('Speed', 'env steps a second', 'progress', 'env_steps_per_s', of_learning=True),
    'memory': Panel('Resident memory, with workers', 'bytes', 'progress', 'memory_bytes', is_noisy=False),
}
X_AXES = {'env_step': 'env steps', 'hours': 'hours of training', 'updates': 'updates'}
SUFFIXES = ('.png', '.svg')
HUMAN_SCORE = 31.8  # Mnih et al. 2015, extended data table 2
SCORE_PANELS = ('score', 'train_return')
# the range of fewer seeds says more than a standard error
SEEDS_FOR_STANDARD_ERROR = 5
SMOOTHED_POINTS = 40  # a moving average takes in one of so many parts of a run, by default
# Okabe and Ito's palette for colour-blind readers, without the yellow, which is too light for a line
COLORS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#56b4e9', '#e69f00', '#000000')
STYLES = ('-', '--', '-.', ':')  # for more curves than colours
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
# Entries of the legend besides the curves.
NOT_SMOOTHED, SINGLE_SEEDS = 'not smoothed', 'single seeds, where not all have values'
HUMAN = f'human, {HUMAN_SCORE} (Mnih et al. 2015)'


@dataclass(frozen=True)
class Curve(object):
    """What is drawn in one colour: a run, or several that differ only in their seed."""

    label: str
    runs: Tuple[RunLog, ...]


def group_runs(
    logs: Sequence[RunLog], together: Optional[bool] = None, labels: Optional[Sequence[str]] = None
) -> List[Curve]:
    """
    Overview:
        Decide which runs are seeds of one curve.
    Arguments:
        - together (:obj:`Optional[bool]`): All of them, or none; None (default) for those whose names differ only \
            in an ending like ``_seed1`` or ``_1``, and whose seeds all differ.
        - labels (:obj:`Optional[Sequence[str]]`): A name for each curve.
    Returns:
        - curves (:obj:`List[Curve]`): In the order of their first runs.
    Raises:
        - ValueError: If there are not as many labels as curves.
    """
    stems: Dict[Any, List[RunLog]] = {}
    for index, log in enumerate(logs):
        key = 0 if together else index if together is False else _stem(log)
        stems.setdefault(key, []).append(log)
    groups = []
    for group in stems.values():
        # lr_10 and lr_25 of the same seed are two experiments
        seeds = [log.seed for log in group]
        if together or (None not in seeds and len(set(seeds)) == len(seeds)):
            groups.append(group)
        else:
            groups += [[log] for log in group]
    groups.sort(key=lambda group: logs.index(group[0]))
    names = list(labels) if labels else _distinct_names(groups)
    if len(names) != len(groups):
        found = ', '.join(_distinct_names(groups))
        raise ValueError(f'{len(names)} labels for {len(groups)} curves ({found}); expected one for each')
    return [Curve(name, tuple(group)) for name, group in zip(names, groups)]


def _name(log: RunLog) -> str:
    return log.exp_name.rstrip('/').rsplit('/', 1)[-1]


def _stem(log: RunLog) -> str:
    name = re.sub(r'_\d{6}_\d{6}$', '', _name(log))  # the time, which DI-engine adds where a name is taken
    return re.sub(r'(?<=.)[_-](?:seed)?[_-]?\d+$', '', name)


def _distinct_names(groups: List[List[RunLog]]) -> List[str]:
    names = [_name(group[0]) if len(group) == 1 else _stem(group[0]) for group in groups]
    return [name if names.count(name) == 1 else f'{name} ({group[0].path})' for name, group in zip(names, groups)]


def _values(log: RunLog, panel: Panel, x: str) -> 'pandas.Series':
    """What a log has for a panel, over places that grow."""
    import pandas

    rows = getattr(log, panel.rows)
    values = pandas.Series(rows[panel.column], rows[x])
    is_shown = (rows['updates'] > 0) | (not panel.of_learning)
    values = values[is_shown & np.isfinite(values.index) & np.isfinite(values)]
    # a resumed run repeats the places after its save
    return values[np.diff(np.maximum.accumulate(values.index), prepend=-np.inf) > 0]


def smoothed(values: 'pandas.Series', panel: Panel, smooth: Optional[int]) -> 'pandas.Series':
    """Centred moving average of a noisy panel over ``smooth`` values, by default a 40th of them; fewer at the ends."""
    window = smooth or len(values) // SMOOTHED_POINTS
    return values.rolling(window, center=True, min_periods=1).mean() if panel.is_noisy and window > 1 else values


def band(seeds: 'pandas.DataFrame') -> 'Tuple[pandas.Series, pandas.Series, pandas.Series]':
    """Low, mean and high of seeds, a column each: their range or, of 5 and more, one standard error to each side."""
    mean = seeds.mean(axis=1)
    if len(seeds.columns) < SEEDS_FOR_STANDARD_ERROR:
        return seeds.min(axis=1), mean, seeds.max(axis=1)
    error = seeds.sem(axis=1)
    return mean - error, mean, mean + error


def panels_with_values(curves: Sequence[Curve], x: str = 'env_step') -> List[str]:
    """The panels that there is something to draw in."""
    logs = [log for curve in curves for log in curve.runs]
    return [name for name, panel in PANELS.items() if any(len(_values(log, panel, x)) for log in logs)]


def draw_curves(
    curves: Sequence[Curve], what: Optional[Sequence[str]] = None, x: str = 'env_step', smooth: Optional[int] = None
) -> 'Figure':
    """
    Overview:
        A figure of panels for ``save_figure``, with a legend over them.
    Arguments:
        - what (:obj:`Optional[Sequence[str]]`): Names out of ``PANELS``; by default those that have values.
        - x (:obj:`str`): One of ``X_AXES``.
        - smooth (:obj:`Optional[int]`): Rows that a moving average takes in, 1 for no smoothing; by default a \
            fortieth of a run's.
    Raises:
        - ValueError: If a name is unknown, or there is nothing to draw.
    """
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    there = panels_with_values(curves, x) if x in X_AXES else []
    what = check_names(there if what is None else what, x)
    missing = [name for name in what if name not in there]
    if missing or not what:
        raise ValueError(
            f'no run has values of {", ".join(missing) or "any panel"} over {x} yet; '
            f'there are values of {", ".join(there) or "nothing"}'
        )
    columns = min(len(what), 3)
    rows = -(-len(what) // columns)
    width, height = (7.2, 3.6) if len(what) == 1 else (3.6, 2.4)
    with style.context(['default', STYLE]):
        figure = Figure(figsize=(1.4 + width * columns, 0.6 + height * rows), layout='constrained')
        all_axes = [figure.add_subplot(rows, columns, number + 1) for number in range(len(what))]
        for axes, name in zip(all_axes, what):
            _draw_panel(axes, name, curves, x, smooth)
            if x != 'hours':
                axes.xaxis.set_major_formatter(EngFormatter(sep=''))
        end = max(axes.get_xlim()[1] for axes in all_axes)
        for axes in all_axes:
            axes.set_xlim(0, end)
        figure.supxlabel(X_AXES[x], fontsize=STYLE['font.size'])
        _draw_legend(figure)
    return figure


def check_names(what: Sequence[str], x: str) -> List[str]:
    """Names of panels, once each; ``ValueError`` if one of them or the x axis is unknown."""
    for name in what:
        if name not in PANELS:
            raise ValueError(f'{name!r} is no panel; expected names out of {", ".join(PANELS)}')
    if x not in X_AXES:
        raise ValueError(f'{x!r} is no x axis; expected one of {", ".join(X_AXES)}')
    return list(dict.fromkeys(what))


def _draw_panel(axes: 'Axes', name: str, curves: Sequence[Curve], x: str, smooth: Optional[int]) -> None:
    from matplotlib.ticker import EngFormatter

    panel = PANELS[name]
    behind = []
    for number, curve in enumerate(curves):
        look: Dict[str, Any] = dict(
            color=COLORS[number % len(COLORS)], linestyle=STYLES[number // len(COLORS) % len(STYLES)]
        )
        raw = [_values(log, panel, x) for log in curve.runs]
        lines = [smoothed(values, panel, smooth) for values in raw]
        if len(lines) > 1:
            _draw_seeds(axes, lines, look, curve.label)
        elif len(lines[0]):
            has_room = panel.rows == 'evaluation' and len(lines[0]) <= 2 * SMOOTHED_POINTS or len(lines[0]) == 1
            axes.plot(lines[0], marker='o' if has_room else None, markersize=2.5, label=_shortened(curve.label), **look)
            if lines[0] is not raw[0]:
                behind.append((raw[0], look['color']))
    if name in SCORE_PANELS:
        axes.axhline(HUMAN_SCORE, color='#606060', linestyle=(0, (5, 3)), linewidth=1, label=HUMAN)
    # every panel shows something whose zero means something
    limits = (0.0, 1.06 * (axes.dataLim.y1 or 1.0)) if axes.dataLim.y0 >= 0 else axes.get_ylim()
    for values, color in behind:
        axes.plot(values, color=color, alpha=0.25, linewidth=0.7, zorder=1, label=NOT_SMOOTHED)
    axes.set_ylim(limits)  # a spike may leave the panel, lest it press the rest flat
    axes.set_title(panel.title)
    axes.set_ylabel(panel.unit)
    if panel.unit == 'bytes':
        axes.yaxis.set_major_formatter(EngFormatter(unit='B'))


def _draw_seeds(axes: 'Axes', lines: 'List[pandas.Series]', look: Dict[str, Any], label: str) -> None:
    """Mean and band where all seeds have values, thin lines beyond."""
    import pandas

    table = pandas.concat(lines, axis=1).sort_index().interpolate('index', limit_area='inside')
    complete, end = table.dropna(), -np.inf
    if len(complete) > 1:
        end = complete.index[-1]
        low, mean, high = band(complete)
        around = 'min to max' if len(lines) < SEEDS_FOR_STANDARD_ERROR else '\N{PLUS-MINUS SIGN} standard error'
        axes.fill_between(complete.index, low, high, color=look['color'], alpha=0.2, linewidth=0)
        axes.plot(mean, label=f'{_shortened(label)}: mean of {len(lines)} seeds, {around}', **look)
    for _, line in table.items():
        beyond = line.dropna().loc[end:]
        # seeds never end at the same step; a few of a long run's rows are no news
        if len(beyond) and beyond.index[-1] > 1.02 * end:
            axes.plot(beyond, alpha=0.6, linewidth=0.9, label=SINGLE_SEEDS, **look)


def _draw_legend(figure: 'Figure') -> None:
    notes = (NOT_SMOOTHED, SINGLE_SEEDS, HUMAN)
    found = [zip(*axes.get_legend_handles_labels()) for axes in figure.axes]
    handles = {label: handle for entries in found for handle, label in entries}
    labels = sorted(handles, key=lambda label: label in notes)  # the curves first
    width = 0.07 * max(map(len, labels)) + 0.6  # inches, at this size of letters
    columns = max(1, min(len(labels), int(figure.get_figwidth() / width)))
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(labels) // columns))
    figure.legend([handles[label] for label in labels], labels, loc='outside upper center', ncols=columns)


def _shortened(label: str, most: int = 60) -> str:
    # matplotlib leaves labels that begin with an underscore out of a legend
    label = label.lstrip('_') or label.replace('_', '-')
    return label if len(label) <= most else f'{label[: most // 2 - 2]} ... {label[-(most // 2 - 2) :]}'


def save_figure(figure: 'Figure', path: Union[str, Path]) -> None:
    """Write a figure of ``draw_curves`` as .png or .svg; the same figure gives the same bytes."""
    from matplotlib import style

    suffix = check_suffix(path)
    metadata = {'Date': None} if suffix == '.svg' else {'Software': None}
    with style.context(['default', STYLE]):  # svg.fonttype is read here
        figure.savefig(path, dpi=150, metadata=metadata)


def check_suffix(path: Union[str, Path]) -> str:
    """The ending of a figure's name in small letters; ``ValueError`` if it is none of ``SUFFIXES``."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f'{path} ends with {suffix or "nothing"!r}; expected one of {", ".join(SUFFIXES)}')
    return suffix
