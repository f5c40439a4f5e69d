"""Games as video files that a browser plays, encoded in a child process by FFmpeg, which imageio-ffmpeg brings.

``VideoFile`` writes one file; ``GameRecorder`` writes one for each game, and a video that fails costs no game.
"""

import contextlib
import logging
import os

import imageio_ffmpeg
import numpy as np

from ..utils.child_process import HelperError, HelperProcess
from ..utils.game_constants import FRAMES_PER_SECOND

logger = logging.getLogger(__name__)

# Seconds in which the encoder has to take a picture, or to complete its file, before it is killed. A game waits for its
# recorder: with the window's limits, 3 s stay below the 5 s that DI-engine's managers give a worker to close.
RECORDER_TIMEOUT_S, FILE_TIMEOUT_S = 3.0, 120.0
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


class VideoFile(contextlib.AbstractContextManager):
    """A video that is encoded while its pictures come in: H.264 for ``.mp4``, or ``.gif``. Until ``finish`` it is a
    part file beside its final name; ``close`` removes a part file. FFmpeg completes it when this process is killed.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, VideoFile(f'{folder}/game.gif', 15) as video:
        ...     video.show(np.zeros((210, 160, 3), np.uint8))
        ...     video.finish()
        ...     os.listdir(folder)
        1
        ['game.gif']
    """

    def __init__(
        self,
        path: str,
        pictures_per_second: float,
        overwrite: bool = False,
        timeout_s: float = FILE_TIMEOUT_S,
    ) -> None:
        """Check the name. The first picture starts FFmpeg.

        Arguments:
            path: The final name, ending with ``.mp4`` or ``.gif``; a ValueError for another ending.
            overwrite: Whether an existing file may be replaced; else it is a FileExistsError.
            timeout_s: Seconds in which FFmpeg has to take a picture, or to complete the file.
        """
        self.path = os.fspath(path)
        suffix = os.path.splitext(self.path)[1]
        if suffix.lower() not in ENCODER_OPTIONS:
            raise ValueError(f'the video is {self.path!r}; expected a name that ends with .mp4 or .gif')
        if os.path.exists(self.path) and not overwrite:
            raise FileExistsError(f'the video {self.path!r} exists already; expected another name, or --force')
        self._target = os.path.realpath(self.path)  # a link stays one; the current folder may change
        self._owner_pid = os.getpid()
        self.part = f'{os.path.splitext(self._target)[0]}.{self._owner_pid}.part{suffix.lower()}'
        self._rate, self._timeout_s = f'{pictures_per_second:.9g}', timeout_s
        self._picture_count = 0
        self._encoder: HelperProcess | None = None

    def show(self, picture: np.ndarray) -> int:
        """Add a picture of shape :math:`(H, W, 3)`, uint8, C-contiguous; returns how many there are. An OSError says
        that it cannot be written.
        """
        try:
            if self._encoder is None:
                self._encoder = self._start_encoder(picture)
            self._encoder.write(picture.data, self._timeout_s)
        except RuntimeError as error:  # HelperError, or imageio-ffmpeg finds no FFmpeg
            raise OSError(f'the video {self.path!r} cannot be written: {error}') from None
        self._picture_count += 1
        return self._picture_count

    def _start_encoder(self, picture: np.ndarray) -> HelperProcess:
        height, width = picture.shape[:2]
        command = [
            *(imageio_ffmpeg.get_ffmpeg_exe(), '-y', '-loglevel', 'error'),
            *('-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', f'{width}x{height}', '-r', self._rate, '-i', '-'),
            *ENCODER_OPTIONS[os.path.splitext(self.part)[1]],
            f'file:{self.part}',  # without this prefix a name with a colon in it would be a protocol
        ]
        return HelperProcess('video encoder', command)

    def finish(self, path: str | None = None) -> None:
        """Complete the video and give it its final name, or the given one, unless it has no picture or a parent process
        writes it. An OSError says that this failed; ``close`` removes the video.
        """
        encoder, self._encoder = self._encoder, None
        try:
            is_complete = encoder is not None and encoder.close(self._timeout_s)
        except HelperError as error:
            raise OSError(f'the video {self.path!r} cannot be written: {error}') from None
        if is_complete:
            os.replace(self.part, path or self._target)

    def close(self) -> None:
        """Remove an unfinished video. May be called any number of times."""
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            with contextlib.suppress(HelperError):  # the video is removed, whether it is complete or not
                encoder.close(0)
        if os.getpid() == self._owner_pid:
            with contextlib.suppress(FileNotFoundError):  # it already has its final name, or was never begun
                os.remove(self.part)

    def __exit__(self, *error: object) -> None:
        self.close()


class GameRecorder:
    """Writes each game into a new file in a folder. The file is named ``*.part.mp4`` while it grows and gets the score
    into its name at the end. A recording that fails (full disk, stuck encoder) is given up with a warning.
    """

    name = 'breakout'  # the names of files begin so

    def __init__(self, folder: str, frame_skip: int) -> None:
        """Make the folder (an absolute path), or check it: an OSError says that it can't be made or written to."""
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f'the replay folder {folder!r} cannot be written to')
        self.folder = folder
        self._frame_skip = frame_skip
        self._first_picture: np.ndarray | None = None
        self._video: VideoFile | None = None
        self._game_count = 0

    def begin(self, picture: np.ndarray) -> None:
        """Begin a game. One without a step, as when a manager resets twice, leaves no file."""
        self._first_picture = picture

    def write(self, picture: np.ndarray) -> None:
        """Add a picture (as ``VideoFile.show`` takes them) to the game; between ``end`` and ``begin`` do nothing."""
        try:
            if self._first_picture is not None:
                first, self._first_picture = self._first_picture, None
                self._video = self._new_file()
                self._video.show(first)
            if self._video is not None:
                self._video.show(picture)
        except TimeoutError:  # raised by an alarm that the caller set for the step
            raise
        except Exception as e:  # no FFmpeg, a full disk; no failure of a video is worth a game
            logger.warning('the recording of this game is given up, the game goes on: %s', e)
            video, self._video = self._video, None
            if video is not None:
                video.close()

    def end(self, score: int | None = None) -> None:
        """Complete the file of a game, with its score in the name; None for an unfinished game."""
        self._first_picture = None
        video, self._video = self._video, None
        if video is None:
            return
        ending = 'unfinished' if score is None else f'score{score}'
        try:
            video.finish(f'{video.path.removesuffix(".mp4")}-{ending}.mp4')
        except Exception as e:  # as in ``write``
            logger.warning('the video of this game is removed: %s', e)
        finally:
            video.close()

    def _new_file(self) -> VideoFile:
        taken = os.listdir(self.folder)  # by earlier runs, and in this one by other environments
        while True:
            self._game_count += 1
            name = f'{self.name}-game{self._game_count:04d}'
            if not any(each.startswith(name) for each in taken):
                break
        path = os.path.join(self.folder, f'{name}.mp4')
        video = VideoFile(path, FRAMES_PER_SECOND / self._frame_skip, timeout_s=RECORDER_TIMEOUT_S)
        open(video.part, 'wb').close()  # takes the name before FFmpeg makes the file
        return video
