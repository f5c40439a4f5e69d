"""
Stop a run, or have it killed, and resume it, under ``ding -m serial`` and in our entry alike::

    policy.learn.learner.hook.resume = dict(type='resume', name='resume', position='before_run')
    create_config.evaluator = dict(type='resumable', import_names=['breakout_env'])
    policy.learn.resume_training = True         # to resume the run in exp_name, or begin it
"""

import contextlib
import math
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Iterator, Mapping

import torch
from ding.worker.learner import LearnerHook, register_learner_hook

from ..compat.ding_call_hook import CallHook
from ..compat.ding_checkpoint_files import keep_checkpoints_whole
from ..compat.ding_first_evaluation import evaluate_first
from ..compat.tensorboardx_disk_full import retry_writes
from ..envs.pixel_check import check_first_batch_for_frames
from ..policy.learner import check_finite
from ..utils import output, run_registry, signals
from ..utils.options import Between, Options
from .folder import hold, release
from .paths import numbered_checkpoint, write_best_score
from .saver import RunSaver
from .stop_request import Stopped, StopRequest

if TYPE_CHECKING:
    from ding.worker import BaseLearner

# A run that crashes in its first minutes is lost without it.
FIRST_SAVE_S = 60.0


class ResumeOptions(Options):
    """The options of the learner hook ``resume``, in ``ext_args``."""

    _owner = 'hook `resume`: option'

    save_every_s: Annotated[float, Between(0.0, math.inf)] = 900.0
    """(float) Seconds between two saves; the first one comes after a minute."""


