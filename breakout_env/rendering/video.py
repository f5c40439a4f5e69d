"""
Games as video files that a browser plays, encoded by FFmpeg (the binary comes with imageio-ffmpeg) in a child process.

``GameRecorder`` writes one file for each game beside a running training: a video that fails must not cost the game.
``VideoFile`` writes one file of a given name, for which somebody waits: it appears complete or not at all.
"""

import contextlib
import logging
import os
from typing import Optional

import imageio_ffmpeg
import numpy as np

from ..utils.child_process import HelperError, HelperProcess
from ..utils.game_constants import FRAMES_PER_SECOND

logger = logging.getLogger(__name__)

# Of a recorder. Together with the window's, below the 5 s that DI-engine's managers give a worker to close.
WRITE_TIMEOUT_S = 3.0
CLOSE_TIMEOUT_S = 3.0
# Of a file. Nobody waits for a step here: only an encoder that does not move at all is stopped.
FILE_WRITE_TIMEOUT_S = 30.0
FILE_CLOSE_TIMEOUT_S = 120.0
GIF_SECONDS = 30.0  # longer ones are too large for most pages and chats
ENCODER_OPTIONS = {
    '.mp4': (
        *('-vf', 'scale=iw*3:ih*3:flags=neighbor'),  # 160x210 is tiny on today's screens
        # browsers require yuv420p and the index at the front; one thread, as eight environments may record at once
        *('-c:v', 'libx264', '-preset', 'veryfast', '-crf', '20', '-pix_fmt', 'yuv420p', '-threads', '1'),
        *('-movflags', '+faststart'),
    ),
    # A picture has a dozen colours and gets its own palette: for a common palette FFmpeg would wait for the last
    # picture, with all of them in memory.
    '.gif': (
        '-filter_complex',
        'scale=iw*2:ih*2:flags=neighbor,split[pictures][look];[look]palettegen=stats_mode=single[palettes];'
        '[pictures][palettes]paletteuse=new=1:dither=none',
        *('-threads', '1'),
    ),
}


def _start_encoder(picture: np.ndarray, pictures_per_second: str, path: str) -> HelperProcess:
    """FFmpeg with pictures of this size on its standard input; it overwrites ``path``, ending with .mp4 or .gif."""
    height, width = picture.shape[:2]
    command = [
        *(imageio_ffmpeg.get_ffmpeg_exe(), '-y', '-loglevel', 'error'),
        *('-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', f'{width}x{height}', '-r', pictures_per_second, '-i', '-'),
        *ENCODER_OPTIONS[os.path.splitext(path)[1]],
        f'file:{path}',  # without this prefix a name with a colon in it would be a protocol
    ]
    return HelperProcess('video encoder', command)


