"""The progress of a run: a line on the terminal, a log that curves are drawn from, and a watch over memory.

A learner hook, under plain ``ding -m serial`` and in our entries alike; all of it is updated every few seconds::

    policy.learn.learner.hook.progress = dict(type='progress', name='progress', position='before_run',
                                              ext_args=dict(max_env_step=1000000))
"""

import math
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from ding.worker.learner import BaseLearner, LearnerHook, register_learner_hook

from .._version import __version__
from ..compat.ding_call_hook import CallHook
from ..compat.openmp_spin_count import spinning_warning
from ..compat.tensorboardx_disk_full import retry_writes
from ..policy.learner import check_finite
from ..utils import run_registry
from ..utils.memory_limits import MemoryWatch, memory_bytes
from ..utils.options import Between, Options
from .log import POSITION, Row, RunLogWriter
from .next_steps import limits_of_ding, say_next_steps
from .paths import PROGRESS_LOG
from .progress_line import Display, print_message

SHOW_EVERY_S = 0.5
# Speeds are means over about the last minute, so that an evaluation does not make them jump.
SPEED_OVER_S = 60.0
MEMORY_EVERY_S = 30.0
# What the log has of an update, and what the learner calls it.
_LEARNED = dict(
    dict(loss='total_loss', q_value='q_value', value='value', entropy='entropy', learning_rate='cur_lr'),
    **{name: name for name in ('approx_kl', 'clip_fraction', 'explained_variance', 'grad_norm')},
)


class ProgressOptions(Options):
    """The options of the hook ``progress``: its ``ext_args``."""

    _owner = 'hook `progress`: option'

    max_env_step: Annotated[int, Between(1)] | None = None
    """(int | None) Env steps at which the run will end, for the percentage, the time left and what a policy anneals;
    None if unknown. Ding's `--env-step` takes precedence; a program that calls DI-engine's `serial_pipeline` says the
    same number to both."""
    max_hours: Annotated[float, Between(0.0, 1000000.0, above=True)] | None = None
    """(float | None) Hours after which the run will end; None if unknown."""
    max_updates: Annotated[int, Between(1)] | None = None
    """(int | None) Updates after which the run will end; None if unknown. Ding's `--train-iter` takes precedence."""
    max_games: Annotated[int, Between(1)] | None = None
    """(int | None) Full games of the collector after which the run will end; None if unknown."""
    log_every_s: Annotated[float, Between(0.0, math.inf, above=True)] = 10.0
    """(float) Seconds between two rows of the log."""
    print_every_s: Annotated[float, Between(0.0, math.inf, above=True)] | None = None
    """(float | None) Seconds between two printed lines where the output is not a terminal. None prints none, as
    DI-engine prints its own logs there; `breakout train` sets 10."""


class ProgressHook(LearnerHook):
    """Creates the ``RunProgress`` of a run before it starts, and updates it after each update."""

    @classmethod
    def check_config(cls, ext_args: object) -> None:
        """Check the hook's ``ext_args``; a ValueError names what is wrong."""
        ProgressOptions.read(ext_args)

    def __init__(self, *args: object, ext_args: Mapping = {}, **kwargs: object) -> None:
        """As the base's, with ``ProgressOptions`` as ``ext_args``."""
        super().__init__(*args, **kwargs)
        self._priority = min(self.priority, 50)  # before the hook that loads a run, which restores the clock
        self._options = ProgressOptions.read(ext_args)

    def __call__(self, engine: BaseLearner) -> None:
        retry_writes(engine.tb_logger)
        progress = RunProgress(engine, self._options.model_copy(update=limits_of_ding()))
        engine.run_progress = progress  # lives as long as the learner
        if not engine.policy.get_attribute('cfg').cuda and (slow := spinning_warning(torch.get_num_threads())):
            progress.warn(slow)
        # before log_show, which empties the learner's buffer of values
        engine.register_hook(CallHook('progress_poll', 0, progress.after_update, position='after_iter'))
        engine.register_hook(CallHook('progress_budget', 0, progress.before_update, position='before_iter'))
        engine.register_hook(CallHook('progress_end', 0, progress.close, position='after_run'))


