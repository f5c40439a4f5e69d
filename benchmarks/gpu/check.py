"""
Does this project work on this machine's GPU, and how fast is it there?

    make gpu-check
    python -m benchmarks.gpu.check --out gpu_check.json

First the rows of `breakout doctor --gpu`, which compare the GPU with the CPU, and the tests that need no GPU
(tests/policy/test_fake_gpu.py). Then updates a second of learners, alone, and whole trainings of less than a minute
each, their start included. It is made for less than 8 minutes on a GPU; without one, rows that need it say so.

The bars are for a GPU of the H100 class (compute capability 9.0) and 16 cores: 1,500 updates/s at batch 32 while
collecting, a GPU that is busy 80% of the learner's time, 4 times the env steps of DI-engine's own trio.
"""

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple
from xml.etree import ElementTree

import click
import numpy as np
import torch
from tabulate import tabulate

from breakout_env.cli.doctor import FAILS, OK, Check, Finding, run_checks
from breakout_env.cli.gpu_checks import FAIL, NOT_APPLICABLE, PASS, gpu_rows
from breakout_env.run.log import RunLog
from breakout_env.utils.gpu import gpu_problem
from breakout_env.utils.memory_limits import gpu_room

from ..common import recording as play
from ..common.cli import CORES, command
from ..common.env_peers import Manager
from ..common.processes import ROOT
from ..common.rounds import Result, interleaved, section
from ..learner import updates
from ..replay import peers

FAKE_TESTS = 'tests/policy/test_fake_gpu.py'
PACKAGES = ['DI-engine', 'torch', 'numpy', 'ale-py', 'stable-baselines3']
TRANSITIONS = 5000
BATCH_SIZES = (32, 128, 512)
UPDATES_PER_S, BUSY, TIMES_TRIO = 1500, 0.8, 4
PROFILED_S = 1.0


class FramesOnGPU(peers.Frame):
    """Ours, on the GPU."""

    options = dict(storage='device')


class Steps(peers.StableBaselines3):
    """Batches on the GPU."""

    device = 'cuda'


class Learner(updates.InDIEngine):
    """A policy of DI-engine's registry on the GPU, and the share of the time that the GPU computes."""

    def __init__(self, *args: Any, device: str = 'cuda') -> None:
        self._device = device
        super().__init__(*args, cuda=device == 'cuda')

    def measure(self, seconds: float) -> Dict[str, float]:
        return dict(super().measure(seconds), gpu_busy=self._busy_share())

    def _busy_share(self) -> float:
        activity = torch.profiler.ProfilerActivity
        with torch.profiler.profile(activities=[activity.CUDA if self._device == 'cuda' else activity.CPU]) as profiler:
            _, elapsed_s = self._work(PROFILED_S)
        return sum(event.self_device_time_total for event in profiler.key_averages()) / 1e6 / elapsed_s


class StableBaselines3(updates.StableBaselines3):
    """Its DQN on the GPU."""

    kind = Steps


class PlainTorch(updates.PlainTorch):
    """DQN as CleanRL has it, on the GPU."""

    kind = Steps


LEARNERS = {
    "DI-engine's dqn": partial(Learner, 'dqn', peers.Frame, {}),
    'lean_dqn': partial(Learner, 'lean_dqn', peers.Frame, {}),
    'lean_dqn, frames on the GPU': partial(Learner, 'lean_dqn', FramesOnGPU, {}),
    'lean_dqn, frames on the GPU, bfloat16': partial(Learner, 'lean_dqn', FramesOnGPU, dict(autocast='bfloat16')),
    'Stable-Baselines3 DQN': StableBaselines3,
    'plain torch, as CleanRL': PlainTorch,
}
TRIO, WHILE_COLLECTING = 'the trio: dqn, subprocess', 'lean_dqn, overlapped, an update each step'
RANDOM_PLAY = ('--set', 'policy.random_collect_size=2048')
LEAN = ('-c', 'configs/breakout_lean_dqn_config.py', *RANDOM_PLAY)
TRAININGS: Dict[str, Tuple[str, ...]] = {
    TRIO: ('-c', 'configs/breakout_dqn_config.py', *RANDOM_PLAY),
    'lean_dqn, serial': LEAN,
    'lean_dqn, overlapped': (*LEAN, '--overlap'),
    WHILE_COLLECTING: (*LEAN, '--overlap', '--set', 'policy.learn.update_per_collect=32'),
}
# Little besides playing and learning.
COMMON = ('env.n_evaluator_episode=1', 'env.evaluator_env_num=1', 'env.evaluator.max_episode_frames=1000')