class GameRecorder(object):
    """
    Writes each game into a file of its own in a folder. A file is named ``*.part.mp4`` while it grows and gets
    the score into its name at the end. If this process is killed, FFmpeg sees its input end and completes the
    file. A recording that fails (full disk, encoder stuck) is given up with a warning: the game goes on.
    """

    def __init__(self, folder: str, name: str, frame_skip: int) -> None:
        """
        Make the folder, or check it: an OSError says that it can't be made or written to. The names of files begin
        with ``name``; the first file appears with the first step of a game.
        """
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as e:
            raise type(e)(f'the replay folder {folder!r} cannot be made: {e.strerror}') from e
        if not os.access(folder, os.W_OK):
            raise PermissionError(f'the replay folder {folder!r} cannot be written to')
        self.folder = folder  # as it was given
        self._folder, self.name = os.path.abspath(folder), name  # the current folder may change during a recording
        self._rate = f'{FRAMES_PER_SECOND}/{frame_skip}'
        self._first_picture: Optional[np.ndarray] = None
        self._encoder: Optional[HelperProcess] = None
        self._stem = ''
        self._game_count = 0

    def begin(self, picture: np.ndarray) -> None:
        """
        Overview:
            A new game. One that is abandoned before its first step, as when a manager resets twice, leaves no file.
        Shapes:
            - picture (:obj:`np.ndarray`): :math:`(H, W, 3)`, uint8, C-contiguous; the same for ``write``.
        """
        self._first_picture = picture

    def write(self, picture: np.ndarray) -> None:
        """Add a picture to the game; between ``end`` and ``begin`` do nothing."""
        try:
            if self._first_picture is not None:
                first, self._first_picture = self._first_picture, None
                self._open(first)
            if self._encoder is not None:
                self._encoder.write(picture.data, WRITE_TIMEOUT_S)
        except TimeoutError:  # not ours: the caller set an alarm for the step
            raise
        except Exception as e:  # HelperError, no FFmpeg, a full disk; no failure of a video is worth a game
            logger.warning('the recording of this game is given up, the game goes on: %s', e)
            self._finish('given-up')

    def end(self, score: Optional[int] = None) -> None:
        """
        Complete the file of a game, with its score in the name; None for an unfinished game. May be called at any time.
        """
        self._first_picture = None
        self._finish('unfinished' if score is None else f'score{score}')

    def _open(self, first: np.ndarray) -> None:
        while True:  # until a name is free, of this run's and earlier runs' games, here and in other processes
            self._game_count += 1
            stem = os.path.join(self._folder, f'{self.name}-game{self._game_count:04d}')
            if any(f.startswith(os.path.basename(stem)) for f in os.listdir(self._folder)):
                continue
            with contextlib.suppress(FileExistsError):  # another process has just taken this name
                os.close(os.open(f'{stem}.part.mp4', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                break
        self._stem = stem
        try:
            self._encoder = _start_encoder(first, self._rate, f'{stem}.part.mp4')
        except BaseException:  # no FFmpeg, or an interrupt: only the encoder would complete or remove the file
            os.remove(f'{stem}.part.mp4')
            raise
        self._encoder.write(first.data, WRITE_TIMEOUT_S)

    def _finish(self, ending: str) -> None:
        encoder, self._encoder = self._encoder, None
        if encoder is None:
            return
        try:
            if encoder.close(CLOSE_TIMEOUT_S):  # not in a forked copy of this process, where it is closed already
                os.replace(f'{self._stem}.part.mp4', f'{self._stem}-{ending}.mp4')
                logger.debug('process %d completed the video %s-%s.mp4', os.getpid(), self._stem, ending)
        except Exception as e:  # as in ``write``
            logger.warning('the video %s.part.mp4 may be incomplete: %s', self._stem, e)


class VideoFile(contextlib.AbstractContextManager):
    """
    Overview:
        A video that is encoded while its pictures come in: H.264 for ``.mp4``, or ``.gif``. Until ``finish`` it is a \
        part file beside its final name; without ``finish`` the part file is removed.
    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, VideoFile(f'{folder}/game.gif', 15) as video:
        ...     video.show(np.zeros((210, 160, 3), np.uint8))
        ...     video.finish()
        ...     os.listdir(folder)
        True
        ['game.gif']
    """

    def __init__(
        self, path: str, pictures_per_second: float, max_seconds: Optional[float] = None, overwrite: bool = False
    ) -> None:
        """
        Overview:
            Check the name. The first picture starts FFmpeg.
        Arguments:
            - path (:obj:`str`): The final name, ending with ``.mp4`` or ``.gif``.
            - pictures_per_second (:obj:`float`): Its playing speed.
            - max_seconds (:obj:`Optional[float]`): Its maximal length; None for no limit, or 30 s for a GIF.
            - overwrite (:obj:`bool`): Whether an existing file may be replaced.
        Raises:
            - ValueError: If the name has another ending.
            - OSError: If the file exists already.
        """
        self.path = os.fspath(path)
        suffix = os.path.splitext(self.path)[1]
        if suffix.lower() not in ENCODER_OPTIONS:
            raise ValueError(f'the video is {self.path!r}; expected a name that ends with .mp4 or .gif')
        if os.path.exists(self.path) and not overwrite:
            raise FileExistsError(f'the video {self.path!r} exists already; expected another name, or --force')
        self._target = os.path.realpath(self.path)  # a link stays one; the current folder may change
        self._part = f'{os.path.splitext(self._target)[0]}.{os.getpid()}.part{suffix.lower()}'
        self._rate = pictures_per_second
        if max_seconds is None and suffix.lower() == '.gif':
            max_seconds = GIF_SECONDS
        self._pictures_left = None if max_seconds is None else max(1, round(max_seconds * pictures_per_second))
        self._encoder: Optional[HelperProcess] = None

    def show(self, picture: np.ndarray) -> bool:
        """
        Overview:
            Add a picture.
        Returns:
            - goes_on (:obj:`bool`): False once the video has its maximal length.
        Raises:
            - OSError: If it cannot be written.
        Shapes:
            - picture (:obj:`np.ndarray`): :math:`(H, W, 3)`, uint8, C-contiguous; all have the same size.
        """
        try:
            if self._encoder is None:
                self._encoder = _start_encoder(picture, f'{self._rate:g}', self._part)
            self._encoder.write(picture.data, FILE_WRITE_TIMEOUT_S)
        except RuntimeError as error:  # HelperError, or imageio-ffmpeg finds no FFmpeg
            raise OSError(f'the video {self.path!r} cannot be written: {error}') from None
        if self._pictures_left is not None:
            self._pictures_left -= 1
        return self._pictures_left != 0

    def finish(self) -> None:
        """Complete the video and give it its final name. An OSError says that this failed and removed the video."""
        encoder, self._encoder = self._encoder, None
        if encoder is None:
            return
        try:
            encoder.close(FILE_CLOSE_TIMEOUT_S)
            os.replace(self._part, self._target)
        except HelperError as error:
            raise OSError(f'the video {self.path!r} cannot be written: {error}') from None
        finally:
            self._remove_part()

    def close(self) -> None:
        """Remove an unfinished video. May be called at any time, any number of times."""
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            with contextlib.suppress(HelperError):  # the video is removed, whether it is complete or not
                encoder.close(0)
        self._remove_part()  # there is one without an encoder if a signal interrupted its start

    def __exit__(self, *error: object) -> None:
        self.close()

    def _remove_part(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # it already has its final name, or was never begun
            os.remove(self._part)
