"""What is in a video file."""

from typing import NamedTuple

import av
import numpy as np


class Video(NamedTuple):
    codec: str
    pixel_format: str
    rate: float  # pictures a second
    seconds: float
    pictures: np.ndarray  # (N, H, W, 3)


def decode(path) -> Video:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pictures = np.stack([frame.to_ndarray(format='rgb24') for frame in container.decode(stream)])
        codec, seconds = stream.codec_context, float(stream.duration * stream.time_base)
        return Video(codec.name, codec.pix_fmt, float(stream.average_rate), seconds, pictures)
