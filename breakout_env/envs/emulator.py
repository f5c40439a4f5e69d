"""The one owner of the Arcade Learning Environment (ALE)."""

import hashlib
from pathlib import Path

import cv2
import numpy as np
from ale_py import ALEInterface, ALEState, LoggerMode, roms

from ..utils.game_constants import NOOP, SCREEN_SHAPE
from .options import BreakoutOptions

# The ROM that ale-py ships, from ale-py's own list of ROMs (roms/md5.json).
ROM_MD5 = 'f34f08e5eb96e500e851a80be3277a56'


def checked_rom() -> str:
    """The path of the ROM. A ValueError if it is damaged: given any other file, ALE (ale-py 0.12) ends the process, by
    exit or by a segmentation fault.
    """
    path = str(roms.get_rom_path('breakout'))
    if hashlib.md5(Path(path).read_bytes(), usedforsecurity=False).hexdigest() != ROM_MD5:
        raise ValueError(f'{path} is not the ROM of Breakout that ale-py ships (pip install --force-reinstall ale-py)')
    return path


class Emulator:
    """A running Breakout console. ``screen`` is the maximum of its last two frames in gray (:math:`(210, 160)`, uint8):
    it draws some sprites only in every other frame (Mnih et al. 2015, Methods). ``last_screen`` is the one before the
    last ``advance``. ``ale`` is ALE's interface, for lives, the end of a game and its frames.

    Examples:
        >>> emulator = Emulator(0, BreakoutOptions())
        >>> emulator.reset_game(noop_frames=1)
        >>> emulator.advance(action=1, frames=4), emulator.ale.lives(), emulator.ale.getEpisodeFrameNumber()
        (0, 5, 5)
        >>> emulator.close()
    """

    def __init__(self, seed: int, options: BreakoutOptions) -> None:
        """The seed is for ALE's random numbers, which only sticky actions use."""
        self.screen, self.last_screen = np.zeros((2, *SCREEN_SHAPE), dtype=np.uint8)
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.ale = ALEInterface()
        self._sticky = options.repeat_action_probability > 0
        self._after_noops: list[ALEState] = []  # how games begin, by their number of no-ops
        self.ale.setFloat('repeat_action_probability', options.repeat_action_probability)
        self.ale.setInt('max_num_frames_per_episode', options.max_episode_frames)
        self.reload(seed)
        self._actions = self.ale.getLegalActionSet() if options.full_action_space else self.ale.getMinimalActionSet()

    def reload(self, seed: int) -> None:
        """Seed ALE's random numbers, from 0 to 2**31 - 1. ALE takes a seed only while it loads a ROM, which takes some
        twenty times as long as ``reset_game``.
        """
        self.ale.setInt('random_seed', seed)
        self.ale.loadROM(checked_rom())
        self._after_noops.clear()

    def reset_game(self, noop_frames: int) -> None:
        """Start a game with this many frames of NOOP, and update ``screen``."""
        ale, states, noop = self.ale, self._after_noops, self._actions[NOOP]
        if self._sticky:
            ale.reset_game()
            for _ in range(noop_frames):
                ale.act(noop)
            ale.getScreenGrayscale(self.screen)
        else:
            # ALE plays some 60 frames to reset the console. All games begin alike, so they can begin from a saved
            # state; before the first ball a NOOP changes no picture. With sticky actions a reset uses random numbers.
            if not states:
                ale.reset_game()
                states.append(ale.cloneState())
            while len(states) <= noop_frames:
                ale.restoreState(states[-1])
                ale.act(noop)
                states.append(ale.cloneState())
            self.restore_state(states[noop_frames])

    def restore_state(self, state: ALEState) -> None:
        """Continue from a state that ``ale.cloneState`` gave. It has no picture, so this shows the one of a frame with
        NOOP from there; and no random numbers of sticky actions.
        """
        self.ale.restoreState(state)
        self.ale.act(self._actions[NOOP])  # draws it
        self.ale.restoreState(state)
        self.ale.getScreenGrayscale(self.screen)

    def advance(self, action: int, frames: int) -> int:
        """Repeat an action for some frames, and update ``screen``. Stops at game over; frames that were not played
        leave the screen as it was, as in gymnasium's ``AtariPreprocessing``. Returns the points won.
        """
        self.last_screen, self.screen = self.screen, self.last_screen
        ale, joystick, points, earlier = self.ale, self._actions[action], 0, None
        for frames_left in range(frames - 1, -1, -1):
            points += ale.act(joystick)
            if ale.game_over():
                np.copyto(self.screen, self.last_screen)
                break
            if frames_left == 1:
                ale.getScreenGrayscale(earlier := np.empty(SCREEN_SHAPE, np.uint8))
            elif frames_left == 0:
                ale.getScreenGrayscale(self.screen)
        if earlier is not None:
            cv2.max(self.screen, earlier, dst=self.screen)
        return points

    def render(self, mode: str = 'rgb_array') -> np.ndarray:
        """The console's picture in colour, a new array of shape :math:`(210, 160, 3)`, uint8. A ValueError for any
        mode but ``rgb_array``, the one that ``ding.utils.render`` and DI-engine's evaluator pass.
        """
        if mode != 'rgb_array':
            raise ValueError(f"render mode is {mode!r}; expected 'rgb_array', the only picture Breakout offers")
        return self.ale.getScreenRGB()

    def close(self) -> None:
        """Free the emulator's memory. Only ``close`` may be called afterwards."""
        self._after_noops.clear()
        self.__dict__.pop('ale', None)  # the last reference: ALE's destructor runs here
