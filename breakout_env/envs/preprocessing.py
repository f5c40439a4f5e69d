"""How the console's pictures become an observation: pure functions on arrays that the caller owns."""

import math
from functools import lru_cache

import cv2
import numpy as np

from ..utils.game_constants import BRIGHTNESS

_BRIGHTNESS = np.repeat(np.frombuffer(BRIGHTNESS, np.uint8), 2)


def brighter(pictures: np.ndarray) -> np.ndarray:
    """One picture of two, of the brighter colours: :math:`(2, H, W)` to :math:`(H, W)`."""
    first_is_brighter = np.greater(*_BRIGHTNESS[pictures])
    return np.where(first_is_brighter, pictures[0], pictures[1])


def gray(pictures: np.ndarray) -> np.ndarray:
    """
    Overview:
        The maximum of two pictures in gray: the console draws some sprites only in every other frame (Mnih et al. \
        2015, Methods).
    Shapes:
        - pictures (:obj:`np.ndarray`): :math:`(2, H, W)`, uint8, the numbers of the console's colours.
        - screen (:obj:`np.ndarray`): :math:`(H, W)`, uint8, 0 black to 255 white.
    """
    return cv2.max(cv2.LUT(pictures[0], _BRIGHTNESS), cv2.LUT(pictures[1], _BRIGHTNESS))


def resize_into(frame: np.ndarray, screen: np.ndarray) -> None:
    """
    Overview:
        Resize a gray screen by area interpolation, as gymnasium's and Stable-Baselines3's wrappers do, without \
        allocating memory.
    Shapes:
        - frame (:obj:`np.ndarray`): :math:`(h, S)`, uint8, C-contiguous: OpenCV writes elsewhere if it is not.
        - screen (:obj:`np.ndarray`): :math:`(H, 160)`, uint8.
    """
    cv2.resize(screen, frame.shape[::-1], dst=frame, interpolation=cv2.INTER_AREA)


def push_frame(stack: np.ndarray, pictures: np.ndarray, last_pictures: np.ndarray) -> None:
    """
    Overview:
        Drop the oldest frame of a stack and append the screen of these pictures, resized. From one step to the next \
        little moves but ball and paddle: only the bands in which a picture has changed are made gray and resized \
        again. The result is exactly that of ``gray`` and ``resize_into``.
    Arguments:
        - stack (:obj:`np.ndarray`): The last frames, oldest first, changed in place.
        - last_pictures (:obj:`np.ndarray`): Those that the newest frame was made from.
    Shapes:
        - stack (:obj:`np.ndarray`): :math:`(F, S, S)`, uint8, C-contiguous.
        - pictures, last_pictures (:obj:`np.ndarray`): :math:`(2, 210, 160)`, uint8, C-contiguous, as of ``gray``.
    """
    # frame by frame, because numpy first copies the whole block to a buffer when source and target overlap
    for i in range(len(stack) - 1):
        stack[i] = stack[i + 1]
    frame = stack[-1]  # still that of the last pictures
    bands = _independent_bands(pictures.shape[1], frame.shape[0])
    # eight pixels at a time
    differs = pictures.reshape(2, -1).view(np.uint64) != last_pictures.reshape(2, -1).view(np.uint64)
    words = np.flatnonzero(np.logical_or(differs[0], differs[1], out=differs[0]))
    changed = sorted(set((words // (differs.shape[1] // bands)).tolist()))
    rows, frame_rows = pictures.shape[1] // bands, frame.shape[0] // bands
    while changed:
        first = last = changed.pop(0)
        while changed and changed[0] == last + 1:
            last = changed.pop(0)
        screen = gray(pictures[:, first * rows : (last + 1) * rows])
        resize_into(frame[first * frame_rows : (last + 1) * frame_rows], screen)


def fill_stack(stack: np.ndarray, pictures: np.ndarray) -> None:
    """
    Start a stack: fill every place with the first screen, as gymnasium's ``FrameStackObservation`` does; shapes as of
    ``push_frame``.
    """
    resize_into(stack[-1], gray(pictures))
    stack[:-1] = stack[-1]


@lru_cache(maxsize=None)
def _independent_bands(screen_height: int, frame_height: int) -> int:
    """
    The largest number of horizontal bands that can be resized one by one with exactly the result of a whole resize.

    Each band must become whole rows of the frame. OpenCV computes the weights of a row from its position times the
    scale as a float. Only where the scale is exact in binary (210 / 84 = 2.5) are the weights in a band the same as in
    the whole screen; elsewhere there is one band.
    """
    common = math.gcd(screen_height, frame_height)
    denominator = frame_height // common  # of the scale, as a fraction in its lowest terms
    return common if denominator & (denominator - 1) == 0 else 1


def observe(stack: np.ndarray, dtype: str) -> np.ndarray:
    """
    Overview:
        Copy the stack for the agent to keep.
    Arguments:
        - dtype (:obj:`str`): ``uint8`` for pixels 0..255, ``float32`` for pixels scaled to [0, 1].
    Shapes:
        - stack, obs (:obj:`np.ndarray`): :math:`(F, S, S)`.
    """
    if dtype == 'uint8':
        return stack.copy()
    return np.divide(stack, np.float32(255), dtype=np.float32)
