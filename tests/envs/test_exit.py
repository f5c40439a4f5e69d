"""A process that ends, in order or not, leaves no process and a complete video; one that imports us changes nothing."""

import signal
import sys

import psutil
import pytest

from helpers.processes import Command, completed, run, wait_until
from helpers.videos import decode

pytestmark = pytest.mark.process

SCRIPT = """
import sys, time
from breakout_env import BreakoutEnv
env = BreakoutEnv(dict(episodic_life=False)); env.enable_save_replay({folder!r}); env.reset()
for _ in range(30): env.step(0)
print('playing', flush=True)
{then}
"""


def test_the_interpreters_exit_closes_without_a_message(tmp_path):
    then = 'keep = env; keep.self = keep'  # a reference cycle
    result = completed([sys.executable, '-c', SCRIPT.format(folder=str(tmp_path), then=then)])
    assert result.returncode == 0 and 'Traceback' not in result.stderr and 'Exception' not in result.stderr
    # it has this name only after the encoder has ended
    assert [f.name.endswith('-unfinished.mp4') for f in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_leaves_no_process_and_a_complete_video(tmp_path, number):
    folder = tmp_path / 'video'
    script = SCRIPT.format(folder=str(folder), then='time.sleep(60)')
    command = Command([sys.executable, '-c', script], tmp_path)
    command.wait_for(lambda: 'playing' in command.text)
    children = psutil.Process(command.pid).children()
    assert command.end(number) == -number
    assert len(children) == 1 and wait_until(lambda: not any(child.is_running() for child in children))
    (video,) = folder.iterdir()
    assert len(decode(video).pictures) == 31  # what reset left, and 30 steps


PROGRAM = """
import signal, sys
import ale_py, numpy, psutil, torch
def refuse(*args, **kwargs): raise AssertionError('an emulator was opened')
def state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return handlers, numpy.random.get_state()[1].tolist(), psutil.Process().children(), psutil.Process().num_threads()
ale_py.ALEInterface.loadROM = refuse
import ding.envs, ding.model
before = state()
import breakout_env
breakout_env.BreakoutEnv({}).observation_space
assert state() == before and not torch.cuda.is_initialized() and 'pygame' not in sys.modules
"""


def test_importing_the_package_has_no_side_effects(tmp_path):
    run([sys.executable, '-c', PROGRAM], tmp_path)
