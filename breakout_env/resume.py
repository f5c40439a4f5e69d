"""
Stop a run, be killed, go on: one save of everything, checkpoint and replay buffer as a pair.

DI-engine 0.5.3 resumes model, optimizer, iteration and env step. It forgets the replay buffer, plays its random steps
again, and starts the best score at minus infinity, so that ``ckpt_best`` is overwritten by whatever comes first. The
hook and the evaluator here close these gaps, under plain ``ding -m serial`` and in our entry alike::

    policy.learn.learner.hook.resume = dict(type='resume', name='resume', position='before_run')
    create_config.evaluator = dict(type='resumable', import_names=['breakout_env'])
    policy.learn.resume_training = True         # to go on with the run in exp_name, or begin it
"""

import contextlib
import copy
import io
import json
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import numpy as np
import torch
import xxhash
from ding.utils import SERIAL_EVALUATOR_REGISTRY
from ding.worker import InteractionSerialEvaluator
from ding.worker.learner import LearnerHook, register_learner_hook

from . import run_parts, signals
from .replay.saved_file import DamagedFile

_log = logging.getLogger(__name__)
_FOLDER = 'resume'
_LIST = 'pairs.json'
_KEPT_PAIRS = 2


@SERIAL_EVALUATOR_REGISTRY.register('resumable')
class ResumableEvaluator(InteractionSerialEvaluator):
    """
    Overview:
        DI-engine's evaluator, with a best score that can be saved, and an evaluation that ends when the run is to stop.
    Interfaces:
        ``state``, ``load_state``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        run_parts.announce(self._exp_name, 'evaluator', self)

    def reset_policy(self, _policy: Optional[Any] = None) -> None:
        """Take a policy; between two of its steps a request to stop is looked at."""
        if _policy is not None:
            forward = _policy.forward

            def forward_unless_stopped(*args: Any, **kwargs: Any) -> Any:
                saver = run_parts.part_of(self._exp_name, 'saver')
                if saver is not None:
                    saver.stop_if_requested()
                return forward(*args, **kwargs)

            _policy = _policy._replace(forward=forward_unless_stopped)
        super().reset_policy(_policy)

    def state(self) -> Dict[str, float]:
        """The best score and the iteration of the last evaluation."""
        return dict(best_score=float(self._max_episode_return), last_iteration=int(self._last_eval_iter))

    def load_state(self, state: Mapping[str, float]) -> None:
        """Take over what ``state`` gave."""
        self._max_episode_return = state['best_score']
        self._last_eval_iter = state['last_iteration']


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
        unknown = set(ext_args) - {'save_every_s'}
        if unknown:
            raise ValueError(f'hook `resume` has the options {sorted(unknown)}; expected `save_every_s` only')
        self._save_every_s = ext_args.get('save_every_s', 900)

    def __call__(self, engine: 'BaseLearner') -> None:  # noqa: F821
        saver = RunSaver(engine, self._save_every_s)
        engine.run_saver = saver  # lives as long as the learner
        if engine.policy.get_attribute('cfg').learn.get('resume_training', False):
            saver.resume()
        engine.register_hook(_Call('resume_save', 200, saver.after_update, position='after_iter'))
        engine.register_hook(_Call('resume_save_last', 200, saver.after_run, position='after_run'))
        saver.listen()


register_learner_hook('resume', ResumeHook)


class _Call(LearnerHook):
    """A hook that calls a function."""

    def __init__(self, name: str, priority: float, function: Any, position: str) -> None:
        super().__init__(name, priority, position=position)
        self._function = function

    def __call__(self, engine: 'BaseLearner') -> None:  # noqa: F821
        self._function()


class RunSaver(object):
    """
    Overview:
        Saves and restores one run: model, target network, optimizer, iteration, env step (and with it epsilon), best \
        score, random states, replay buffer.
    Interfaces:
        ``resume``, ``save``, ``listen``, ``stop_if_requested``, ``after_update``, ``after_run``.
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
        self._save_every_s = save_every_s
        self._saved_at_s = time.monotonic()
        self._saved_iteration = -1
        self._stop_signal: Optional[int] = None
        run_parts.announce(learner.exp_name, 'saver', self)

    @property
    def _buffer(self) -> Optional[Any]:
        return run_parts.part_of(self._learner.exp_name, 'buffer')

    @property
    def _evaluator(self) -> Optional[Any]:
        return run_parts.part_of(self._learner.exp_name, 'evaluator')

    # ---------------------------------------------------------------- saving

    def after_update(self) -> None:
        """Save if it is time, after the last update of a collection."""
        done = self._learner.last_iter.val + 1  # the learner counts this update after its hooks
        if done % self._policy_cfg.learn.update_per_collect:
            return
        if self._stop_signal is not None:
            self._stop(done)
        if time.monotonic() - self._saved_at_s >= self._save_every_s:
            self.save(done)

    def after_run(self) -> None:
        """Save the end of the run, and wait until that is done."""
        self.save(self._learner.last_iter.val, wait=True)

    def save(self, iteration: int, wait: bool = False) -> None:
        """
        Overview:
            Save a pair of the run as it is now. Written in the background, whole or not at all: the list of pairs \
            names it when both files are on the disk.
        Arguments:
            - iteration (:obj:`int`): Updates done.
            - wait (:obj:`bool`): Whether to wait until it is on the disk.
        """
        self._saved_at_s = time.monotonic()
        buffer = self._buffer
        if wait and buffer is not None:
            buffer.wait_for_saving()
        if iteration == self._saved_iteration:
            return
        state = copy.deepcopy(self._learner.policy.state_dict())
        # the names that DI-engine's own checkpoints have
        state.update(last_iter=iteration, last_step=self._learner.collector_envstep)
        evaluator = self._evaluator
        state['resume'] = dict(
            evaluator=evaluator.state() if evaluator is not None else None,
            random_states=_random_states(),
        )
        pair = dict(
            iteration=iteration,
            env_step=self._learner.collector_envstep,
            checkpoint=f'ckpt/resume_{iteration}.pth.tar',
            buffer=None if buffer is None else f'{_FOLDER}/buffer_{iteration}.npz',
        )

        def finish() -> None:
            self._write_checkpoint(pair, state)
            self._list_pair(pair)
            self._saved_iteration = iteration

        if buffer is None:
            finish()
        elif not buffer.start_saving(str(self._folder / pair['buffer']), finish):
            return  # the last save is not through yet; the next will be on time
        elif wait:
            error = buffer.wait_for_saving()
            if error is not None:
                _log.warning('the run was not saved: %s', error)

    def _write_checkpoint(self, pair: Dict[str, Any], state: Dict[str, Any]) -> None:
        content = io.BytesIO()
        torch.save(state, content)
        pair['checkpoint_digest'] = xxhash.xxh3_128_hexdigest(content.getbuffer())
        _write_atomically(self._folder / pair['checkpoint'], content.getbuffer())

    def _list_pair(self, pair: Dict[str, Any]) -> None:
        pairs = [pair] + [p for p in self._pairs() if p['iteration'] != pair['iteration']]
        kept, old = pairs[:_KEPT_PAIRS], pairs[_KEPT_PAIRS:]
        _write_atomically(self._folder / _FOLDER / _LIST, json.dumps(kept, indent=2).encode())
        for gone in old:
            for name in (gone['checkpoint'], gone['buffer']):
                if name is not None:
                    with contextlib.suppress(OSError):  # the user may have tidied up before us
                        (self._folder / name).unlink()

    def _pairs(self) -> List[Dict[str, Any]]:
        return pairs_in(self._folder)

    # ---------------------------------------------------------------- going on

    def resume(self) -> bool:
        """
        Overview:
            Restore the newest pair that can be used. Whether there was one; a run that is not there yet begins.
        Raises:
            - DamagedFile: If there are pairs, but none of them can be used.
        """
        failures = []
        for pair in self._pairs():
            try:
                state = self._read_checkpoint(pair)
                if pair['buffer'] is not None and self._buffer is not None:
                    self._buffer.load_data(str(self._folder / pair['buffer']))
            except (DamagedFile, FileNotFoundError) as error:
                _log.warning('%s; trying the save before it', error)
                failures.append(str(error))
                continue
            self._apply(pair, state)
            return True
        if failures:
            raise DamagedFile(
                f'policy.learn.resume_training is on, but no save of the run in {self._folder} can be used: '
                f'{"; ".join(failures)}. Expected a readable pair in {self._folder / _FOLDER}, or a new exp_name'
            )
        self._learner.info(f'there is no save of a run in {self._folder / _FOLDER}: it begins')
        return False

    def _read_checkpoint(self, pair: Mapping[str, Any]) -> Dict[str, Any]:
        path = self._folder / pair['checkpoint']
        content = path.read_bytes()
        if xxhash.xxh3_128_hexdigest(content) != pair['checkpoint_digest']:
            raise DamagedFile(f'{path} is damaged: it is not the file that was saved')
        return torch.load(io.BytesIO(content), map_location='cpu', weights_only=True)

    def _apply(self, pair: Mapping[str, Any], state: Dict[str, Any]) -> None:
        more = state.pop('resume')
        iteration, env_step = state.pop('last_iter'), state.pop('last_step')
        self._learner.policy.load_state_dict(state)
        self._learner.last_iter.update(iteration)
        self._learner._collector_envstep = env_step
        if more['evaluator'] is not None and self._evaluator is not None:
            self._evaluator.load_state(more['evaluator'])
        _set_random_states(more['random_states'])
        if pair['buffer'] is not None and self._buffer is not None:
            # the pipelines look at this after the hooks before the run; the random play is in the buffer already
            self._policy_cfg.random_collect_size = 0
        self._saved_iteration = iteration
        there = f', {self._buffer.count():,} transitions' if self._buffer is not None else ''
        message = f'Going on with {self._folder} at {iteration:,} updates and {env_step:,} env steps{there}.'
        self._learner.info(message)
        print(message, flush=True)

    # ---------------------------------------------------------------- stopping

    def listen(self) -> None:
        """Stop in order on SIGTERM and Ctrl-C, unless the program handles them itself."""
        for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            if signal.getsignal(number) is default:
                with contextlib.suppress(ValueError):  # only the main thread can listen
                    signals.handle(number, lambda number=number: self._request_stop(number))

    def _request_stop(self, number: int) -> None:
        if self._stop_signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stop_signal = number
        print('Stopping: saving the run first (Ctrl-C again stops at once).', flush=True)

    def stop_if_requested(self) -> None:
        """Save and leave, if that was requested; for moments between two collections, such as an evaluation."""
        if self._stop_signal is not None:
            self._stop(self._learner.last_iter.val)

    def _stop(self, iteration: int) -> None:
        self.save(iteration, wait=True)
        print(
            f'Saved at {iteration:,} updates and {self._learner.collector_envstep:,} env steps. To go on: the same '
            f'command with policy.learn.resume_training=True and exp_name={str(self._folder)!r} in the config '
            '(make train: ARGS=--resume).',
            flush=True,
        )
        sys.exit(128 + self._stop_signal)


def pairs_in(folder: Path) -> List[Dict[str, Any]]:
    """
    Overview:
        The saves of a run, the newest first.
    Raises:
        - DamagedFile: If their list can not be read.
    """
    path = Path(folder) / _FOLDER / _LIST
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise DamagedFile(f'{path} is damaged: {error}') from None


def _write_atomically(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f'{path.name}.{os.getpid()}.unfinished')
    try:
        with open(unfinished, 'wb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


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
