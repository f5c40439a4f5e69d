"""An evaluator whose best score outlives a resumed run, and which shows a sample game."""

import io
import logging
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
from ding.envs import BaseEnvManager, BaseEnvTimestep
from ding.utils import SERIAL_EVALUATOR_REGISTRY
from ding.worker import InteractionSerialEvaluator
from PIL import Image
from tensorboardX import SummaryWriter
from tensorboardX.proto.summary_pb2 import Summary

from ..envs.pixel_check import check_first_batch
from ..utils import run_registry
from .step_callback import StepCallback, weakly

_log = logging.getLogger(__name__)
SAMPLE_EVERY_S = 600.0  # a game takes up to half a megabyte in TensorBoard's log
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


@SERIAL_EVALUATOR_REGISTRY.register('resumable')
class ResumableEvaluator(InteractionSerialEvaluator):
    """
    Overview:
        DI-engine's evaluator, with a best score that is saved with the run. Every ten minutes it also writes to \
        TensorBoard what the network saw in a game of the evaluation (``evaluator/sample_game``).

        A resumed run evaluates before anything else: DI-engine's pipeline needs a result from its own process when it \
        ends, however soon.
    Examples:
        >>> from ding.utils import SERIAL_EVALUATOR_REGISTRY
        >>> SERIAL_EVALUATOR_REGISTRY.get('resumable').__name__
        'ResumableEvaluator'
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sample: Optional[SampleGame] = None
        self._sampled_at_s = -SAMPLE_EVERY_S
        self._network_checked = False
        super().__init__(*args, **kwargs)
        self._is_resumed = False
        self._update_state()
        run_registry.register(self._exp_name, 'evaluator', self)

    def reset_env(self, _env: Optional[BaseEnvManager] = None) -> None:
        """Continue in an env manager, or reset the present one."""
        super().reset_env(None if _env is None else StepCallback(_env, weakly(self._on_step)))

    def should_eval(self, train_iter: int) -> bool:
        """Whether it is time. The pipelines ask between two collections, when a request to stop is handled, too."""
        autosave = run_registry.look_up(self._exp_name, 'autosave')
        if autosave is not None:
            autosave.between_collections()
        is_first, self._is_resumed = self._is_resumed, False
        return super().should_eval(train_iter) or is_first

    def eval(
        self, save_ckpt_fn: Any = None, train_iter: int = -1, envstep: int = -1, *args: Any, **kwargs: Any
    ) -> Tuple[bool, Dict[str, list]]:
        """The base's ``eval``; a ValueError at the first one if the network does not take the observations."""
        if not self._network_checked:
            check_first_batch(self._policy, self._env.observation_space)
            self._network_checked = True
        best_saved = self._max_episode_return
        if time.monotonic() - self._sampled_at_s >= SAMPLE_EVERY_S:
            self._sample = SampleGame()
        due: List[str] = []  # the name of a checkpoint, if the score is the best so far
        finished, info = super().eval(save_ckpt_fn and due.append, train_iter, envstep, *args, **kwargs)
        if due:
            autosave = run_registry.look_up(self._exp_name, 'autosave')
            try:
                save_ckpt_fn(*due)
                best_saved = self._max_episode_return
                if autosave is not None:
                    autosave.note_best_score(float(self._max_episode_return))
            except OSError as error:  # of the disk, which must not end the training
                self._max_episode_return: float = best_saved
                _log.warning('ckpt_best or its score was not saved, the training continues: %s', error)
        self._update_state()
        self._log(info, envstep)
        return finished, info

    def _on_step(self, timesteps: Dict[int, BaseEnvTimestep]) -> None:
        run_registry.poll_progress(self._exp_name)
        if self._sample is not None and 0 in timesteps:
            self._sample.add(timesteps[0])

    def _log(self, info: Mapping[str, Any], envstep: int) -> None:
        if self._tb_logger is not None and self._sample is not None:
            self._sampled_at_s = time.monotonic()
            self._sample.write(self._tb_logger, f'{self._instance_name}/sample_game', envstep)
        self._sample = None
        progress = run_registry.look_up(self._exp_name, 'progress')
        if progress is not None:
            progress.note_evaluation([float(value) for value in info['eval_episode_return']])

    def _update_state(self) -> None:
        self._state = dict(best_score=float(self._max_episode_return), last_iteration=int(self._last_eval_iter))

    def state(self) -> Dict[str, float]:
        """Best score and iteration after the last finished evaluation; an unfinished one will be repeated."""
        return self._state

    def load_state(self, state: Mapping[str, float]) -> None:
        """Restore what ``state`` returned."""
        self._max_episode_return = state['best_score']
        self._last_eval_iter = state['last_iteration']
        self._is_resumed = True
        self._update_state()
