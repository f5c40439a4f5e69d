"""
Puts what was measured and predicted of distributed training into docs/scale.md and its translation, and draws it.

    python docs/make_scale_tables.py

reads docs/results/bench_scale.json, bench_exchange.json and scale_constants.json, writes docs/figures/scale.png, and
replaces what stands in the guides between ``<!-- name -->`` and ``<!-- end -->``. What is predicted is what
``breakout plan`` predicts.
"""

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import click
import matplotlib

matplotlib.use('Agg')  # no display is needed to write files
import matplotlib.pyplot as plt
from blocks import fill
from tabulate import tabulate

from breakout_env.scale_model import (
    BROADCAST,
    BUFFER,
    COLLECTORS,
    LEARNER,
    MESSAGES,
    NETWORKS,
    Constants,
    Plan,
    Prediction,
    predict,
)

DOCS = Path(__file__).resolve().parent
GUIDES = ('scale.md', 'scale.zh-CN.md')
RESULTS = ('bench_scale', 'bench_exchange', 'scale_constants')
COUNTS = (1, 8, 64, 512, 4096)
# Nobody has measured one for this project: an assumption, and named as one wherever it is used.
ASSUMED_UPDATE_MS = 2.0
LEARNERS = {
    'one core': dict(),
    f'1 GPU, {ASSUMED_UPDATE_MS:g} ms assumed': dict(gpus=1, update_ms=ASSUMED_UPDATE_MS, network='nature'),
    f'8 GPUs, {ASSUMED_UPDATE_MS:g} ms assumed': dict(gpus=8, update_ms=ASSUMED_UPDATE_MS, network='nature'),
}
SELDOM_S = 30
MOST_COLLECTORS = 100_000
# told apart by people who see no red or green, and in print
COLORS = ('#0072b2', '#d55e00', '#009e73', '#8c8c8c', '#cc79a7', '#000000', '#e69f00')


def load(docs: Path) -> Dict[str, Dict[str, Any]]:
    """What the benchmarks wrote, by name."""
    return {name: json.loads((docs / 'results' / f'{name}.json').read_text()) for name in RESULTS}


def markdown(headers: List[str], cells: List[list]) -> str:
    """A table whose numbers stand at the right."""
    align = ('left', *['right'] * (len(headers) - 1))
    return tabulate(cells, headers, tablefmt='github', disable_numparse=True, colalign=align)


def here(scale: Dict[str, Any], constants: Constants, collectors: int, **options: Any) -> Prediction:
    """The prediction for a run on the machine that it was made on."""
    return predict(
        Plan(collectors=collectors, evaluators=0, hosts=1, cores_per_host=scale['cores'], **options), constants
    )


# ------------------------------------------------------------------------------------------------------- tables


def runs_table(scale: Dict[str, Any]) -> str:
    """Trainings in one process and in many."""
    by_name = {row['name']: row for row in scale['modes']}
    cells = []
    for row in scale['modes']:
        age = row['weights_age_updates']
        cells.append(
            [
                row['name'],
                f'{row["env_steps_per_s"]:.0f}',
                f'{row["low"]:.0f} to {row["high"]:.0f}',
                f'{row["env_steps_per_s"] / by_name["overlapped"]["env_steps_per_s"]:.2f}',
                f'{row["updates_per_s"]:.1f}',
                f'{row["memory_bytes"] / 1e9:.2f} GB',
                f'{row["wire_bytes_per_s"] / 1e6:.2f} MB/s' if row['collectors'] else '',
                '' if age is None else f'{age:.0f}',
            ]
        )
    headers = [
        'training',
        'env steps/s',
        'min to max',
        'of overlapped',
        'updates/s',
        'memory',
        'wire',
        'age of weights',
    ]
    return markdown(headers, cells)


def model_table(scale: Dict[str, Any], constants: Constants) -> str:
    """What the model says about the runs, beside what they came to."""
    cells = []
    for what, rows, options in (
        ('64 updates a piece', scale['modes'], {}),
        ('1 update a piece', scale['capacity'], dict(ratio=256)),
    ):
        for row in rows:
            if row['collectors']:
                predicted = here(scale, constants, row['collectors'], **options)
                ratio = predicted.env_steps_per_s / row['env_steps_per_s']
                cells.append(
                    [f'{row["name"]}, {what}', f'{row["env_steps_per_s"]:.0f}', f'{predicted.env_steps_per_s:.0f}']
                    + [f'{ratio - 1:+.0%}', predicted.bottleneck]
                )
    return markdown(['run', 'env steps/s', 'model', 'off by', 'held up by'], cells)


