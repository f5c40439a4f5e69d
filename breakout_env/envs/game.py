"""The rules by which an agent plays on an open emulator: how games begin, what a step does, what is counted."""

from collections.abc import Callable

import numpy as np
from ale_py import ALEState

from ..rendering.video import GameRecorder
from ..utils.game_constants import FIRE, NOOP
from .emulator import Emulator
from .options import BreakoutOptions
from .preprocessing import fill_stack, push_frame

# There are two walls of WALL points. For late starts one state is kept for each LATE_SPACING points, from LATE_POINTS
# of a wall on: the beginning of a wall is easy.
WALL, LATE_POINTS, LATE_SPACING = 432, 300, 8


class Game:
    """The game in progress: its stack of screens, lives and points. ``recorder`` and ``show`` get its pictures."""

    def __init__(self, options: BreakoutOptions, emulator: Emulator, rng: np.random.Generator) -> None:
        self.emulator = emulator
        self.recorder: GameRecorder | None = None
        self.show: Callable[[np.ndarray], object] | None = None  # of a window
        self.stack = np.zeros((options.frame_stack, *[options.screen_size] * 2), dtype=np.uint8)
        self.lives = self.points = self.episode_points = 0
        self.is_late = False  # whether the game began at a late state
        self._options, self._action_count = options, options.model_sizes['action_shape']
        self.use(rng)

    def use(self, rng: np.random.Generator) -> None:
        """Draw all that is random from a generator; earlier games do not count any more."""
        self._rng = rng
        self._late_states: dict[int, tuple[int, ALEState]] = {}  # points and emulator states, by score

    @property
    def is_over(self) -> bool:
        return self.emulator.ale.game_over()

    def start(self) -> None:
        """Start a new game, or one at a late state of an earlier game."""
        options, rng = self._options, self._rng
        probability = options.late_start_probability
        self.is_late = bool(probability and self._late_states) and rng.random() < probability
        if self.is_late:
            self.points, state = list(self._late_states.values())[rng.integers(len(self._late_states))]
            self.emulator.restore_state(state)
        else:
            self.emulator.reset_game(int(rng.integers(1, options.noop_max + 1)) if options.noop_max else 0)
            self.points = 0
        self._begin_episode()
        if self.recorder is not None:
            self.recorder.begin(self.emulator.render())

    def resume(self) -> bool:
        """Play on after a lost life. Returns False if ``max_episode_frames`` ends the game here."""
        self._advance(NOOP)
        self._begin_episode()
        return not self.is_over

    def _begin_episode(self) -> None:
        """Press FIRE, count from zero, and fill the stack with the present screen."""
        if self._options.fire_on_reset:
            self._advance(FIRE)
        self.lives, self.episode_points = self.emulator.ale.lives(), 0
        fill_stack(self.stack, self.emulator.screen)

    def step(self, action: int) -> tuple[int, bool]:
        """Play a step of the agent's. Returns the points won, and whether a life was lost."""
        options = self._options
        if options.random_action_probability and self._rng.random() < options.random_action_probability:
            action = int(self._rng.integers(self._action_count))
        points, ale = self._advance(action), self.emulator.ale
        life_lost = ale.lives() < self.lives
        if life_lost and options.fire_on_life_loss and not (self.is_over or options.episodic_life):
            points += self._advance(FIRE)
        self.lives = ale.lives()
        if points and not self.is_over:
            self._keep_late_state()
        return points, life_lost

    def _advance(self, action: int) -> int:
        """Play one step, stack its screen, show it in window and video, and count its points."""
        points = self.emulator.advance(action, self._options.frame_skip)
        push_frame(self.stack, self.emulator.screen, self.emulator.last_screen)
        self.points += points
        self.episode_points += points
        if self.recorder is not None or self.show is not None:
            picture = self.emulator.render()
            if self.recorder is not None:
                self.recorder.write(picture)
            if self.show is not None:
                self.show(picture)
        return points

    def _keep_late_state(self) -> None:
        """After a brick was hit: keep the state for late starts, in place of the one with about as many points."""
        options, ale = self._options, self.emulator.ale
        # a game needs frames for the steps of a reset and one more
        goes_on = ale.getEpisodeFrameNumber() + 2 * options.frame_skip < options.max_episode_frames
        if options.late_start_probability and self.points % WALL >= LATE_POINTS and goes_on:
            self._late_states[self.points // LATE_SPACING] = self.points, ale.cloneState()
