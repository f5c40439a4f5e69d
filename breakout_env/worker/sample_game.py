"""A game as the network saw it, moving, in TensorBoard."""

import io
from typing import List

import numpy as np
from PIL import Image
from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

# Up to a minute of play; at 15 agent steps a second it moves twice as fast as the game, in half as many pictures.
MOST_PICTURES = 450
STEPS_PER_PICTURE = 2
PICTURE_MS = 70
ENLARGEMENT = 2


class SampleGame(object):
    """
    Overview:
        Gathers the newest screen of each second observation of one environment's next game, and writes them as a GIF: \
        TensorBoard shows one wherever it shows images. (``add_video`` of its writers wants moviepy, and a second copy \
        of all pictures.)
    Interfaces:
        ``look_at``, ``write``.
    """

    def __init__(self) -> None:
        self._pictures: List[np.ndarray] = []
        self._steps = 0
        self._is_over = False

    def look_at(self, timestep: 'BaseEnvTimestep') -> None:  # noqa: F821
        """
        Overview:
            The next step of the environment.
        Arguments:
            - timestep (:obj:`BaseEnvTimestep`): Its answer; ``obs`` of :math:`(F, S, S)`, uint8 or scaled to [0, 1].
        """
        self._is_over = self._is_over or timestep.info.get('abnormal', False) or len(self._pictures) == MOST_PICTURES
        if self._is_over:
            return
        if self._steps % STEPS_PER_PICTURE == 0 and np.ndim(timestep.obs) == 3:
            newest = np.asarray(timestep.obs[-1])
            # a copy in any case: the manager may use the memory again
            self._pictures.append((newest if newest.dtype == np.uint8 else newest * 255).astype(np.uint8))
        self._steps += 1
        self._is_over = bool(timestep.done)

    def write(self, writer: SummaryWriter, tag: str, step: int) -> None:
        """
        Overview:
            Write it, if there is anything.
        Arguments:
            - writer (:obj:`SummaryWriter`): TensorBoard's.
            - tag (:obj:`str`): Its name there.
            - step (:obj:`int`): Env step.
        """
        if not self._pictures:
            return
        side = self._pictures[0].shape[0] * ENLARGEMENT
        images = [Image.fromarray(picture).resize((side, side), Image.NEAREST) for picture in self._pictures]
        content = io.BytesIO()
        images[0].save(content, 'GIF', save_all=True, append_images=images[1:], duration=PICTURE_MS, loop=0)
        image = Summary.Image(height=side, width=side, colorspace=1, encoded_image_string=content.getvalue())
        writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=image)]), step)
