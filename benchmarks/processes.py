"""Processes that a benchmark starts, looks at from outside, and never leaves behind."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import click
import psutil

ROOT = Path(__file__).resolve().parent.parent
COUNTED_DIST = ROOT / 'benchmarks' / 'counted_dist.py'
SCALE_CONFIG = ROOT / 'benchmarks' / 'scale_config.py'


class Processes(object):
    """
    Overview:
        A context of programs that run beside each other, in a folder of their own. At its end all of them are ended, \
        with all that they have started.
    Interfaces:
        ``start``, ``wait``, ``wait_until``, ``text``, ``tree``, ``cpu_s``, ``memory_bytes``, ``memory_parts``.
    """

    def __init__(self, folder: Path) -> None:
        """
        Arguments:
            - folder (:obj:`Path`): Where they run, and where what they print is kept.
        """
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._started: Dict[str, subprocess.Popen] = {}
        self._seen: Dict[tuple, psutil.Process] = {}

    def __enter__(self) -> 'Processes':
        return self

    def __exit__(self, *error: Any) -> None:
        for process in self._started.values():
            if process.poll() is None:
                self.tree_of(process.pid)
        for process in self._seen.values():
            with contextlib.suppress(psutil.Error):
                process.kill()
        for process in self._started.values():
            process.wait()

    def start(self, name: str, arguments: Sequence[Any], **environ: Any) -> subprocess.Popen:
        """
        Overview:
            Start a program of Python's.
        Arguments:
            - name (:obj:`str`): What the others of these methods call it.
            - arguments (:obj:`Sequence[Any]`): Python's.
            - environ (:obj:`Any`): Variables of the environment, besides those of this process.
        """
        variables = dict(os.environ, **{key: str(value) for key, value in environ.items()})
        with open(self.folder / f'{name}.log', 'wb') as output:
            self._started[name] = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                cwd=self.folder,
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._started[name]

    def text(self, name: str) -> str:
        """What a program has printed so far."""
        return (self.folder / f'{name}.log').read_text(errors='replace')

    def wait(self, name: str, timeout_s: float, must_end: bool = True) -> None:
        """
        Overview:
            Wait for the end of a program, which is to be one without an error.
        Arguments:
            - name (:obj:`str`): The program.
            - timeout_s (:obj:`float`): Seconds to wait at most.
            - must_end (:obj:`bool`): Whether one that still runs after them is an error.
        """
        try:
            code = self._started[name].wait(timeout_s)
        except subprocess.TimeoutExpired:  # a sentence says more than that
            code = f'not after {timeout_s:.0f} s' if must_end else 0
        if code:
            raise click.ClickException(f'{name} ended: {code}; expected 0. The end of what it said:\n{self.tail(name)}')

    def wait_until(self, condition: Callable[[], Any], what: str, timeout_s: float = 120.0) -> Any:
        """
        Overview:
            Wait for something that these programs do.
        Arguments:
            - condition (:obj:`Callable[[], Any]`): Whether it is done.
            - what (:obj:`str`): What is waited for, for the error.
            - timeout_s (:obj:`float`): Seconds to wait at most.
        Returns:
            - value (:obj:`Any`): What the condition has come to.
        """
        deadline_s = time.monotonic() + timeout_s
        while not (value := condition()):
            ended = [name for name, process in self._started.items() if process.poll()]
            if ended or time.monotonic() > deadline_s:
                said = '\n'.join(f'{name}: {self.tail(name)}' for name in ended or self._started)
                raise click.ClickException(f'no {what} in {timeout_s:.0f} s. The end of what was said:\n{said}')
            time.sleep(0.05)
        return value

    def tail(self, name: str) -> str:
        """The last lines that a program has printed."""
        return '\n'.join(self.text(name).splitlines()[-15:])

    # ---------------------------------------------------------------- looking at them

    def tree_of(self, pid: int) -> List[psutil.Process]:
        """A process and all below it."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found = [process, *process.children(recursive=True)]
            # they are ended in the end even if their parents were ended before
            self._seen.update({(each.pid, each.create_time()): each for each in found})
            return found
        return []

    def tree(self, name: str) -> List[psutil.Process]:
        """A program's processes."""
        return self.tree_of(self._started[name].pid)

    @staticmethod
    def cpu_s(processes: Sequence[psutil.Process]) -> float:
        """Seconds of the CPUs that processes have taken."""
        total_s = 0.0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total_s += times.user + times.system
        return total_s

    @staticmethod
    def memory_bytes(processes: Sequence[psutil.Process]) -> int:
        """Their memory, each page that they share counted once (PSS)."""
        total_bytes = 0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                total_bytes += process.memory_full_info().pss
        return total_bytes

    @staticmethod
    def memory_parts(processes: Sequence[psutil.Process]) -> Dict[str, int]:
        """Memory that is theirs alone, and that of the files they have mapped, which all on a host share."""
        parts = dict(own_bytes=0, files_bytes=0)
        for process in processes:
            with contextlib.suppress(OSError):  # it has ended
                lines = Path(f'/proc/{process.pid}/smaps_rollup').read_text().splitlines()[1:]
                kilobytes = {line.split(':')[0]: int(line.split()[1]) for line in lines}
                parts['own_bytes'] += 1024 * (kilobytes['Pss_Anon'] + kilobytes['Pss_Shmem'])
                parts['files_bytes'] = max(parts['files_bytes'], 1024 * (kilobytes['Rss'] - kilobytes['Anonymous']))
        return parts


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        return listener.getsockname()[1]
