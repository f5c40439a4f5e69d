"""DI-engine 0.5.3: its hook writes a checkpoint in place, so that a kill or a full disk damages ``ckpt_best``, and the
error of the disk ends the training.
"""

import io
import logging
from collections.abc import Callable
from pathlib import Path

import torch
from ding.worker.learner import BaseLearner
from ding.worker.learner.learner_hook import SaveCkptHook
from easydict import EasyDict

from ..utils.atomic_file import write_bytes

logger = logging.getLogger(__name__)
Check = Callable[[dict[str, object]], None]
PathOf = Callable[[int], Path]


class WholeCkptHook(SaveCkptHook):
    """The checkpoints of DI-engine's hook, each written whole or not at all."""

    def __init__(self, replaced: SaveCkptHook, path_of: PathOf, check: Check) -> None:
        ext_args = EasyDict(freq=replaced._freq)
        super().__init__(replaced.name, replaced.priority, position=replaced.position, ext_args=ext_args)
        self._path_of, self._check = path_of, check

    def __call__(self, engine: BaseLearner) -> None:
        """Save a checkpoint if it is time. One that cannot be written is left out with a warning; if it has a name
        (``learner.save_checkpoint``), that is an OSError. One that fails the check is a ValueError, or at the end of a
        run a warning.
        """
        if engine.rank or engine.last_iter.val % self._freq:
            return
        named, engine.ckpt_name = engine.ckpt_name, None
        suffix = '' if engine.instance_name == 'learner' else f'_{engine.instance_name}'
        numbered = self._path_of(engine.last_iter.val)
        path = Path(engine.exp_name, f'{numbered.parent}{suffix}', named or numbered.name)
        counts = dict(last_iter=engine.last_iter.val, last_step=engine.collector_envstep)
        content, state = io.BytesIO(), engine.policy.state_dict()
        try:
            self._check(state)
            torch.save({**state, **counts}, content)
            write_bytes(path, content.getbuffer())
        except (OSError, ValueError) as error:
            if named or (isinstance(error, ValueError) and self.position != 'after_run'):
                raise
            logger.warning('the checkpoint %s was not saved, the training continues: %s', path, error)
        else:
            engine.info(f'{engine.instance_name} save ckpt in {path}')


def keep_checkpoints_whole(learner: BaseLearner, path_of: PathOf, check: Check) -> None:
    """Let a learner's checkpoints outlast a full disk. ``path_of`` gives the path of a checkpoint by updates; ``check``
    raises a ValueError for a state that must not be saved.
    """
    for hooks in learner._hooks.values():
        hooks[:] = [WholeCkptHook(hook, path_of, check) if type(hook) is SaveCkptHook else hook for hook in hooks]
