"""The helper that starts programs warm: what it starts is to a test as a program that starts cold."""

import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from helpers.processes import BIN, FORK_SERVER, Command, WarmProcess, completed, environ_now, run, start, wait_until
from helpers.resources import children

PROGRAM = textwrap.dedent("""
    import atexit, os, signal, sys, threading, time
    atexit.register(print, 'atexit')
    threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()
    print(sys.argv[1:], sys.stdin.read(), os.getcwd(), os.environ.get('MINE'), __name__, sys.path[0])
    print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), os.getsid(0) == os.getpid())
    print('error', file=sys.stderr)
    exec(sys.argv[1])
""")
ENDS = ['pass', 'sys.exit()', 'sys.exit(3)', 'sys.exit("reason")', '1 / 0', 'os.kill(os.getpid(), 15)', 'os._exit(9)']


@pytest.mark.parametrize('end', [*ENDS, 'os.kill(os.getpid(), 2)'])
def test_a_warm_program_does_what_a_cold_one_does(tmp_path, end):
    (tmp_path / 'program.py').write_text(PROGRAM)
    cold, warm = (
        completed(
            [sys.executable, 'program.py', end], tmp_path, 60, {**environ_now(), 'MINE': '1'}, 'typed', cold=is_cold
        )
        for is_cold in (True, False)
    )
    assert (warm.returncode, warm.stdout) == (cold.returncode, cold.stdout)
    assert warm.stderr.splitlines()[-1:] == cold.stderr.splitlines()[-1:]


@pytest.mark.parametrize('command', [['ding', '--version'], [BIN / 'ding', '--help'], [sys.executable, '-m', 'this']])
def test_installed_commands_and_modules_start_warm(tmp_path, command):
    warm = completed(command, tmp_path)
    assert warm.returncode == 0 and warm.stdout
    assert isinstance(start(command, tmp_path), WarmProcess)


def test_a_warm_program_has_pytorch_but_not_the_package(tmp_path):
    code = "import sys; print('torch' in sys.modules, 'breakout_env' in sys.modules)"
    assert completed([sys.executable, '-c', code], tmp_path).stdout == 'True False\n'


def test_signals_reach_a_running_program_and_its_code_comes_back(tmp_path):
    command = Command([sys.executable, '-uc', 'import time; print("up"); time.sleep(60)'], tmp_path, cold=True)
    command.wait_for(lambda: 'up' in command.text)
    assert command.end(signal.SIGTERM) == -signal.SIGTERM
    warm = Command([sys.executable, '-c', 'import time; print("up", flush=True); time.sleep(60)'], tmp_path)
    warm.wait_for(lambda: 'up' in warm.text)
    assert warm.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        warm.process.wait(0.01)
    assert warm.end(signal.SIGTERM) == -signal.SIGTERM == warm.process.returncode


def test_a_warm_program_may_have_a_terminal(tmp_path):
    ours, theirs = os.openpty()
    code = 'import os, sys; print(sys.stdout.isatty(), os.tcgetpgrp(0) == os.getpid())'
    process = start([sys.executable, '-c', code], tmp_path, stdin=theirs, stdout=theirs, terminal=True)
    assert process.wait(60) == 0
    assert os.read(ours, 100) == b'True True\r\n'
    os.close(ours)
    os.close(theirs)


def test_what_a_program_leaves_behind_is_seen(tmp_path):
    run(
        [sys.executable, '-c', "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"], tmp_path
    )
    (orphan,) = FORK_SERVER.descendants()
    assert orphan.name() == 'sleep'
    orphan.kill()
    assert wait_until(lambda: not FORK_SERVER.descendants())


def test_the_server_is_no_child_of_the_test_and_ends_with_its_programs(tmp_path):
    program = start([sys.executable, '-c', 'import time; time.sleep(60)'], tmp_path)
    assert [child.pid for child in children()] == [program.pid]
    server = psutil.Process(FORK_SERVER.pid)
    FORK_SERVER.stop()
    assert wait_until(lambda: not server.is_running() and not psutil.pid_exists(program.pid))
