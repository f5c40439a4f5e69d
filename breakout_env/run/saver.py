"""
Stop a run, be killed, go on: one save of everything, checkpoint and replay buffer as a pair.

DI-engine 0.5.3 resumes model, optimizer, iteration and env step. It forgets the replay buffer, plays its random steps
again, and starts the best score at minus infinity, so that ``ckpt_best`` is overwritten by whatever comes first. The
hook here and the evaluator in ``evaluator.py`` close these gaps, under ``ding -m serial`` and in our entry alike::

    policy.learn.learner.hook.resume = dict(type='resume', name='resume', position='before_run')
    create_config.evaluator = dict(type='resumable', import_names=['breakout_env'])
    policy.learn.resume_training = True         # to go on with the run in exp_name, or begin it
"""

import contextlib
import copy
import io
import json
import logging
import math
import os
import random
import re
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

import numpy as np
import torch
import xxhash
from ding.worker.learner import LearnerHook, register_learner_hook

from ..utils import option_checks, run_registry, signals
from ..utils.atomic_file import DamagedFile, write_bytes
from .call_hook import CallHook
from .lock import RunLock

_log = logging.getLogger(__name__)
# How its errors begin, and what its options may be.
OPTION = 'hook `resume`: option'
OPTIONS = {'save_every_s': 900.0}
_CHECKS = dict(save_every_s=option_checks.number(0.0, math.inf))
assert set(_CHECKS) == set(OPTIONS)
_FOLDER = 'resume'
_LIST = 'pairs.json'
_KEPT_PAIRS = 2
_STATE_KEYS = {'model', 'last_iter', 'last_step', 'resume'}
# who has something to remember over a stop, besides policy and buffer
_REMEMBERING = ('evaluator', 'collector', 'progress')
_KEYS = {'iteration', 'env_step', 'checkpoint', 'checkpoint_digest', 'buffer'}
# files of a save, finished or not
_OURS = re.compile(r'(resume_\d+\.pth\.tar|buffer_\d+\.npz)(\.previous|\.[\d-]+\.unfinished)?$')
# what a kill leaves of the small ones; the second number is the process that wrote it
_UNFINISHED = re.compile(r'(pairs|best_score)\.json\.(\d+)-\d+\.unfinished')


def check_options(ext_args: Any) -> Dict[str, Any]:
    """
    Overview:
        The options of the hook that are set, checked.
    Raises:
        - ValueError: If one is unknown or not allowed.
    """
    return option_checks.read(OPTION, ext_args, _CHECKS)


class ResumeHook(LearnerHook):
    """
    Overview:
        Before the run: loads the newest pair that can be used, if ``policy.learn.resume_training`` is on. While it \
        runs: saves a pair from time to time, in the background. When it ends, and on SIGTERM or Ctrl-C: saves a last \
        one. A pair is saved between the updates of one collection and the next, so that nothing is done twice.

        With ``ding -m eval`` the checkpoint of a pair loads as any other.
    """

    def __init__(self, *args: Any, ext_args: Mapping = {}, **kwargs: Any) -> None:
        """
        Arguments:
            - ext_args (:obj:`Mapping`): ``save_every_s``, seconds between two saves, 900 if it is not given.
        """
        super().__init__(*args, **kwargs)
        self._save_every_s = {**OPTIONS, **check_options(ext_args)}['save_every_s']

    def __call__(self, engine: 'BaseLearner') -> None:  # noqa: F821
        if engine.rank == 0:
            engine.run_lock = RunLock(engine.exp_name)  # lives as long as the learner
            engine.register_hook(CallHook('resume_unlock', 300, engine.run_lock.release, 'after_run'))
        ranks = run_registry.look_up(engine.exp_name, 'ranks')  # of a data-parallel run
        saver = RunSaver(engine, self._save_every_s) if ranks is None else ranks.saver(engine, self._save_every_s)
        engine.run_saver = saver  # lives as long as the learner
        if engine.policy.get_attribute('cfg').learn.get('resume_training', False):
            try:
                saver.resume()
            except Exception:  # whatever it is, there is no run that would hold the folder
                if engine.rank == 0:
                    engine.run_lock.release()
                raise
        engine.save_checkpoint = saver.undisturbed(engine.save_checkpoint)  # that of the best score
        engine.register_hook(CallHook('resume_wait', 0, saver.before_update, position='before_iter'))
        engine.register_hook(CallHook('resume_save', 200, saver.after_update, position='after_iter'))
        engine.register_hook(CallHook('resume_save_last', 200, saver.after_run, position='after_run'))
        saver.listen()