def predictions_table(constants: Constants) -> str:
    """From one collector to thousands."""
    cells = []
    for count in COUNTS:
        row = [f'{count:,}']
        for options in LEARNERS.values():
            predicted = predict(Plan(collectors=count, **options), constants)
            row.append(f'{predicted.env_steps_per_s:,.0f}: {predicted.bottleneck}')
        seldom = predict(Plan(collectors=count, weights_every_s=SELDOM_S, **options), constants)
        row.append(f'{seldom.env_steps_per_s:,.0f}: {seldom.bottleneck}')
        row += [f'{predicted.hosts:,}', f'{predicted.out_bytes_per_s / 1e6:,.0f} MB/s']
        cells.append(row)
    more = [f'8 GPUs, weights every {SELDOM_S} s', 'hosts', 'sent by the learner, 8 GPUs']
    return markdown(['collectors', *LEARNERS, *more], cells)


def first_count(holds: Callable[[int], bool]) -> Optional[int]:
    """The least number of collectors from which on something is true; None if it never is."""
    if not holds(MOST_COLLECTORS):
        return None
    low, high = 0, MOST_COLLECTORS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def gives_way(constants: Constants, part: str, by: str = COLLECTORS, **options: Any) -> str:
    """The number of collectors from which on a part allows for less than another, or for nothing at all (by='')."""

    def holds(count: int) -> bool:
        ceilings = predict(Plan(collectors=count, **options), constants).ceilings
        return ceilings[part] <= (ceilings[by] if by else 0)

    count = first_count(holds)
    return 'never' if count is None else f'{count:,}'


def limits_table(constants: Constants) -> str:
    """Where each part gives way."""
    cells = []
    for part, learners in ((LEARNER, LEARNERS), (BUFFER, dict(list(LEARNERS.items())[-1:]))):
        for name, options in learners.items():
            most = predict(Plan(**options), constants).ceilings[part]
            why = f'{most:,.0f} env steps/s are all it can use'
            cells.append([f'{part}, {name}', gives_way(constants, part, **options), why])
    for every_s in (1, 10, 60):
        for network in NETWORKS:
            count = gives_way(constants, BROADCAST, by='', weights_every_s=every_s, network=network)
            cells.append([f'{BROADCAST}, {network} network every {every_s} s', count, '10 Gbit/s are full'])
    count = gives_way(constants, MESSAGES, by='', weights_every_s=60)
    cells.append([MESSAGES, count, "signs of life fill the core of the learner's process"])
    headers = ['what gives way', 'at collectors', 'because']
    align = ('left', 'right', 'left')
    return tabulate(cells, headers, tablefmt='github', disable_numparse=True, colalign=align)


def exchange_table(exchange: Dict[str, Any]) -> str:
    """Bytes on the wire, ours and DI-engine's."""
    cells = [
        [row['name'], *(f'{row[key]:,.0f}' for key in ('play_bytes_per_env_step', 'ratio', 'all_bytes_per_env_step'))]
        for row in exchange['exchange']
    ]
    return markdown(['exchange', 'bytes of play an env step', 'times ours', 'of all messages'], cells)


def codec_table(exchange: Dict[str, Any]) -> str:
    """What packing and unpacking take."""
    cells = [
        [f'{row["play"]}, level {row["level"]}']
        + [f'{row[key]:.1f}' for key in ('pack_ms', 'unpack_ms', 'bytes_per_env_step')]
        for row in exchange['codec']
    ]
    return markdown(['a piece of 256 env steps', 'pack, ms', 'unpack, ms', 'bytes an env step'], cells)


def deaths_table(scale: Dict[str, Any]) -> str:
    """What it costs that collectors are killed."""
    deaths = scale['deaths']
    undisturbed = sum(deaths['undisturbed']) / len(deaths['undisturbed'])
    disturbed = f'env steps/s, one of {deaths["collectors"]} killed every {deaths["every_s"]:.0f} s'
    cells = [
        ['env steps/s, undisturbed', f'{undisturbed:.0f}'],
        [disturbed, f'{deaths["env_steps_per_s"]:.0f}'],
        ['of undisturbed', f'{deaths["ratio"]:.2f}'],
        ['collectors killed, and started again', f'{deaths["killed"]}, {deaths["came_back"]}'],
        ['seconds from the start of a process to its first piece', f'{deaths["start_s"]:.1f}'],
        ['share of the collectors that was missing meanwhile', f'{deaths["share_missing"]:.2f}'],
    ]
    return markdown([f'{deaths["seconds"]:.0f} seconds', ''], cells)


