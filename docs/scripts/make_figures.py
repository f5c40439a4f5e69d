"""Draw the figures of the guides: measurements in docs/results, and the processes of a training.

python docs/scripts/make_figures.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import training_rows
from blocks import ROOT
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from breakout_env.run.log import RunLog
from breakout_env.run.plotting import COLORS, STYLE, draw_curves, save_figure

FIGURES = ROOT / 'docs' / 'figures'


@contextmanager
def drawn(path: Path, width: float, height: float) -> Iterator[Any]:
    """Axes without a grid; the figure is saved at the end."""
    with style.context(['default', STYLE, {'axes.grid': False}]):
        figure = Figure(figsize=(width, height), layout='constrained')
        yield figure.add_subplot()
    save_figure(figure, path)


# The trainings by the clock on one kind of CPU: label, color, and how far above the end of its curve a label stands.
LEARNING_CPU = 'AMD EPYC with bfloat16'
LEARNING = {
    'ppo': ('breakout_env PPO,\nmean of 3 seeds, min to max', COLORS[0], 0),
    'SB3 PPO': ('Stable-Baselines3 PPO', COLORS[1], 18),
    'DI-engine dqn': ('DI-engine DQN', '#000000', 11),
}


def draw_learning(path: Path) -> None:
    """Score while training against minutes."""
    rows = [row for row in training_rows.timed() if row['cpu'] == LEARNING_CPU]
    with drawn(path, 7.6, 3.6) as axes:
        for name, (label, color, raised) in LEARNING.items():
            curves = [np.transpose(row['curve']) for row in rows if row['variant'] == name]
            minutes = np.linspace(0, 60 * min(hours[-1] for _, hours, _ in curves), 60)
            scores = np.array([np.interp(minutes, 60 * hours, score) for _, hours, score in curves])
            mean = scores.mean(axis=0)
            axes.fill_between(minutes, scores.min(axis=0), scores.max(axis=0), color=color, alpha=0.2, linewidth=0)
            axes.plot(minutes, mean, color=color)
            axes.text(minutes[-1] + 1, mean[-1] + raised, label, color=color, va='center')
        axes.set_xlim(0, 112)
        axes.set_xticks(range(0, 81, 10))
        axes.spines['bottom'].set_bounds(0, 80)
        axes.set_ylim(0, None)
        axes.set_xlabel(f'minutes of training on two cores of an {LEARNING_CPU}', x=40 / 112)
        axes.set_ylabel('points a game, mean of the last 100')


def draw_agent(path: Path) -> None:
    """The curves of the training of the agent ``breakout_ppo_80min``."""
    log = RunLog.read(ROOT / 'docs' / 'results' / 'training' / 'ppo_cpu_80min_seed0.jsonl.gz')
    save_figure(draw_curves({'breakout train --hours 1.33': log}, x='hours'), path)


class Box(NamedTuple):
    """A process (gray) or a thread in it (blue): left, bottom, width and height, and what it owns."""

    place: tuple[float, float, float, float]
    title: str
    owns: str = ''
    color: str = '#f2f2f2'


THREAD = '#dcebf7'
LEARNS = 'policy, network, optimizer\ncheckpoints and saves\nlog and progress line'
COLLECTS = 'env manager, shared memory\nunfinished episodes\na copy of the network (overlapped)'
MAIN_THREAD = 'replay memory or rollout\nbudget, best score, stop request\nevaluator with its own env manager'
WORKER = 'a group of BreakoutEnv, each with\nemulator, game, stack of screens\nand what own() was given'
RAY_ACTOR = 'collector or evaluator\nits own copy of the network\nits environments, as a worker process'
BOXES = [
    Box((0.1, 0.1, 5.6, 4.5), 'training process: breakout train, ding -m serial'),
    Box((0.3, 2.9, 2.5, 1.3), 'learns', LEARNS, THREAD),
    Box((3.0, 2.9, 2.5, 1.3), 'collects', COLLECTS, THREAD),
    Box((0.3, 1.4, 5.2, 1.3), 'takes turns with them: the main thread', MAIN_THREAD, THREAD),
    Box((0.3, 0.35, 5.2, 0.8), 'prefetches (option)', 'the next batch', THREAD),
    Box((7.4, 2.1, 2.9, 2.5), 'worker process, one for each core', WORKER),
    Box((7.6, 2.25, 2.5, 1.0), 'helper process', 'window or video encoder\nof one environment', '#ffffff'),
    Box((7.4, 0.1, 2.9, 1.4), 'Ray actor (--collectors N)', RAY_ACTOR),
]
# from, to, what, and how far above the middle that stands
ARROWS = [
    ((5.5, 4.1), (7.4, 4.1), 'starts, ends, replaces', 0.07),
    ((5.5, 3.6), (7.4, 3.6), 'pipe: actions', 0.07),
    ((7.4, 3.1), (5.5, 3.1), 'screens, rewards', 0.07),
    ((5.5, 1.9), (7.4, 1.2), 'weights, requests', 0.3),
    ((7.4, 0.7), (5.5, 1.5), 'fragments of play', -0.42),
]


def draw_processes(path: Path) -> None:
    """Processes, threads, and what each of them owns."""
    with drawn(path, 10.4, 4.7) as axes:
        axes.set_xlim(0, 10.4)
        axes.set_ylim(0, 4.7)
        axes.axis('off')
        for (left, bottom, width, height), title, owns, color in BOXES:
            edge = '#9ab8d0' if color == THREAD else '#404040'
            axes.add_patch(Rectangle((left, bottom), width, height, facecolor=color, edgecolor=edge))
            top = bottom + height - 0.1
            axes.text(left + 0.12, top, title, va='top', weight='bold')
            axes.text(left + 0.12, top - 0.28, owns, va='top', linespacing=1.5)
        for start, end, text, above in ARROWS:
            axes.annotate('', end, start, arrowprops=dict(arrowstyle='-|>', color='#404040'))
            axes.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + above, text, ha='center')


if __name__ == '__main__':
    draw_learning(FIGURES / 'learning.png')
    draw_agent(FIGURES / 'agent_80min.png')
    draw_processes(FIGURES / 'processes.png')
