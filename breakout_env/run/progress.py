"""
Something to look at while it trains: a line on the terminal, a log that curves are drawn from, and a watch over memory.

A learner hook, under plain ``ding -m serial`` and in our entry alike; all of it is renewed every few seconds::

    policy.learn.learner.hook.progress = dict(type='progress', name='progress', position='before_run',
                                              ext_args=dict(max_env_step=1000000))
"""

import datetime
import logging
import math
import os
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple

import numpy as np
import torch
from ding.worker.learner import LearnerHook, register_learner_hook
from tqdm import tqdm

from .._version import __version__
from ..compat.ding_call_hook import CallHook
from ..compat.tensorboardx_disk_full import make_patient
from ..utils import option_checks, run_registry
from ..utils.resources import ResourceWatch, memory_bytes
from .log import RunLogWriter

logger = logging.getLogger(__name__)

LINE_EVERY_S = 0.5
# Speeds are those of about the last minute: an evaluation is to be seen in them, but not to jerk them about.
SPEED_OVER_S = 60.0
MEMORY_EVERY_S = 30.0
OPTIONS = {'max_env_step': None, 'max_hours': None, 'log_every_s': 10.0, 'watch_resources_s': 5.0}
LOG_FILE = 'progress.jsonl'
# How its errors begin.
OPTION = 'hook `progress`: option'
# A century of hours; more can not be shown as days, and is a mistake.
_CHECKS = dict(
    max_env_step=option_checks.whole_number(1, 10**15, or_none=True),
    max_hours=option_checks.number(0.0, 876_600.0, or_none=True, above=True),
    log_every_s=option_checks.number(0.0, math.inf, above=True),
    watch_resources_s=option_checks.number(0.0, math.inf, above=True),
)
assert set(_CHECKS) == set(OPTIONS)


def check_options(ext_args: Any) -> Dict[str, Any]:
    """
    Overview:
        The options of the hook that are set, checked.
    Raises:
        - ValueError: If one is unknown or not allowed.
    """
    return option_checks.read(OPTION, ext_args, _CHECKS)


class ProgressHook(LearnerHook):
    """
    Overview:
        Builds the ``RunProgress`` of a run before it starts, and has it look up after each update.
    """

    def __init__(self, *args: Any, ext_args: Mapping = {}, **kwargs: Any) -> None:
        """
        Arguments:
            - ext_args (:obj:`Mapping`): ``max_env_step``, env steps at which the run will end, for percent and time \
                left, and ``max_hours``, hours after which it will; None (default) if that is not known. \
                ``log_every_s``, seconds between two rows of the log, 10 by default. ``watch_resources_s``, seconds \
                between two looks at memory and descriptors, 5 by default.
        Raises:
            - ValueError: If an option is unknown, or no number above 0.
        """
        super().__init__(*args, **kwargs)
        self._priority = min(self._priority, 50)  # before the hook that loads a run, which brings back the clock
        self._options = {**OPTIONS, **check_options(ext_args)}

    def __call__(self, engine: 'BaseLearner') -> None:  # noqa: F821
        if engine.rank == 0:
            make_patient(engine.tb_logger)
            progress = RunProgress(engine, **self._options)
            engine.run_progress = progress  # lives as long as the learner
            # before log_show, which empties the learner's buffer of values
            engine.register_hook(CallHook('progress_look', 0, progress.after_update, position='after_iter'))
            engine.register_hook(CallHook('progress_end', 0, progress.close, position='after_run'))


register_learner_hook('progress', ProgressHook)


