"""Trainings as rows of one JSON file: who trained, how long, with which curve, and the games that were played then."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from breakout_env.agent.weights_file import checkpoints_of
from breakout_env.run.log import RunLog
from breakout_env.run.paths import AVERAGED_AGENT, PROGRESS_LOG

from .rounds import ROOT, machine

GAMES, GAMES_SEED = 40, 1000
CURVE_POINTS = 100
# env steps, hours, score while training: the mean of the last 100 full games, 0 before the first
Point = tuple[float, float, float]


def add_row(path: Path, row: dict[str, Any]) -> None:
    """Append the row of a training to the file of results, a line for each."""
    rows = json.loads(path.read_text())['rows'] if path.exists() else []
    lines = ',\n'.join(json.dumps(each) for each in [*rows, row])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"rows": [\n{lines}\n]}}\n')


def training_row(commit: str, updates: int, curve: Sequence[Point], games: Sequence[float]) -> dict[str, Any]:
    """What there is to say about a training that has ended."""
    env_steps, hours, train_score = curve[-1]
    about = machine([])
    kept = np.unique(np.linspace(0, len(curve) - 1, CURVE_POINTS).astype(int))
    return dict(
        date=about['date'],
        commit=commit,
        cpu=about['cpu'],
        env_steps=int(env_steps),
        updates=updates,
        hours=round(hours, 4),
        train_score=train_score,
        score=float(np.mean(games)),
        games=list(games),
        env_steps_per_s=round(env_steps / hours / 3600, 1),
        updates_per_s=round(updates / hours / 3600, 1),
        curve=[[int(curve[i][0]), round(curve[i][1], 4), round(curve[i][2], 2)] for i in kept],
    )


def last_of(run: Path, column: str) -> float:
    """The newest value in the log of a run of this package, such as its ``hours``, pauses left out; 0 before that."""
    values = RunLog.read(run).progress[column] if (run / PROGRESS_LOG).exists() else []
    return float(values[-1]) if len(values) else 0.0


def judged_run(run: Path) -> dict[str, Any]:
    """The row of a run of this package: its averaged weights play, by the commands that users have."""
    checkpoints = checkpoints_of(run)
    agent, report = checkpoints[-1], run / 'games.json'
    if len(checkpoints) > 1:
        agent = run / AVERAGED_AGENT
        run_python(['-m', 'breakout_env', 'average', run, '--output', agent], run)
    asked = ['--protocol', 'nature', '--episodes', GAMES, '--seed', GAMES_SEED, '--json', report]
    run_python(['-m', 'breakout_env', 'eval', '--checkpoint', agent, *asked], run)
    log = RunLog.read(run)
    curve = list(zip(*(np.nan_to_num(log.progress[name]) for name in ('env_step', 'hours', 'train_return'))))
    commits = ', '.join(dict.fromkeys(str(start.get('commit')) for start in log.starts))
    games = [game['score'] for game in json.loads(report.read_text())['games']]
    return training_row(commits, int(log.progress['updates'][-1]), curve, games)


def run_python(arguments: Sequence[Any], folder: Path) -> None:
    """Run a Python program; a ClickException if it fails. Ctrl-C in a terminal reaches both, and it may save first."""
    words = [sys.executable, *map(str, arguments)]
    process = subprocess.Popen(words, cwd=folder, env={**os.environ, 'PYTHONPATH': str(ROOT)})
    try:
        process.wait()
    finally:
        process.wait()
    if process.returncode:
        raise click.ClickException(f'{" ".join(words[1:])} ended with exit code {process.returncode}; expected 0')