register_learner_hook('progress', ProgressHook)


class RunProgress:
    """Where a run stands: env steps, updates, scores, speeds, memory, time. Shown as a line on a terminal, printed now
    and then elsewhere, written to ``log/progress.jsonl`` and TensorBoard in any case.
    """

    def __init__(
        self, learner: BaseLearner, options: ProgressOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        # the other parts of the run are found by the name of the learner's experiment
        self._learner, self._options, self._clock = learner, options, clock
        self._log = RunLogWriter(Path(learner.exp_name) / PROGRESS_LOG)
        self._display = Display(f'Training in {learner.exp_name}', options.max_env_step, options.print_every_s)
        self._watch = MemoryWatch(self.warn)
        self._memory_bytes: int | None = None
        self._started_at_s, self._run_s_before = clock(), 0.0
        self._shown_at_s = self._logged_at_s = self._measured_at_s = -math.inf
        self._learned: Row = {}  # the values of the newest update
        self._marks: deque[tuple[float, int, int]] = deque()  # time, env step, updates
        self._env_step = self._updates = 0
        self._scores: dict[str, float] = {}
        self._has_begun = self._is_closed = False
        self._polling = threading.Lock()
        run_registry.register(learner.exp_name, 'progress', self)

    @property
    def run_s(self) -> float:
        """Seconds of training so far, those before a stop included, the pause after it left out."""
        return self._run_s_before + self._clock() - self._started_at_s

    @property
    def budget_used(self) -> float | None:
        """The share of the env steps, hours, updates or games that is used, whichever is most; None without limits."""
        options, games = self._options, getattr(self._part('collector'), 'games', 0)
        limits = (options.max_env_step, options.max_hours, options.max_updates, options.max_games)
        used = (self._learner.collector_envstep, self.run_s / 3600, self._learner.last_iter.val, games)
        shares = [value / limit for value, limit in zip(used, limits) if limit]
        return min(1.0, max(shares)) if shares else None

    def after_update(self) -> None:
        """Poll after an update, when the learner's buffer of values is filled. Raises ``Diverged``."""
        self._learned = dict(self._learner.log_buffer['scalar'])
        check_finite('the loss', self._learned.get('total_loss'))
        self.poll()

    def before_update(self) -> None:
        """Tell the policy how much of the budget is used, for what it anneals."""
        self._learner.policy.set_attribute('budget_used', self.budget_used)

    def poll(self) -> None:
        """Update whatever is due; the parts of a run call it often, which costs a reading of the clock."""
        now_s = self._clock()
        if now_s - self._shown_at_s < SHOW_EVERY_S or self._is_closed:
            return
        # collector and learner may be two threads; the second one has nothing to add
        if self._polling.acquire(blocking=False):
            try:
                self._update(now_s)
            finally:
                self._polling.release()

    def _update(self, now_s: float) -> None:
        self._shown_at_s = now_s
        self._count()
        if now_s - self._measured_at_s >= MEMORY_EVERY_S:
            self._measured_at_s, self._memory_bytes = now_s, memory_bytes()
            self._watch.poll()
        hours = self._options.max_hours
        left_s = None if hours is None else hours * 3600 - self.run_s
        env_steps_per_s, updates_per_s = self._speeds(now_s)
        row = dict(
            env_step=self._env_step,
            updates=self._updates,
            env_steps_per_s=env_steps_per_s,
            updates_per_s=updates_per_s,
            train_return=getattr(self._part('collector'), 'game_return_mean', None),
            memory_bytes=self._memory_bytes,
        )
        if now_s - self._logged_at_s >= self._options.log_every_s:
            self._logged_at_s = now_s
            self._log_row(row)
        random_play, evaluation = (getattr(self._part(role), 'activity', None) for role in ('collector', 'evaluator'))
        self._display.show(row, self._scores, left_s, now_s, random_play, evaluation)

    def _count(self) -> None:
        """Env steps and updates; the first row of this process says which run it is, and from where it continues."""
        self._env_step = max(getattr(self._part('collector'), 'envstep', 0), self._learner.collector_envstep)
        self._updates = self._learner.last_iter.val
        if not self._has_begun:
            self._has_begun = True
            self._write(
                'run',
                exp_name=self._learner.exp_name,
                # set by DI-engine's set_pkg_seed, or restored
                seed=torch.initial_seed(),
                version=__version__,
                commit=_commit(),
                learning_rate=self._learner.policy.get_attribute('cfg').learn.get('learning_rate'),
            )

    def _speeds(self, now_s: float) -> tuple[float | None, float | None]:
        """Env steps and updates a second."""
        self._marks.append((now_s, self._env_step, self._updates))
        while len(self._marks) > 2 and now_s - self._marks[1][0] > SPEED_OVER_S:
            self._marks.popleft()
        then_s, env_step, updates = self._marks[0]
        if now_s - then_s < 1:
            return None, None
        return (self._env_step - env_step) / (now_s - then_s), (self._updates - updates) / (now_s - then_s)

    def _part(self, role: str) -> Any:
        return run_registry.look_up(self._learner.exp_name, role)

    def warn(self, text: str) -> None:
        """Print a warning, and log it."""
        self._learner.info(text)
        print_message(text)

    # ---- the rows of the log

    def _log_row(self, shown: Row) -> None:
        collector, buffer, learned = self._part('collector'), self._part('buffer'), self._learned
        row = dict(
            shown,
            epsilon=getattr(collector, 'epsilon', None),
            games=getattr(collector, 'games', None),
            transitions=None if buffer is None else buffer.count(),
            replay_bytes=None if buffer is None else int(buffer.memory_report()['bytes']),
        )
        writer = self._learner.tb_logger
        for name, value in row.items():
            if writer is not None and value is not None and name not in POSITION:
                writer.add_scalar(f'progress_step/{name}', value, self._env_step)
        # the learner writes these to TensorBoard itself; of DQN there is q_value, of PPO value and entropy
        values = {name: learned.get(key) for name, key in _LEARNED.items()}
        self._write('progress', **row, **{name: value and float(value) for name, value in values.items()})

    def note_evaluation(self, returns: list[float], **seen: int) -> None:
        """Write the row of a finished evaluation: the score of each of its games, and the ``updates`` and ``env_step``
        that the policy had seen; by default, as much as it has now.
        """
        if self._is_closed:  # a later run of this name in the same process has no hook
            return
        self._count()
        score = float(np.mean(returns))
        self._scores = dict(last=score, best=max(score, self._scores.get('best', score)))
        self._write('evaluation', returns=[float(value) for value in returns], **seen)

    def _write(self, kind: str, **values: object) -> None:
        self._log.write(kind, **{**dict(run_s=self.run_s, env_step=self._env_step, updates=self._updates), **values})

    # ---- saves of the run, and its end

    def state(self) -> Row:
        """What a save of the run keeps."""
        return dict(run_s=self.run_s, scores=dict(self._scores))

    def load_state(self, state: Row) -> None:
        """Restore what ``state`` gave; the clock continues from there."""
        self._run_s_before = state['run_s']
        self._started_at_s = self._clock()
        self._scores = dict(state['scores'])
        self._marks.clear()  # the restored env steps and updates were not made in this moment
        self.before_update()  # the first collection comes before the first update

    def close(self) -> None:
        """Write the last row and draw the last line; may be called again."""
        if not self._is_closed:
            self._shown_at_s = self._logged_at_s = -math.inf
            self.poll()
            self._is_closed = True
            self._display.close()
            if self._part('saver') is None:  # which has a last save to write first
                say_next_steps(self._learner)


def _commit() -> str | None:
    """The commit of a clone that the package is in, with a + if files were changed; None for an installed wheel."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / '.git').exists():
        return None
    command = ['git', 'describe', '--always', '--dirty=+', '--exclude=*']
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):  # git is not installed, or may not read the folder
        return None
    return answer.stdout.strip()
