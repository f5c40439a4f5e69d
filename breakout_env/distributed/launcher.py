"""The processes of a run on one machine: started, started again when they die, and none left behind."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence

from ..utils import signals

# What options in the environment begin with.
ENVIRONMENT = 'BREAKOUT_DIST'
# What a child finds the number of its parent under, so that it ends in order when that is gone.
PARENT = 'BREAKOUT_DIST_PARENT'
_LOOK_EVERY_S = 0.2
# A process that dies sooner than this has not been of use, and one that does so this often in a row never will be.
_SHORT_LIFE_S = 30.0
_SHORT_LIVES = 5
_LONGEST_WAIT_S = 30.0
# For a learner that is asked to stop, which saves the run; schedulers allow for about as much.
_SAVE_S = 110.0
# For all, where nobody waits for anything any more: what is temporary is removed, if that is soon done.
_AT_ONCE_S = 1.0
# For the others after the learner has ended: they finish a piece of play, and close their environments.
_END_S = 20.0


class Launcher(object):
    """
    Overview:
        Keeps one learner and those who serve it running. The learner's end is the end of the run: by itself with the \
        exit code that it has, by SIGTERM, SIGHUP or Ctrl-C to this process in order. A learner that is killed is \
        started again and goes on from its last save; so are the others whenever they die.
    Interfaces:
        ``run``.
    """

    def __init__(
        self, commands: Dict[str, Sequence[str]], say: Callable[[str], None], learner: Optional[str] = None
    ) -> None:
        """
        Arguments:
            - commands (:obj:`Dict[str, Sequence[str]]`): Each process by a name for people.
            - say (:obj:`Callable`): Told, in a sentence, what happens.
            - learner (:obj:`Optional[str]`): The name of the one whose end is the end of all; None if it is elsewhere.
        """
        self._children = [_Child(name, command, say, name == learner) for name, command in commands.items()]
        self._learner = next((child for child in self._children if child.is_learner), None)
        self._say = say
        # what signals ask for: a handler only notes it, as it may come in the midst of anything
        self._is_asked_to_stop = self._is_asked_to_kill = False
        self._is_stopping = False

    def run(self) -> int:
        """
        Overview:
            Run to the end.
        Returns:
            - code (:obj:`int`): The exit code of the learner, else the highest; 128 and the number of the signal if a \
                process was killed, or this one was told by a second Ctrl-C to end at once.
        """
        # under nohup a run goes on without its terminal
        before = {
            number: signal.getsignal(number)
            for number in signals.STOPPING
            if number != signal.SIGHUP or signals.is_free(number)
        }
        with contextlib.ExitStack() as at_the_end:
            for number, handler in before.items():
                signals.handle(number, partial(self._on_signal, number))
                at_the_end.callback(signal.signal, number, handler)
            at_the_end.callback(self._end_all)
            while not self._is_over():
                for child in self._children:
                    child.look(start=not self._is_stopping)
                self._obey()
                time.sleep(_LOOK_EVERY_S)
        if self._is_asked_to_kill:
            return 128 + signal.SIGINT
        if self._learner is not None:
            return self._learner.exit_code
        return max(child.exit_code for child in self._children)

    def _is_over(self) -> bool:
        if self._learner is not None:
            return self._learner.is_done
        return all(child.is_done for child in self._children)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            signals.leave_terminal()
            for child in self._children:  # they write to the same terminal, and are in no group that it has told
                child.leave_terminal()
        # schedulers may send SIGTERM more than once
        self._is_asked_to_kill = self._is_asked_to_kill or (self._is_asked_to_stop and number == signal.SIGINT)
        self._is_asked_to_stop = True

    def _obey(self) -> None:
        if self._is_asked_to_stop and not self._is_stopping:
            self._is_stopping = True
            self._say('Stopping: finishing what is under way and saving the run (Ctrl-C again stops at once).')
            for child in self._children if self._learner is None else [self._learner]:
                child.stop(_SAVE_S)
        if self._is_asked_to_kill:
            self._kill_all()

    def _kill_all(self) -> None:
        for child in self._children:
            child.hurry()
        deadline_s = time.monotonic() + _AT_ONCE_S
        while any(child.is_running for child in self._children) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_EVERY_S / 10)
        for child in self._children:
            child.kill()

    def _end_all(self) -> None:
        """Nobody is needed without the learner."""
        for child in self._children:
            child.stop(_END_S)
        deadline_s = time.monotonic() + _END_S
        while any(child.is_running for child in self._children) and time.monotonic() < deadline_s:
            self._obey()
            time.sleep(_LOOK_EVERY_S)
        for child in self._children:
            child.kill()


class _Child(object):
    """One of the processes, through all its lives."""

    def __init__(self, name: str, command: Sequence[str], say: Callable[[str], None], is_learner: bool) -> None:
        self._name = name
        self.is_learner = is_learner
        self._command: List[str] = list(command)
        self._say = say
        self._process: subprocess.Popen = None
        self._started_s = self._start_at_s = float('-inf')
        self._kill_at_s = float('inf')
        self._short_lives = 0
        self._is_asked_to_stop = False
        self.is_done = False
        self.exit_code = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def look(self, start: bool) -> None:
        """See what it does; start it, for the first time or again, unless that is not wanted any more."""
        if self.is_running:
            if time.monotonic() > self._kill_at_s:
                self._process.kill()
            return
        if self.is_done:
            return
        if self._process is not None:
            self._note_end(self._process.wait(), start)
            self._process = None
        if not self.is_done and start and time.monotonic() >= self._start_at_s:
            self._start()

    def _start(self) -> None:
        self._started_s = time.monotonic()
        self._is_asked_to_stop = False
        # all that is said is in the command; a number of processes in the environment would be each process's own
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)}
        environ[PARENT] = str(os.getpid())
        # a session of its own, as Ctrl-C on the terminal is this process's to pass on, and to one of them only
        self._process = subprocess.Popen(self._command, env=environ, start_new_session=True)

    def _note_end(self, code: int, may_start: bool) -> None:
        was_killed = code < 0
        self.exit_code = 128 - code if was_killed else code
        # an error of the learner's would come again; whoever serves may have lost a learner that is coming back
        is_hopeless = code == 2 or (self.is_learner and not was_killed)
        if not may_start or code == 0 or is_hopeless:
            self.is_done = True
            return
        lived_s = time.monotonic() - self._started_s
        self._short_lives = self._short_lives + 1 if lived_s < _SHORT_LIFE_S else 0
        how = f'was killed by {signal.Signals(-code).name}' if was_killed else f'ended with exit code {code}'
        if self._short_lives >= _SHORT_LIVES:
            self.is_done = True
            self._say(f'The {self._name} {how}, the {_SHORT_LIVES}th time within seconds; it is not started again.')
            return
        self._say(f'The {self._name} {how}; it is started again.')
        wait_s = 0.0 if self._short_lives <= 1 else min(2.0**self._short_lives, _LONGEST_WAIT_S)
        self._start_at_s = time.monotonic() + wait_s

    def stop(self, within_s: float) -> None:
        """Ask it to end in order; it is killed if that takes longer than it may."""
        if self.is_running:
            if not self._is_asked_to_stop:  # Python has no handlers any more in its last moments: SIGTERM would kill it
                self._process.terminate()
            self._is_asked_to_stop = True
            self._kill_at_s = time.monotonic() + within_s
        else:
            self.is_done = True

    def leave_terminal(self) -> None:
        """Tell it that the terminal is gone, and to end in order."""
        if self.is_running:
            self._process.send_signal(signal.SIGHUP)
            self._is_asked_to_stop = True

    def hurry(self) -> None:
        """What a person does with Ctrl-C, twice."""
        if self.is_running:
            self._process.terminate()
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it now, with all that it has started: they are of its session."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


def parent_is_gone() -> bool:
    """
    Overview:
        Whether this process was started by a launcher, or by ``ditask`` as one of several, that is no more.
    """
    launcher, ditask = os.environ.get(PARENT), multiprocessing.parent_process()
    if launcher is not None:
        return os.getppid() != int(launcher)
    return ditask is not None and not ditask.is_alive()


def python_file(path: str, *arguments: str) -> List[str]:
    """
    Overview:
        The command that runs a file with this Python.
    Arguments:
        - path (:obj:`str`): The file.
        - arguments (:obj:`str`): Its arguments.
    """
    return [sys.executable, path, *arguments]
