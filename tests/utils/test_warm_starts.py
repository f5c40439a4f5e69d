"""The helper that starts programs warm: what it starts is to a test as a program that starts cold."""

import sys
import textwrap

import pytest

from helpers.processes import completed, environ_now

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
