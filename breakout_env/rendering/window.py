"""The game in a window. A child process owns the window, so that a display that hangs cannot hang the game."""

import logging
import os
import sys
from pathlib import Path

import numpy as np

from ..utils.child_process import HelperError, HelperProcess, HelperTimeout
from ..utils.game_constants import FRAMES_PER_SECOND, SCREEN_SHAPE

logger = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 15.0  # a cold start of Python and SDL on a busy machine
SHOW_TIMEOUT_S = 2.0
CLOSE_TIMEOUT_S = 1.5
_GIVEN_UP = 'the window is given up, the game goes on without it: %s'


class GameWindow:
    """A window that shows the game at the speed people play it: ``show`` and ``present`` wait until a picture is due.
    A window that its user closes or that does not answer is given up: ``show`` warns, ``present`` tells its caller.
    """

    def __init__(self, title: str, frame_skip: int, speed: float = 1.0) -> None:
        """Open a window for pictures ``frame_skip`` emulator frames apart. A HelperError says what is missing."""
        height, width = SCREEN_SHAPE
        # run as a file: as a module of the package it would import DI-engine and torch first
        script = Path(__file__).with_name('window_process.py')
        arguments = map(str, [script, title, width, height, FRAMES_PER_SECOND / frame_skip * speed])
        self._process: HelperProcess | None = HelperProcess('game window', [sys.executable, *arguments])
        try:
            self._process.wait_ready(OPEN_TIMEOUT_S)
        except HelperError as e:
            self.close()
            needs = f'a display (DISPLAY is {os.environ.get("DISPLAY", "not set")})'
            if "No module named 'pygame'" in str(e):
                needs = "pygame: pip install 'pygame>=2.5'"
            raise HelperError(f"{e}; render_mode='human' needs {needs}") from None
        except BaseException:  # an interrupt or the caller's alarm: nobody else can close the process
            self.close()
            raise

    def show(self, picture: np.ndarray) -> None:
        """Show a picture as ``present`` does; where that fails, warn and show no more."""
        if self._process is None:
            return
        try:
            if not self.present(picture):
                logger.warning(_GIVEN_UP, 'it was closed')
        except HelperError as e:
            logger.warning(_GIVEN_UP, e)

    def present(self, picture: np.ndarray) -> bool:
        """Show a picture of shape :math:`(210, 160, 3)`, uint8, C-contiguous. Returns False once the window has been
        closed, by its user or by ``close``. A HelperError says that it failed or did not answer; it is closed then.
        """
        if self._process is None:
            return False
        try:
            self._process.write(picture.data, SHOW_TIMEOUT_S)
            return True
        except HelperError as error:
            process, self._process = self._process, None
            process.close(CLOSE_TIMEOUT_S)  # raises unless the window ended without an error, as its user asked
            if isinstance(error, HelperTimeout):
                raise
            return False

    def close(self) -> None:
        """Close the window. May be called any number of times."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.close(CLOSE_TIMEOUT_S)
        except HelperError as e:
            logger.warning('closing the window: %s', e)