class ResumeHook(LearnerHook):
    """
    Overview:
        Before the run: checks that the network takes the pixels of the buffer ``frame``, and restores the newest \
        usable save, if ``policy.learn.resume_training`` is on. While it runs: saves it from time to time, with the \
        buffer ``frame`` in the background; with others, training waits. When it ends, and on SIGTERM or Ctrl-C: saves \
        it a last time. ``ext_args`` are ``ResumeOptions``.
    Examples:
        >>> hook = ResumeHook('resume', 100, position='before_run', ext_args=dict(save_every_s=900))
        >>> hook.position
        'before_run'
    """

    @classmethod
    def check_config(cls, ext_args: Any) -> None:
        """Check the hook's ``ext_args``; a ValueError names what is wrong."""
        ResumeOptions.read(ext_args)

    def __init__(self, *args: Any, ext_args: Mapping = {}, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._options = ResumeOptions.read(ext_args)

    def __call__(self, engine: 'BaseLearner') -> None:
        cfg = engine.policy.get_attribute('cfg')
        if 'update_per_collect' not in cfg.learn:
            raise ValueError(
                'the hook `resume` counts the updates for a collection by policy.learn.update_per_collect, which this '
                'policy does not have; expected another one, such as lean_ppo, or no hook `resume`'
            )
        if engine.world_size > 1:
            raise ValueError('the hook `resume` saves the run of one learner; expected none with several (DDP)')
        check_first_batch_for_frames(engine.policy, cfg)
        retry_writes(engine.tb_logger)
        keep_checkpoints_whole(engine, numbered_checkpoint, partial(check_finite, 'of the training,'))
        hold(engine.exp_name)
        engine.run_saver = saver = RunSaver(engine)
        if cfg.learn.get('resume_training', False):
            try:
                saver.resume()
            except Exception:  # whatever it is, no run holds the folder now
                release(engine.exp_name)
                raise
            evaluate_first(engine)
        engine.run_autosave = RunAutosave(engine, saver, self._options.save_every_s)


register_learner_hook('resume', ResumeHook)


class RunAutosave(object):
    """
    Saves a run from time to time, when it ends, and when it is stopped. It saves when the updates for a collection are
    done and nothing of the next one has been pushed, so that a resumed run repeats nothing; a stop at another moment
    waits until then. Create it after ``RunSaver.resume``. A pipeline that an error ends calls ``after_run`` while the
    error is handled, as it may have come in the middle of the updates.
    """

    def __init__(self, learner: 'BaseLearner', saver: RunSaver, save_every_s: float) -> None:
        self._learner = learner
        self._saver = saver
        self._save_every_s = save_every_s
        self._update_per_collect = learner.policy.get_attribute('cfg').learn.update_per_collect
        self._is_busy = self._has_saved = False
        # the updates and the transitions at the newest moment that can be saved
        self._iteration = learner.last_iter.val
        self._pushed = self._push_count
        learner.save_checkpoint = self._defer_stop()(learner.save_checkpoint)  # the one of the best score
        learner.register_hook(CallHook('resume_wait', 0, self._before_update, position='before_iter'))
        learner.register_hook(CallHook('resume_save', 200, self._after_update, position='after_iter'))
        learner.register_hook(CallHook('resume_save_last', 200, self._after_run, position='after_run'))
        run_registry.register(learner.exp_name, 'autosave', self)
        self._stop = StopRequest(then=self._on_stop, only_free=True)

    @property
    def _push_count(self) -> int:
        return 0 if self._saver.buffer is None else self._saver.buffer.push_count

    @property
    def _can_save(self) -> bool:
        """Whether the run is as it was after the updates for the last collection."""
        in_use = self._is_busy or getattr(self._saver.buffer, 'in_use', False)
        return not in_use and self._push_count == self._pushed

    def _before_update(self) -> None:
        self._is_busy = True  # until the updates for this collection are done

    def _after_update(self) -> None:
        done = self._learner.last_iter.val + 1  # the learner counts this update after its hooks
        if done - self._iteration >= self._update_per_collect:
            self._between_collections(done)

    def between_collections(self) -> None:
        """Save if it is time. The evaluator calls this, as a small buffer may have too little for all updates."""
        self._between_collections(self._learner.last_iter.val)

    def note_best_score(self, score: float) -> None:
        """Write the score of the best checkpoint; an OSError if the disk is full."""
        write_best_score(self._learner.exp_name, score)

    def _between_collections(self, iteration: int) -> None:
        with self._defer_stop():
            self._iteration, self._pushed = iteration, self._push_count
            every_s = self._save_every_s if self._has_saved else min(FIRST_SAVE_S, self._save_every_s)
            if self._saver.seconds_since_save >= every_s:
                self._has_saved = True
                self._saver.save(iteration)

    def _after_run(self) -> None:
        error, failed = sys.exc_info()[1], None
        # all is done then, even if the buffer had too little for all updates
        if error is None or isinstance(error, Stopped):
            self._is_busy, self._iteration, self._pushed = False, self._learner.last_iter.val, self._push_count
        try:
            if self._can_save:  # else an error or a second Ctrl-C interrupted something
                failed = self._saver.save(self._iteration, wait=True)
            elif isinstance(error, (torch.OutOfMemoryError, MemoryError)):
                # an update needs all of its memory before it changes a weight: the run is as after the update before
                self._saver.save(self._learner.last_iter.val, wait=True)
        finally:
            self._stop.close()
            run_registry.forget(self._learner.exp_name)
            release(self._learner.exp_name)
        # the last two are of environments that the same signal ended
        if failed is not None and (error is None or isinstance(error, (Stopped, OSError, EOFError))):
            cause = f'{error}; besides, ' if str(error or '') else ''
            raise OSError(f'{cause}the last save of {self._learner.exp_name} failed ({failed}); the one before is kept')

    # ---------------------------------------------------------------- stopping

    @contextlib.contextmanager
    def _defer_stop(self) -> Iterator[None]:
        """A stop request waits until what is within is done."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False
        if self._stop.requested:
            self._save_and_exit()

    def _on_stop(self) -> None:
        # Between the updates, the run is as it was after the last one. So there is no need to wait for a collection or
        # an evaluation to end; nor may there be time, as a scheduler's signal goes to the env workers, too.
        if self._can_save or not (self._is_busy or self._iteration):
            self._save_and_exit()

    def _save_and_exit(self) -> None:
        error = self._saver.save(self._iteration, wait=True)
        done = f'{self._iteration:,} updates and {self._learner.collector_envstep:,} env steps'
        if not self._iteration:
            message = 'No update was done yet, so there is nothing to save: the same command begins the run again.'
        else:
            message = (
                (f'Saved at {done}.' if error is None else f'The run could not be saved ({error}).')
                + ' To resume it: the same command with policy.learn.resume_training=True and '
                f'exp_name={self._learner.exp_name!r} in the config (breakout train: --resume).'
            )
        output.say(message)
        signals.let_ctrl_c_kill()
        sys.exit(self._stop.exit_code)
