"""Where the files of runs are, and which run and which checkpoint is the newest."""

import json
import os
import shutil
from pathlib import Path

from breakout_env.run.folder import run_to_resume
from breakout_env.run.paths import SAVE_LIST, newest_checkpoint


def saved_run(folder: str, time: float) -> Path:
    """A run that was saved at a time, by its list of saves."""
    save = dict(iteration=3, env_step=9, checkpoint='ckpt/resume_3.pth.tar', checkpoint_digest='', buffer=None)
    path = Path(folder)
    (path / SAVE_LIST).parent.mkdir(parents=True)
    (path / SAVE_LIST).write_text(json.dumps([dict(save, time=time)]))
    return path


def test_resume_takes_the_run_that_was_saved_last_also_in_a_copy_of_the_folder():
    saved_run('runs/dqn', 3e9)
    saved_run('runs/dqn_260101_120000', 2e9)  # copied later, so that its files are newer
    shutil.copytree('runs', 'copy')
    os.utime('copy/dqn_260101_120000/resume/pairs.json')
    assert run_to_resume('', 'copy/dqn') == 'copy/dqn'


def test_the_newest_checkpoint_is_the_one_after_the_most_updates_or_the_best():
    Path('ckpt').mkdir()
    for name in ('iteration_900', 'iteration_1000', 'resume_950', 'iteration_50'):
        Path('ckpt', f'{name}.pth.tar').touch()
    assert newest_checkpoint('.').name == 'iteration_1000.pth.tar'
    Path('ckpt', 'ckpt_best.pth.tar').touch()
    assert newest_checkpoint('.').name == 'ckpt_best.pth.tar'