register_learner_hook('resume', ResumeHook)


class RunSaver(object):
    """
    Overview:
        Saves and restores one run: model, target network, optimizer, iteration, env step (and with it epsilon), best \
        score, random states, replay buffer.
    Interfaces:
        ``resume``, ``save``, ``listen``, ``before_update``, ``after_update``, ``between_collections``, \
        ``after_run``, ``undisturbed``.
    """

    def __init__(self, learner: 'BaseLearner', save_every_s: float = 900) -> None:  # noqa: F821
        """
        Arguments:
            - learner (:obj:`BaseLearner`): The learner; buffer and evaluator are found by its experiment's name.
            - save_every_s (:obj:`float`): Seconds between two saves.
        """
        self._learner = learner
        self._policy_cfg = learner.policy.get_attribute('cfg')
        self._folder = Path(learner.exp_name)
        self._rank_count = 1
        self._save_every_s = save_every_s
        self._saved_at_s = time.monotonic()
        self._saved_iteration = self._begun_iteration = -1
        # When all was well between two collections the last time: the updates done and the transitions pushed by then.
        self._iteration = learner.last_iter.val
        self._pushed = self._push_count
        self._is_busy = False
        self._stop_signal: Optional[int] = None
        self._handlers_before: Dict[int, Any] = {}
        run_registry.register(learner.exp_name, 'saver', self)

    @property
    def _buffer(self) -> Optional[Any]:
        return run_registry.look_up(self._learner.exp_name, 'buffer')

    @property
    def _push_count(self) -> int:
        return 0 if self._buffer is None else self._buffer.push_count

    # ---------------------------------------------------------------- saving

    def before_update(self) -> None:
        """Note that nothing may be saved now."""
        self._is_busy = True

    def after_update(self) -> None:
        """Save if it is time, after the last update of a collection."""
        done = self._learner.last_iter.val + 1  # the learner counts this update after its hooks
        if done - self._iteration >= self._policy_cfg.learn.update_per_collect:
            self._rest(done)

    def between_collections(self) -> None:
        """The same, for those collections after which the buffer had too little for all updates."""
        self._rest(self._learner.last_iter.val)

    def _rest(self, iteration: int) -> None:
        self._is_busy = True  # a signal in the midst of the next lines is looked at behind them
        self._iteration, self._pushed = iteration, self._push_count
        if self._is_due:
            self.save(iteration)
        self._is_busy = False
        if self._stop_signal is not None:
            self._stop()

    @property
    def _is_due(self) -> bool:
        return time.monotonic() - self._saved_at_s >= self._save_every_s

    @property
    def _is_at_rest(self) -> bool:
        """Whether all is as it was after the updates of the last collection, so that it can be saved."""
        if self._is_busy or self._buffer is None:
            return not self._is_busy
        return self._push_count == self._pushed

    def undisturbed(self, function: Callable) -> Callable:
        """A function that a request to stop does not break off."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._is_busy = True
            try:
                result = function(*args, **kwargs)
            finally:
                self._is_busy = False
            if self._stop_signal is not None:
                self._stop()
            return result

        return call

    def after_run(self) -> None:
        """Save the end of the run, wait until that is done, and listen to signals no more."""
        if self._is_at_rest:  # else an error or a second Ctrl-C ended it in the midst of something
            self.save(self._iteration, wait=True)
        self._leave()

    def _leave(self) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        run_registry.forget(self._learner.exp_name)

    def save(self, iteration: int, wait: bool = False) -> Optional[Exception]:
        """
        Overview:
            Save a pair of the run as it is now. Written in the background, whole or not at all: the list of pairs \
            names it when both files are on the disk. Before the first update there is nothing to save.
        Arguments:
            - iteration (:obj:`int`): Updates done.
            - wait (:obj:`bool`): Whether to wait until it is on the disk.
        Returns:
            - error (:obj:`Optional[Exception]`): What went wrong, if that is known already.
        """
        self._saved_at_s = time.monotonic()
        buffer = self._buffer
        if wait and buffer is not None:
            buffer.wait_for_saving()
        if iteration in (0, self._saved_iteration):
            return None
        # A moment whose save is not through yet is not saved again: that would replace the files that are listed next.
        if not wait and iteration == self._begun_iteration:
            return None
        state = copy.deepcopy(self._learner.policy.state_dict())
        # the names that DI-engine's own checkpoints have
        state.update(last_iter=iteration, last_step=self._learner.collector_envstep)
        parts = {role: run_registry.look_up(self._learner.exp_name, role) for role in _REMEMBERING}
        state['resume'] = dict(
            {role: part.state() for role, part in parts.items() if part is not None},
            learning_rate=self._policy_cfg.learn.get('learning_rate'),
            random_states=_random_states(),
        )
        pair = dict(
            iteration=iteration,
            env_step=self._learner.collector_envstep,
            checkpoint=f'ckpt/resume_{iteration}.pth.tar',
            buffer=None if buffer is None else f'{_FOLDER}/buffer_{iteration}.npz',
            ranks=self._rank_count,
        )

        def finish() -> None:
            self._write_checkpoint(pair, state)
            if self._learner.tb_logger is not None:
                self._learner.tb_logger.flush()  # else the curves have a gap if the run is killed later
            self._list_pair(pair)
            self._saved_iteration = iteration

        error = None
        if buffer is None:
            try:
                finish()
            except OSError as full:  # it must not end the training
                error = full
                _log.warning('the run was not saved: %s. The save before it is kept', error)
        elif buffer.start_saving(str(self._folder / pair['buffer']), finish):
            self._begun_iteration = iteration
            if wait:
                error = buffer.wait_for_saving()  # it has been in the log already
        # where the last save is not through yet, the next will be on time
        return error

    def _write_checkpoint(self, pair: Dict[str, Any], state: Dict[str, Any]) -> None:
        content = io.BytesIO()
        torch.save(state, content)
        pair['checkpoint_digest'] = xxhash.xxh3_128_hexdigest(content.getbuffer())
        write_bytes(self._folder / pair['checkpoint'], content.getbuffer())

    def _list_pair(self, pair: Dict[str, Any]) -> None:
        kept = [pair, *self._kept_beside(pair)]
        write_bytes(self._folder / _FOLDER / _LIST, json.dumps(kept, indent=2).encode())
        self._tidy({name for p in kept for name in (p['checkpoint'], p['buffer'])})

    def _kept_beside(self, pair: Mapping[str, Any]) -> List[Dict[str, Any]]:
        # those with more updates could not be used, or the run would not have gone on from an earlier one
        return [p for p in self._pairs() if p['iteration'] < pair['iteration']][: _KEPT_PAIRS - 1]

    def _tidy(self, kept: Set[Optional[str]]) -> None:
        """Remove older saves, and what was being written when a run was killed."""
        for folder in ('ckpt', _FOLDER):
            for path in (self._folder / folder).glob('*'):
                is_left = _OURS.match(path.name) and f'{folder}/{path.name}' not in kept
                if is_left or _is_unfinished(path.name):
                    with contextlib.suppress(OSError):  # the user may have tidied up before us
                        path.unlink()

    def _pairs(self) -> List[Dict[str, Any]]:
        return pairs_in(self._folder)

    # ---------------------------------------------------------------- going on

    def resume(self) -> bool:
        """
        Overview:
            Restore the newest pair that can be used. Whether there was one; a run that is not there yet begins.
        Raises:
            - DamagedFile: If there are pairs, but none of them can be used.
            - ValueError: If they are of another network, or of a run of several ranks.
        """
        failures, pairs = [], self._pairs()
        self._check_ranks(pairs)
        for pair in pairs:
            try:
                state = self._load(pair)
            except (DamagedFile, FileNotFoundError) as error:
                _log.warning('%s; trying the save before it', error)
                failures.append(str(error))
                continue
            self._apply(pair, state)
            return True
        return self._begin(failures)

    def _begin(self, failures: List[str]) -> bool:
        """There is nothing to go on with; an error if that is because it can not be used."""
        if failures:
            raise DamagedFile(
                f'policy.learn.resume_training is on, but no save of the run in {self._folder} can be used: '
                f'{"; ".join(failures)}. Expected a readable pair in {self._folder / _FOLDER}, or a new exp_name'
            )
        self._learner.info(f'there is no save of a run in {self._folder / _FOLDER}: it begins')
        return False

    def _check_ranks(self, pairs: List[Dict[str, Any]]) -> None:
        """The transitions of a data-parallel run lie in the saves of all its ranks."""
        for saved_by in {pair.get('ranks', 1) for pair in pairs} - {self._rank_count}:
            how = 'torchrun --nproc-per-node N entry/breakout_dqn_ddp.py --resume, N on all machines together'
            raise ValueError(
                f'the run in {self._learner.exp_name} was saved with {saved_by} rank(s), and {self._rank_count} would '
                f'go on with it; expected {saved_by} ({"breakout train --resume" if saved_by == 1 else how})'
            )

    def _load(self, pair: Mapping[str, Any]) -> Dict[str, Any]:
        """The checkpoint of a pair; its transitions are in the buffer then."""
        state = self._read_checkpoint(pair)
        if pair['buffer'] is not None and self._buffer is not None:
            self._buffer.load_data(str(self._folder / pair['buffer']))
        return state

    def _read_checkpoint(self, pair: Mapping[str, Any]) -> Dict[str, Any]:
        path = self._folder / pair['checkpoint']
        content = path.read_bytes()
        if xxhash.xxh3_128_hexdigest(content) != pair['checkpoint_digest']:
            raise DamagedFile(f'{path} is damaged: it is not the file that was saved')
        try:
            return torch.load(io.BytesIO(content), map_location='cpu', weights_only=True)
        except Exception as error:  # torch.load raises nearly anything, depending on what the bytes happen to say
            raise DamagedFile(
                f'{path} is no checkpoint of a run: {(str(error).splitlines() or [type(error).__name__])[0]}'
            ) from None

    def _apply(self, pair: Mapping[str, Any], state: Dict[str, Any]) -> None:
        path = self._folder / pair['checkpoint']
        if not _is_state(state):
            raise ValueError(f'{path} is no checkpoint of a run; expected one with {", ".join(sorted(_STATE_KEYS))}')
        more = state.pop('resume')
        iteration, env_step = state.pop('last_iter'), state.pop('last_step')
        try:
            self._learner.policy.load_state_dict(state)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:  # each weight is listed
            raise ValueError(
                f'the run in {self._folder} is one of another network or optimizer; expected the same config and '
                f'changes as at its beginning ({str(error).splitlines()[-1].strip()})'
            ) from None
        self._take_new_learning_rate(more.get('learning_rate'))
        self._learner.last_iter.update(iteration)
        self._learner._collector_envstep = env_step
        with contextlib.suppress(NotImplementedError, AttributeError):  # not all policies have one, or count
            # its next update is due when it would have been; DI-engine counts them from 0 in each process
            self._learner.policy.get_attribute('target_model').reset(target_update_count=iteration)
        try:
            for role in _REMEMBERING:
                part = run_registry.look_up(self._learner.exp_name, role)
                if more.get(role) is not None and part is not None:
                    part.load_state(more[role])
            _set_random_states(more['random_states'])
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ValueError(
                f'{path} is no whole checkpoint of a run ({type(error).__name__}: {error}); expected what a save '
                'of this version has'
            ) from None
        if self._buffer is not None and self._buffer.count():
            # the pipelines look at this after the hooks before the run; the random play is in the buffer already
            self._policy_cfg.random_collect_size = 0
        self._iteration = self._saved_iteration = iteration
        self._pushed = self._push_count
        there = f', {self._buffer.count():,} transitions' if self._buffer is not None else ''
        message = f'Going on with {self._folder} at {iteration:,} updates and {env_step:,} env steps{there}.'
        self._learner.info(message)
        if self._learner.rank == 0:
            print(message, flush=True)

    def _take_new_learning_rate(self, before: Optional[float]) -> None:
        """The optimizer's state brings back the rate that it had; one that was changed since is meant."""
        now = self._policy_cfg.learn.get('learning_rate')
        if None not in (before, now) and before != now:
            with contextlib.suppress(NotImplementedError):  # not all policies have one optimizer
                for group in self._learner.policy.get_attribute('optimizer').param_groups:
                    group['lr'] = now

    # ---------------------------------------------------------------- stopping

    def listen(self) -> None:
        """Stop in order on SIGTERM, SIGHUP and Ctrl-C, unless the program handles them itself."""
        for number in signals.STOPPING:
            before = signal.getsignal(number)
            if signals.is_free(number):
                with contextlib.suppress(ValueError):  # only the main thread can listen
                    signals.handle(number, partial(self._request_stop, number))
                    self._handlers_before[number] = before

    def _request_stop(self, number: int) -> None:
        if number == signal.SIGHUP:
            signals.leave_terminal()
        if self._stop_signal is not None and number == signal.SIGINT:
            signals.end_soon(128 + number)
            sys.exit(128 + number)
        self._stop_signal = number
        print('Stopping: saving the run first (Ctrl-C again stops at once).', flush=True)
        # Between the updates all is as it was after the last one, so there is no need to wait for a collection or an
        # evaluation to end; nor may there be time, as a scheduler's signal goes to the env workers, too. Before the
        # first update there is nothing to save.
        if self._is_at_rest or not (self._is_busy or self._iteration):
            self._stop()

    def _stop(self) -> None:
        error = self.save(self._iteration, wait=True)
        done = f'{self._iteration:,} updates and {self._learner.collector_envstep:,} env steps'
        if not self._iteration:
            message = 'No update was done yet, so there is nothing to save: the same command begins the run again.'
        else:
            message = (
                (f'Saved at {done}.' if error is None else f'The run could not be saved ({error}).')
                + ' To go on: the same command with policy.learn.resume_training=True and '
                f'exp_name={str(self._folder)!r} in the config (breakout train: --resume).'
            )
        print(message, flush=True)
        signals.let_ctrl_c_kill()
        sys.exit(128 + self._stop_signal)


