"""One video in a file of a given name, whole or not at all."""

import contextlib
import os
from typing import Any, FrozenSet, Optional

import numpy as np

from ..utils.child_process import HelperError, HelperProcess
from .video import MP4_OPTIONS, encoder_command

# Nobody waits for a step here, as they do for ``recording``: what is given up is only what does not move at all.
WRITE_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 120.0
OPTIONS = {
    '.mp4': MP4_OPTIONS,
    # A picture has a dozen colours, and a palette of its own: one for all of them would keep FFmpeg waiting for the
    # last picture, with all of them in memory.
    '.gif': (
        '-filter_complex',
        'scale=iw*2:ih*2:flags=neighbor,split[pictures][look];[look]palettegen=stats_mode=single[palettes];'
        '[pictures][palettes]paletteuse=new=1:dither=none',
        *('-threads', '1'),
    ),
}


class VideoFile(object):
    """
    Overview:
        A video that is encoded while its pictures come in, by FFmpeg in a child process: H.264 for ``.mp4``, which \
        browsers play, or ``.gif``. It lies beside its name until ``finish``, and is removed where that is not reached.
    Interfaces:
        ``show``, ``keys``, ``finish``, ``close``.
    """

    def __init__(
        self, path: str, pictures_per_second: float, max_seconds: Optional[float] = None, overwrite: bool = False
    ) -> None:
        """
        Overview:
            Check the name. FFmpeg is started by the first picture.
        Arguments:
            - path (:obj:`str`): The file to be, ending with ``.mp4`` or ``.gif``.
            - pictures_per_second (:obj:`float`): How fast it is played.
            - max_seconds (:obj:`Optional[float]`): Where it is cut off; None for nowhere.
            - overwrite (:obj:`bool`): Whether a file that is there already may be replaced.
        Raises:
            - ValueError: If the name ends with something else.
            - OSError: If the file is there already, or its folder is not.
        """
        self.path = os.fspath(path)
        stem, suffix = os.path.splitext(self.path)
        if suffix.lower() not in OPTIONS:
            raise ValueError(f'the video is {self.path!r}; expected a name that ends with .mp4 or .gif')
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f'the video is {self.path!r}, but there is no folder {folder!r}')
        if not os.access(folder, os.W_OK):
            raise PermissionError(f'the video is {self.path!r}, but the folder {folder!r} can not be written to')
        if os.path.isdir(self.path):
            raise IsADirectoryError(f'the video is {self.path!r}, which is a folder; expected a file')
        if os.path.exists(self.path) and not overwrite:
            raise FileExistsError(f'the video {self.path!r} is there already; expected another name, or --force')
        self._options = OPTIONS[suffix.lower()]
        self._part = f'{os.path.abspath(stem)}.{os.getpid()}.part{suffix.lower()}'
        self._rate = pictures_per_second
        self._pictures_left = None if max_seconds is None else max(1, round(max_seconds * pictures_per_second))
        self._encoder: Optional[HelperProcess] = None

    def show(self, picture: np.ndarray, line: str = '') -> bool:
        """
        Overview:
            Add a picture.
        Arguments:
            - picture (:obj:`np.ndarray`): The next picture; all are of the same size.
            - line (:obj:`str`): What other screens write below it; not used.
        Returns:
            - goes_on (:obj:`bool`): False once the video is as long as it may be.
        Raises:
            - OSError: If it can not be written.
        Shapes:
            - picture (:obj:`np.ndarray`): :math:`(H, W, 3)`, uint8, C-contiguous.
        """
        try:
            if self._encoder is None:
                command = encoder_command(picture.shape[:2], f'{self._rate:g}', self._options, self._part)
                self._encoder = HelperProcess('video encoder', command)
            self._encoder.write(picture.data, WRITE_TIMEOUT_S)
        except RuntimeError as error:  # HelperError, or imageio-ffmpeg finds no FFmpeg
            raise OSError(f'the video {self.path!r} can not be written: {error}') from None
        if self._pictures_left is not None:
            self._pictures_left -= 1
        return self._pictures_left != 0

    def keys(self) -> FrozenSet[str]:
        """What a player presses: nothing, there is none."""
        return frozenset()

    def finish(self) -> None:
        """
        Overview:
            Complete the video and give it its name.
        Raises:
            - OSError: If it can not be written. What there is of it is removed.
        """
        encoder, self._encoder = self._encoder, None
        if encoder is None:
            return
        try:
            encoder.close(CLOSE_TIMEOUT_S)
            os.replace(self._part, self.path)
        except HelperError as error:
            raise OSError(f'the video {self.path!r} can not be written: {error}') from None
        finally:
            self._remove_part()

    def close(self) -> None:
        """
        Overview:
            Give up a video that was not finished. May be called at any time, any number of times.
        """
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            with contextlib.suppress(HelperError):  # how it ends is of no interest any more
                encoder.close(0)
            self._remove_part()

    def __enter__(self) -> 'VideoFile':
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _remove_part(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # it has its name, or was never begun
            os.remove(self._part)
