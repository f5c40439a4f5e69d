"""
Draws what benchmarks/bench_replay.py and benchmarks/training_memory.py measured.

    python benchmarks/draw_replay.py

reads docs/results/bench_replay.json and docs/results/training_memory.json, and writes docs/figures/replay_memory.png,
docs/figures/replay_time.png and docs/figures/training_memory.png. Prints the table of docs/memory.md.
"""

import json
from pathlib import Path
from typing import Any, Dict

import click
import matplotlib

matplotlib.use('Agg')  # no display is needed to write files
import matplotlib.pyplot as plt
from bench_replay import in_memory, table
from replay_peers import NOTHING, OURS

ROOT = Path(__file__).resolve().parent.parent
OURS_COLOR, THEIRS_COLOR = '#0072b2', '#8c8c8c'  # told apart by people who see no red or green, and in print


def _label(name: str) -> str:
    return f'breakout_env, {name}' if name in OURS else name


def draw_memory(results: Dict[str, Any], size: int, path: Path) -> None:
    """Bars of bytes a transition, the smallest at the top."""
    rows = []
    for name, by_size in results.items():
        if name == NOTHING:
            continue
        at = by_size[str(size)]
        rows.append((in_memory(at), at['disk_bytes_per_transition'], name, at.get('extrapolated', False)))
    rows.sort(key=lambda row: -(row[0] + row[1]))
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(rows) + 1.2))
    for y, (memory, disk, name, extrapolated) in enumerate(rows):
        color = OURS_COLOR if name in OURS else THEIRS_COLOR
        total = memory + disk
        axes.barh(y, total, color=color, hatch='///' if extrapolated else None, edgecolor='white', linewidth=0)
        gigabytes = total * size / 1e9
        text = f'{total:,.0f} B   {gigabytes:,.2f} GB' if gigabytes < 1 else f'{total:,.0f} B   {gigabytes:,.1f} GB'
        text += '  on disk' if disk else ''
        text += '  (extrapolated)' if extrapolated else ''
        axes.text(total * 1.08, y, text, va='center', fontsize=9)
    axes.set_yticks(range(len(rows)), [_label(name) for _, _, name, _ in rows], fontsize=9)
    axes.set_xscale('log')
    axes.set_xlim(100, 2e7)
    axes.set_xticks([10**power for power in range(2, 6)], [f'{10**power:,}' for power in range(2, 6)])
    axes.set_xticks([], minor=True)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(f'bytes a transition, and all of them together, at {size:,} transitions of random play')
    axes.spines[['top', 'right', 'left']].set_visible(False)
    axes.tick_params(axis='y', length=0)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_time(results: Dict[str, Any], sizes: list, path: Path) -> None:
    """Lines of the milliseconds of a batch over the size of the buffer."""
    figure, axes = plt.subplots(figsize=(9, 5.2))
    ends = []
    for name, by_size in results.items():
        points = [(size, by_size[str(size)]['collated_ms'][1]) for size in sizes if 'collated_ms' in by_size[str(size)]]
        if not points:
            continue
        ours = name in OURS
        color = OURS_COLOR if ours else THEIRS_COLOR
        axes.plot(*zip(*points), color=color, marker='o', markersize=4, linewidth=2 if ours else 1)
        ends.append((points[-1][1], points[-1][0], _label(name), color))
    # labels beside the ends of the lines, moved apart where they would meet
    lowest = 0.0
    for value, size, name, color in sorted(ends):
        y = max(value, lowest * 1.13)
        lowest = y
        axes.annotate(
            name,
            (size, value),
            (sizes[-1] * 1.25, y),
            color=color,
            fontsize=8,
            va='center',
            arrowprops=dict(arrowstyle='-', color=color, linewidth=0.4, alpha=0.6),
        )
    axes.set_xscale('log')
    axes.set_yscale('log')
    axes.set_xlim(sizes[0] * 0.8, sizes[-1] * 12)
    axes.yaxis.set_minor_formatter(plt.NullFormatter())
    axes.set_yticks([0.5, 1, 2, 4], ['0.5', '1', '2', '4'])
    axes.set_xticks(sizes, [f'{size:,}' for size in sizes])
    axes.yaxis.set_major_formatter('{x:g}')
    axes.set_xlabel('transitions in the buffer')
    axes.set_ylabel('ms for a batch of 32 as tensors (median)')
    axes.spines[['top', 'right']].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_training(results: Dict[str, Any], path: Path) -> None:
    """The resident memory of a training over time."""
    minutes = [second / 60 for second, _ in results['curve']]
    gigabytes = [rss / 1e9 for _, rss in results['curve']]
    figure, axes = plt.subplots(figsize=(9, 3.6))
    axes.plot(minutes, gigabytes, color=OURS_COLOR, linewidth=2)
    axes.axhline(2, color=THEIRS_COLOR, linewidth=1, linestyle='--')
    axes.text(minutes[-1], 2.03, '2 GB', color=THEIRS_COLOR, ha='right', fontsize=9)
    axes.set_ylim(0, 2.3)
    axes.set_xlabel(
        f'minutes of training with {results["transitions"]:,} transitions in the buffer '
        f'({results["updates"]:,} updates at the end)'
    )
    axes.set_ylabel('resident memory, GB')
    axes.spines[['top', 'right']].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
def main() -> None:
    """Draw the figures of docs/memory.md."""
    figures = ROOT / 'docs' / 'figures'
    measured = json.loads((ROOT / 'docs' / 'results' / 'bench_replay.json').read_text())
    click.echo(table(measured['results'], measured['sizes'], markdown=True))
    draw_memory(measured['results'], measured['sizes'][-1], figures / 'replay_memory.png')
    draw_time(measured['results'], measured['sizes'], figures / 'replay_time.png')
    training = json.loads((ROOT / 'docs' / 'results' / 'training_memory.json').read_text())
    draw_training(training, figures / 'training_memory.png')


if __name__ == '__main__':
    main()
