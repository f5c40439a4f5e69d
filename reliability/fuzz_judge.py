"""Whether an attempt with odd input ended as it shall: by a thing that works or a sentence, and without a trace."""

import contextlib
import os
import resource
import shutil
import signal
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Set

import click
import psutil

import breakout_env

ROOT = Path(breakout_env.__file__).resolve().parent.parent
OURS = tuple(str(ROOT / folder) + os.sep for folder in ('breakout_env', 'entry'))
# What nothing that is refused, and nothing that is built and closed, takes longer than; a busy machine included.
DEADLINE_S = 30.0
# What an example may take more of, than the process had at its beginning, before memory is refused to it.
MEMORY_BYTES = 4 * 2**30
# A sentence that lists all options is long; one that shows a value whole would be longer.
LONGEST_SENTENCE = 2500
EXPECTATIONS = ('expected', 'did you mean', 'it is called', 'has to be', 'remove the option', 'Choose ')


class Refused(Exception):
    """Input was refused as it shall be."""


class Failure(AssertionError):
    """It was not."""


class TookTooLong(BaseException):
    """By the alarm; no ``except Exception`` shall swallow it."""


class Place(object):
    """
    Overview:
        A folder for each example, in which it may do what it likes, and a look at what it leaves behind.
    Interfaces:
        ``example``, ``close``.
    """

    def __init__(self, root: Path) -> None:
        """
        Arguments:
            - root (:obj:`Path`): A folder of ours, with nothing in it.
        """
        self._root = Path(root).resolve()
        # so deep that no name which leaves a folder leaves ours
        self._folder = self._root.joinpath(*'abcdefgh')
        self._folder.mkdir(parents=True)
        self._before: Dict[str, Any] = {}
        self._number = 0
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        data_bytes = psutil.Process().memory_info().data
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes + MEMORY_BYTES, hard))

    @contextlib.contextmanager
    def example(self, prepare: Optional[Callable[[Path], None]] = None) -> Iterator[Callable[[bool], None]]:
        """
        Overview:
            A new current folder, and an alarm. Gives a function to be called when all is closed again: with whether \
            new files may be there.
        Arguments:
            - prepare (:obj:`Optional[Callable]`): Puts files into the folder.
        """
        self._number += 1
        here = self._folder / f'example{self._number}'
        here.mkdir()
        if prepare is not None:
            prepare(here)
        there = set(here.rglob('*'))
        before = os.getcwd()
        os.chdir(here)
        self._before = _held()
        handler = signal.signal(signal.SIGALRM, _alarm)
        signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
        try:
            yield lambda files_are_allowed: self._look(here, there, files_are_allowed)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            os.chdir(before)
            shutil.rmtree(here, ignore_errors=True)

    def _look(self, here: Path, there: Set[Path], files_are_allowed: bool) -> None:
        left = sorted(str(path.relative_to(here)) for path in here.rglob('*') if path not in there)
        if left and not files_are_allowed:
            raise Failure(f'files were left behind: {left[:5]}')
        outside = [str(path) for path in self._root.rglob('*') if here not in path.parents and path != here]
        outside = [path for path in outside if path not in map(str, (self._folder, *self._folder.parents))]
        if outside:
            shutil.rmtree(self._root, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            raise Failure(f'files were written outside of the folder: {outside[:5]}')
        end_s = time.monotonic() + 3.0
        while True:
            grown = {name: (self._before[name], now) for name, now in _held().items() if now > self._before[name]}
            if not grown:
                return
            if time.monotonic() > end_s:
                raise Failure(f'left behind (before, after): {grown}')
            time.sleep(0.01)

    def close(self) -> None:
        """Remove it all."""
        shutil.rmtree(self._root, ignore_errors=True)


def _held() -> Dict[str, int]:
    tasks = list(Path('/proc/self/task').iterdir())
    children: List[str] = []
    for task in tasks:
        with contextlib.suppress(OSError):  # it has just ended
            children += (task / 'children').read_text().split()
    return dict(descriptors=len(os.listdir('/proc/self/fd')), children=len(children))


def _alarm(number: int, frame: Any) -> None:
    raise TookTooLong(f'not done after {DEADLINE_S:.0f} s')


def sentence_of(error: BaseException, options: Optional[List[Any]] = None) -> str:
    """
    Overview:
        What an error says, if it is one of ours.
    Arguments:
        - error (:obj:`BaseException`): What was raised.
        - options (:obj:`Optional[List[Any]]`): The options that were set, one of which it has to name; None where \
            that can not be told.
    Raises:
        - Failure: If it is none that a user shall see.
    """
    if isinstance(error, TookTooLong):
        raise Failure(str(error))
    if not isinstance(error, (ValueError, click.ClickException)) or isinstance(error, UnicodeError):
        raise Failure(f'{type(error).__name__} in place of a sentence: {error!s:.300}\n{_where(error)}')
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    raised_in = os.path.realpath(traceback.extract_tb(error.__traceback__)[-1].filename)
    if not raised_in.startswith(OURS) and not isinstance(error, click.ClickException):
        raise Failure(f'a {type(error).__name__} of someone else: {text[:300]}\n{_where(error)}')
    check_sentence(text)
    if not any(word in text or word.capitalize() in text for word in EXPECTATIONS):
        raise Failure(f'it does not say what is expected: {text}')
    if options is not None and not any(_named(option, text) for option in options):
        raise Failure(f'it names none of the options that were set: {text}')
    return text


def check_sentence(text: str) -> None:
    """
    Overview:
        See that a terminal can show it, and a person read it.
    Raises:
        - Failure: If not.
    """
    if len(text) > LONGEST_SENTENCE:
        raise Failure(f'a sentence of {len(text):,} characters: {text[:300]}')
    if not text.replace('\n', '').isprintable():
        raise Failure(f'a terminal would obey it: {text!r:.300}')


def _named(option: Any, text: str) -> bool:
    if not isinstance(option, str):
        try:
            return repr(option) in text
        except Exception:
            return True
    return option[:40] in text or repr(option)[1:40] in text


def _where(error: BaseException) -> str:
    return ''.join(traceback.format_tb(error.__traceback__)[-4:])
