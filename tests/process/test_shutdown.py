"""However a run ends, it shuts down gracefully: with a message, an exit code, and no process left behind."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, List

import psutil
import pytest

from breakout_env.run.checkpoints import saves_in
from helpers.processes import BIN, ENVIRON, Command, completed, start, wait_until, watched_by_nobody
from helpers.runs import ENTRY, NAME, config_in, ding_serial

BREAKOUT = [str(BIN / 'breakout')]
OURS = (
    r"env_manager=dict\(type='subprocess', shared_memory=True, reset_inplace=True\)",
    "env_manager=dict(type='breakout', import_names=['breakout_env'], worker_num=2)",
)
ENDLESS_RANDOM = (r'random_collect_size=\d+', 'random_collect_size=9000')
# nobody serves the ball, so that an evaluation takes half a minute
ENDLESS_GAMES = (r'random_action_probability=[\d.]+', 'random_action_probability=0.0, fire_on_life_loss=False')
# Seconds for a forced shutdown, with what a busy machine adds.
FORCED_S = 8.0
# PyTorch keeps a folder for what it compiles; wandb, which DI-engine imports, removes its folders in a graceful
# shutdown, for which there may be no time
FOLDERS_OF_OTHERS = 'torchinductor|wandb'


class Terminal(object):
    """A terminal with a program in the foreground, which a person types at and closes."""

    def __init__(self, command: List[str], folder: Path, **environ: str) -> None:
        self._temporary = folder / 'temporary'
        self._temporary.mkdir()
        environ = {**ENVIRON, 'TMPDIR': str(self._temporary), **environ}
        self._end, program_end = pty.openpty()
        self._process = start(
            command, folder, watched_by_nobody(environ), program_end, program_end, subprocess.STDOUT, terminal=True
        )
        self.pid = self._process.pid
        os.close(program_end)
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, args=(self._end,), daemon=True)
        self._reader.start()
        self._family: List[psutil.Process] = []

    def _read(self, end: int) -> None:
        while True:
            try:
                self._output += os.read(end, 65536)
            except OSError:  # the program or the test has closed it
                return

    @property
    def text(self) -> str:
        return self._output.decode(errors='replace')

    def workers(self) -> List[psutil.Process]:
        """Its forks: the workers of environments, not the git that DI-engine calls."""
        program, found = psutil.Process(self.pid).cmdline(), []
        for child in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child] if child.cmdline() == program else []
        return found

    def wait_for(self, condition: Callable[[], Any]) -> 'Terminal':
        assert wait_until(lambda: condition() or self._process.poll() is not None, 120), self.text
        assert self._process.poll() is None, self.text
        self._family = psutil.Process(self.pid).children(recursive=True)
        return self

    def press_ctrl_c(self, times: int = 1, every_s: float = 0.0) -> None:
        for _ in range(times):
            with contextlib.suppress(OSError):  # the program may have ended already
                os.write(self._end, b'\x03')
            time.sleep(every_s)

    def hang_up(self) -> None:
        os.close(self._end)
        self._end = -1

    def exit_code(self, timeout_s: float = 60.0) -> int:
        """The exit code. No process and no temporary file is left, and no traceback was shown."""
        code = self._process.wait(timeout_s)
        assert wait_until(lambda: not any(map(is_there, self._family)), 10), self._family
        if self._end >= 0:
            self._reader.join(5)
            self.hang_up()
        left = [path.name for path in self._temporary.iterdir() if not re.search(FOLDERS_OF_OTHERS, path.name)]
        assert not left and 'Traceback' not in self.text and 'Exception ignored' not in self.text, (left, self.text)
        return code

    def kill(self) -> None:
        """End what a failed test has left of the program."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def open_terminal(command: List[str], **environ: str) -> Terminal:
        opened.append(Terminal(command, tmp_path, **environ))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.kill()


def is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_learned(folder: Path) -> Callable[[], bool]:
    return (folder / NAME / 'ckpt' / 'iteration_0.pth.tar').exists  # DI-engine writes it after the first update


# ---------------------------------------------------------------- Ctrl-C, once


def test_ctrl_c_during_random_play_ends_a_run_gracefully(terminal, tmp_path):
    command = terminal([*ENTRY, '-c', str(config_in(tmp_path, 900, OURS, ENDLESS_RANDOM))])
    command.wait_for(lambda: 'random play' in command.text).press_ctrl_c()
    assert command.exit_code() == 0
    assert 'Stopping: finishing what is under way' in command.text and 'Checkpoints, logs' in command.text


@pytest.mark.parametrize('whole_group', [True, False])
def test_ctrl_c_during_an_evaluation_ends_a_run_gracefully(whole_group, terminal, tmp_path):
    config = config_in(tmp_path, 900, OURS, ENDLESS_GAMES)
    command = terminal([*BREAKOUT, 'train', '-c', str(config)])
    command.wait_for(lambda: len(command.workers()) == 3)  # the evaluator's has been started
    time.sleep(1)
    command.press_ctrl_c() if whole_group else os.kill(command.pid, signal.SIGINT)
    assert command.exit_code() == 0 and 'Stopping: finishing what is under way' in command.text


@pytest.mark.parametrize('how', ['--serial', '--overlap'])
def test_ctrl_c_during_the_training_saves_the_run(how, terminal, tmp_path):
    config = config_in(tmp_path, 900, OURS)
    command = terminal([*BREAKOUT, 'train', '-c', str(config), how])
    command.wait_for(has_learned(tmp_path)).press_ctrl_c()
    assert command.exit_code() == 0 and saves_in(tmp_path / NAME)
    assert '--resume' in command.text


