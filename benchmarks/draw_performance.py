"""
Puts what the benchmarks of speed measured into docs/performance.md and its translation: tables and a figure.

    python benchmarks/draw_performance.py

reads docs/results/bench_{manager,manager_scaling,learner,learner_batches,train,busy,score}.json and profile.json,
writes docs/figures/performance_envs.png, and replaces what stands in the guides between a line ``<!-- name -->`` and
the next ``<!-- end -->``.
"""

import json
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

import click
import matplotlib

matplotlib.use('Agg')  # no display is needed to write files
import matplotlib.pyplot as plt
import numpy as np
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / 'docs' / 'results'
GUIDES = [ROOT / 'docs' / 'performance.md', ROOT / 'docs' / 'performance.zh-CN.md']
OURS_COLOR, THEIRS_COLOR = '#0072b2', '#8c8c8c'  # told apart by people who see no red or green, and in print


def load(name: str) -> Optional[Dict[str, Any]]:
    """What a benchmark wrote."""
    path = RESULTS / f'{name}.json'
    return json.loads(path.read_text()) if path.exists() else None


def markdown(headers: List[str], cells: List[list]) -> str:
    """A table whose numbers stand at the right."""
    align = ('left', *['right'] * (len(headers) - 1))
    return tabulate(cells, headers, tablefmt='github', disable_numparse=True, colalign=align)


def _name(name: str) -> str:
    return f'**{name}**' if name.startswith('ours') else name


def one_section(section: Dict[str, Any], unit: str) -> str:
    """
    Overview:
        The table of one section of a benchmark, as benchmarks/turns.py wrote it.
    """
    cells = []
    for row in section['rows']:
        if 'failure' in row:
            cells.append([_name(row['name']), f'failed: {row["failure"][:60]}', '', ''])
        else:
            digits = 0 if row['median'] >= 100 else 1
            spread = f'{row["low"]:,.{digits}f} to {row["high"]:,.{digits}f}'
            cells.append([_name(row['name']), f'{row["median"]:,.{digits}f}', spread, f'{row["ratio"]:.2f}'])
    return markdown([section['title'], unit, 'min to max', 'ratio'], cells)


def across(sections: List[Dict[str, Any]], key: str) -> str:
    """
    Overview:
        Medians of several sections side by side, a column for each.
    """
    names = [row['name'] for row in sections[0]['rows']]
    cells = []
    for name in names:
        found = [next((row for row in section['rows'] if row['name'] == name), {}) for section in sections]
        cells.append([_name(name), *(f'{row["median"]:,.0f}' if 'median' in row else '' for row in found)])
    return markdown([key.replace('_', ' '), *(f'{section[key]:,}' for section in sections)], cells)


def scores(measured: Dict[str, Any]) -> str:
    """
    Overview:
        The table of benchmarks/bench_score.py.
    """
    by_learner: Dict[str, list] = {}
    for run in measured['runs']:
        by_learner.setdefault(run['learner'], []).append(run)
    stock = np.mean([run['score'] for run in by_learner['stock']])
    cells = []
    for learner, runs in by_learner.items():
        score = np.mean([run['score'] for run in runs])
        games = sum(len(scores) for run in runs for scores in run['games'].values())
        checkpoints = '; '.join(', '.join(f'{mean:.1f}' for mean in run['means']) for run in runs)
        cells.append([learner, f'{score:.1f}', f'{score / stock:.2f}', checkpoints, str(len(runs)), str(games)])
    return markdown(['learner', 'score', 'of stock', 'by checkpoint', 'runs', 'games'], cells)


def tables() -> Dict[str, str]:
    """
    Overview:
        All tables whose results are there, by name.
    """
    made = {}
    if manager := load('bench_manager'):
        made['manager'] = one_section(manager['sections'][0], 'env steps/s')
    if scaling := load('bench_manager_scaling'):
        made['scaling'] = across(scaling['sections'], 'env_num')
    if learner := load('bench_learner'):
        made['learner'] = one_section(learner['sections'][0], 'updates/s')
    if batches := load('bench_learner_batches'):
        made['batches'] = across(batches['sections'], 'batch_size')
    if train := load('bench_train'):
        made['train'] = '\n\n'.join(one_section(section, 'env steps/s') for section in train['sections'])
    if busy := load('bench_busy'):
        made['busy'] = '\n\n'.join(one_section(section, 'env steps/s') for section in busy['sections'])
    if score := load('bench_score'):
        made['score'] = scores(score)
    if profiled := load('profile'):
        shares = [[part, f'{share:.0%}'] for part, share in profiled['env'].items()]
        made['profile_env'] = markdown(['a step of a group of four', 'share'], shares)
        learners = profiled['learners']
        cells = [[part, *(f'{parts[part]:.1f}' for parts in learners.values())] for part in learners['lean_dqn']]
        made['profile_learner'] = markdown(['ms of an update', *learners], cells)
    return made


def draw_scaling(scaling: Dict[str, Any], path: Path) -> None:
    """Lines of env steps a second over the number of environments."""
    figure, axes = plt.subplots(figsize=(9, 4.6))
    env_nums = [section['env_num'] for section in scaling['sections']]
    ends = []
    for name in [row['name'] for row in scaling['sections'][0]['rows']]:
        points = [
            (section['env_num'], row['median'])
            for section in scaling['sections']
            for row in section['rows']
            if row['name'] == name and 'median' in row
        ]
        color = OURS_COLOR if name.startswith('ours') else THEIRS_COLOR
        axes.plot(*zip(*points), color=color, marker='o', markersize=4)
        ends.append((points[-1][1], points[-1][0], name, color))
    # labels beside the ends of the lines, moved apart where they would meet
    lowest = 0.0
    for value, env_num, name, color in sorted(ends):
        lowest = max(value, lowest + max(ends)[0] / 24)
        arrow = dict(arrowstyle='-', color=color, linewidth=0.4)
        axes.annotate(
            name, (env_num, value), (env_num * 1.3, lowest), color=color, fontsize=8, va='center', arrowprops=arrow
        )
    axes.set_xscale('log')
    axes.set_xticks(env_nums, [str(number) for number in env_nums])
    axes.set_xticks([], minor=True)
    axes.set_xlim(env_nums[0] * 0.9, env_nums[-1] * 6)
    axes.set_ylim(0)
    axes.set_xlabel('environments')
    axes.set_ylabel('env steps a second, median')
    axes.spines[['top', 'right']].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
def main() -> None:
    """Put the measured tables into the guides, and draw the figure."""
    for path in GUIDES:
        text = path.read_text()
        for name, made in tables().items():
            marked = re.compile(rf'(<!-- {name} -->\n)(?:(?!<!--).)*(<!-- end -->)', re.S)
            text, count = marked.subn(lambda found, made=made: f'{found[1]}{made}\n{found[2]}', text)
            if not count:
                raise click.ClickException(f'{path.name} has no place for the table {name}: <!-- {name} -->')
        path.write_text(text)
    if scaling := load('bench_manager_scaling'):
        draw_scaling(scaling, ROOT / 'docs' / 'figures' / 'performance_envs.png')


if __name__ == '__main__':
    main()
