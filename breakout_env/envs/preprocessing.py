"""How the console's screen becomes an observation: pure functions on arrays that the caller owns."""

import math
from functools import cache

import cv2
import numpy as np


def resize_into(frame: np.ndarray, screen: np.ndarray) -> None:
    """Resize a gray screen by area interpolation, as gymnasium's and Stable-Baselines3's wrappers do.

    Shapes:
        frame: :math:`(h, S)`, uint8, C-contiguous: OpenCV writes elsewhere if it is not.
        screen: :math:`(H, 160)`, uint8.
    """
    cv2.resize(screen, frame.shape[::-1], dst=frame, interpolation=cv2.INTER_AREA)


def push_frame(stack: np.ndarray, screen: np.ndarray, last_screen: np.ndarray) -> None:
    """Drop the oldest frame of a stack and append a screen, resized exactly as by ``resize_into``. ``last_screen`` is
    the one that the newest frame was made from: only the bands in which the screen has changed are resized again.

    Shapes:
        stack: :math:`(F, S, S)`, uint8, C-contiguous.
        screen, last_screen: :math:`(210, 160)`, uint8, C-contiguous.
    """
    # frame by frame, because numpy first copies the whole block to a buffer when source and target overlap
    for i in range(len(stack) - 1):
        stack[i] = stack[i + 1]
    frame = stack[-1]  # still that of the last screen
    bands = _independent_bands(len(screen), len(frame))
    # eight pixels at a time
    words = np.flatnonzero(screen.reshape(-1).view(np.uint64) != last_screen.reshape(-1).view(np.uint64))
    changed = sorted(set((words // (screen.size // 8 // bands)).tolist()))
    rows, frame_rows = len(screen) // bands, len(frame) // bands
    while changed:
        first = last = changed.pop(0)
        while changed and changed[0] == last + 1:
            last = changed.pop(0)
        resize_into(frame[first * frame_rows : (last + 1) * frame_rows], screen[first * rows : (last + 1) * rows])


def fill_stack(stack: np.ndarray, screen: np.ndarray) -> None:
    """Fill every place of a stack with the first screen, as gymnasium's ``FrameStackObservation`` does."""
    resize_into(stack[-1], screen)
    stack[:-1] = stack[-1]


@cache
def _independent_bands(screen_height: int, frame_height: int) -> int:
    """The largest number of horizontal bands that can be resized one by one with exactly the result of a whole resize.

    Each band must become whole rows of the frame. OpenCV computes the weights of a row from its position times the
    scale. Only where the scale is exact in binary (210 / 84 = 2.5) are they the same in a band as in the whole screen.
    """
    common = math.gcd(screen_height, frame_height)
    denominator = frame_height // common  # of the scale, as a fraction in its lowest terms
    return common if denominator & (denominator - 1) == 0 else 1


def observe(stack: np.ndarray, dtype: str) -> np.ndarray:
    """Copy the stack for the agent to keep: ``uint8`` for pixels 0..255, ``float32`` for pixels scaled to [0, 1]."""
    if dtype == 'uint8':
        return stack.copy()
    return np.divide(stack, np.float32(255), dtype=np.float32)