def test_ctrl_c_saves_a_run_of_di_engines_command(terminal, tmp_path):
    command = terminal(ding_serial(config_in(tmp_path, 900, OURS), 1_000_000))
    command.wait_for(has_learned(tmp_path)).press_ctrl_c()
    assert command.exit_code() == 130 and saves_in(tmp_path / NAME)
    assert re.search(r'Saved at .* To resume it: the same command', command.text)


def test_ctrl_c_while_a_video_is_encoded_leaves_no_file(terminal, tmp_path):
    command = terminal([*BREAKOUT, 'record', '--out', 'game.mp4'])
    encoder = lambda: any('ffmpeg' in child.name() for child in psutil.Process(command.pid).children())  # noqa: E731
    command.wait_for(encoder).press_ctrl_c()
    assert command.exit_code() == 130 and 'stopped' in command.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ['temporary']


# ---------------------------------------------------------------- Ctrl-C, again and again


@pytest.mark.parametrize('times', [2, 12])
@pytest.mark.parametrize('program', ['entry', 'overlap', 'ding'])
def test_second_ctrl_c_forces_the_shutdown(program, times, terminal, tmp_path):
    config = config_in(tmp_path, 900, OURS, ENDLESS_RANDOM)  # random play that one Ctrl-C lets end
    command = terminal(
        {
            'entry': [*ENTRY, '-c', str(config)],
            'overlap': [*BREAKOUT, 'train', '-c', str(config), '--overlap'],
            'ding': ding_serial(config, 1_000_000),
        }[program]
    )
    command.wait_for(lambda: (tmp_path / NAME).exists() and len(command.workers()) == 3)
    time.sleep(1)
    command.press_ctrl_c()
    # two that come before the program gets its turn are one to it
    assert wait_until(lambda: 'Stopping: ' in command.text, 30), command.text
    command.press_ctrl_c(times - 1, 0.1)
    pressed_s = time.monotonic()
    assert command.exit_code() in (130, -signal.SIGINT)  # the latter by the third one
    assert time.monotonic() - pressed_s < FORCED_S
    assert command.text.count('Stopping: ') == 1


# ---------------------------------------------------------------- the terminal is closed


@pytest.mark.parametrize('program', ['entry', 'ding'])
def test_run_whose_terminal_is_closed_is_saved(program, terminal, tmp_path):
    config = config_in(tmp_path, 900, OURS)
    command = terminal([*ENTRY, '-c', str(config)] if program == 'entry' else ding_serial(config, 1_000_000))
    command.wait_for(has_learned(tmp_path)).hang_up()
    assert command.exit_code() == (0 if program == 'entry' else 129)
    assert saves_in(tmp_path / NAME)


def test_run_under_nohup_continues_without_its_terminal(tmp_path):
    command = Command(['nohup', *ENTRY, '-c', str(config_in(tmp_path, 900, OURS))], tmp_path)
    log = tmp_path / NAME / 'log' / 'learner' / 'learner_logger.txt'
    command.wait_for(has_learned(tmp_path))
    os.killpg(command.pid, signal.SIGHUP)
    before = log.stat().st_size
    command.wait_for(lambda: log.stat().st_size > before)
    assert command.end(signal.SIGTERM) == 0 and saves_in(tmp_path / NAME)


# ---------------------------------------------------------------- errors

BROKEN = """
import os, runpy, signal, sys
what = sys.argv.pop(1)
sys.argv.pop(0)
from breakout_env import BreakoutEnv
from ding.policy import DQNPolicy
calls = 0
def breaking(whole):
    def function(*args, **kwargs):
        global calls
        calls += 1
        if calls == 50:
            raise KeyboardInterrupt if what == 'interrupt' else ValueError('it is broken')
        return whole(*args, **kwargs)
    return function
if what == 'env':
    BreakoutEnv.step = breaking(BreakoutEnv.step)
else:
    DQNPolicy._forward_learn = breaking(DQNPolicy._forward_learn)
runpy.run_path(sys.argv[0], run_name='__main__')
"""


@pytest.mark.parametrize('program', ['entry', 'ding'])
@pytest.mark.parametrize('what', ['env', 'learner', 'interrupt'])
def test_error_that_ended_a_run_is_the_last_thing_on_the_screen(program, what, tmp_path):
    config = config_in(tmp_path, 900, OURS)
    command = [*ENTRY[1:], '-c', str(config)] if program == 'entry' else ding_serial(config, 1_000_000)
    done = completed([sys.executable, '-c', BROKEN, what, *command], tmp_path, merged=True)
    output = done.stdout.rstrip()
    if what == 'interrupt':
        assert output.endswith('stopped' if program == 'entry' else 'Aborted!'), output
        assert done.returncode == (130 if program == 'entry' else 1) and 'Traceback' not in output
    else:
        assert output.endswith(("ValueError('it is broken')", 'ValueError: it is broken')), output
        assert done.returncode == 1 and output.count('Traceback') == 1
    assert 'Exception ignored' not in output and 'BrokenPipe' not in output


def test_ranks_stop_and_save_when_torchrun_is_killed(tmp_path):
    config = config_in(tmp_path, 900, OURS)
    torchrun = [str(BIN / 'torchrun'), '--standalone', '--nproc-per-node', '2']
    command = Command([*torchrun, str(Path(ENTRY[1]).with_name('breakout_dqn_ddp.py')), '-c', str(config)], tmp_path)
    command.wait_for(has_learned(tmp_path))
    assert command.end(signal.SIGKILL) == -signal.SIGKILL  # and waits for the ranks
    assert 'Stopping: ' in command.text and saves_in(tmp_path / NAME)
