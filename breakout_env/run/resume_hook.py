"""Stop a run, or have it killed, and resume it, under ``ding -m serial`` and in our entry alike::

policy.learn.learner.hook.resume = dict(type='resume', name='resume', position='before_run')
create_config.evaluator = dict(type='resumable', import_names=['breakout_env'])
policy.learn.resume_training = True         # to resume the run in exp_name, or begin it
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from ding.worker.learner import BaseLearner, LearnerHook, register_learner_hook

from ..compat.ding_checkpoint_files import keep_checkpoints_whole
from ..compat.ding_command_line import is_command
from ..compat.ding_first_evaluation import evaluate_first
from ..compat.tensorboardx_disk_full import retry_writes
from ..envs.pixel_check import check_default_dtype
from ..policy.learner import check_finite
from ..utils.options import Between, Options
from .folder import lock_run_folder, unlock_run_folder
from .paths import numbered_checkpoint
from .saver import RunSaver
from .stop_request import StopRequest


class ResumeOptions(Options):
    """The options of the learner hook ``resume``, in ``ext_args``."""

    _owner = 'hook `resume`: option'

    save_every_s: Annotated[float, Between(0.0, math.inf)] = 900.0
    """(float) Seconds between two saves; the first one comes after a minute."""


class ResumeHook(LearnerHook):
    """Before the run: restores the newest usable save, if ``policy.learn.resume_training`` is on. While it runs: saves
    it from time to time; training waits. When it ends, and on SIGTERM or Ctrl-C: saves it a last time. ``ext_args`` are
    ``ResumeOptions``.
    """

    @classmethod
    def check_config(cls, ext_args: object) -> None:
        """Check the hook's ``ext_args``; a ValueError names what is wrong."""
        ResumeOptions.read(ext_args)

    def __init__(self, *args: object, ext_args: Mapping = {}, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._options = ResumeOptions.read(ext_args)
        # From now on a signal stops a command in order: the env managers fork next, and a KeyboardInterrupt in a fork
        # is lost. Other programs may go on after a failed start: there, signals are handled from the run's beginning.
        self._stop = StopRequest(only_free=True) if is_command() else None

    def __call__(self, engine: BaseLearner) -> None:
        cfg = engine.policy.get_attribute('cfg')
        if 'update_per_collect' not in cfg.learn:
            raise ValueError(
                'the hook `resume` counts the updates for a collection by policy.learn.update_per_collect, which this '
                'policy does not have; expected another one, such as lean_ppo, or no hook `resume`'
            )
        if engine.world_size > 1:
            raise ValueError('the hook `resume` saves the run of one learner; expected none with several (DDP)')
        check_default_dtype()
        retry_writes(engine.tb_logger)
        keep_checkpoints_whole(engine, numbered_checkpoint, partial(check_finite, 'of the training,'))
        lock_run_folder(engine.exp_name)
        engine.run_saver = saver = RunSaver(engine, self._options.save_every_s)
        if cfg.learn.get('resume_training', False):
            try:
                saver.resume()
            except Exception:  # whatever it is, no run holds the folder now
                unlock_run_folder(engine.exp_name)
                raise
            evaluate_first(engine)
        saver.start(self._stop or StopRequest(only_free=True))


register_learner_hook('resume', ResumeHook)
