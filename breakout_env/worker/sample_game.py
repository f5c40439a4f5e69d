"""A game as the network saw it, as an animation in TensorBoard."""

import io
from typing import List

import numpy as np
from ding.envs import BaseEnvTimestep
from PIL import Image
from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

# Up to a minute of play: at 15 agent steps a second the animation runs at twice the speed of the game.
MAX_PICTURES = 450
STEPS_PER_PICTURE = 2
PICTURE_MS = 70
ENLARGEMENT = 2


class SampleGame(object):
    """
    Overview:
        Records the newest screen of every second observation of an environment's next game, and writes them as a GIF: \
        TensorBoard shows one wherever it shows images. (``add_video`` of its writers needs moviepy, and copies all \
        pictures once more.)
    Examples:
        >>> game = SampleGame()
        >>> timestep = BaseEnvTimestep(np.zeros((4, 84, 84), np.uint8), np.zeros(1), True, {})
        >>> game.add(timestep)
        >>> game.pictures[0].shape
        (84, 84)
    """

    def __init__(self) -> None:
        self.pictures: List[np.ndarray] = []
        self._steps = 0
        self._is_over = False

    def add(self, timestep: BaseEnvTimestep) -> None:
        """Record the next step, whose screens are uint8 or scaled to [0, 1], unless the game is over."""
        self._is_over = self._is_over or timestep.info.get('abnormal', False) or len(self.pictures) == MAX_PICTURES
        if self._is_over:
            return
        if self._steps % STEPS_PER_PICTURE == 0 and np.ndim(timestep.obs) == 3:
            newest = np.asarray(timestep.obs[-1])
            # astype copies: the manager may reuse the memory
            self.pictures.append((newest if newest.dtype == np.uint8 else newest * 255).astype(np.uint8))
        self._steps += 1
        self._is_over = bool(timestep.done)

    def write(self, writer: SummaryWriter, tag: str, step: int) -> None:
        """Write the animation, if there are pictures, to TensorBoard at an env step."""
        if not self.pictures:
            return
        side = self.pictures[0].shape[0] * ENLARGEMENT
        images = [Image.fromarray(picture).resize((side, side), Image.Resampling.NEAREST) for picture in self.pictures]
        content = io.BytesIO()
        images[0].save(content, 'GIF', save_all=True, append_images=images[1:], duration=PICTURE_MS, loop=0)
        image = Summary.Image(height=side, width=side, colorspace=1, encoded_image_string=content.getvalue())
        writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=image)]), step)
