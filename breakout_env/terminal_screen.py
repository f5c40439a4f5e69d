"""The game in a terminal, two pixels to a character, with the keyboard read back; works wherever ssh does."""

import contextlib
import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from types import FrameType
from typing import Any, Dict, FrozenSet, List, Optional, Set, Tuple

import cv2
import numpy as np

from .emulator import SCREEN_SHAPE
from .signals import exit_in_order

# Without the score, of which too few pixels would be left to be read (the line below says it), and the black bottom.
PLAYFIELD = slice(17, 197)
# A television showed the picture at 4 to 3; what is left of its rows is wider. A half of a character is a square.
WIDTH_TO_HEIGHT = 4 / 3 * SCREEN_SHAPE[0] / (PLAYFIELD.stop - PLAYFIELD.start)
# Another screen, which gives the old one back when it is left; no cursor; no wrapping at the right edge.
ENTER, LEAVE = '\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J', '\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l'
UPPER_HALF = '\N{UPPER HALF BLOCK}'
# A terminal tells a key's press and, after a pause, its repetition, but never its release: so long a press counts.
HOLD_S = dict(left=0.2, right=0.2, fire=0.1)
KEYS = {
    **{'\x1b[D': 'left', '\x1bOD': 'left', 'a': 'left', 'A': 'left'},
    **{'\x1b[C': 'right', '\x1bOC': 'right', 'd': 'right', 'D': 'right'},
    **{' ': 'fire', 'q': 'quit', 'Q': 'quit'},
}
# an escape sequence as a whole, so that the D that ends one is no D, or one character
_KEY = re.compile(r'\x1b[\[O][0-9;]*[A-Za-z~]|.', re.DOTALL)
_UNFINISHED_KEY = re.compile(r'\x1b(?:[\[O][0-9;]*)?\Z')


