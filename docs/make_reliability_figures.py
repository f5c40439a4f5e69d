"""
Draws what the soak has watched, and puts its table into docs/reliability.md and its translation.

    python docs/make_reliability_figures.py

reads docs/results/soak.json, writes docs/figures/soak.png, and replaces what stands in the guides between
``<!-- soak -->`` and ``<!-- end -->``.
"""

import json
from pathlib import Path
from typing import Any, Dict, List

import click
import numpy as np
from blocks import fill
from tabulate import tabulate

from breakout_env.run.plotting import COLORS, STYLE, save_figure

DOCS = Path(__file__).resolve().parent
GUIDES = ('reliability.md', 'reliability.zh-CN.md')
COLUMNS = 4  # sections beside each other
# what is counted, and how wide its line is: most of them lie on one another, all at nothing
COUNTS = dict(files=7.0, descriptors=5.5, threads=4.0, processes=2.8, shared_memory=1.7, windows=0.8)
# the least that an axis spans, so that a flat line looks flat
LEAST_MB, LEAST_COUNT = 15, 3


def table(results: Dict[str, Any]) -> str:
    """
    Overview:
        The table of all sections, in Markdown: growth of memory by trend, and of what is counted.
    """
    rows = []
    for section in results['sections']:
        resources = section['resources']
        memory = f'{resources["resident_bytes"]["growth"] / 1e6:+.1f} MB' if resources else ''
        cells = [section['name'], section['what'], f'{section["cycles"]:,}', memory]
        for name in COUNTS:
            cells.append(f'{resources[name]["growth"]:+.0f}' if name in resources else '')
        rows.append(cells)
    headers = ['section', 'a cycle', 'cycles', 'memory', *(name.replace('_', ' ') for name in COUNTS)]
    align = ('left', 'left', *['right'] * (len(headers) - 2))
    return tabulate(rows, headers, tablefmt='github', disable_numparse=True, colalign=align)


def draw(results: Dict[str, Any], path: Path) -> None:
    """
    Overview:
        Two panels for each section, memory above and counts below: how much more there is than after the warm-up, \
        over the time that the section took.
    """
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    sections = results['sections']
    columns = min(COLUMNS, len(sections))
    rows = -(-len(sections) // columns)
    with style.context(['default', STYLE]):
        figure = Figure(figsize=(3.3 * columns, 0.6 + 2.9 * rows), layout='constrained')
        grid = figure.add_gridspec(2 * rows, columns)
        for number, section in enumerate(sections):
            row, column = divmod(number, columns)
            above = figure.add_subplot(grid[2 * row, column])
            below = figure.add_subplot(grid[2 * row + 1, column], sharex=above)
            above.tick_params(labelbottom=False)
            above.set_title(f'{section["name"]}, {section["cycles"]:,}')
            _draw_section(above, below, section)
            if column == 0:
                above.set_ylabel('MB more')
                below.set_ylabel('more of them')
            is_last = number + columns >= len(sections)
            below.set_xlabel('minutes' if is_last else '')
        handles = [Line2D([], [], color='#000000', label='resident memory')]
        handles += [
            Line2D([], [], color=color, linewidth=min(width, 4), label=name.replace('_', ' '))
            for (name, width), color in zip(COUNTS.items(), COLORS)
        ]
        figure.legend(handles=handles, loc='outside upper left', ncols=len(handles))
    path.parent.mkdir(exist_ok=True)
    save_figure(figure, path)


def _draw_section(above: Any, below: Any, section: Dict[str, Any]) -> None:
    series, resources = section['series'], section['resources']
    if not series:
        return
    minutes = np.array(series['time_s']) / 60
    warm_up = minutes[np.array(series['cycle']) <= section['warm_up_cycles']]
    for axes in (above, below):
        if len(warm_up):
            axes.axvspan(0, warm_up[-1], color='#f0f0f0', zorder=0)
    memory = np.array(series['resident_bytes']) / 1e6
    above.plot(minutes, memory - _after_warm_up(memory, len(warm_up)), color='#000000', linewidth=1)
    _span(above, LEAST_MB)
    for (name, width), color in zip(COUNTS.items(), COLORS):
        if name in series and name in resources:
            values = np.array(series[name], float)
            below.plot(minutes, values - resources[name]['first'], color=color, linewidth=width)
    _span(below, LEAST_COUNT)
    below.set_xlim(0)


def _after_warm_up(values: np.ndarray, start: int) -> float:
    """What the others are compared to: the middle of the first tenth that is judged."""
    judged = values[start:] if start < len(values) else values
    return float(np.median(judged[: max(1, len(judged) // 10)]))


def _span(axes: Any, least: float) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -least), max(high, least))


def make(docs: Path) -> List[Path]:
    """
    Overview:
        Draw the figure, and fill in the guides that are there.
    Arguments:
        - docs (:obj:`Path`): The folder of the guides, with ``results/soak.json`` in it.
    Returns:
        - written (:obj:`List[Path]`): The files that were written.
    Raises:
        - OSError: If there are no results.
        - ValueError: If a guide has no place for the table.
    """
    results = json.loads((docs / 'results' / 'soak.json').read_text())
    path = docs / 'figures' / 'soak.png'
    draw(results, path)
    return [*fill([docs / name for name in GUIDES if (docs / name).exists()], 'soak', table(results)), path]


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
def main() -> None:
    """Draw what the soak has watched, and put its table into the guide."""
    try:
        written = make(DOCS)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for path in written:
        click.echo(path)


if __name__ == '__main__':
    main()
