"""However a run ends, it ends in order: it says so in a sentence, with an exit code, and leaves nobody behind."""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, List, Optional

import psutil
import pytest

from breakout_env.run.checkpoints import saves_in
from helpers.processes import BIN, ENVIRON, ROOT, free_port, wait_until, watched_by_nobody
from helpers.runs import NAME, config_in, ding_serial

BREAKOUT = [str(BIN / 'breakout')]
OURS = (
    r"env_manager=dict\(type='subprocess', shared_memory=True, reset_inplace=True\)",
    "env_manager=dict(type='breakout', import_names=['breakout_env'], worker_num=2)",
)
ENDLESS_RANDOM = (r'random_collect_size=\d+', 'random_collect_size=9000')
# nobody serves the ball, so that an evaluation takes half a minute
ENDLESS_GAMES = (
    r'random_action_probability=[\d.]+',
    'random_action_probability=0.0, fire_on_life_loss=False',
)
DITASK = [str(BIN / 'ditask'), '--package', str(ROOT), '--main', 'entry.breakout_dqn_dist.main']
DITASK += ['--parallel-workers', '2', '--topology', 'star', '--address', '127.0.0.1', '--startup-interval', '0']
# Seconds that the program has by itself, and what a machine that does much else meanwhile adds.
AT_ONCE_S, SLACK_S = 2.0, 6.0
# wandb, which DI-engine imports, removes its folders at an end in order, for which there may be no time
AT_ONCE_FILES = 'torchinductor|wandb'


def entry(name: str) -> List[str]:
    return [sys.executable, str(ROOT / 'entry' / f'breakout_dqn_{name}.py')]


