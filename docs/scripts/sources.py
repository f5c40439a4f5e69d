"""Where each result in docs/results is from: the program that measured it, the code that it is about, its date and
commit.
"""

import json
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from blocks import ROOT, markdown

from breakout_env.run.log import RunLog

RESULTS = ROOT / 'docs' / 'results'
GUIDE = RESULTS / 'README.md'


class Source(NamedTuple):
    """What wrote the results of a pattern, and the code that they are about, below the root."""

    program: str
    about: tuple[str, ...]


_TRAINING = ('breakout_env/envs', 'breakout_env/policy', 'breakout_env/worker')
_MANAGERS = ('breakout_env/env_manager', 'breakout_env/envs')
SOURCES = {
    'agents/*': Source('tools/make_pretrained.py, partly by hand', ('breakout_env/pretrained', 'breakout_env/envs')),
    'bench_env.json': Source('python -m benchmarks.env.speed', ('breakout_env/envs',)),
    'bench_[am]*.json': Source('python -m benchmarks.env_manager.throughput', _MANAGERS),
    'bench_replay*.json': Source('python -m benchmarks.replay.cost', ('breakout_env/replay',)),
    'bench_ray.json': Source('python -m benchmarks.training.on_ray', ('breakout_env/cluster', *_TRAINING)),
    'bench_train*.json': Source('python -m benchmarks.training.speed', _TRAINING),
    'lifecycle.json': Source('docs/scripts/check_dizoo.py', ('breakout_env/testing', 'breakout_env/envs')),
    'lifecycle_gymnasium.json': Source('docs/scripts/check_gymnasium.py', ('breakout_env/testing',)),
    'recipes*.json': Source('python -m benchmarks.recipes', _TRAINING),
    'training/*': Source('breakout train', _TRAINING),
}


def results(pattern: str = '**/*') -> list[Path]:
    """The stored results."""
    return sorted(path for path in RESULTS.glob(pattern) if path.is_file() and path != GUIDE)


def stamps(path: Path) -> tuple[list[str], list[str]]:
    """When a result was measured, and by which code.

    Returns:
        Days, as in ``2026-11-22``; commits, as in ``1a2b3c4``.
    """
    if path.suffix == '.gz':
        about: Sequence[dict[str, Any]] = RunLog.read(path).starts
    else:
        content = json.loads(path.read_text())
        about = [content, content.get('card', {}), *content.get('rows', [])]
    days, commits = set(), set()
    for each in about:
        if 'date' in each:
            days.add(each['date'][:10])
        if 'time' in each:
            days.add(datetime.fromtimestamp(each['time'], timezone.utc).date().isoformat())
        commits |= set(each['commit'].split(', ')) if 'commit' in each else set()
    return sorted(days), sorted(commits)


def table() -> str:
    """The results with their sources."""
    rows = []
    for pattern, source in SOURCES.items():
        found = [stamps(path) for path in results(pattern)]
        if found:
            days, commits = (sorted({one for stamp in found for one in stamp[kind]}) for kind in (0, 1))
            what = ', '.join(f'`{folder}`' for folder in source.about)
            rows.append([f'`{pattern}`', source.program, what, ', '.join(days), ', '.join(commits)])
    return markdown(['result', 'written by', 'about', 'date', 'commit'], rows, 0)


def has_history() -> bool:
    """Whether this is a clone with all of its commits."""
    return (ROOT / '.git').exists() and git('rev-parse', '--is-shallow-repository') == 'false'


def git(*arguments: str) -> str:
    """What git answers; nothing where it fails or is not installed."""
    try:
        answer = subprocess.run(['git', *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:  # not installed
        return ''
    return answer.stdout.strip() if answer.returncode == 0 else ''
