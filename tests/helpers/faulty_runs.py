"""
A whole training in small, with faults in it: ``breakout train`` with a tiny network and a few hundred env steps, by DQN
with a replay buffer or by the default recipe, PPO.

It saves all the time, so that a fault at a random moment often meets a save. What it leaves is checked against numbers
that are known beforehand: so many updates, env steps and transitions belong to each save.
"""

import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import psutil

from breakout_env.run.paths import SAVE_LIST, Save, saves_in
from helpers.processes import ROOT, Command, environ_now, is_there
from helpers.runs import SMALL, SMALL_DQN, check_saves

NAME, TEMPORARY = 'run', 'temporary'
CONFIG = {
    'env.max_episode_frames': 80,
    'policy.learn.learner.hook.log_show_after_iter': 10,
    'policy.learn.learner.hook.save_ckpt_after_iter': 100,
    'policy.learn.learner.hook.resume.ext_args': {'save_every_s': 0},
    'policy.learn.learner.hook.progress.ext_args': {'log_every_s': 0.2},
    'policy.eval.evaluator.eval_freq': 24,
}
ENV_STEPS = 160
UNENDING = 10**9


def processes_of(folder: Path) -> List[psutil.Process]:
    """The processes of all runs in a folder; those that have lost their parent still have its temporary folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has just ended
            if process.environ().get('TMPDIR') == str(folder / TEMPORARY) and is_there(process):
                found.append(process)
    return found


class FaultyRun(Command):
    """A run, and what it prints."""

    def __init__(
        self,
        folder: Path,
        env_steps: int = ENV_STEPS,
        faults: Optional[Dict[str, Dict[str, Any]]] = None,
        resume: bool = False,
        overlap: bool = False,
        ppo: bool = False,
        changes: Optional[Dict[str, Any]] = None,
        disk: Optional[Path] = None,
    ) -> None:
        """
        Arguments:
            - folder (:obj:`Path`): Where it starts, and where its output and temporary files are.
            - env_steps (:obj:`int`): Its budget.
            - faults (:obj:`Optional[Dict[str, Dict[str, Any]]]`): See ``faulty_program.py``.
            - resume, overlap (:obj:`bool`): As the command's options.
            - ppo (:obj:`bool`): Whether it trains by the default recipe in place of DQN.
            - changes (:obj:`Optional[Dict[str, Any]]`): Other values of the config, by their paths.
            - disk (:obj:`Optional[Path]`): Where it starts in place of the folder.
        """
        self._same = dict(folder=folder, disk=disk, overlap=overlap, ppo=ppo)
        self.folder = (disk or folder) / NAME
        values = {**(SMALL if ppo else SMALL_DQN), **CONFIG, **(changes or {})}
        options = [word for path, value in values.items() for word in ('--set', f'{path}={value!r}')]
        options += [] if ppo else ['--config', str(ROOT / 'configs' / 'breakout_dqn_cpu_config.py')]
        options += ['--overlap'] * overlap + ['--resume'] * resume
        words = ['train', '--device', 'cpu', '--threads', '1', '--exp-name', NAME, '--env-steps', str(env_steps)]
        program = [str(Path(__file__).with_name('faulty_program.py')), json.dumps(faults or {})]
        (folder / TEMPORARY).mkdir(exist_ok=True)
        # DI-engine's log otherwise breaks its lines to fit a terminal
        environ = {**environ_now(), 'TMPDIR': str(folder / TEMPORARY), 'DISABLE_RICH': '1'}
        super().__init__([sys.executable, *program, *words, *options], folder, environ, cwd=disk)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait()

    def send(self, number: int, to_all: bool = False) -> None:
        """A signal, to the learner's process or to all processes of the run, as a terminal or a scheduler sends it."""
        os.killpg(self.pid, number) if to_all else self.process.send_signal(number)

    def workers(self) -> List[psutil.Process]:
        """The processes of its environments, the oldest first: the collector's, then the evaluator's."""
        children = psutil.Process(self.pid).children()
        forks = [child for child in children if not any('resource_tracker' in word for word in child.cmdline())]
        return sorted(forks, key=lambda process: (process.create_time(), process.pid))

    def until_moment(self) -> None:
        self.wait_for((self.folder.parent / 'moment').exists)

    def until_save(self) -> None:
        self.wait_for((self.folder / SAVE_LIST).exists)

    def until_next_save(self) -> None:
        before = (self.folder / SAVE_LIST).stat().st_mtime_ns
        self.wait_for(lambda: (self.folder / SAVE_LIST).stat().st_mtime_ns > before)

    # ---------------------------------------------------------------- promises

    def completes(self, env_steps: int = ENV_STEPS) -> None:
        """It goes to the end of its budget and saves that; no file of an unfinished or old save is left."""
        assert self.wait() == 0 and 'is used up' in self.text, self.text
        saves = check_saves(self.folder)
        assert saves and saves[0]['env_step'] >= env_steps
        check_tidy(self.folder)

    def is_resumed(self) -> None:
        """
        Another process resumes this run from its newest save, and completes it. A run that ended before its first
        update has no save, and that is what the other says.
        """
        saves = check_saves(self.folder)
        if not saves:
            again = FaultyRun(**self._same, resume=True)
            assert again.wait() == 2 and 'found no saved run' in again.text, again.text
            return
        env_steps = saves[0]['env_step'] + 40
        again = FaultyRun(**self._same, env_steps=env_steps, resume=True)
        again.completes(env_steps)
        check_resumed_from(saves[0], again.text)

    def stops(self) -> None:
        """It can be asked to stop, and then resumed."""
        self.send(signal.SIGTERM)
        self.wait()
        self.is_resumed()


def check_resumed_from(save: Save, text: str) -> None:
    """A run was resumed with all updates, env steps and, of DQN, transitions of a save."""
    expected = f'at {save["iteration"]:,} updates and {save["env_step"]:,} env steps'
    if save['buffer']:
        expected += r', [\d,]+ transitions'
    (found,) = re.findall(rf'{NAME} (at \d.*)\.$', text, re.M)
    assert re.fullmatch(expected, found), text


def check_tidy(folder: Path) -> None:
    """No file of a save that was not finished, or is not listed any more."""
    listed = {name for save in saves_in(folder) for name in (save['checkpoint'], save['buffer'])}
    pattern = re.compile(r'resume_\d+\.pth\.tar|buffer_\d+\.npz|.*unfinished')
    files = [path for part in ('ckpt', 'resume') for path in (folder / part).iterdir()]
    assert not [p.name for p in files if pattern.match(p.name) and str(p.relative_to(folder)) not in listed]
