"""Trainings as rows of one JSON file: who trained, how long, with which curve, and the games that were played then."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from breakout_env.agent.weights_file import checkpoints_of
from breakout_env.run.log import RunLog
from breakout_env.run.paths import AVERAGED_AGENT, PROGRESS_LOG
from breakout_env.run.stop_request import StopRequest
from breakout_env.utils.atomic_file import write_bytes

from .rounds import ROOT, machine

GAMES, GAMES_SEED = 40, 1000
CURVE_POINTS = 100
# env steps, hours, score while training: the mean of the last 100 full games, 0 before the first
Point = tuple[float, float, float]
# Runs Python with these arguments in a folder; raises click.ClickException if that fails.
Program = Callable[[Sequence[Any], Path], None]


class Rows:
    """The file of results, a line for each training. It is written after each, so that it says what is done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = self._read()

    def _read(self) -> list[dict[str, Any]]:
        return json.loads(self._path.read_text())['rows'] if self._path.exists() else []

    def find(self, **wanted: Any) -> dict[str, Any] | None:
        """The row of a training that is done, by its variant, seed and budget."""
        return next((row for row in self.rows if wanted.items() <= row.items()), None)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row and write the file, which trainings beside this one have written since."""
        self.rows = [*self._read(), row]
        lines = ',\n'.join(json.dumps(each) for each in self.rows)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self._path, f'{{"rows": [\n{lines}\n]}}\n'.encode())


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


def judged_run(run: Path, execute: Program) -> dict[str, Any]:
    """The row of a run of this package: its averaged weights play, by the commands that users have."""
    checkpoints = checkpoints_of(run)
    agent, report = checkpoints[-1], run / 'games.json'
    if len(checkpoints) > 1:
        agent = run / AVERAGED_AGENT
        execute(['-m', 'breakout_env', 'average', run, '--output', agent], run)
    asked = ['--protocol', 'nature', '--episodes', GAMES, '--seed', GAMES_SEED, '--json', report]
    execute(['-m', 'breakout_env', 'eval', '--checkpoint', agent, *asked], run)
    log = RunLog.read(run)
    curve = list(zip(*(np.nan_to_num(log.progress[name]) for name in ('env_step', 'hours', 'train_return'))))
    commits = ', '.join(dict.fromkeys(str(start.get('commit')) for start in log.starts))
    games = [game['score'] for game in json.loads(report.read_text())['games']]
    return training_row(commits, int(log.progress['updates'][-1]), curve, games)


def run_python(arguments: Sequence[Any], folder: Path) -> None:
    """Run a Python program; a ClickException if it fails. Ctrl-C and SIGTERM end it gracefully, and then this one."""
    words, started = [sys.executable, *map(str, arguments)], []  # type: ignore[var-annotated]
    with StopRequest(then=lambda: [process.terminate() for process in started]) as stop:
        started.append(subprocess.Popen(words, cwd=folder, env={**os.environ, 'PYTHONPATH': str(ROOT)}))
        code = started[0].wait()
    if stop.requested:
        sys.exit(stop.exit_code)
    if code:
        raise click.ClickException(f'{" ".join(words[1:])} ended with exit code {code}; expected 0')