class RunProgress(object):
    """
    Overview:
        Where a run stands: env steps, updates, scores, speeds, memory, time. Drawn as a line if stderr is a terminal \
        (DI-engine's logs then stay in their files), written to ``log/progress.jsonl`` and TensorBoard in any case.
    Interfaces:
        ``look``, ``after_update``, ``note_evaluation``, ``state``, ``load_state``, ``close``.
    Properties:
        ``run_s``.
    """

    def __init__(
        self,
        learner: 'BaseLearner',  # noqa: F821
        max_env_step: Optional[int],
        max_hours: Optional[float],
        log_every_s: float,
        watch_resources_s: float,  # noqa: F821
    ) -> None:
        """
        Arguments:
            - learner (:obj:`BaseLearner`): The learner; the others are found by its experiment's name.
            - max_env_step, max_hours, log_every_s, watch_resources_s: As in ``ProgressHook``.
        """
        self._learner = learner
        self._max_hours = max_hours
        self._log_every_s = log_every_s
        self._log = RunLogWriter(os.path.join(learner.exp_name, 'log', LOG_FILE))
        self._watch = ResourceWatch(interval_s=watch_resources_s, warn=self._warn)
        self._memory_bytes: Optional[int] = None
        self._measured_at_s = -MEMORY_EVERY_S
        self._started_at_s = time.monotonic()
        self._run_s_before = 0.0
        self._learned: Mapping[str, Any] = {}  # what the newest update has told
        self._drawn_at_s = self._logged_at_s = 0.0
        self._marks: Deque[Tuple[float, int, int]] = deque()  # time, env step, updates
        self._env_step = self._updates = 0
        self._scores: Dict[str, float] = {}
        self._is_begun = False
        self._is_closed = False
        self._looking = threading.Lock()
        self._line: Optional[_Line] = None
        if sys.stderr.isatty():
            _keep_logs_off_the_screen()
            # terminals that do not tell their size, as new pseudo-terminals, would get an empty line
            knows_its_size = os.get_terminal_size(sys.stderr.fileno()).columns > 0
            size = dict(dynamic_ncols=True) if knows_its_size else dict(ncols=120, nrows=20)
            self._line = _Line(total=max_env_step, unit=' env steps', unit_scale=True, mininterval=0, **size)
        run_registry.register(learner.exp_name, 'progress', self)

    def _part(self, role: str) -> Any:
        return run_registry.look_up(self._learner.exp_name, role)

    # ---------------------------------------------------------------- where it stands

    @property
    def run_s(self) -> float:
        """Seconds of training so far, those before a stop included, the pause after it left out."""
        return self._run_s_before + time.monotonic() - self._started_at_s

    def _counted(self) -> None:
        collector = self._part('collector')
        known = 0 if collector is None else collector.envstep
        self._env_step = max(known, self._learner.collector_envstep)
        self._updates = self._learner.last_iter.val

    def _speeds(self, now_s: float) -> Tuple[Optional[float], Optional[float]]:
        """Env steps and updates a second."""
        self._marks.append((now_s, self._env_step, self._updates))
        while len(self._marks) > 2 and now_s - self._marks[1][0] > SPEED_OVER_S:
            self._marks.popleft()
        then_s, env_step, updates = self._marks[0]
        if now_s - then_s < 1:
            return None, None
        return (self._env_step - env_step) / (now_s - then_s), (self._updates - updates) / (now_s - then_s)

    # ---------------------------------------------------------------- looking up

    def look(self) -> None:
        """Renew what is due; called often, from whatever is under way, and costs nothing in between."""
        now_s = time.monotonic()
        if now_s - self._drawn_at_s < LINE_EVERY_S or self._is_closed:
            return
        # player and learner may be two threads; whoever comes second has nothing to add
        if self._looking.acquire(blocking=False):
            try:
                self._look(now_s)
            finally:
                self._looking.release()

    def _look(self, now_s: float) -> None:
        self._drawn_at_s = now_s
        self._counted()
        if not self._is_begun:
            self._begin()
        env_steps_per_s, updates_per_s = self._speeds(now_s)
        self._watch.look()
        if now_s - self._measured_at_s >= MEMORY_EVERY_S:
            self._measured_at_s, self._memory_bytes = now_s, memory_bytes()
        if now_s - self._logged_at_s >= self._log_every_s:
            self._logged_at_s = now_s
            self._write_row(env_steps_per_s, updates_per_s)
        if self._line is not None:
            self._draw(env_steps_per_s, updates_per_s)

    def after_update(self) -> None:
        """The turn that an update gives; the only one at which the learner's buffer of values is filled."""
        self._learned = dict(self._learner.log_buffer['scalar'])
        self.look()

    def _warn(self, text: str) -> None:
        """A warning of the watch, above the line and in the learner's log."""
        self._learner.info(text)
        if self._line is not None:
            self._line.write(text)
        else:
            logger.warning(text)

    def _begin(self) -> None:
        """The first row of this process: whose run it is, and from where it goes on."""
        self._is_begun = True
        cfg = self._learner.policy.get_attribute('cfg')
        self._log.write(
            'run',
            time=time.time(),
            run_s=self.run_s,
            env_step=self._env_step,
            updates=self._updates,
            exp_name=self._learner.exp_name,
            # that of DI-engine's set_pkg_seed, or the one that came back with a resumed run
            seed=torch.initial_seed(),
            version=__version__,
            commit=_commit(),
            learning_rate=cfg.learn.get('learning_rate'),
        )

    def _write_row(self, env_steps_per_s: Optional[float], updates_per_s: Optional[float]) -> None:
        collector, buffer = self._part('collector'), self._part('buffer')
        learned, resources = self._learned, self._watch.last
        row = dict(
            env_steps_per_s=env_steps_per_s,
            updates_per_s=updates_per_s,
            epsilon=getattr(collector, 'epsilon', None),
            loss=_number(learned.get('total_loss')),
            q_value=_number(learned.get('q_value')),
            learning_rate=_number(learned.get('cur_lr')),
            train_return=getattr(collector, 'game_return_mean', None),
            games=getattr(collector, 'games', None),
            resident_bytes=None if resources is None else resources.resident_bytes + resources.workers_resident_bytes,
            memory_bytes=self._memory_bytes,
            descriptors=None if resources is None else resources.descriptors,
            threads=None if resources is None else resources.threads,
            gpu_bytes=None if resources is None else resources.gpu_bytes,
            transitions=None if buffer is None else buffer.count(),
            replay_bytes=None if buffer is None else int(buffer.memory_report()['bytes']),
        )
        self._log.write(
            'progress', time=time.time(), run_s=self.run_s, env_step=self._env_step, updates=self._updates, **row
        )
        writer = self._learner.tb_logger
        if writer is not None:
            for name, value in row.items():
                if value is not None and name not in ('loss', 'q_value', 'learning_rate'):  # the learner writes these
                    writer.add_scalar(f'progress_step/{name}', value, self._env_step)

    def note_evaluation(
        self,
        returns: List[float],
        held_out_q: Optional[float],
        updates: Optional[int] = None,
        env_step: Optional[int] = None,
    ) -> None:
        """
        Overview:
            An evaluation is done.
        Arguments:
            - returns (:obj:`List[float]`): Points of each of its games.
            - held_out_q (:obj:`Optional[float]`): Mean of the highest Q values on states that were never trained on.
            - updates, env_step (:obj:`Optional[int]`): What the policy had seen; by default, as much as it has now.
        """
        if self._is_closed:  # a later run of this name in the same process, without a progress of its own
            return
        self._counted()
        if not self._is_begun:
            self._begin()
        score = float(np.mean(returns))
        self._scores = dict(last=score, best=max(score, self._scores.get('best', score)))
        self._log.write(
            'evaluation',
            time=time.time(),
            run_s=self.run_s,
            env_step=self._env_step if env_step is None else env_step,
            updates=self._updates if updates is None else updates,
            returns=[float(value) for value in returns],
            held_out_q=held_out_q,
        )

    # ---------------------------------------------------------------- the line

    def _draw(self, env_steps_per_s: Optional[float], updates_per_s: Optional[float]) -> None:
        line, collector = self._line, self._part('collector')
        state = [f'{updates_per_s:.0f} updates/s'] if updates_per_s else ['random play' if not self._updates else '']
        if self._scores:
            state.append(f'score {self._scores["last"]:.1f} (best {self._scores["best"]:.1f})')
        played = getattr(collector, 'game_return_mean', None)
        if played is not None:
            state.append(f'playing {played:.1f}')
        if self._memory_bytes is not None:
            state.append(f'{self._memory_bytes / 1e9:.1f} GB')
        if self._max_hours is not None:
            left = datetime.timedelta(seconds=round(max(0.0, self._max_hours * 3600 - self.run_s)))
            state.append(f'at most {left} left')
        if not line.n and self._env_step:  # a resumed run's speed is not that of its first seconds
            line.initial = line.n = line.last_print_n = self._env_step
        line.env_steps_per_s = env_steps_per_s
        line.set_postfix_str(', '.join(part for part in state if part), refresh=False)
        line.update(self._env_step - line.n)
        line.refresh()

    # ---------------------------------------------------------------- over stops and starts

    def state(self) -> Dict[str, Any]:
        """What a save of the run keeps."""
        return dict(run_s=self.run_s, scores=dict(self._scores))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state`` gave; the clock goes on from there."""
        self._run_s_before = state['run_s']
        self._started_at_s = time.monotonic()
        self._scores = dict(state['scores'])
        self._marks.clear()  # what came back was not done in no time

    def close(self) -> None:
        """The last row and the last line; may be called again."""
        if not self._is_closed:
            self._drawn_at_s = self._logged_at_s = -np.inf
            self.look()
            self._is_closed = True
            if self._line is not None:
                self._line.close()


class _Line(tqdm):
    """A line whose speed and time left are those of about the last minute; tqdm's own are of two or three seconds."""

    env_steps_per_s: Optional[float] = None

    @property
    def format_dict(self) -> Dict[str, Any]:
        # where it is None, tqdm divides all there is by the time since the start; 0 is drawn as not known
        return {**super().format_dict, 'rate': self.env_steps_per_s or 0.0}


def _number(value: Any) -> Optional[float]:
    return None if value is None else float(value)


def _keep_logs_off_the_screen() -> None:
    """DI-engine's workers log into files, and print the same; beside a line that is drawn over it can not be read."""
    for handler in logging.getLogger().handlers:
        handler.setLevel(max(handler.level, logging.WARNING))


def _commit() -> Optional[str]:
    """The commit of a clone that the package lies in, with a + if files were changed; None for an installed wheel."""
    folder = Path(__file__).resolve().parent.parent.parent
    if not (folder / '.git').exists():
        return None
    try:
        answer = subprocess.run(
            ['git', 'describe', '--always', '--dirty=+', '--exclude=*'],
            cwd=folder, capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):  # no git here, or not ours to read
        return None
    return answer.stdout.strip()