def tables(results: Dict[str, Dict[str, Any]], constants: Constants) -> Dict[str, str]:
    """
    Overview:
        All of them, by the names of their places in the guides.
    """
    scale, exchange = results['bench_scale'], results['bench_exchange']
    return {
        'runs': runs_table(scale),
        'deaths': deaths_table(scale),
        'exchange': exchange_table(exchange),
        'codec': codec_table(exchange),
        'model': model_table(scale, constants),
        'predictions': predictions_table(constants),
        'limits': limits_table(constants),
    }


# ------------------------------------------------------------------------------------------------------- the figure


def draw(scale: Dict[str, Any], constants: Constants, path: Path) -> None:
    """
    Overview:
        What was measured here, with the model; and the ceilings up to thousands of collectors.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8))
    _draw_runs(left, scale, constants)
    _draw_ceilings(right, constants)
    for axes in (left, right):
        axes.spines[['top', 'right']].set_visible(False)
        axes.set_xlabel('collectors')
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_runs(axes: Any, scale: Dict[str, Any], constants: Constants) -> None:
    rows = [row for row in scale['modes'] if row['collectors']]
    counts = [row['collectors'] for row in rows]
    for label, of_kind, options, color in (
        ('an update to 256 env steps', scale['capacity'], dict(ratio=256), COLORS[1]),
        ('distributed, an update to 4 env steps', rows, {}, COLORS[0]),
    ):
        values = [row['env_steps_per_s'] for row in of_kind]
        spread = [
            [row['env_steps_per_s'] - row['low'] for row in of_kind],
            [row['high'] - row['env_steps_per_s'] for row in of_kind],
        ]
        axes.errorbar(counts, values, spread, fmt='o', color=color, capsize=3, label=label)
        predicted = [here(scale, constants, count, **options).env_steps_per_s for count in counts]
        axes.plot(counts, predicted, color=color, linewidth=1)
    for name, style in (('overlapped', '--'), ('serial', ':')):
        (row,) = [row for row in scale['modes'] if row['name'] == name]
        axes.axhline(row['env_steps_per_s'], color=COLORS[3], linestyle=style, label=f'{name}, one process')
    axes.set_xticks(counts)
    axes.set_ylim(0)
    axes.set_ylabel('env steps a second, median')
    axes.set_title(f'measured on {scale["cores"]} cores (points), and the model (lines)', fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc='center right')


def _draw_ceilings(axes: Any, constants: Constants) -> None:
    counts = sorted({round(10 ** (power / 40)) for power in range(161)})
    options = dict(LEARNERS[f'8 GPUs, {ASSUMED_UPDATE_MS:g} ms assumed'], weights_every_s=10)
    predictions = [predict(Plan(collectors=count, **options), constants) for count in counts]
    # they overlap where one process has nothing left, so the lines are of different widths
    for name, color in zip(('collectors', 'learner', 'buffer', 'messages', 'broadcast', 'network in'), COLORS):
        values = [each.ceilings[name] or float('nan') for each in predictions]
        axes.plot(counts, values, color=color, linewidth=1.2, label=name)
    reached = [each.env_steps_per_s or float('nan') for each in predictions]
    axes.plot(counts, reached, color='#f0e442', linewidth=6, alpha=0.6, zorder=0, label='reached')
    axes.set_xscale('log')
    axes.set_yscale('log')
    axes.set_xlim(1, counts[-1])
    axes.set_ylim(100, 1e8)
    axes.set_ylabel('env steps a second that each allows for')
    title = f'on paper: 8 GPUs, {ASSUMED_UPDATE_MS:g} ms an update assumed, weights every 10 s'
    axes.set_title(title, fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc='upper left')


def make(docs: Path) -> List[Path]:
    """
    Overview:
        Fill in the guides, and draw the figure.
    Arguments:
        - docs (:obj:`Path`): The folder of the guides, with ``results`` in it.
    Returns:
        - written (:obj:`List[Path]`): The files that were written.
    Raises:
        - OSError: If a guide or a result is not there.
        - ValueError: If a guide has no place for a table.
    """
    results = load(docs)
    constants = Constants.read(docs / 'results' / 'scale_constants.json')
    guides = [docs / name for name in GUIDES]
    for name, made in tables(results, constants).items():
        fill(guides, name, made)
    path = docs / 'figures' / 'scale.png'
    draw(results['bench_scale'], constants, path)
    return [*guides, path]


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
def main() -> None:
    """Put the tables of distributed training into the guides, and draw its figure."""
    try:
        written = make(DOCS)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for path in written:
        click.echo(path)


if __name__ == '__main__':
    main()
