"""What one environment has open, and the course of its games."""

import contextlib
import itertools
import logging
import os
from enum import Enum
from operator import methodcaller
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from ..rendering.video import GameRecorder
from ..rendering.window import GameWindow
from ..utils.game_constants import FIRE
from .emulator import Emulator
from .options import BreakoutOptions
from .preprocessing import fill_stack, push_frame

logger = logging.getLogger(__name__)
# There are two walls of WALL points. For late starts one state is kept for each LATE_SPACING points, from LATE_POINTS
# of a wall on: the beginning of a wall is easy.
WALL, LATE_POINTS, LATE_SPACING = 432, 300, 8
# Numbers for the log. An ``id`` would not do: the next object may get the one of an object that is gone.
_ENV_NUMBERS, _RESOURCE_NUMBERS = itertools.count(1), itertools.count(1)


class State(Enum):
    """Where an environment is between ``reset`` and ``close``."""

    CLOSED = 'closed'
    PLAYING = 'playing'
    LIFE_LOST = 'life lost'  # the episode has ended, the game has not
    GAME_OVER = 'game over'


class Session(object):
    """
    What belongs to one instance and is not copied: what is open, and the course of the games. ``close`` releases what
    is open, from any state, and keeps the random generators: the sequence of games continues when it is opened again.
    A session does not refer to its environment, so garbage collection of the environment can close it.
    """

    emulator: Emulator  # an attribute only while it is open
    emulator_number: int

    def __init__(self) -> None:
        self.state = State.CLOSED
        self.seed_is_new = True
        self.recorder: Optional[GameRecorder] = None
        self.window: Optional[GameWindow] = None
        self.resources: List[Any] = []  # all that ``own`` was given since the last ``close``
        self.lives = self.game_points = self.episode_points = 0
        self.is_late = False  # whether the game began at one of `late_states` (by score)
        self.late_states: Dict[int, Tuple[int, Any]] = {}
        self._env_number = next(_ENV_NUMBERS)
        self._releases = contextlib.ExitStack()

    def enter(self, state: State, event: str = '') -> None:
        self._log(', '.join(filter(None, [f'{self.state.value} -> {state.value}', event])))
        self.state = state

    def open(self, options: BreakoutOptions, seed: Optional[int]) -> bool:
        """Open emulator and window, or reuse the open ones; seed where that is due. Returns whether it opened them."""
        if self.seed_is_new:
            # two streams, so that the no-ops are the same whether an emulator is opened or reused
            ours, emulators = np.random.SeedSequence(seed).spawn(2)
            self.rng, self.emulator_rng = np.random.default_rng(ours), np.random.default_rng(emulators)
            self.late_states.clear()  # of games of another seed
        if self.state is not State.CLOSED:
            if self.seed_is_new and options.repeat_action_probability > 0:
                self.emulator.reload(int(self.emulator_rng.integers(2**31)))
            self._log(f'reused emulator {self.emulator_number}')
            return False
        self.options = options
        self.emulator = Emulator(int(self.emulator_rng.integers(2**31)), options)
        self.emulator_number = self.own('emulator', self.emulator)
        self.stack = np.zeros((options.frame_stack, *[options.screen_size] * 2), dtype=np.uint8)
        if options.render_mode == 'human':
            self.window = GameWindow('Breakout', options.frame_skip)
            self.own('window', self.window)
        return True

    def start_game(self, replay_folder: Optional[str], video_name: str) -> None:
        if self.recorder is not None:
            self.recorder.end()  # the game before may be unfinished
        if replay_folder is not None and (self.recorder is None or self.recorder.folder != replay_folder):
            self.recorder = GameRecorder(replay_folder, video_name, self.options.frame_skip)
            self.own('recorder', self.recorder, GameRecorder.end)
        if self.recorder is not None:
            self.recorder.name = video_name  # another seed has another name
        probability = self.options.late_start_probability
        self.is_late = bool(probability and self.late_states) and self.rng.random() < probability
        if self.is_late:
            self.game_points, state = list(self.late_states.values())[self.rng.integers(len(self.late_states))]
            self.emulator.restore_state(state)
            return
        noop_max = self.options.noop_max
        self.emulator.reset_game(int(self.rng.integers(1, noop_max + 1)) if noop_max else 0)
        self.game_points = 0

    def begin_episode(self, game_continues: bool) -> None:
        """Count from zero, and fill the stack with the present screen."""
        self.lives, self.episode_points = self.emulator.ale.lives(), 0
        fill_stack(self.stack, self.emulator.screen)
        if self.recorder is not None and not game_continues:
            self.recorder.begin(self.emulator.render())
        self.enter(State.PLAYING, 'the game continues' if game_continues else 'a game begins')
        self.seed_is_new = False

    def play_first_steps(self, *actions: int) -> None:
        """The steps that reset plays before the agent's first one."""
        for action in actions + ((FIRE,) if self.options.fire_on_reset else ()):
            self.advance(action)

    def advance(self, action: int) -> int:
        """Play one step, stack its screen, show it in window and video, and count its points."""
        points = self.emulator.advance(action, self.options.frame_skip)
        push_frame(self.stack, self.emulator.screen, self.emulator.last_screen)
        self.game_points += points
        self.episode_points += points
        if self.recorder is not None or self.window is not None:
            picture = self.emulator.render()
            if self.recorder is not None:
                self.recorder.write(picture)
            if self.window is not None:
                self.window.show(picture)
        return points

    def keep_late_state(self) -> None:
        """After a brick was hit: keep the state for late starts, in place of the one with about as many points."""
        options = self.options
        # a game needs frames for the steps of a reset and one more
        goes_on = self.emulator.ale.getEpisodeFrameNumber() + 2 * options.frame_skip < options.max_episode_frames
        if options.late_start_probability and self.game_points % WALL >= LATE_POINTS and goes_on:
            self.late_states[self.game_points // LATE_SPACING] = self.game_points, self.emulator.ale.cloneState()

    def own(self, name: str, resource: Any, release: Callable[[Any], object] = methodcaller('close')) -> int:
        """Register a resource that was just opened, so that ``close`` releases it. Returns its number in the log."""
        number = next(_RESOURCE_NUMBERS)
        self._log(f'opened {name} {number}')
        self.resources.append(resource)
        self._releases.callback(self._release, os.getpid(), f'{name} {number}', resource, release)
        return number

    def close(self) -> None:
        """Release everything, the newest first."""
        if self.state is not State.CLOSED:
            self.enter(State.CLOSED)
        self.recorder = self.window = None
        vars(self).pop('emulator', None)
        self.resources.clear()
        self.late_states.clear()
        self._releases.close()

    def _release(self, opened_by: int, name: str, resource: Any, release: Callable[[Any], object]) -> None:
        """Release a resource; log a failure, so that the other resources are released, too."""
        if os.getpid() != opened_by:  # a forked child must not end what its parent uses
            return
        self._log(f'closing {name}')
        try:
            release(resource)
        except Exception:  # a subclass's release may raise anything
            message = 'BreakoutEnv %d in process %d: closing %s failed'
            logger.warning(message, self._env_number, os.getpid(), name, exc_info=True)

    def _log(self, event: str) -> None:
        logger.debug('BreakoutEnv %d in process %d: %s', self._env_number, os.getpid(), event)
