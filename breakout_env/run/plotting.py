"""
Curves of runs, from their logs: scores, losses, speed and memory over env steps, updates or hours.

What is drawn depends on the logs alone: neither the user's matplotlib settings nor the date change a byte of the file.
matplotlib is imported by what draws, so that a training that imports this package does not pay for it.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import numpy as np

from .log import RunLog


class Panel(NamedTuple):
    """
    Overview:
        What one panel shows: ``column`` of a log's ``rows`` (``'progress'`` or ``'evaluation'``), smoothed if it is \
        noisy.
    """

    title: str
    unit: str
    rows: str
    column: str
    is_noisy: bool = True


PANELS = {
    'score': Panel('Evaluation score', 'points a game', 'evaluation', 'score'),
    'train_return': Panel('Score while training', 'points a game', 'progress', 'train_return'),
    'loss': Panel('Loss', 'TD loss', 'progress', 'loss'),
    'q_value': Panel('Q values of training batches', 'discounted clipped points', 'progress', 'q_value'),
    'held_out_q': Panel('Q values of held-out states', 'discounted clipped points', 'evaluation', 'held_out_q'),
    'epsilon': Panel('Exploration', 'epsilon', 'progress', 'epsilon', is_noisy=False),
    'env_steps_per_s': Panel('Speed', 'env steps a second', 'progress', 'env_steps_per_s'),
    'memory': Panel('Resident memory, with workers', 'bytes', 'progress', 'memory_bytes', is_noisy=False),
}
X_AXES = {'env_step': 'env steps', 'hours': 'hours of training', 'updates': 'updates'}
SUFFIXES = ('.png', '.svg')
HUMAN_SCORE = 31.8  # Mnih et al. 2015, extended data table 2
SCORE_PANELS = ('score', 'train_return')
# of so few seeds the range says more than a standard error does
SEEDS_FOR_STANDARD_ERROR = 5
SMOOTHED_POINTS = 40  # that a smoothed curve has room for, unless it is said how much to smooth
# Okabe and Ito's, told apart by people who see no red or green; without the yellow, which is too light for a line
COLORS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7', '#56b4e9', '#e69f00', '#000000')
STYLES = ('-', '--', '-.', ':')  # when the colours are used up
STYLE = {
    'font.family': 'DejaVu Sans',  # comes with matplotlib
    'font.size': 9,
    'text.parse_math': False,  # a $ in a run's name is a $
    'axes.titlesize': 10,
    'axes.titlelocation': 'left',
    'axes.labelcolor': '#404040',
    'axes.edgecolor': '#808080',
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.grid': True,
    'grid.color': '#e8e8e8',
    'grid.linewidth': 0.8,
    'axes.axisbelow': True,
    'xtick.color': '#404040',
    'ytick.color': '#404040',
    'lines.linewidth': 1.6,
    'lines.solid_capstyle': 'round',
    'legend.frameon': False,
    'svg.fonttype': 'none',  # text stays text
    'svg.hashsalt': 'breakout_env',
}


@dataclass(frozen=True)
class Curve(object):
    """
    Overview:
        What is drawn in one colour: a run, or several that differ in their seed alone.
    """

    label: str
    runs: Tuple[RunLog, ...]


def group_runs(
    logs: Sequence[RunLog], together: Optional[bool] = None, labels: Optional[Sequence[str]] = None
) -> List[Curve]:
    """
    Overview:
        Which runs are seeds of one curve.
    Arguments:
        - logs (:obj:`Sequence[RunLog]`): The runs.
        - together (:obj:`Optional[bool]`): All of them, or none; None (default) for those whose names differ in an \
            ending like ``_seed1`` or ``_1`` alone, and whose seeds all differ.
        - labels (:obj:`Optional[Sequence[str]]`): A name for each curve, in the order of their first runs.
    Returns:
        - curves (:obj:`List[Curve]`): The curves, in the order of their first runs.
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
        seeds = [_seed(log) for log in group]
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


_SEED_AT_END = re.compile(r'(?<=.)[_-](?:seed)?[_-]?(\d+)$')
_TIME_AT_END = re.compile(r'_\d{6}_\d{6}$')  # DI-engine adds it where a name is taken


def _name(log: RunLog) -> str:
    return log.exp_name.rstrip('/').rsplit('/', 1)[-1]