class TerminalScreen(object):
    """
    Overview:
        Draws pictures with half blocks in 24-bit colour, as large as the terminal allows, and only what changed since \
        the last one, which is little enough for a slow connection. ``show`` returns when the next picture is due. \
        The terminal is given back as it was by ``close``, and while the program is suspended (Ctrl-Z).
    Interfaces:
        ``show``, ``keys``, ``close``.
    """

    def __init__(self, pictures_per_second: float) -> None:
        """
        Overview:
            Take the terminal.
        Arguments:
            - pictures_per_second (:obj:`float`): How many are shown.
        Raises:
            - ValueError: If standard output is no terminal.
        """
        if not sys.stdout.isatty():
            raise ValueError('standard output is no terminal to draw the game in; expected one')
        sys.stdout.flush()
        self._out = sys.stdout.fileno()
        self._in: Optional[int] = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._interval_s, self._due = 1 / pictures_per_second, time.monotonic()
        self._size = (0, 0)
        self._cells = np.zeros((0, 0, 6), np.uint8)
        self._line = ''
        self._unread = ''
        self._held_until: Dict[str, float] = {}
        self._pressed: Set[str] = set()
        self._taken = False
        self._settings: List[Any] = []
        self._suspend_before: Any = None
        exit_in_order()  # which then passes through close, where it would leave the terminal as it is
        try:
            self._take()
            if threading.current_thread() is threading.main_thread():  # the only one that may set handlers
                self._suspend_before = signal.signal(signal.SIGTSTP, self._suspend)
        except BaseException:
            self.close()
            raise

    def show(self, picture: np.ndarray, line: str) -> bool:
        """
        Overview:
            Draw a picture and wait until the next one is due, looking at the keyboard.
        Arguments:
            - picture (:obj:`np.ndarray`): The console's picture.
            - line (:obj:`str`): What stands below it.
        Returns:
            - goes_on (:obj:`bool`): False once q was pressed.
        Shapes:
            - picture (:obj:`np.ndarray`): :math:`(210, 160, 3)`, uint8.
        """
        self._draw(picture, line)
        self._due = max(self._due + self._interval_s, time.monotonic())
        while True:
            left_s = max(0.0, self._due - time.monotonic())
            if self._in is None:
                time.sleep(left_s)
            elif select.select([self._in], [], [], left_s)[0]:
                self._read_keys()
            if 'quit' in self._pressed:
                return False
            if left_s == 0:
                return True

    def keys(self) -> FrozenSet[str]:
        """
        Overview:
            What a player presses.
        Returns:
            - keys (:obj:`FrozenSet[str]`): 'left', 'right', 'fire' if pressed a moment ago, or since the last call.
        """
        now = time.monotonic()
        pressed, self._pressed = self._pressed, set()
        return frozenset(pressed.union(key for key, until in self._held_until.items() if now < until))

    def close(self) -> None:
        """
        Overview:
            Give the terminal back as it was. May be called at any time, any number of times.
        """
        before, self._suspend_before = self._suspend_before, None
        if before is not None:
            signal.signal(signal.SIGTSTP, before)
        with contextlib.suppress(OSError):  # the terminal is gone: nothing to give back
            self._give_back()

    def __enter__(self) -> 'TerminalScreen':
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _take(self) -> None:
        if self._in is not None:
            self._settings = termios.tcgetattr(self._in)
            tty.setcbreak(self._in)  # keys one by one and unseen; Ctrl-C and Ctrl-Z are signals still
        self._taken = True
        self._write(ENTER)
        self._size = (0, 0)  # all is to be drawn

    def _give_back(self) -> None:
        if not self._taken:
            return
        self._taken = False
        try:
            self._write(LEAVE)
        finally:
            if self._in is not None:
                with contextlib.suppress(termios.error):  # as OSError above
                    # keys that nobody read are not for the shell
                    termios.tcsetattr(self._in, termios.TCSAFLUSH, self._settings)

    def _suspend(self, number: int, frame: Optional[FrameType]) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()  # fg

    def _read_keys(self) -> None:
        data = os.read(self._in, 1024)
        if not data:  # the terminal is gone
            self._pressed.add('quit')
        self._unread += data.decode(errors='replace')
        unfinished = _UNFINISHED_KEY.search(self._unread)
        text, self._unread = self._unread, unfinished[0] if unfinished else ''
        for key in _KEY.findall(text[: len(text) - len(self._unread)]):
            name = KEYS.get(key)
            if name is None:
                continue
            if name in ('left', 'right'):  # a hand goes one way
                for other in ('left', 'right'):
                    self._held_until.pop(other, None)
                    self._pressed.discard(other)
            self._pressed.add(name)
            self._held_until[name] = time.monotonic() + HOLD_S.get(name, 0)

    def _draw(self, picture: np.ndarray, line: str) -> None:
        size = os.get_terminal_size(self._out)
        columns, rows = size.columns or 80, size.lines or 24  # 0 where nobody said it, as over a serial line
        out = []
        if self._size != (columns, rows):
            self._size = (columns, rows)
            self._cells, self._line = np.zeros((0, 0, 6), np.uint8), ''
            out.append('\x1b[0m\x1b[2J')
        cells = half_blocks(picture[PLAYFIELD], columns, rows - 1)
        if self._cells.shape != cells.shape:
            self._cells = np.zeros_like(cells)
            changed = np.ones(cells.shape[:2], dtype=bool)
        else:
            changed = (self._cells != cells).any(axis=2)
        out.append(drawing_of(cells, changed, (columns - cells.shape[1]) // 2))
        self._cells = cells
        if line != self._line:
            self._line = line
            left = (columns - cells.shape[1]) // 2
            out.append(f'\x1b[0m\x1b[{rows};1H\x1b[2K\x1b[{rows};{left + 1}H{line[: columns - left]}')
        self._write(''.join(out))

    def _write(self, text: str) -> None:
        rest = memoryview(text.encode())
        while rest:
            try:
                rest = rest[os.write(self._out, rest) :]
            except BlockingIOError:  # whoever has the terminal too made it so
                select.select([], [self._out], [])


def half_blocks(picture: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """
    Overview:
        A picture as characters, as large as fits.
    Arguments:
        - picture (:obj:`np.ndarray`): The picture.
        - columns, rows (:obj:`int`): Room for it.
    Returns:
        - cells (:obj:`np.ndarray`): For each character the colours of its upper and its lower half.
    Shapes:
        - picture (:obj:`np.ndarray`): :math:`(H, W, 3)`, uint8.
        - cells (:obj:`np.ndarray`): :math:`(R, C, 6)`, uint8, R at most ``rows``, C at most ``columns``.
    """
    height = max(1, min(rows, int(columns / WIDTH_TO_HEIGHT / 2))) * 2
    width = max(1, min(columns, round(height * WIDTH_TO_HEIGHT)))
    shrinks = height <= picture.shape[0] and width <= picture.shape[1]
    small = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_NEAREST)
    return np.concatenate([small[0::2], small[1::2]], axis=2)


def drawing_of(cells: np.ndarray, changed: np.ndarray, left: int) -> str:
    """
    Overview:
        What a terminal is sent to draw characters.
    Arguments:
        - cells (:obj:`np.ndarray`): As of ``half_blocks``.
        - changed (:obj:`np.ndarray`): Which of them to draw.
        - left (:obj:`int`): Columns to the left of them.
    Shapes:
        - changed (:obj:`np.ndarray`): :math:`(R, C)`, bool.
    """
    out: List[str] = []
    colours: Tuple[int, ...] = ()
    at = (-1, -1)
    for row, column in np.argwhere(changed).tolist():
        if at != (row, column):
            out.append(f'\x1b[{row + 1};{left + column + 1}H')
        now = tuple(cells[row, column].tolist())
        if now != colours:
            colours = now
            out.append('\x1b[38;2;%d;%d;%d;48;2;%d;%d;%dm' % now)
        out.append(UPPER_HALF)
        at = (row, column + 1)
    return ''.join(out)