def _is_unfinished(name: str) -> bool:
    """Whether a file is what is left of a list or a best score, of which the latter may be being written by us."""
    left = _UNFINISHED.fullmatch(name)
    return left is not None and (left[1] == 'pairs' or int(left[2]) != os.getpid())


def pairs_in(folder: Path) -> List[Dict[str, Any]]:
    """
    Overview:
        The saves of a run, the newest first.
    Raises:
        - DamagedFile: If their list can not be read.
    """
    path = Path(folder) / _FOLDER / _LIST
    try:
        pairs = json.loads(path.read_bytes())
        if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
            raise ValueError('a save in it is not described whole')
        return pairs
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DamagedFile(f'{path} can not be read: {error.strerror}') from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFile(f'{path} is damaged: {error}') from None


def _is_pair(pair: Any) -> bool:
    """Whether a save is described whole, by names of files that are in the run's folder."""
    if not _KEYS <= pair.keys():
        return False
    counts = (pair['iteration'], pair['env_step'], pair.get('ranks', 1))
    files = (pair['checkpoint'], pair['buffer'] or f'{_FOLDER}/buffer_0.npz')
    folders = ('ckpt', _FOLDER)
    return (
        all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts)
        and isinstance(pair['checkpoint_digest'], str)
        and all(isinstance(file, str) for file in files)
        # of others, nothing is read, whatever a list from somewhere else asks for
        and all(folder == place and _OURS.fullmatch(name) for (folder, _, name), place in zip(_split(files), folders))
    )


def _is_state(state: Any) -> bool:
    if not isinstance(state, dict) or not _STATE_KEYS <= state.keys() or not isinstance(state['resume'], dict):
        return False
    counts = (state['last_iter'], state['last_step'])
    return all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts)


def _split(files: Any) -> List[Any]:
    return [file.partition('/') for file in files]


def _random_states() -> Dict[str, Any]:
    name, keys, *rest = np.random.get_state()
    return dict(
        python=random.getstate(),
        numpy=(name, torch.from_numpy(keys.astype(np.int64)), *rest),
        torch=torch.get_rng_state(),
        cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    )


def _set_random_states(states: Mapping[str, Any]) -> None:
    random.setstate(states['python'])
    name, keys, *rest = states['numpy']
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states['torch'])
    if len(states['cuda']) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states['cuda'])
