"""A helper process is fed, answers, and ends within a bounded time, and leaves nothing."""

import os
import sys

import pytest

from breakout_env.utils.child_process import HelperError, HelperProcess


def python(code):
    return [sys.executable, '-Sc', code]


READING = python('import sys; sys.stdin.read()')


@pytest.mark.parametrize(
    'command, error',
    [
        (READING, None),
        (python('import time; time.sleep(60)'), 'did not finish within 1 s and was killed'),
        (python('import sys; sys.exit("the reason")'), 'failed with exit code 1: the reason'),
    ],
    ids=['in order', 'killed', 'failed'],
)
def test_close_ends_the_program_once_and_reports_how_it_ended(command, error, same_footprint):
    helper = HelperProcess('helper', command)
    if error is None:
        assert helper.close(10.0)
    else:
        if 'reason' in error:  # it has ended
            os.waitid(os.P_PID, helper.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(HelperError, match=error):
            helper.close(1.0)
    assert not helper.close(1.0)


def test_a_program_that_reads_nothing_is_reported_in_time(same_footprint):
    helper = HelperProcess('helper', python('import time; time.sleep(60)'))
    with pytest.raises(HelperError, match='the helper took no data for 0.2 s'):
        helper.write(memoryview(bytes(1 << 22)), 0.2)
    with pytest.raises(HelperError, match='did not answer within 0.1 s'):
        helper.wait_ready(0.1)
    with pytest.raises(HelperError, match='was killed'):
        helper.close(0)


def test_a_forked_copy_does_not_keep_the_programs_input_open(same_footprint):
    helper = HelperProcess('helper', READING)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write_end)
        os.read(read_end, 1)  # until the parent has closed its helper
        os._exit(0)
    os.close(read_end)
    assert helper.close(10.0)
    os.close(write_end)
    assert os.waitpid(pid, 0)[1] == 0
