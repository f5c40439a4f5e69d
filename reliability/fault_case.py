"""
A place of its own for one fault: a folder, a process that sees every process the fault leaves behind, its own disks.

The program has DI-engine and PyTorch imported, which takes seconds; a case is a fork of it, which takes none. The fork
is the *supervisor*: whatever its processes start and then leave alone becomes its child (a subreaper, as an init is),
so that "nothing of the run is left" is something that the operating system says: there are no children. In a mount
namespace of its own (root, or where users may make one) ``/dev/shm`` is empty at first, and small disks can be mounted
that go with the namespace.
"""

import contextlib
import ctypes
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import psutil

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 1, 32, 4096, 16384, 1 << 18, 2
# A worker looks once a second whether its manager is there, and then closes its environments; a machine may be busy.
LEAVING_S = 20.0
# What no case takes on a machine that does something else, too.
CASE_LIMIT_S = 240.0


class NotAsPromised(AssertionError):
    """What was seen is not what the table promises; the message says both."""


class CannotBeTried(Exception):
    """This machine does not let us make the fault; the message says what it is missing."""


def expect(condition: Any, message: str) -> None:
    """
    Overview:
        Go on if something is as promised.
    Raises:
        - NotAsPromised: If it is not.
    """
    if not condition:
        raise NotAsPromised(message)


def wait_until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """
    Overview:
        What a condition gives as soon as that is true; what it gave last, if that does not come in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return value


@dataclass
class Seen:
    """
    Overview:
        What became of a fault: ``outcome``, as the table calls it, and ``text``, all that the run has said.
    """

    outcome: str
    text: str


class Case(object):
    """
    Overview:
        What a fault is made with: random numbers that its seed fixes, a folder, and processes that are watched.
    Interfaces:
        ``fork``, ``processes``, ``small_disk``, ``read_only``.
    """

    def __init__(
        self, name: str, seed: int, folder: Path, has_own_disks: bool = False, template: Optional[Path] = None
    ) -> None:
        """
        Arguments:
            - name (:obj:`str`): Class and role.
            - seed (:obj:`int`): Fixes what is drawn.
            - folder (:obj:`Path`): Empty.
            - has_own_disks (:obj:`bool`): Whether this process may mount.
            - template (:obj:`Optional[Path]`): Folder with a run that has ended, to be copied.
        """
        self.rng = random.Random(f'{name} {seed}')
        self.seed = seed
        self.folder = folder
        self.template = template
        self.facts: Dict[str, Any] = {}  # shown with a failure
        self._has_own_disks = has_own_disks
        self._process_count = 0

    def fork(self, function: Callable[[], Any], folder: Optional[Path] = None) -> 'Forked':
        """
        Overview:
            Run a function in a process group of its own, as a program: it ends as Python ends, exit code included.
        Arguments:
            - function (:obj:`Callable`): What to run.
            - folder (:obj:`Optional[Path]`): Its current folder; that of the case by default.
        """
        self._process_count += 1
        return Forked(function, folder or self.folder, self.folder / f'output{self._process_count}.txt')

    def processes(self) -> List[psutil.Process]:
        """
        Overview:
            All processes of the case but its own that have not ended.
        """
        alive = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        return alive

    def small_disk(self, name: str, megabytes: int = 24) -> Path:
        """
        Overview:
            A disk of its own, which goes with the case.
        Raises:
            - CannotBeTried: If this user can not mount one.
        """
        path = self.folder / name
        path.mkdir()
        if not self._has_own_disks:
            raise CannotBeTried('a small disk (root, or a kernel that gives users mount namespaces)')
        _mount('tmpfs', path, 0, f'size={megabytes}m')
        return path

    @contextlib.contextmanager
    def read_only(self, folder: Path) -> Iterator[None]:
        """
        Overview:
            Have the operating system refuse to write to a folder, as it does with a disk that has errors. What is open
            for writing at that moment stays so.
        Raises:
            - CannotBeTried: If this user can not mount.
        """
        if not self._has_own_disks:
            raise CannotBeTried('a read-only disk (root, or a kernel that gives users mount namespaces)')
        _mount(folder, folder, _MS_BIND, None)
        _mount(None, folder, _MS_BIND | _MS_REMOUNT | _MS_RDONLY, None)
        try:
            yield
        finally:
            if _LIBC.umount2(os.fsencode(folder), _MNT_DETACH):
                raise OSError(ctypes.get_errno(), 'the folder stays read-only', str(folder))


class Forked(object):
    """
    Overview:
        A process that a case has started, and what it says.
    Interfaces:
        ``send``, ``wait``, ``workers``.
    Properties:
        ``text``, ``ended``.
    """

    def __init__(self, function: Callable[[], Any], folder: Path, output: Path) -> None:
        self._output = output
        self.code: Optional[int] = None
        output.touch()
        self.pid = os.fork()
        if self.pid == 0:
            _be_a_program(function, folder, output)

    @property
    def text(self) -> str:
        return self._output.read_text(errors='replace')

    @property
    def ended(self) -> bool:
        """Whether it has ended; ``code`` is its exit code then, negative for a signal."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def wait(self, timeout_s: float = 120.0) -> int:
        """
        Overview:
            The exit code.
        Raises:
            - NotAsPromised: If it does not end.
        """
        expect(wait_until(lambda: self.ended, timeout_s), f'it has not ended after {timeout_s:g} s: it hangs')
        return self.code

    def send(self, number: int, group: bool = False) -> None:
        """
        Overview:
            A signal, to the process or to its group, as a terminal or a scheduler sends it.
        """
        if not self.ended:
            (os.killpg if group else os.kill)(self.pid, number)

    def workers(self) -> List[psutil.Process]:
        """
        Overview:
            The forks of it that are there, the oldest first: no program that it has started.
        """
        me, forks = psutil.Process(self.pid), []
        for process in me.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.cmdline() == me.cmdline():
                    forks.append((process.create_time(), process.pid, process))
        return [process for _, _, process in sorted(forks)]


