"""A save of a run, checkpoint and replay buffer together: when it is written, and how a run is restored from it.

DI-engine 0.5.3 resumes model, optimizer, iteration and env step. It forgets the replay buffer, repeats the random play,
and starts the best score at minus infinity, so that the first evaluation overwrites ``ckpt_best``. A save here has
these, too, and the random states.
"""

import contextlib
import io
import logging
import random
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import xxhash
from ding.worker import BaseLearner

from ..compat.ding_call_hook import CallHook
from ..policy.learner import check_finite
from ..utils import output, run_registry
from ..utils.atomic_file import DamagedFile, write_bytes
from .folder import unlock_run_folder
from .forced_shutdown import let_ctrl_c_kill
from .next_steps import resume_command, say_next_steps
from .paths import CHECKPOINTS, SAVES, Save, list_save, read_best_score, saves_in, write_best_score
from .start import last_line
from .stop_request import Stopped, StopRequest

_log = logging.getLogger(__name__)
State = dict[str, Any]
# Parts that keep something over a stop, besides policy and buffer.
_PARTS_WITH_STATE = ('evaluator', 'collector', 'progress')
# A run that crashes in its first minutes is lost without it.
FIRST_SAVE_S = 60.0


class RunSaver:
    """Saves and restores one run: model, target network, optimizer, iteration, env step (and with it epsilon), best
    score, random states, replay buffer. With ``ding -m eval`` the checkpoint of a save loads as any other.

    Arguments:
        learner: The learner; buffer and evaluator are found by its experiment's name.
        save_every_s: Seconds between two saves, once it has been started.
    """

    def __init__(self, learner: BaseLearner, save_every_s: float) -> None:
        self._learner, self._save_every_s = learner, save_every_s
        self._cfg = learner.policy.get_attribute('cfg')
        self._folder = Path(learner.exp_name)
        self._saved_at_s = time.monotonic()
        self._saved_iteration = -1
        self._is_updating = False
        # looked up once: `ding -m serial_dqfd` makes another one for its demonstrations
        buffer = run_registry.look_up(learner.exp_name, 'buffer')
        self._buffer_ref: Callable[[], Any] = (lambda: None) if buffer is None else weakref.ref(buffer)

    @property
    def buffer(self) -> Any:
        """The run's replay buffer; None if it cannot save itself, as DI-engine's."""
        return self._buffer_ref()

    def _parts_with_state(self) -> State:
        parts = {role: run_registry.look_up(self._learner.exp_name, role) for role in _PARTS_WITH_STATE}
        return {role: part for role, part in parts.items() if part is not None}

    def save(self, iteration: int) -> Exception | None:
        """Save the run as it is now, after so many updates, whole or not at all. Before the first update there is
        nothing to save.

        Returns:
            Why the save failed; it must not end the training.
        Raises:
            Diverged: If a weight is not finite: nothing is saved, and the saves from before stay.
        """
        if iteration in (0, self._saved_iteration):
            return None
        buffer, buffer_file = self.buffer, f'{SAVES}/buffer_{iteration}.npz'
        content = io.BytesIO()
        torch.save(self._state(iteration), content)
        save = Save(
            iteration=iteration,
            env_step=self._learner.collector_envstep,
            checkpoint=f'{CHECKPOINTS}/resume_{iteration}.pth.tar',
            checkpoint_digest=xxhash.xxh3_128_hexdigest(content.getbuffer()),
            buffer=None if buffer is None else buffer_file,
            time=time.time(),
        )
        try:
            if buffer is not None:
                buffer.save_data(str(self._folder / buffer_file))
            write_bytes(self._folder / save['checkpoint'], content.getbuffer())
            if self._learner.tb_logger is not None:
                self._learner.tb_logger.flush()  # else the curves have a gap if the run is killed later
            list_save(self._folder, save)
        except (OSError, DamagedFile) as error:
            _log.warning('the run was not saved: %s. The save before it is kept', error)
            return error
        self._saved_iteration = iteration
        return None

    def _state(self, iteration: int) -> State:
        state = _on_host(self._learner.policy.state_dict())
        check_finite('of the training,', state)
        # the names that DI-engine's own checkpoints have
        state.update(last_iter=iteration, last_step=self._learner.collector_envstep)
        state['resume'] = dict(
            {role: part.state() for role, part in self._parts_with_state().items()},
            learning_rate=self._cfg.learn.get('learning_rate'),
            random_states=_random_states(),
        )
        return state

    def resume(self) -> None:
        """Restore the newest save that is usable; without any, the run begins.

        Raises:
            DamagedFile: If there are saves, but none of them is usable.
            ValueError: If they are of another network.
        """
        failures = []
        for save in saves_in(self._folder):
            try:
                state = self._load(save)
            except (DamagedFile, OSError) as error:
                _log.warning('%s; trying the save before it', error)
                failures.append(str(error))
                continue
            try:
                self._apply(state)
            except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:  # it lists each weight
                if isinstance(error, RuntimeError) and 'state_dict' not in str(error):  # of memory, of the GPU
                    raise
                raise ValueError(
                    f'the run in {self._folder} is one of another network or optimizer; expected the same config and '
                    f'changes as at its beginning ({last_line(error)})'
                ) from None
            return
        if failures:
            raise DamagedFile(
                f'policy.learn.resume_training is on, but no save of the run in {self._folder} can be used: '
                f'{"; ".join(failures)}. Expected a readable save in {self._folder / SAVES}, or a new exp_name'
            )
        self._learner.info(f'there is no save in {self._folder / SAVES}: the run begins')

    def _load(self, save: Save) -> State:
        """The state in the checkpoint of a save; the buffer has its transitions then."""
        path = self._folder / save['checkpoint']
        content = path.read_bytes()
        if xxhash.xxh3_128_hexdigest(content) != save['checkpoint_digest']:
            raise DamagedFile(f'{path} is damaged: it is not the file that was saved')
        state = torch.load(io.BytesIO(content), map_location='cpu', weights_only=True)
        if save['buffer'] is not None and self.buffer is not None:
            self.buffer.load_data(str(self._folder / save['buffer']))
        return state

    def _apply(self, state: State) -> None:
        learner, extra = self._learner, state.pop('resume')
        iteration, env_step = state.pop('last_iter'), state.pop('last_step')
        learner.policy.load_state_dict(state)
        before, now = extra['learning_rate'], self._cfg.learn.get('learning_rate')
        if None not in (before, now) and before != now:
            with contextlib.suppress(NotImplementedError):  # not all policies have one optimizer
                # its state has the rate of the save; one that was changed in the config since then wins
                for group in learner.policy.get_attribute('optimizer').param_groups:
                    group['lr'] = now
        learner.last_iter.update(iteration)
        learner.collector_envstep = env_step
        with contextlib.suppress(NotImplementedError, AttributeError):  # not all policies have one, or count
            # its next update is due when it would have been; DI-engine counts them from 0 in each process
            learner.policy.get_attribute('target_model').reset(target_update_count=iteration)
        if 'evaluator' in extra:  # the best checkpoint may be newer than the save
            extra['evaluator']['best_score'] = max(extra['evaluator']['best_score'], read_best_score(self._folder))
        for role, part in self._parts_with_state().items():
            if role in extra:
                part.load_state(extra[role])
        _set_random_states(extra['random_states'])
        self._saved_iteration = iteration
        transitions = ''
        if self.buffer is not None and (count := self.buffer.count()):
            transitions = f', {count:,} transitions'
            # the pipelines read this after the hooks before the run; the buffer has the random play already
            self._cfg.random_collect_size = 0
        message = f'Resuming {self._folder} at {iteration:,} updates and {env_step:,} env steps{transitions}.'
        learner.info(message)
        output.print_line(message)

    def start(self, stop: StopRequest) -> None:
        """Save every so many seconds, at the end of the run, and when ``stop`` is requested; call it after ``resume``.
        It saves between two collections, when the updates of the first are done, so that a resumed run repeats nothing.
        A pipeline that fails calls the learner's ``after_run`` while it handles the error: an update may be half done.
        """
        learner, self._stop = self._learner, stop
        self._collected_for = learner.last_iter.val  # the updates for all collections but the newest
        learner.register_hook(CallHook('resume_wait', 0, self._before_update, position='before_iter'))
        learner.register_hook(CallHook('resume_save', 200, self._after_update, position='after_iter'))
        learner.register_hook(CallHook('resume_save_last', 200, self._after_run, position='after_run'))
        run_registry.register(learner.exp_name, 'saver', self)
        # this package's pipelines have registered their own; another saver is of a run that was left without its end
        if isinstance(run_registry.look_up(learner.exp_name, 'stop'), (RunSaver, type(None))):
            run_registry.register(learner.exp_name, 'stop', self)
        self.raise_if_requested()  # while the environments started

    def _before_update(self) -> None:
        self._is_updating = True

    def _after_update(self) -> None:
        self._is_updating = False
        done = self._learner.last_iter.val + 1  # the learner counts this update after its hooks
        if done - self._collected_for >= self._cfg.learn.update_per_collect:
            self._collected_for = done
            every_s = self._save_every_s if self._saved_iteration >= 0 else min(FIRST_SAVE_S, self._save_every_s)
            if time.monotonic() - self._saved_at_s >= every_s:
                self.save(done)
                self._saved_at_s = time.monotonic()
            if self._stop.poll():
                self._save_and_exit(done)

    def note_best_score(self, score: float) -> None:
        """Write the score of the best checkpoint; an OSError if the disk is full."""
        write_best_score(self._folder, score)

    def _after_run(self) -> None:
        error, failed = sys.exc_info()[1], None
        # A second Ctrl-C may have come anywhere. An update that runs out of memory has changed no weight yet.
        is_whole = error is None or isinstance(error, Exception) and not self._is_updating
        try:
            if is_whole or isinstance(error, (torch.OutOfMemoryError, MemoryError)):
                failed = self.save(self._learner.last_iter.val)
        finally:
            self._stop.close()
            run_registry.forget(self._learner.exp_name)
            unlock_run_folder(self._learner.exp_name)
        # the last two are of environments that the same signal ended
        if failed is not None and (error is None or isinstance(error, (Stopped, OSError, EOFError))):
            cause = f'{error}; besides, ' if str(error or '') else ''
            raise OSError(f'{cause}the last save of {self._learner.exp_name} failed ({failed}); the one before is kept')
        say_next_steps(self._learner)

    def raise_if_requested(self) -> None:
        """Save and raise ``SystemExit`` if a stop was requested: DI-engine's pipelines know no other way to end."""
        if self._stop.poll():
            self._save_and_exit(self._learner.last_iter.val)

    def _save_and_exit(self, iteration: int) -> None:
        error = self.save(iteration)
        message = 'No update was done yet, so there is nothing to save: the same command begins the run again.'
        if iteration:
            message = f'Saved at {iteration:,} updates and {self._learner.collector_envstep:,} env steps.'
            if error is not None:
                message = f'The run could not be saved ({error}).'
            in_config = f'policy.learn.resume_training=True and exp_name={self._learner.exp_name!r} in the config'
            message += f' To resume it: the same command with {in_config}'
            if command := resume_command(self._learner):
                message += f', or {command}'
        output.print_line(message)
        let_ctrl_c_kill()
        sys.exit(self._stop.exit_code)


def _on_host(state: Any) -> Any:
    """A copy in the memory of the process: a GPU that is full has no room for one."""
    if isinstance(state, torch.Tensor):
        return state.detach().to('cpu', copy=True)
    if isinstance(state, Mapping):
        return {key: _on_host(value) for key, value in state.items()}
    return state


def _random_states() -> State:
    name, keys, *rest = cast(tuple[Any, ...], np.random.get_state())
    return dict(
        python=random.getstate(),
        numpy=(name, keys.tolist(), *rest),
        torch=torch.get_rng_state(),
        cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    )


def _set_random_states(states: State) -> None:
    random.setstate(states['python'])
    np.random.set_state(states['numpy'])
    torch.set_rng_state(states['torch'])
    if states['cuda'] and len(states['cuda']) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states['cuda'])
