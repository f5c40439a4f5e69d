"""Whole games as video files that a browser plays."""

import logging
import os
from typing import List, Optional, Sequence, Tuple

import imageio_ffmpeg
import numpy as np

from ..utils.child_process import HelperProcess
from ..utils.game_constants import FRAMES_PER_SECOND

logger = logging.getLogger(__name__)

# Together with the window's, below the 5 s that DI-engine's managers give a worker to close.
WRITE_TIMEOUT_S = 3.0
CLOSE_TIMEOUT_S = 3.0
ENLARGEMENT = 3  # 160x210 is a stamp on today's screens
MP4_OPTIONS = (
    *('-vf', f'scale=iw*{ENLARGEMENT}:ih*{ENLARGEMENT}:flags=neighbor'),
    # yuv420p and the index at the front are what browsers ask for; one thread, as there may be 8 of us
    *('-c:v', 'libx264', '-preset', 'veryfast', '-crf', '20', '-pix_fmt', 'yuv420p', '-threads', '1'),
    *('-movflags', '+faststart'),
)


def encoder_command(shape: Tuple[int, int], pictures_per_second: str, options: Sequence[str], path: str) -> List[str]:
    """
    Overview:
        FFmpeg and its arguments: pictures on standard input, a file at the end.
    Arguments:
        - shape (:obj:`Tuple[int, int]`): Height and width of the pictures.
        - pictures_per_second (:obj:`str`): A number or a fraction.
        - options (:obj:`Sequence[str]`): How they are encoded.
        - path (:obj:`str`): The file; one that is there is overwritten.
    Returns:
        - command (:obj:`List[str]`): For ``HelperProcess``.
    Raises:
        - RuntimeError: If imageio-ffmpeg finds no FFmpeg.
    """
    return [
        *(imageio_ffmpeg.get_ffmpeg_exe(), '-y', '-loglevel', 'error'),
        *('-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', f'{shape[1]}x{shape[0]}', '-r', pictures_per_second, '-i', '-'),
        *options,
        f'file:{path}',  # a name with a colon in it is no protocol
    ]


class GameRecorder(object):
    """
    Overview:
        Writes each game into a file of its own in a folder, H.264 in mp4, encoded by FFmpeg (the binary comes with \
        imageio-ffmpeg) in a child process. A file is named ``*.part.mp4`` while it grows and gets the score into its \
        name at the end. If this process is killed, FFmpeg sees its input end and completes the file. A recording \
        that fails (full disk, encoder stuck) is given up with a warning: the game goes on.
    Interfaces:
        ``begin``, ``write``, ``end``, ``close``.
    """

    def __init__(self, folder: str, name: str, frame_skip: int) -> None:
        """
        Overview:
            Prepare the folder; no file is made before a game is under way.
        Arguments:
            - folder (:obj:`str`): Where the files go; made if it is not there.
            - name (:obj:`str`): Beginning of the file names.
            - frame_skip (:obj:`int`): Emulator frames from one picture to the next, for the playing speed.
        Raises:
            - OSError: If the folder can't be made or written to.
        """
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as e:
            raise type(e)(f'the replay folder {folder!r} can not be made: {e.strerror}') from e
        if not os.access(folder, os.W_OK):
            raise PermissionError(f'the replay folder {folder!r} can not be written to')
        self.folder = folder  # as it was given
        self._folder, self._name = os.path.abspath(folder), name  # the current folder may change while we record
        self._rate = f'{FRAMES_PER_SECOND}/{frame_skip}'
        self._first_picture: Optional[np.ndarray] = None
        self._encoder: Optional[HelperProcess] = None
        self._stem = ''
        self._game_count = 0

    def begin(self, picture: np.ndarray) -> None:
        """
        Overview:
            A new game. One that is abandoned before its first step, as when a manager resets twice, leaves no file.
        Arguments:
            - picture (:obj:`np.ndarray`): The first picture.
        Shapes:
            - picture (:obj:`np.ndarray`): :math:`(H, W, 3)`, uint8.
        """
        self._first_picture = picture

    def write(self, picture: np.ndarray) -> None:
        """
        Overview:
            Add a picture to the game; without one, between ``end`` and ``begin``, nothing happens.
        Arguments:
            - picture (:obj:`np.ndarray`): The next picture.
        Shapes:
            - picture (:obj:`np.ndarray`): :math:`(H, W, 3)`, uint8, C-contiguous.
        """
        try:
            if self._first_picture is not None:
                first, self._first_picture = self._first_picture, None
                self._open(*first.shape[:2])
                self._encoder.write(first.data, WRITE_TIMEOUT_S)
            if self._encoder is not None:
                self._encoder.write(picture.data, WRITE_TIMEOUT_S)
        except TimeoutError:  # not ours: an alarm that somebody set for the step
            raise
        except Exception as e:  # HelperError, no FFmpeg, a full disk; whatever it is, a video is not worth a game
            logger.warning('the recording of this game is given up, the game goes on: %s', e)
            self._finish('given-up')

    def end(self, score: Optional[int] = None) -> None:
        """
        Overview:
            The game is over; complete the file.
        Arguments:
            - score (:obj:`Optional[int]`): Its points, None if it was cut short.
        """
        self._first_picture = None
        self._finish('unfinished' if score is None else f'score{score}')

    def close(self) -> None:
        """
        Overview:
            Complete what is open. May be called at any time, any number of times.
        """
        self.end()

    def _open(self, height: int, width: int) -> None:
        while True:  # a name that nobody has, in this run or an earlier one, here or in another process
            self._game_count += 1
            stem = os.path.join(self._folder, f'{self._name}-game{self._game_count:04d}')
            if any(f.startswith(os.path.basename(stem)) for f in os.listdir(self._folder)):
                continue
            try:
                os.close(os.open(f'{stem}.part.mp4', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                break
            except FileExistsError:
                continue
        self._stem = stem
        self._encoder = HelperProcess(
            'video encoder', encoder_command((height, width), self._rate, MP4_OPTIONS, f'{stem}.part.mp4')
        )

    def _finish(self, ending: str) -> None:
        encoder, self._encoder = self._encoder, None
        if encoder is None:
            return
        try:
            if not encoder.close(CLOSE_TIMEOUT_S):
                return
            os.replace(f'{self._stem}.part.mp4', f'{self._stem}-{ending}.mp4')
        except Exception as e:  # as above
            logger.warning('the video %s.part.mp4 may be incomplete: %s', self._stem, e)
            return
        logger.debug('process %d completed the video %s-%s.mp4', os.getpid(), self._stem, ending)
