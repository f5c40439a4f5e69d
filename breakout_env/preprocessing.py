"""What happens to a screen before an agent sees it: functions on arrays that the caller owns, no state of their own."""
import cv2
import numpy as np


def pool_into(screen: np.ndarray, earlier: np.ndarray) -> None:
    """
    Overview:
        Merge two successive screens in place, so that sprites the console draws only in every other frame are seen.
        From "Human-level control through deep reinforcement learning" (Mnih et al. 2015), Methods.
    Arguments:
        - screen (:obj:`np.ndarray`): The newer screen, overwritten by the maximum of both.
        - earlier (:obj:`np.ndarray`): The screen before it.
    Shapes:
        - screen, earlier (:obj:`np.ndarray`): :math:`(210, 160)`, uint8.
    """
    np.maximum(screen, earlier, out=screen)


def shrink_into(frame: np.ndarray, screen: np.ndarray) -> None:
    """
    Overview:
        Shrink a gray screen by area interpolation, as gymnasium's and Stable-Baselines3's wrappers do, into memory \
        that is there already.
    Arguments:
        - frame (:obj:`np.ndarray`): Filled with the shrunk screen.
        - screen (:obj:`np.ndarray`): The screen.
    Shapes:
        - frame (:obj:`np.ndarray`): :math:`(S, S)`, uint8, C-contiguous: OpenCV writes elsewhere if it is not.
        - screen (:obj:`np.ndarray`): :math:`(210, 160)`, uint8.
    """
    cv2.resize(screen, frame.shape[::-1], dst=frame, interpolation=cv2.INTER_AREA)


def push_frame(stack: np.ndarray, screen: np.ndarray) -> None:
    """
    Overview:
        Drop the oldest frame of a stack and shrink a screen into the newest place.
    Arguments:
        - stack (:obj:`np.ndarray`): The last frames, oldest first, changed in place.
        - screen (:obj:`np.ndarray`): The new screen.
    Shapes:
        - stack (:obj:`np.ndarray`): :math:`(F, S, S)`, uint8, C-contiguous.
        - screen (:obj:`np.ndarray`): :math:`(210, 160)`, uint8.
    """
    if len(stack) > 1:
        # frame by frame, because numpy copies the whole block aside first when source and target overlap
        for i in range(len(stack) - 1):
            stack[i] = stack[i + 1]
    shrink_into(stack[-1], screen)


def fill_stack(stack: np.ndarray, screen: np.ndarray) -> None:
    """
    Overview:
        Start a stack: every place holds the first screen, as gymnasium's ``FrameStackObservation`` does.
    Arguments:
        - stack (:obj:`np.ndarray`): Overwritten.
        - screen (:obj:`np.ndarray`): The first screen of an episode.
    Shapes:
        - stack (:obj:`np.ndarray`): :math:`(F, S, S)`, uint8, C-contiguous.
        - screen (:obj:`np.ndarray`): :math:`(210, 160)`, uint8.
    """
    shrink_into(stack[-1], screen)
    stack[:-1] = stack[-1]


def observe(stack: np.ndarray, dtype: str) -> np.ndarray:
    """
    Overview:
        A copy of the stack for the agent to keep.
    Arguments:
        - stack (:obj:`np.ndarray`): The last frames.
        - dtype (:obj:`str`): ``uint8`` for pixels 0..255, ``float32`` for pixels scaled to [0, 1].
    Returns:
        - obs (:obj:`np.ndarray`): The observation, in memory of its own.
    Shapes:
        - stack, obs (:obj:`np.ndarray`): :math:`(F, S, S)`.
    """
    if dtype == 'uint8':
        return stack.copy()
    return np.divide(stack, np.float32(255), dtype=np.float32)
