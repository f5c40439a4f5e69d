"""
What an installed package must be able to do from an empty folder: a short use of each command.

For any environment that has the package: those of matrix.py, and those that the tests make of a wheel and an sdist.
"""

import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

# A tenth of a minute where nothing else runs; a machine may be busy.
LIMIT_S = 600.0
# What of a command's output is kept where it fails.
KEPT_CHARACTERS = 2000
# DI-engine has no `python -m ding`, and its script may lie in another environment that ours only reads.
DING = ('-c', 'from ding.entry.cli import cli; cli()')


@dataclass(frozen=True)
class Use:
    """
    Overview:
        A command, and what shows that it has worked.
    """

    # (str) For tables.
    name: str
    # (tuple) Arguments of the environment's Python.
    arguments: Sequence[str]
    # (str) What it prints, a part of it; empty for no matter what.
    prints: str = ''
    # (str) A file that it leaves, not empty.
    leaves: str = ''


@dataclass(frozen=True)
class Outcome:
    """
    Overview:
        What came of a command; ``error`` is empty if it has worked.
    """

    name: str
    seconds: float
    error: str


def where_it_lies(python: Path, folder: Path) -> Path:
    """
    Overview:
        The folder that an environment imports ``breakout_env`` from.
    Arguments:
        - python (:obj:`Path`): The environment's Python.
        - folder (:obj:`Path`): An empty one, to look from.
    """
    code = 'import breakout_env; print(breakout_env.__file__)'
    done = subprocess.run([str(python), '-c', code], cwd=folder, env=_clean(), check=True, stdout=subprocess.PIPE)
    return Path(done.stdout.decode().splitlines()[-1]).parent


def uses(package: Path) -> List[Use]:
    """
    Overview:
        A short use of each command.
    Arguments:
        - package (:obj:`Path`): Folder of the installed package.
    """
    breakout = ('-m', 'breakout_env')
    less = ('policy.random_collect_size=64', 'policy.learn.update_per_collect=2', 'policy.collect.n_sample=8')
    less += ('policy.learn.batch_size=8', 'env.evaluator.max_episode_frames=400')
    short = tuple(word for change in less for word in ('--set', change))
    trained = 'ckpt/ckpt_best.pth.tar'
    demo = str(package / 'configs' / 'breakout_dqn_demo_config.py')
    return [
        Use('breakout --help', (*breakout, '--help'), prints='doctor'),
        Use('breakout doctor', (*breakout, 'doctor'), prints='worker process'),
        Use(
            'breakout eval --pretrained',
            (*breakout, 'eval', '--pretrained', '-n', '1', '--json', 'eval.json'),
            leaves='eval.json',
        ),
        Use(
            'breakout train',
            (*breakout, 'train', '--updates', '4', '--device', 'cpu', '--exp-name', 'trained', *short),
            leaves=f'trained/{trained}',
        ),
        Use(
            'ding -m serial',
            (*DING, '-m', 'serial', '-c', demo, '-s', '0', '--train-iter', '4'),
            leaves=f'experiments/breakout_dqn_demo/{trained}',
        ),
    ]


def try_all(python: Path, folder: Path, limit_s: float = LIMIT_S) -> List[Outcome]:
    """
    Overview:
        Use an installed package as a user does who has nothing else.
    Arguments:
        - python (:obj:`Path`): The Python of the environment that it is installed in.
        - folder (:obj:`Path`): An empty folder.
        - limit_s (:obj:`float`): For each command.
    """
    return [_try(use, python, folder, limit_s) for use in uses(where_it_lies(python, folder))]


def _try(use: Use, python: Path, folder: Path, limit_s: float) -> Outcome:
    begin = time.monotonic()
    command = [str(python), *use.arguments]
    code, stdout, stderr = run_with_all_it_starts(command, limit_s, cwd=folder, env=_clean())
    if code is None:
        return Outcome(use.name, time.monotonic() - begin, f'did not end within {limit_s:g} s')
    seconds = time.monotonic() - begin
    said = (stdout + stderr)[-KEPT_CHARACTERS:]
    if code:
        return Outcome(use.name, seconds, f'exit code {code}: {said}')
    if use.prints not in stdout:
        return Outcome(use.name, seconds, f'printed nothing about {use.prints!r}: {said}')
    left = folder / use.leaves
    if use.leaves and not (left.is_file() and left.stat().st_size):
        return Outcome(use.name, seconds, f'left no {use.leaves}: {said}')
    return Outcome(use.name, seconds, '')


def run_with_all_it_starts(command: List[str], limit_s: float, **options: Any) -> Tuple[Optional[int], str, str]:
    """
    Overview:
        Run a command in a process group of its own, so that nothing that it has started outlives its time.
    Returns:
        - done (:obj:`Tuple[Optional[int], str, str]`): The exit code, None if it did not end in time; what it printed.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors='replace', start_new_session=True, **options,
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
        return process.returncode, stdout, stderr
    except subprocess.TimeoutExpired:
        return None, '', ''
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _clean() -> Dict[str, str]:
    """This process's variables, without those that would show the environment another package than its own."""
    hidden = ('PYTHONPATH', 'PYTHONHOME', 'VIRTUAL_ENV')
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**environ, 'OMP_NUM_THREADS': '1', 'PYTHONSAFEPATH': '1'}


def main() -> None:
    """For an environment's own Python: ``python reliability/installed.py`` in an empty folder."""
    import sys

    outcomes = try_all(Path(sys.executable), Path.cwd())
    print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    sys.exit(any(outcome.error for outcome in outcomes))


if __name__ == '__main__':
    main()