def _be_a_program(function: Callable[[], Any], folder: Path, output: Path) -> None:
    """In a forked process: run a function as if it was all that this interpreter was started for."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
        for standard in (1, 2):
            os.dup2(descriptor, standard)
        os.close(descriptor)
        for number in (signal.SIGTERM, signal.SIGINT):  # the supervisor's are not this program's
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        try:
            function()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            if code == 1 and isinstance(end.code, str):
                sys.stderr.write(f'{end.code}\n')
        except BaseException:
            sys.excepthook(*sys.exc_info())
        # as the interpreter ends: threads that are no daemons are waited for, then what is registered is done
        threading._shutdown()
        import atexit

        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
    finally:
        os._exit(code)


# ---------------------------------------------------------------------------------------------------- the supervisor


def start_case(
    function: Callable[[Case], Seen], name: str, seed: int, folder: Path, template: Optional[Path] = None
) -> int:
    """
    Overview:
        Run a case in a process of its own; ``result.json`` in the folder is what came of it.
    Arguments:
        - function (:obj:`Callable`): Makes the fault, and says what it saw.
        - name, seed, folder, template: As in ``Case``.
    Returns:
        - pid (:obj:`int`): The supervisor's.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        os.setsid()
        signal.signal(signal.SIGTERM, lambda number, frame: (_end_children(), os._exit(1)))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if os.getppid() == parent:
            _supervise(function, name, seed, folder, template)
    except BaseException:
        traceback.print_exc()
    finally:
        _end_children()
        os._exit(0)


def _supervise(function: Callable[[Case], Seen], name: str, seed: int, folder: Path, template: Optional[Path]) -> None:
    has_own_disks = _own_disks()
    place = folder / 'place'
    place.mkdir()
    if has_own_disks:  # a kill loses nothing that was written, flushed to a disk or not: memory does, and is faster
        _mount('tmpfs', place, 0, None)
    temporary = place / 'temporary'
    temporary.mkdir()
    os.environ['TMPDIR'] = tempfile.tempdir = str(temporary)
    os.environ['DISABLE_RICH'] = '1'  # DI-engine's log breaks its lines to fit a terminal, and texts are looked for
    shared_memory = set(os.listdir('/dev/shm'))
    case = Case(name, seed, place, has_own_disks, template)
    result: Dict[str, Any] = dict(ok=False)
    begun_s = time.monotonic()
    try:
        os.chdir(place)
        seen = function(case)
        result.update(outcome=seen.outcome, text=seen.text)
        left = _left(temporary, has_own_disks, shared_memory)
        expect(not left, f'left behind: {"; ".join(left)}')
        result['ok'] = True
    except NotAsPromised as error:
        result['error'] = str(error)
    except CannotBeTried as error:
        result['skipped'] = str(error)
    except Exception:
        result['error'] = f'the case itself failed:\n{traceback.format_exc()}'
    result.update(seconds=time.monotonic() - begun_s, facts=case.facts)
    if 'text' not in result:
        result['text'] = '\n'.join(path.read_text(errors='replace') for path in sorted(place.glob('output*.txt')))
    with open(folder / 'result.json', 'w') as file:
        json.dump(result, file, default=str)


def _left(temporary: Path, has_own_disks: bool, shared_memory_before: set) -> List[str]:
    """What is there of a run that has ended: processes, shared memory, temporary files."""
    left = []
    if not wait_until(lambda: _reap() == 0, LEAVING_S):
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words = ' '.join(process.cmdline())[:100] or process.name()
                left.append(f'process {process.pid} ({process.status()}): {words}')
    if has_own_disks:  # else what lies there may be another program's
        left += [f'shared memory {name}' for name in sorted(set(os.listdir('/dev/shm')) - shared_memory_before)]
    # the cache of PyTorch's compiler is made by its import, for whoever comes next
    files = [path.name for path in sorted(temporary.iterdir()) if not path.name.startswith('torchinductor_')]
    return left + [f'temporary file {name}' for name in files]


def _reap() -> int:
    """Take leave of children that have ended, our own and those that were left to us; how many are there still."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return len(psutil.Process().children())


def _end_children() -> None:
    for _ in range(50):
        children = psutil.Process().children(recursive=True)
        if not children:
            break
        for process in children:
            with contextlib.suppress(psutil.Error):
                process.kill()
        _reap()
        time.sleep(0.02)


def _own_disks() -> bool:
    """Whether this process has a mount namespace of its own now, with an empty ``/dev/shm``."""
    user, group = os.getuid(), os.getgid()
    if _LIBC.unshare(_CLONE_NEWNS):
        if _LIBC.unshare(_CLONE_NEWUSER | _CLONE_NEWNS):
            return False
        try:
            Path('/proc/self/setgroups').write_text('deny')
            Path('/proc/self/uid_map').write_text(f'{user} {user} 1')
            Path('/proc/self/gid_map').write_text(f'{group} {group} 1')
        except OSError:
            return False
    try:
        _mount(None, '/', _MS_REC | _MS_PRIVATE, None)
        _mount('tmpfs', '/dev/shm', 0, None)
    except OSError:
        return False
    return True


def _mount(source: Any, path: Any, flags: int, options: Optional[str]) -> None:
    words = [
        None if word is None else os.fsencode(word)
        for word in (source, path, 'tmpfs' if source == 'tmpfs' else None, options)
    ]
    if _LIBC.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
