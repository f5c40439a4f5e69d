"""Real runs that are killed or stopped at any time, and resumed."""

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

from breakout_env.run.paths import saves_in
from helpers.processes import ROOT, Command, run
from helpers.runs import (
    ENTRY,
    N_SAMPLE,
    NAME,
    UPDATES,
    check_saves,
    config_in,
    curves,
    ding_serial,
    has_learned,
)


def test_run_killed_at_random_moments_ends_as_if_it_was_not(tmp_path):
    """It saves all the time, so that most kills interrupt a save."""
    rng = random.Random(0)
    folder = tmp_path / NAME
    config = config_in(tmp_path, 0)
    resumed_at = []
    for _ in range(2):
        command = Command(ding_serial(config), tmp_path)
        saved = folder / 'resume' / 'pairs.json'
        listed = saved.stat().st_mtime_ns if saved.exists() else 0
        command.wait_for(lambda: saved.exists() and saved.stat().st_mtime_ns > listed)  # noqa: B023
        time.sleep(rng.uniform(0, 1))
        assert command.end(signal.SIGKILL, whole_group=True) == -signal.SIGKILL
        resumed_at.append(check_saves(folder)[0]['iteration'])
    assert resumed_at == sorted(set(resumed_at))
    run(ding_serial(config, check_saves(folder)[0]['env_step'] + 60), tmp_path)
    ended = check_saves(folder)[0]
    found = curves(folder)
    assert [steps[0] for steps in found] == [0, *resumed_at]
    assert all(steps == list(range(steps[0], steps[0] + len(steps))) for steps in found)
    # no gap, but for what TensorBoard's own thread had not taken yet
    assert all(steps[-1] >= until - 1 - 2 * UPDATES for steps, until in zip(found, resumed_at))
    assert found[-1][-1] == ended['iteration'] - 1
    left = {path.name for path in (folder / 'resume').iterdir()}
    assert left == {'pairs.json', 'best_score.json', *(Path(save['buffer']).name for save in saves_in(folder))}


def test_make_train_resumes_the_newest_run_of_the_name_or_the_one_in_a_folder(tmp_path):
    config = config_in(tmp_path, 900, (r'resume_training=True', 'resume_training=False'))
    # another experiment, saved later, whose name begins like that of this one
    other = tmp_path / f'{NAME}_other' / 'resume'
    other.mkdir(parents=True)
    recipe = subprocess.run(
        ['make', '-C', str(ROOT), '-n', 'train', 'ARGS=--resume'], capture_output=True, text=True
    ).stdout
    assert re.search(r'bin/breakout train --resume$', recipe, re.M)

    first = Command([*ENTRY, '-c', str(config)], tmp_path)
    folder = tmp_path / NAME
    first.wait_for(has_learned(tmp_path))
    assert first.end(signal.SIGINT, whole_group=True) == 0
    stopped = check_saves(folder)[0]
    assert f'--resume {NAME}' in first.text and 'Traceback' not in first.text
    (other / 'pairs.json').write_text((folder / 'resume' / 'pairs.json').read_text())

    def resumed(env_step: int, *arguments: str) -> str:
        return run([*ENTRY, '-c', str(config), '--env-step', str(env_step), *arguments], tmp_path)

    output = resumed(stopped['env_step'] + 40, '--resume')
    assert f'Resuming {NAME} at {stopped["iteration"]:,} updates' in output
    ended = check_saves(folder)[0]
    assert ended['env_step'] >= stopped['env_step'] + 40 > ended['env_step'] - 3 * N_SAMPLE
    assert [path.name for path in (tmp_path / 'experiments').iterdir() if path != other.parent] == [folder.name]

    # with an absolute folder; all its env steps have been taken
    output = resumed(stopped['env_step'], '--resume', str(folder))
    assert f'Resuming {NAME} at {ended["iteration"]:,} updates' in output
    assert check_saves(folder)[0] == ended and os.listdir(tmp_path).count('experiments') == 1
    assert len(curves(folder)) == 3 and curves(folder)[2] == []