def _stem(log: RunLog) -> str:
    return _SEED_AT_END.sub('', _TIME_AT_END.sub('', _name(log)))


def _seed(log: RunLog) -> Optional[int]:
    if log.seed is not None:
        return log.seed
    ending = _SEED_AT_END.search(_TIME_AT_END.sub('', _name(log)))
    return int(ending[1]) if ending else None


def _distinct_names(groups: List[List[RunLog]]) -> List[str]:
    names = [_name(group[0]) if len(group) == 1 else _stem(group[0]) for group in groups]
    return [name if names.count(name) == 1 else f'{name} ({group[0].path})' for name, group in zip(names, groups)]


# ---------------------------------------------------------------- points


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """
    Overview:
        Centred moving average. Towards both ends the window narrows evenly, so that a slope is not bent there.
    Arguments:
        - values (:obj:`np.ndarray`): Numbers without NaN.
        - window (:obj:`int`): Points that an average takes in; an even number counts as the odd one above it.
    Returns:
        - averages (:obj:`np.ndarray`): As many as there are values.
    """
    if window < 2:  # bit for bit, which differences of sums are not
        return values
    at = np.arange(len(values))
    half = np.minimum(window // 2, np.minimum(at, len(values) - 1 - at))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return (sums[at + half + 1] - sums[at - half]) / (2 * half + 1)


def _points(log: RunLog, panel: Panel, x: str) -> Tuple[np.ndarray, np.ndarray]:
    """What a log has for a panel: places that grow, and a value at each."""
    rows = getattr(log, panel.rows)
    places, values = rows[x], rows[panel.column]
    known = np.isfinite(places) & np.isfinite(values)
    places, values = places[known], values[known]
    grows = np.diff(np.maximum.accumulate(places), prepend=-np.inf) > 0
    return places[grows], values[grows]


def panels_with_values(curves: Sequence[Curve], x: str = 'env_step') -> List[str]:
    """
    Overview:
        The panels that there is something to draw in.
    """
    logs = [log for curve in curves for log in curve.runs]
    return [name for name, panel in PANELS.items() if any(len(_points(log, panel, x)[0]) for log in logs)]


# ---------------------------------------------------------------- drawing


def draw_curves(
    curves: Sequence[Curve], what: Optional[Sequence[str]] = None, x: str = 'env_step', smooth: Optional[int] = None
) -> 'Figure':  # noqa: F821
    """
    Overview:
        A figure of panels, with a legend over them.
    Arguments:
        - curves (:obj:`Sequence[Curve]`): What ``group_runs`` gave.
        - what (:obj:`Optional[Sequence[str]]`): Names out of ``PANELS``; by default those that have values.
        - x (:obj:`str`): One of ``X_AXES``.
        - smooth (:obj:`Optional[int]`): Rows that a moving average takes in, 1 for none; by default a fortieth of a \
            run's.
    Returns:
        - figure (:obj:`Figure`): For ``save_figure``.
    Raises:
        - ValueError: If a name is unknown, or there is nothing to draw.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    there = panels_with_values(curves, x) if x in X_AXES else []
    what = check_names(there if what is None else what, x)
    missing = [name for name in what if name not in there]
    if missing or not what:
        raise ValueError(
            f'no run has values of {", ".join(missing) or "any panel"} over {x} yet; '
            f'there are values of {", ".join(there) or "nothing"}'
        )
    columns = len(what) if len(what) < 4 else 2 if len(what) == 4 else 3 if len(what) < 7 else 4
    rows = -(-len(what) // columns)
    with style.context(['default', STYLE]):
        width = {1: 6.4, 2: 7.8, 3: 11.4, 4: 13.0}[columns]
        height = 3.8 if len(what) == 1 else 0.4 + 2.3 * rows
        figure = Figure(figsize=(width, height), layout='constrained')
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.07)
        all_axes = [figure.add_subplot(rows, columns, number + 1) for number in range(len(what))]
        entries: Set[str] = set()
        for axes, name in zip(all_axes, what):
            _draw_panel(axes, name, curves, x, smooth, entries)
        end = max(axes.get_xlim()[1] for axes in all_axes)
        factor, word = _scale_of_places(end, x)
        for axes in all_axes:
            axes.set_xlim(0, end)
            axes.xaxis.set_major_formatter(lambda at, _: f'{at / factor:,.10g}')
        figure.supxlabel(X_AXES[x] + word, fontsize=STYLE['font.size'], color=STYLE['axes.labelcolor'])
        _draw_legend(figure, curves, entries)
    return figure


def check_names(what: Sequence[str], x: str) -> List[str]:
    """
    Overview:
        Names of panels, once each, and the name of the x axis.
    Raises:
        - ValueError: If one is unknown.
    """
    for name in what:
        if name not in PANELS:
            raise ValueError(f'{name!r} is no panel; expected names out of {", ".join(PANELS)}')
    if x not in X_AXES:
        raise ValueError(f'{x!r} is no x axis; expected one of {", ".join(X_AXES)}')
    return list(dict.fromkeys(what))


def _draw_panel(
    axes: Any, name: str, curves: Sequence[Curve], x: str, smooth: Optional[int], entries: Set[str]
) -> None:
    """One panel; adds to ``entries`` what the legend has to explain."""
    panel = PANELS[name]
    highest, lowest = [], [0.0]  # every panel shows something whose zero means something
    for number, curve in enumerate(curves):
        look = dict(color=COLORS[number % len(COLORS)], linestyle=STYLES[number // len(COLORS) % len(STYLES)])
        lines = []
        for log in curve.runs:
            places, values = _points(log, panel, x)
            if not len(places):
                continue
            window = smooth or len(values) // SMOOTHED_POINTS
            line = smoothed(values, window) if panel.is_noisy else values
            lines.append((places, line))
            highest.append(line.max())
            lowest.append(line.min())
            if len(curve.runs) == 1 and line is not values:
                axes.plot(places, values, color=look['color'], alpha=0.25, linewidth=0.7)
                entries.add('raw')
                # a spike or two may leave the panel, lest they press the rest flat
                highest.append(values.max() if name in SCORE_PANELS else np.quantile(values, 0.99))
        if not lines:
            continue
        if len(curve.runs) == 1:
            ((places, line),) = lines
            marker = 'o' if len(line) <= 2 * SMOOTHED_POINTS and panel.rows == 'evaluation' or len(line) == 1 else None
            axes.plot(places, line, marker=marker, markersize=2.5, **look)
        elif _draw_seeds(axes, lines, look, len(curve.runs)):
            entries.add('single')
    if name in SCORE_PANELS:
        axes.axhline(HUMAN_SCORE, color='#606060', linestyle=(0, (5, 3)), linewidth=1)
        highest.append(HUMAN_SCORE)
        entries.add('human')
    low, high = min(lowest), max(highest)
    margin = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - margin if low < -margin else 0, high + margin)
    axes.set_title(panel.title)
    if panel.unit == 'bytes':
        factor, unit = (1e9, 'GB') if high >= 1e9 else (1e6, 'MB')
        axes.set_ylabel(unit)
        axes.yaxis.set_major_formatter(lambda value, _: f'{value / factor:,.10g}')
    else:
        axes.set_ylabel(panel.unit)
        axes.yaxis.set_major_formatter(lambda value, _: f'{value:,.10g}'.replace('-', '\N{MINUS SIGN}'))
    axes.yaxis.get_major_locator().set_params(nbins=6)
    axes.xaxis.get_major_locator().set_params(nbins=6)


def _draw_seeds(axes: Any, lines: List[Tuple[np.ndarray, np.ndarray]], look: Dict[str, Any], seeds: int) -> bool:
    """Mean and band from where all seeds are to where one ends, thin lines beyond; whether there were such lines."""
    start = max(places[0] for places, _ in lines)
    end = min(places[-1] for places, _ in lines)
    if end > start and len(lines) == seeds:
        grid = np.unique(np.concatenate([places for places, _ in lines]))
        grid = grid[(grid >= start) & (grid <= end)]
        low, mean, high = band(np.stack([np.interp(grid, places, line) for places, line in lines]))
        axes.fill_between(grid, low, high, color=look['color'], alpha=0.2, linewidth=0)
        axes.plot(grid, mean, **look)
    else:
        end = 0.0
    # seeds never end at the same step; a few of a long run's rows are no news
    longer = [(places, line) for places, line in lines if places[-1] > 1.02 * end]
    for places, line in longer:
        beyond = np.concatenate([[max(end, places[0])], places[places > end]])
        axes.plot(beyond, np.interp(beyond, places, line), alpha=0.6, **{**look, 'linewidth': 0.9})
    return bool(longer)


def band(values: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Overview:
        Mean over seeds, and what is shaded around it: all seeds lie in it where there are fewer than 5, one standard \
        error to both sides where there are more.
    Arguments:
        - values (:obj:`np.ndarray`): A row for each seed.
    Returns:
        - low, mean, high (:obj:`Tuple[np.ndarray, np.ndarray, np.ndarray]`): A number for each column.
    """
    mean = values.mean(axis=0)
    if len(values) < SEEDS_FOR_STANDARD_ERROR:
        return values.min(axis=0), mean, values.max(axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return mean - error, mean, mean + error


def _scale_of_places(end: float, x: str) -> Tuple[float, str]:
    if x == 'hours' or end < 1e4:
        return 1.0, ''
    return (1e6, ', million') if end >= 1e6 else (1e3, ', thousand')


def _draw_legend(figure: Any, curves: Sequence[Curve], entries: Set[str]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: List[Any] = []
    names: List[str] = []
    for number, curve in enumerate(curves):
        color, style = COLORS[number % len(COLORS)], STYLES[number // len(COLORS) % len(STYLES)]
        line = Line2D([], [], color=color, linestyle=style)
        seeds = len(curve.runs)
        if seeds == 1:
            handles.append(line)
            names.append(_shortened(curve.label))
        else:
            around = 'min to max' if seeds < SEEDS_FOR_STANDARD_ERROR else '\N{PLUS-MINUS SIGN} standard error'
            handles.append((Patch(color=color, alpha=0.2, linewidth=0), line))
            names.append(f'{_shortened(curve.label)}: mean of {seeds} seeds, {around}')
    if 'raw' in entries:
        handles.append(Line2D([], [], color='#606060', alpha=0.4, linewidth=0.7))
        names.append('not smoothed')
    if 'single' in entries:
        handles.append(Line2D([], [], color='#606060', alpha=0.6, linewidth=0.9))
        names.append('single seeds, where not all have values')
    if 'human' in entries:
        handles.append(Line2D([], [], color='#606060', linestyle=(0, (5, 3)), linewidth=1))
        names.append(f'human, {HUMAN_SCORE} (Mnih et al. 2015)')
    renderer = FigureCanvasAgg(figure).get_renderer()
    for columns in range(len(names), 0, -1):  # as many side by side as there is room for
        legend = figure.legend(handles, names, loc='outside upper center', ncols=columns)
        size = legend.get_window_extent(renderer)
        if columns == 1 or size.width < 0.96 * figure.bbox.width:
            figure.set_figheight(figure.get_figheight() + size.height / figure.dpi)
            return
        legend.remove()


def _shortened(label: str, most: int = 60) -> str:
    # matplotlib takes what begins with an underscore for something to leave out of a legend
    label = label.lstrip('_') or label.replace('_', '-')
    return label if len(label) <= most else f'{label[: most // 2 - 2]} ... {label[-(most // 2 - 2) :]}'


def save_figure(figure: 'Figure', path: Union[str, Path]) -> None:  # noqa: F821
    """
    Overview:
        Write a figure; the same figure gives the same bytes.
    Arguments:
        - figure (:obj:`Figure`): What ``draw_curves`` gave.
        - path (:obj:`Union[str, Path]`): Ends with .png or .svg.
    Raises:
        - ValueError: If it ends otherwise.
        - OSError: If it can not be written.
    """
    from matplotlib import style

    suffix = check_suffix(path)
    metadata = {'Date': None} if suffix == '.svg' else {'Software': None}
    with style.context(['default', STYLE]):  # what stands for text in SVG is read when it is written
        figure.savefig(path, dpi=150, metadata=metadata)


def check_suffix(path: Union[str, Path]) -> str:
    """
    Overview:
        What a figure's name ends with, in small letters.
    Raises:
        - ValueError: If it is none of ``SUFFIXES``.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f'{path} ends with {suffix or "nothing"!r}; expected one of {", ".join(SUFFIXES)}')
    return suffix