class Terminal(object):
    """A terminal with a program in the foreground, which a person types at and closes."""

    opened: List['Terminal'] = []

    def __init__(self, command: List[str], folder: Path, **environ: str) -> None:
        self._command = command
        self._temporary = folder / 'temporary'
        self._temporary.mkdir(exist_ok=True)
        environ = {**ENVIRON, 'TMPDIR': str(self._temporary), 'PYTHONWARNINGS': 'ignore', **environ}
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests themselves run under nohup
            os.chdir(folder)
            os.execvpe(command[0], command, watched_by_nobody(environ))
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.code: Optional[int] = None
        self._family: List[psutil.Process] = []
        self.opened.append(self)

    def _read(self) -> None:
        end = self._end  # a terminal that is closed forgets it
        while True:
            try:
                self._output += os.read(end, 65536)
            except OSError:  # the last one has closed it, or we have
                return

    @property
    def is_there(self) -> bool:
        return psutil.Process(self.pid).cmdline()[-len(self._command) :] == self._command

    @property
    def text(self) -> str:
        return self._output.decode(errors='replace')

    @property
    def children(self) -> List[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    @property
    def workers(self) -> List[psutil.Process]:
        """Its forks: the workers of environments, not the git that DI-engine calls."""
        program = psutil.Process(self.pid).cmdline()
        found = []
        for child in self.children:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child] if child.cmdline() == program else []
        return found

    def wait_for(self, condition: Callable[[], bool]) -> 'Terminal':
        assert wait_until(lambda: condition() or self._has_ended(), 120), self.text
        assert self.code is None, self.text
        self._family = self.children
        return self

    def _has_ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def press_ctrl_c(self, times: int = 1, every_s: float = 0.0) -> None:
        for _ in range(times):
            with contextlib.suppress(OSError):  # the program may have ended already
                os.write(self._end, b'\x03')
            time.sleep(every_s)

    def kill(self) -> None:
        """Whatever a test that failed has left of it."""
        if not self._has_ended():
            for process in [*self.children, psutil.Process(self.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def hang_up(self) -> None:
        os.close(self._end)
        self._end = None

    def ends(self, timeout_s: float = 60.0, others_s: float = 10.0, others_files: str = 'torchinductor') -> int:
        """The exit code as a shell has it. Nobody and nothing temporary is left, and no traceback was shown."""
        if not wait_until(self._has_ended, timeout_s):
            self.kill()
            raise AssertionError(f'it goes on: {self.text}')
        assert wait_until(lambda: not any(is_there(process) for process in self._family), others_s), self._family
        if self._end is not None:
            self._reader.join(5)
            os.close(self._end)
        # PyTorch keeps a folder there for what it compiles
        assert [path.name for path in self._temporary.iterdir() if not re.search(others_files, path.name)] == []
        assert 'Traceback' not in self.text and 'Exception ignored' not in self.text, self.text
        return self.code if self.code >= 0 else 128 - self.code


@pytest.fixture(autouse=True)
def no_program_outlives_its_test():
    yield
    while Terminal.opened:
        Terminal.opened.pop().kill()


def is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_learned(folder: Path) -> Callable[[], bool]:
    return (folder / NAME / 'ckpt' / 'iteration_0.pth.tar').exists  # DI-engine writes it after the first update


def is_importing(terminal: Terminal) -> Callable[[], bool]:
    # PyTorch's libraries come early, and seconds before all the rest is there; the tests' own are there at first, in
    # the fork that becomes the program
    return lambda: terminal.is_there and 'libtorch' in Path(f'/proc/{terminal.pid}/maps').read_text()


# ---------------------------------------------------------------- Ctrl-C, once


@pytest.mark.parametrize(
    'command',
    [
        [*BREAKOUT, 'train'],
        [sys.executable, '-m', 'breakout_env', 'play'],
        [*entry('main')],
        [*entry('dist'), '--parallel-workers', '2'],
        [*entry('ddp')],
        [*entry('eval'), '--load-path', __file__],
    ],
    ids=lambda command: Path(command[1]).name if len(command) > 1 else command,
)
def test_ctrl_c_while_a_program_is_imported_ends_it_with_a_word(command, tmp_path):
    terminal = Terminal(command, tmp_path)
    terminal.wait_for(is_importing(terminal)).press_ctrl_c()
    assert terminal.ends() == 130 and terminal.text.replace('^C', '').strip() == 'stopped'


@pytest.mark.parametrize('number, code', [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_so_do_other_signals(number, code, tmp_path):
    terminal = Terminal([*BREAKOUT, 'train'], tmp_path)
    terminal.wait_for(is_importing(terminal))
    os.kill(terminal.pid, number)
    assert terminal.ends() == code and terminal.text.strip() == 'stopped'


def test_ctrl_c_in_random_play_ends_a_run_in_order(tmp_path):
    terminal = Terminal([*entry('main'), '-c', str(config_in(tmp_path, 900, OURS, ENDLESS_RANDOM))], tmp_path)
    terminal.wait_for(lambda: 'random play' in terminal.text).press_ctrl_c()
    assert terminal.ends() == 0
    assert 'Stopping: finishing what is under way' in terminal.text and 'Checkpoints, logs' in terminal.text


@pytest.mark.parametrize('whole_group', [True, False])
def test_ctrl_c_in_an_evaluation_ends_a_run_in_order(whole_group, tmp_path):
    config = config_in(tmp_path, 900, OURS, ENDLESS_GAMES)
    terminal = Terminal([*BREAKOUT, 'train', '-c', str(config)], tmp_path)
    terminal.wait_for(lambda: len(terminal.workers) == 3)  # the evaluator's has been started
    time.sleep(1)
    terminal.press_ctrl_c() if whole_group else os.kill(terminal.pid, signal.SIGINT)
    assert terminal.ends() == 0 and 'Stopping: finishing what is under way' in terminal.text


@pytest.mark.parametrize('how', ['--serial', '--overlap'])
def test_ctrl_c_in_the_training_saves_the_run(how, tmp_path):
    config = config_in(tmp_path, 900, OURS)
    terminal = Terminal([*BREAKOUT, 'train', '-c', str(config), how], tmp_path)
    terminal.wait_for(has_learned(tmp_path)).press_ctrl_c()
    assert terminal.ends() == 0 and saves_in(tmp_path / NAME)
    assert '--resume' in terminal.text


def test_ctrl_c_ends_di_engines_command_with_the_run_saved(tmp_path):
    terminal = Terminal(ding_serial(config_in(tmp_path, 900, OURS), 1_000_000), tmp_path)
    terminal.wait_for(has_learned(tmp_path)).press_ctrl_c()
    assert terminal.ends() == 130 and saves_in(tmp_path / NAME)
    assert re.search(r'Saved at .* To go on: the same command', terminal.text)


def test_ctrl_c_ends_a_run_in_several_processes(tmp_path):
    config = config_in(tmp_path, 900, OURS)
    terminal = Terminal([*entry('dist'), '-c', str(config), '--parallel-workers', '2'], tmp_path)
    terminal.wait_for(has_learned(tmp_path)).press_ctrl_c()
    assert terminal.ends() == 0 and 'Stopping: ' in terminal.text
    folder = re.search(r'go on: +the same command with --resume (\S+)', terminal.text)[1]
    assert saves_in(tmp_path / folder)


def test_ctrl_c_under_ditask_leaves_the_run_saved_though_its_pool_interrupts_everybody(tmp_path):
    config = config_in(tmp_path, 900, OURS)
    terminal = Terminal(DITASK + ['--ports', str(free_port())], tmp_path, BREAKOUT_DIST_CONFIG=str(config))
    terminal.wait_for(has_learned(tmp_path)).press_ctrl_c()
    assert terminal.ends() == 1  # ditask's
    folder = re.search(r'go on: +the same command with BREAKOUT_DIST_RESUME=(\S+)', terminal.text)[1]
    assert saves_in(tmp_path / folder)


def test_ctrl_c_while_a_video_is_encoded_leaves_no_file(tmp_path):
    terminal = Terminal([*BREAKOUT, 'record', '--out', 'game.mp4'], tmp_path)
    terminal.wait_for(lambda: any('ffmpeg' in child.name() for child in terminal.children)).press_ctrl_c()
    assert terminal.ends() == 130 and 'stopped; game.mp4 was not written' in terminal.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ['temporary']


# ---------------------------------------------------------------- Ctrl-C, again and again


@pytest.mark.parametrize('times', [2, 12])
@pytest.mark.parametrize('program', ['entry', 'overlap', 'ding'])
def test_ctrl_c_again_ends_a_run_at_once(program, times, tmp_path):
    config = str(config_in(tmp_path, 900, OURS, ENDLESS_RANDOM))  # which is played to its end after one Ctrl-C
    command = {
        'entry': [*entry('main'), '-c', config],
        'overlap': [*BREAKOUT, 'train', '-c', config, '--overlap'],
        'ding': ding_serial(Path(config), 1_000_000),
    }[program]
    terminal = Terminal(command, tmp_path)
    terminal.wait_for(lambda: (tmp_path / NAME).exists() and len(terminal.workers) >= 2)
    time.sleep(1)
    terminal.press_ctrl_c()
    # two that come before the program gets its turn are one to it
    assert wait_until(lambda: 'Stopping: ' in terminal.text, 30), terminal.text
    terminal.press_ctrl_c(times - 1, 0.1)
    start = time.monotonic()
    assert terminal.ends(others_files=AT_ONCE_FILES) == 130
    assert time.monotonic() - start < AT_ONCE_S + SLACK_S
    assert terminal.text.count('Stopping: ') == 1


def test_ctrl_c_again_ends_all_processes_of_a_run_at_once(tmp_path):
    config = config_in(tmp_path, 900, OURS)
    terminal = Terminal([*entry('dist'), '-c', str(config), '--parallel-workers', '3'], tmp_path)
    terminal.wait_for(has_learned(tmp_path)).press_ctrl_c(2, 0.3)
    start = time.monotonic()
    assert terminal.ends(others_files=AT_ONCE_FILES) == 130
    assert time.monotonic() - start < AT_ONCE_S + SLACK_S


def test_a_hammered_ctrl_c_gives_the_terminal_back(tmp_path):
    terminal = Terminal([*BREAKOUT, 'play', '--terminal'], tmp_path, TERM='xterm-256color')
    terminal.wait_for(lambda: '\x1b[?1049h' in terminal.text and 'points' in terminal.text)
    terminal.press_ctrl_c(5, 0.02)
    assert terminal.ends() == 130
    assert '\x1b[?25h' in terminal.text and '\x1b[?1049l' in terminal.text


# ---------------------------------------------------------------- the terminal is closed


@pytest.mark.parametrize('program', ['entry', 'ding', 'dist', 'ditask'])
def test_a_run_whose_terminal_is_closed_is_saved(program, tmp_path):
    config = config_in(tmp_path, 900, OURS)
    command, code = {
        'entry': ([*entry('main'), '-c', str(config)], 0),
        'ding': (ding_serial(config, 1_000_000), 129),
        'dist': ([*entry('dist'), '-c', str(config), '--parallel-workers', '2'], 0),
        'ditask': (DITASK + ['--ports', str(free_port())], 129),
    }[program]
    terminal = Terminal(command, tmp_path, BREAKOUT_DIST_CONFIG=str(config))
    terminal.wait_for(has_learned(tmp_path)).hang_up()
    # ditask itself does not wait for the learner
    assert terminal.ends(others_s=60 if program == 'ditask' else 10) == code
    assert list((tmp_path / 'experiments').glob('*/resume/pairs.json'))


def test_a_collector_whose_terminal_is_closed_leaves_nothing(tmp_path):
    """It waits for a learner that is not there; its folder and its message queue's file are there meanwhile."""
    config = config_in(tmp_path, 900, OURS)
    command = [*entry('dist'), '-c', str(config), '--role', 'collector', '--attach-to', 'tcp://127.0.0.1:9']
    terminal = Terminal(command, tmp_path)
    folders = lambda: list((tmp_path / 'temporary').glob('breakout_collector_*'))  # noqa: E731
    terminal.wait_for(lambda: bool(folders())).hang_up()
    assert terminal.ends() == 0


@pytest.mark.parametrize('program', ['entry', 'ditask'])
def test_a_run_under_nohup_goes_on_without_its_terminal(program, tmp_path):
    config = str(config_in(tmp_path, 900, OURS))
    command, code = {
        'entry': ([*entry('main'), '-c', config], 0),
        'ditask': (DITASK + ['--ports', str(free_port())], -signal.SIGTERM),
    }[program]
    with open(tmp_path / 'output', 'w') as output:
        process = subprocess.Popen(
            ['nohup', *command],
            cwd=tmp_path,
            env=watched_by_nobody(dict(ENVIRON, BREAKOUT_DIST_CONFIG=config)),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        assert wait_until(lambda: has_learned(tmp_path)() or process.poll() is not None, 120)
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGHUP)
        before = curve_bytes(tmp_path)
        assert wait_until(lambda: curve_bytes(tmp_path) > before, 30) and process.poll() is None
    finally:
        process.terminate()
    assert process.wait(60) == code
    assert wait_until(lambda: not any(is_there(one) for one in family), 60)
    assert saves_in(tmp_path / NAME)


def curve_bytes(folder: Path) -> int:
    return (folder / NAME / 'log' / 'learner' / 'learner_logger.txt').stat().st_size


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
def test_the_error_that_ended_a_run_is_the_last_thing_on_the_screen(program, what, tmp_path):
    config = config_in(tmp_path, 900, OURS)
    command = [*entry('main')[1:], '-c', str(config)] if program == 'entry' else ding_serial(config, 1_000_000)
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', BROKEN, what, *command],
        cwd=tmp_path,
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    said = done.stdout.rstrip()
    if what == 'interrupt':
        assert said.endswith('stopped' if program == 'entry' else 'Aborted!'), said
        assert done.returncode == (130 if program == 'entry' else 1) and 'Traceback' not in said
    else:
        assert said.endswith(("ValueError('it is broken')", 'ValueError: it is broken')), said
        assert done.returncode == 1 and said.count('Traceback') == 1
    assert 'Exception ignored' not in said and 'BrokenPipe' not in said


# ---------------------------------------------------------------- the manager's process is killed

MANAGER = """
import os, signal, sys, threading, time
from functools import partial
from breakout_env import BreakoutEnv, GroupEnvManager

manager = GroupEnvManager([partial(BreakoutEnv, {})] * 2, dict(worker_num=2))
if 'thread' in sys.argv:
    thread = threading.Thread(target=manager.launch)
    thread.start()
    thread.join()
    time.sleep(0.5)
    manager.step({0: 0, 1: 0})
else:
    manager.launch()
print(*(worker.pid for worker in manager._pool.workers), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize('launched_in', ['main', 'thread'])
def test_workers_go_with_their_manager_and_with_nobody_else(launched_in, tmp_path):
    """Killed while a worker is stopped, which can not look for itself. A thread that ends is nothing to them."""
    command = [sys.executable, '-W', 'ignore', '-c', MANAGER, launched_in]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRON, stdout=subprocess.PIPE, text=True)
    workers = [psutil.Process(int(word)) for word in process.stdout.readline().split()]
    try:
        assert len(workers) == 2 and all(map(is_there, workers))
        if launched_in == 'main':
            workers[0].suspend()
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
        assert wait_until(lambda: not any(map(is_there, workers)))
    finally:
        process.stdout.close()
        for worker in filter(is_there, workers):
            worker.kill()


def test_ranks_stop_and_save_when_torchrun_is_killed(tmp_path):
    config = config_in(tmp_path, 900, OURS)
    torchrun = [str(BIN / 'torchrun'), '--standalone', '--nproc-per-node', '2']
    with open(tmp_path / 'output', 'w') as output:
        process = subprocess.Popen(
            [*torchrun, *entry('ddp')[1:], '-c', str(config)],
            cwd=tmp_path, env=ENVIRON, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    text = lambda: (tmp_path / 'output').read_text()  # noqa: E731
    family: List[psutil.Process] = []
    try:
        assert wait_until(lambda: has_learned(tmp_path)() or process.poll() is not None, 120), text()
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait(10)
        assert wait_until(lambda: not any(map(is_there, family)), 60), text()
        assert 'Stopping: ' in text() and saves_in(tmp_path / NAME)
    finally:
        process.kill()
        for one in filter(is_there, family):
            one.kill()


# ---------------------------------------------------------------- the first process of a container


class Container(object):
    """A namespace of processes, as a container has it, with a program as its first process."""

    def __init__(self, command: List[str], folder: Path) -> None:
        # this tool's own end is that of the first process, with its exit code
        self._path = folder / 'output'
        with open(self._path, 'w') as output:
            self.process = subprocess.Popen(
                ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child', *command],
                cwd=folder,
                env=ENVIRON,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        assert wait_until(lambda: bool(psutil.Process(self.process.pid).children()))
        (self.first,) = psutil.Process(self.process.pid).children()

    @property
    def text(self) -> str:
        return self._path.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        assert wait_until(lambda: condition() or self.process.poll() is not None, 120), self.text
        assert self.process.poll() is None, self.text

    def ends(self) -> int:
        family: List[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
            family = self.first.children(recursive=True)
        code = self.process.wait(60)
        assert wait_until(lambda: not any(map(is_there, family)))
        assert 'Traceback' not in self.text
        return code


@pytest.fixture
def container(tmp_path):
    if shutil.which('unshare') is None or shutil.which('nsenter') is None:
        pytest.skip('no unshare and nsenter on this machine (apt-get install util-linux)')
    if subprocess.run(['unshare', '--pid', '--fork', '--mount-proc', 'true'], capture_output=True).returncode:
        pytest.skip('this user can not make a namespace of processes')
    started = []

    def start(command: List[str]) -> Container:
        started.append(Container(command, tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


ORPHAN = ['python3', '-c', 'import os, time; os.fork() or os.execvp("sleep", ["sleep", "0.2"])']


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_container_that_is_stopped_saves_the_run(number, container, tmp_path):
    run = container([*entry('main'), '-c', str(config_in(tmp_path, 900, OURS))])
    run.wait_for(has_learned(tmp_path))
    # what is left behind in a container is its first process's to collect
    inside = run.first.children()[0].pid
    subprocess.run(['nsenter', '--target', str(inside), '--pid', *ORPHAN], check=True)
    assert wait_until(
        lambda: not any(p.status() == psutil.STATUS_ZOMBIE for p in run.first.children(recursive=True)), 5
    )
    run.first.send_signal(number)
    assert run.ends() == 0 and saves_in(tmp_path / NAME)
    assert 'Stopping: finishing what is under way' in run.text


def test_a_container_that_is_stopped_while_its_program_is_imported_ends_at_once(container):
    run = container([*BREAKOUT, 'train'])
    assert wait_until(lambda: bool(run.first.children()), 30)  # it has gone on in a child by then
    run.first.send_signal(signal.SIGTERM)
    start = time.monotonic()
    assert run.ends() == 143 and time.monotonic() - start < AT_ONCE_S + SLACK_S


# ---------------------------------------------------------------- what is promised


@pytest.mark.parametrize('command', [BREAKOUT, entry('main'), entry('dist'), entry('ddp'), entry('eval')])
def test_the_help_says_what_exit_codes_mean(command):
    text = subprocess.run([*command, '--help'], capture_output=True, text=True, env=ENVIRON, check=True).stdout
    codes = text.split('Exit codes:')[1]
    assert [re.search(rf'\b{code}\b', codes) is not None for code in (0, 1, 2, 129, 130, 143)] == [True] * 6
