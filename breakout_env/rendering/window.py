"""The game in a window, in a process of its own, so that a display that hangs can not hang the game."""

import logging
import os
import sys
from typing import FrozenSet, Optional

import numpy as np

from ..utils.child_process import HelperError, HelperProcess
from ..utils.game_constants import FRAMES_PER_SECOND, SCREEN_SHAPE

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 15.0  # a cold start of Python and SDL on a busy machine
SHOW_TIMEOUT_S = 2.0
CLOSE_TIMEOUT_S = 1.5
KEYS = frozenset(['left', 'right', 'fire', 'quit'])  # what ``window_main`` calls them


class GameWindow(object):
    """
    Overview:
        A window that shows the game at the speed people play it: it takes a picture only when it is time for it, and \
        ``show`` and ``present`` wait until then. A window that is closed by its user or does not answer is given up: \
        ``show`` says so in a warning, for games that go on without it, ``present`` to its caller.
    Interfaces:
        ``show``, ``present``, ``keys``, ``close``.
    """

    def __init__(self, title: str, frame_skip: int, speed: float = 1.0) -> None:
        """
        Overview:
            Open the window.
        Arguments:
            - title (:obj:`str`): Its title.
            - frame_skip (:obj:`int`): Emulator frames from one picture to the next.
            - speed (:obj:`float`): How much faster than people play it the game is shown.
        Raises:
            - HelperError: If no window could be opened, for want of a display for example.
        """
        height, width = SCREEN_SHAPE
        self._held: FrozenSet[str] = frozenset()
        self._unread = b''
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'window_process.py')
        # run as a file: as a module of the package it would import DI-engine and torch first
        pictures_per_second = FRAMES_PER_SECOND / frame_skip * speed
        self._process: Optional[HelperProcess] = HelperProcess(
            'game window', [sys.executable, script, title, str(width), str(height), str(pictures_per_second)]
        )
        try:
            self._process.wait_ready(OPEN_TIMEOUT_S)
        except HelperError as e:
            self.close()
            raise HelperError(
                f"{e}; render_mode='human' needs a display (DISPLAY is {os.environ.get('DISPLAY', 'not set')})"
            ) from None
        except BaseException:  # an interrupt or a timeout from outside: nobody else knows of the process yet
            self.close()
            raise

    def show(self, picture: np.ndarray) -> None:
        """
        Overview:
            Show a picture.
        Arguments:
            - picture (:obj:`np.ndarray`): What to show.
        Shapes:
            - picture (:obj:`np.ndarray`): :math:`(210, 160, 3)`, uint8, C-contiguous.
        """
        if self._process is None:
            return
        try:
            self._process.write(picture.data, SHOW_TIMEOUT_S)
        except HelperError as e:
            logger.warning('the window is given up, the game goes on without it: %s', e)
            self.close()

    def present(self, picture: np.ndarray) -> bool:
        """
        Overview:
            Show a picture, where there is no game to go on with once nobody looks.
        Arguments:
            - picture (:obj:`np.ndarray`): As for ``show``.
        Returns:
            - open (:obj:`bool`): False once the window has been closed, by its user or by ``close``.
        Raises:
            - HelperError: If the window fails or does not answer. It is gone then.
        """
        if self._process is None:
            return False
        try:
            self._process.write(picture.data, SHOW_TIMEOUT_S)
            return True
        except HelperError:
            process, self._process = self._process, None
            process.close(CLOSE_TIMEOUT_S)  # raises unless the window ended in order, at its user's wish
            return False

    def keys(self) -> FrozenSet[str]:
        """
        Overview:
            What a player presses.
        Returns:
            - keys (:obj:`FrozenSet[str]`): Those of ``KEYS`` that are held, or were pressed since this was last called.
        """
        if self._process is None:
            return frozenset()
        *lines, self._unread = (self._unread + self._process.read()).split(b'\n')
        states = [KEYS.intersection(line.decode(errors='replace').split()) for line in lines]
        if not states:
            return self._held
        self._held = states[-1]
        return frozenset().union(*states)

    def close(self) -> None:
        """
        Overview:
            Remove the window. May be called at any time, any number of times.
        """
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.close(CLOSE_TIMEOUT_S)
        except HelperError as e:
            logger.warning('closing the window: %s', e)