def fake_rows(tests: str = FAKE_TESTS) -> Iterator[Finding]:
    """The tests on a GPU that only has shapes, a row each."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, 'report.xml')
        # without the fixtures of all tests, whose packages a machine with a GPU may lack
        options = ['-q', '--noconftest', '-p', 'no:cacheprovider', f'--junitxml={report}', tests]
        done = subprocess.run([sys.executable, '-m', 'pytest', *options], cwd=ROOT, capture_output=True, text=True)
        if not report.exists():
            yield Finding(FAIL, f'pytest ended with {done.returncode}: {done.stderr[-200:]}', name='without a GPU')
            return
        for case in ElementTree.parse(report).iter('testcase'):
            failure = next((found for kind in ('failure', 'error') for found in case.iter(kind)), None)
            found = 'as on a GPU' if failure is None else failure.get('message', '')[:200]
            yield Finding(PASS if failure is None else FAIL, found, name=f'no GPU: {case.get("name")}')


def gpu_here() -> Finding:
    """The GPU, looked for in a process of its own: one that has begun to use it cannot fork."""

    def look() -> Finding:
        problem = gpu_problem()
        if problem:
            return Finding(FAILS, problem)
        major, minor = torch.cuda.get_device_capability()
        room = gpu_room('cuda').limit_bytes / 1e9
        return Finding(OK, f'{torch.cuda.get_device_name()}, {room:.0f} GB, compute capability {major}.{minor}')

    (row,) = run_checks([Check('GPU', look)])
    return row


def needs_gpu(problem: str) -> List[Finding]:
    """The rows of what is measured on a GPU, without one."""
    names = [f'updates/s, batch of {size}' for size in BATCH_SIZES] + [f'training: {name}' for name in TRAININGS]
    return [Finding(NOT_APPLICABLE, f'needs a GPU: {problem}', name=name) for name in names]


def judged(name: str, value: float, bar: float, found: str, is_fast_machine: bool) -> Finding:
    """A row with a bar, which is for fast machines."""
    if not is_fast_machine:
        return Finding(NOT_APPLICABLE, f'{found}; the bar needs a GPU of the H100 class and 16 cores', name=name)
    return Finding(PASS if value >= bar else FAIL, f'{found}; expected {bar:g} or more', name=name)


def trained(name: str, words: Tuple[str, ...], seconds: float, device: str = 'cuda') -> Dict[str, float]:
    """Train for some seconds; env steps and updates a second between the first update and the end."""
    options = ['--device', device, '--hours', str(seconds / 3600), '--exp-name', 'run', *words]
    options = [str(ROOT / word) if word.startswith('configs/') else word for word in options]
    options += [word for change in COMMON for word in ('--set', change)]
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *sys.path]))
        program = [sys.executable, '-m', 'breakout_env', 'train', *options]
        done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise click.ClickException(f'{name} ended with {done.returncode}: {done.stderr.strip()[-300:]}')
        rows = RunLog.read(Path(folder, 'run')).progress
    learning = np.flatnonzero(rows['updates'] > 0)
    if len(learning) < 2:
        raise click.ClickException(f'{name} logged {len(learning)} times; expected a longer --training-seconds')
    elapsed_s, steps, learned = (
        float(rows[key][learning[-1]] - rows[key][learning[0]]) for key in ('run_s', 'env_step', 'updates')
    )
    return dict(env_steps_per_s=steps / elapsed_s, updates_per_s=learned / elapsed_s)


def speed_rows(
    result: Result, is_fast: bool, seconds: float, training_seconds: float, device: str = 'cuda'
) -> Iterator[Finding]:
    """Learners alone, then whole trainings."""
    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, 'random.play')
        play.record('random', TRANSITIONS * 21 // 20 + 1000, recording)
        for size in BATCH_SIZES:
            factories = {name: partial(make, recording, TRANSITIONS, size, CORES) for name, make in LEARNERS.items()}
            runs, failures = interleaved(factories, 1, seconds=seconds)
            reference = "DI-engine's dqn"
            result.add(section(f'batch of {size}', runs, failures, 'updates_per_s', reference), batch_size=size)
            found = ', '.join(f'{name} {run["updates_per_s"]:,.0f}' for name, (run,) in runs.items())
            ours_run = {'lean_dqn', reference} <= set(runs)
            yield Finding(PASS if ours_run else FAIL, found or str(failures), name=f'updates/s, batch of {size}')
            if size == BATCH_SIZES[0] and ours_run:
                busy = runs['lean_dqn'][0]['gpu_busy']
                yield judged('GPU busy, lean_dqn, batch of 32', busy, BUSY, f'{busy:.0%} of the time', is_fast)
    emulators = {'emulators': partial(Manager, 'breakout', {}, 8 * CORES)}
    runs, failures = interleaved(emulators, 1, seconds=seconds)
    limit = runs['emulators'][0]['steps_per_s'] if runs else float('nan')
    trainings: Dict[str, Dict[str, float]] = {}
    for name, words in TRAININGS.items():
        try:
            figures = trainings[name] = trained(name, words, training_seconds, device)
        except click.ClickException as error:
            yield Finding(FAIL, error.message, name=f'training: {name}')
            continue
        steps, learned = figures['env_steps_per_s'], figures['updates_per_s']
        found = f'{steps:,.0f} env steps/s, {learned:,.0f} updates/s, {steps / limit:.0%} of what {CORES} cores emulate'
        yield Finding(PASS, found, name=f'training: {name}')
        if name == WHILE_COLLECTING:
            yield judged('updates/s while collecting', learned, UPDATES_PER_S, f'{learned:,.0f}', is_fast)
    result.content.update(trainings=trainings, emulators_env_steps_per_s=limit)
    if TRIO in trainings:
        fastest = max(trainings, key=lambda name: trainings[name]['env_steps_per_s'])
        times = trainings[fastest]['env_steps_per_s'] / trainings[TRIO]['env_steps_per_s']
        yield judged("the trio's env steps/s", times, TIMES_TRIO, f'{times:.1f} times by {fastest}', is_fast)


@command(
    click.option('--seconds', default=2.0, type=click.FloatRange(min=0.1), help='Counted of each learner.'),
    click.option('--training-seconds', default=36.0, type=click.FloatRange(min=5), help='Of each training.'),
)
def main(seconds: float, training_seconds: float, out: Optional[str]) -> None:
    """Check the GPU, and measure on it."""
    start, gpu, rows = time.monotonic(), gpu_here(), []  # type: ignore[var-annotated]
    result = Result(out, PACKAGES, gpu=gpu.found, rows=[])

    def show(found: Iterator[Finding]) -> None:
        for row in found:
            click.echo(f'{row.state:>14}  {row.name}: {row.found}')
            rows.append(row)
            result.content['rows'].append(dict(name=row.name, state=row.state, found=row.found))
            result.write()

    show(gpu_rows())
    show(fake_rows())
    if gpu.state == OK:
        is_fast = CORES >= 16 and float(gpu.found.rsplit(' ', 1)[1]) >= 9
        show(speed_rows(result, is_fast, seconds, training_seconds))
    else:
        show(iter(needs_gpu(gpu.found)))
    click.echo('\n' + tabulate([[row.name, row.state, row.found] for row in rows], ['check', 'state', 'found']))
    failed = [row.name for row in rows if row.state == FAIL]
    outcome = f'failed: {", ".join(failed)}' if failed else 'none failed'
    click.echo(f'\n{gpu.found}; {time.monotonic() - start:.0f} s; {outcome}')
    if out is not None:
        click.echo(f'written to {out}')
    sys.exit(bool(failed))


if __name__ == '__main__':
    main()
