"""Programs in a terminal, where a person presses Ctrl-C or which a person closes."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from breakout_env.run.paths import saves_in
from helpers.processes import BIN, Command, environ_now, is_there, wait_until
from helpers.runs import NAME, OURS, PROGRESS, config_in, has_learned, rows_of, training

pytestmark = pytest.mark.process

BREAKOUT = str(BIN / 'breakout')
ENDLESS_RANDOM = (r'random_collect_size=\d+', 'random_collect_size=1000000')
# nobody serves the ball, so that an evaluation takes half a minute
ENDLESS_GAMES = (r'random_action_probability=[\d.]+', 'random_action_probability=0.0, fire_on_life_loss=False')
# PyTorch keeps a folder for what it compiles; wandb, which DI-engine imports, removes its folders in a graceful
# shutdown, for which there may be no time
FOLDERS_OF_OTHERS = 'torchinductor|wandb'


def _log_in() -> None:
    """In the child: its stdin is its terminal, and it ignores no signal, as the tests may under nohup."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class Terminal(Command):
    """A terminal of 150 columns with a program in the foreground, which a person types at and closes."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._temporary = folder / 'temporary'
        self._temporary.mkdir(exist_ok=True)
        self._end, program_end = pty.openpty()
        fcntl.ioctl(program_end, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 150, 0, 0))
        # coverage.py, which a measured run imports first, warns on the screen
        environ = {name: value for name, value in environ_now().items() if not name.startswith('COVERAGE')}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environ, 'TMPDIR': str(self._temporary), 'TERM': 'xterm-256color'},
            stdin=program_end,
            stdout=program_end,
            stderr=program_end,
            start_new_session=True,
            preexec_fn=_log_in,
        )
        self.pid = self.process.pid
        os.close(program_end)
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, args=(self._end,), daemon=True)
        self._reader.start()
        self._family: list[psutil.Process] = []

    def _read(self, end: int) -> None:
        with contextlib.suppress(OSError):  # the program or the test has closed it
            while True:
                self._output += os.read(end, 65536)

    @property
    def text(self) -> str:
        return self._output.decode(errors='replace')

    def has_forked(self) -> bool:
        """Whether a worker has been started; git, which DI-engine calls, is another program."""
        with contextlib.suppress(psutil.NoSuchProcess):
            program = psutil.Process(self.pid)
            return any(child.cmdline() == program.cmdline() for child in program.children())
        return False

    def wait_for(self, condition: Callable[[], Any]) -> 'Terminal':
        super().wait_for(condition)
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

    def exit_code(self) -> int:
        """The exit code. No process and no temporary file is left, and no traceback was shown."""
        code = self.process.wait()
        assert wait_until(lambda: not any(map(is_there, self._family))), self._family
        if self._end >= 0:
            self._reader.join(5)
            self.hang_up()
        left = [path.name for path in self._temporary.iterdir() if not re.search(FOLDERS_OF_OTHERS, path.name)]
        assert not left and 'Traceback' not in self.text and 'Exception ignored' not in self.text, (left, self.text)
        return code


def test_the_terminal_shows_a_line_and_after_ctrl_c_how_to_resume(tmp_path):
    folder = tmp_path / NAME
    config = config_in(tmp_path, 900, PROGRESS)
    first = Terminal([BREAKOUT, 'train', '-c', str(config), '-s', '7', '--env-steps', '100000'], tmp_path)
    first.wait_for(lambda: re.search(r'updates/s.*GB', first.text)).press_ctrl_c()
    assert first.exit_code() == 0 and 'Stopping: saving the run' in first.text, first.text
    line = re.findall(r'[^\r\n]*updates/s[^\r\n]*', first.text)[-1]
    assert re.search(r'\d+%.*[\d.]+k?/100k \[\d+:\d+<.*env steps/s', line), line
    scores = r'evaluation score [\d.]+ \(best [\d.]+\)(, training score [\d.]+)?'
    assert re.search(rf'[\d.]+ updates/s, {scores}, \d\.\d GB', line), line
    assert re.search(r'\rrandom play, \d+ of 32 env steps', first.text)
    # logs stay in their files
    assert 'Training Iteration' not in first.text
    assert 'Training Iteration' in (folder / 'log' / 'learner' / 'learner_logger.txt').read_text()

    stopped_at = rows_of(folder)[-1]
    again = re.search(r'resume: +(breakout .*?)\r?\n', first.text)[1]
    further = str(stopped_at['env_step'] + 1600)  # several whole games, however busy the machine is
    command = [BREAKOUT, *again.replace('100000', further).replace('-s 7 ', '').split()[1:]]
    second = Terminal(command, tmp_path)
    assert second.exit_code() == 0 and re.search(r'Resuming .* at [\d,]+ updates', second.text), second.text
    (begun, resumed), rows = rows_of(folder, 'run'), rows_of(folder, 'progress')
    assert begun['env_step'] < resumed['env_step'] == stopped_at['env_step']
    # the clock continues where it was, without the pause
    assert resumed['run_s'] == pytest.approx(stopped_at['run_s'], abs=15)
    assert rows[-1]['run_s'] > stopped_at['run_s'] and rows[-1]['games'] >= stopped_at['games']
    assert 'budget' in second.text and rows[-1]['env_step'] >= stopped_at['env_step'] + 400


def test_an_evaluation_is_shown_and_ctrl_c_does_not_wait_for_its_end(tmp_path):
    command = Terminal(training('overlap', config_in(tmp_path, 900, PROGRESS, OURS, ENDLESS_GAMES)), tmp_path)
    command.wait_for(lambda: 'evaluating, game 1 of 1' in command.text).press_ctrl_c()
    assert command.exit_code() == 0 and 'Stopping: saving the run' in command.text
    assert not rows_of(tmp_path / NAME, 'evaluation')


def test_a_run_of_ding_is_saved_when_its_terminal_is_closed(tmp_path):
    command = Terminal(training('ding', config_in(tmp_path, 900, OURS)), tmp_path).wait_for(has_learned(tmp_path))
    command.hang_up()
    assert command.exit_code() == 129 and saves_in(tmp_path / NAME)


MOMENTS = {
    # DI-engine makes the folder before the workers; imports may fork, too
    'while the workers are forked': (lambda command, folder: (folder / NAME).exists() and command.has_forked(), ()),
    'at random play': (lambda command, folder: 'random play, ' in command.text, (ENDLESS_RANDOM,)),
    'in an evaluation': (lambda command, folder: 'evaluating, game 1' in command.text, (ENDLESS_GAMES,)),
    'while it learns': (lambda command, folder: has_learned(folder)(), ()),
}


@pytest.mark.parametrize('moment', MOMENTS)
def test_ctrl_c_with_workers_of_di_engine_prints_at_most_five_lines(moment, tmp_path):
    condition, changes = MOMENTS[moment]
    command = Terminal(training('ding', config_in(tmp_path, 900, PROGRESS, *changes)), tmp_path)
    command.wait_for(lambda: condition(command, tmp_path))
    command.press_ctrl_c()
    assert command.exit_code() == 130
    after = command.text.partition('^C')[2].split('\n')
    lines = [line for line in after if line.strip()]
    assert len(lines) <= 5 and any('Stopping: ' in line for line in lines), lines
    is_saved = re.search('Saved at .* To resume it: the same command', command.text)
    assert bool(saves_in(tmp_path / NAME)) == bool(is_saved) == (moment == 'while it learns')


@pytest.mark.parametrize('program, times', [('overlap', 12), ('ding', 2)])
def test_second_ctrl_c_forces_the_shutdown(program, times, tmp_path):
    command = Terminal(training(program, config_in(tmp_path, 900, PROGRESS, OURS, ENDLESS_RANDOM)), tmp_path)
    command.wait_for(lambda: 'random play, ' in command.text).press_ctrl_c()
    # two that come before the program gets its turn are one to it
    assert wait_until(lambda: 'Stopping: ' in command.text), command.text
    command.press_ctrl_c(times - 1, 0.1)
    assert command.exit_code() in (130, -signal.SIGINT)  # the latter by the third one
    assert command.text.count('Stopping: ') == 1
