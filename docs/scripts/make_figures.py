"""Draw the figures of the guides, from the measurements in docs/results.

python docs/scripts/make_figures.py
"""

import json
from pathlib import Path

import training_rows
from blocks import ROOT
from make_tables import PPO, RESULTS

from breakout_env.run.log import RunLog
from breakout_env.run.plotting import COLORS, STYLE, Curve, draw_curves, save_figure

FIGURES = ROOT / 'docs' / 'figures'
OURS = ('compressed', 'compressed, prioritised', 'ring', 'memmap')
OURS_COLOR, PEERS_COLOR = COLORS[0], '#8c8c8c'  # told apart without red or green, and in print


def draw_replay_memory(path: Path) -> None:
    """Bars of bytes a transition, the smallest at the top."""
    from matplotlib import style
    from matplotlib.figure import Figure

    from benchmarks.replay.cost import in_memory

    measured = json.loads((RESULTS / 'bench_replay.json').read_text())
    size = measured['sizes'][-1]
    rows = []
    for name, by_size in measured['results'].items():
        row = by_size[str(size)]
        if name != 'nothing':
            total = in_memory(row) + row['disk_bytes_per_transition']
            rows.append((total, name, row['disk_bytes_per_transition'] > 0, row.get('extrapolated', False)))
    rows.sort(reverse=True)
    with style.context(['default', STYLE, {'axes.grid': False, 'axes.spines.left': False}]):
        figure = Figure(figsize=(9, 0.4 * len(rows) + 1), layout='constrained')
        axes = figure.add_subplot()
        for y, (total, name, on_disk, extrapolated) in enumerate(rows):
            color = OURS_COLOR if name in OURS else PEERS_COLOR
            axes.barh(y, total, color=color, hatch='///' if extrapolated else None, edgecolor='white', linewidth=0)
            remarks = ', on disk' * on_disk + ', extrapolated' * extrapolated
            axes.text(total * 1.08, y, f'{total:,.0f} bytes, {total * size / 1e9:,.2f} GB{remarks}', va='center')
        names = [f'breakout_env, {name}' if name in OURS else name for _, name, _, _ in rows]
        axes.set_yticks(range(len(rows)), names)
        axes.set_xscale('log')
        axes.set_xlim(100, 2e7)
        axes.set_xticks([10**power for power in range(2, 6)], [f'{10**power:,}' for power in range(2, 6)])
        axes.set_xticks([], minor=True)
        axes.set_xlabel(f'bytes a transition, and of all {size:,} transitions of random play')
        axes.tick_params(axis='y', length=0)
    save_figure(figure, path)


def main() -> None:
    """Draw them all."""
    draw_replay_memory(FIGURES / 'replay_memory.png')
    ppo = Curve('PPO on one H100 and 16 CPU cores', (RunLog.read(PPO),))
    save_figure(draw_curves([ppo], ('train_return', 'value', 'entropy'), 'env_step'), FIGURES / 'training_curve.png')
    timed = training_rows.rows()
    long = [row for row in training_rows.env_steps_rows() if row['budget_env_steps'] >= 1e7]
    for x, name, drawn in (('env_step', 'env_steps', timed + long), ('hours', 'hours', timed)):
        save_figure(draw_curves(training_rows.curves(drawn), ['train_return'], x), FIGURES / f'recipes_{name}.png')


if __name__ == '__main__':
    main()
