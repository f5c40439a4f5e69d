"""Full games of an agent to look at, in a window or in a video."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..envs.env import BreakoutEnv
from ..rendering.window import GameWindow
from ..utils.command_line import shell_command
from .agent import Agent, choose_actions

STICKY_PROBABILITY = 0.25  # Machado et al. 2018
EPSILON = 0.01  # a greedy agent meets about 4 different games


@dataclass
class WatchedGame:
    """How a game went."""

    number: int  # from 1
    points: int = 0
    lives: int = 5
    steps: int = 0
    # 'over', 'cut off' at the limit of frames, or 'stopped' by the spectator or the end of the video
    end: str = 'stopped'

    def __str__(self) -> str:
        ends = {'over': '', 'cut off': ', cut off after half an hour', 'stopped': f', stopped with {self.lives} lives'}
        return f'game {self.number}: {self.points} points{ends[self.end]}'


def play(
    agent: Agent,
    show: Callable[[np.ndarray], bool],
    games: int = 1,
    seed: int | None = None,
    epsilon: float = EPSILON,
    sticky: bool = False,
) -> Iterator[WatchedGame]:
    """Play full games, as an evaluation does.

    Arguments:
        show: Shows a picture when it is due, and returns False if the game shall end.
        seed: Makes the games reproducible; None for other games each time.
        epsilon: Probability that an action is random.
        sticky: Whether each frame repeats the last action with probability 0.25.
    Yields:
        Each game when it has ended; the last one may have been stopped.
    """
    env = BreakoutEnv(
        dict(
            agent.env_options,
            is_train=False,
            random_action_probability=epsilon,
            repeat_action_probability=STICKY_PROBABILITY if sticky else 0.0,
        )
    )
    rng = np.random.default_rng(seed)
    try:
        if seed is not None:
            env.seed(seed)
        for number in range(1, games + 1):
            game, obs = WatchedGame(number), env.reset()
            try:
                while is_watched := show(env.render()):
                    if game.end != 'stopped':
                        break
                    obs, reward, done, info = env.step(int(choose_actions(agent, obs[None], rng.random(1))[0]))
                    game.points += int(reward.item())
                    game.lives = info['lives']
                    game.steps += 1
                    if done:  # the last picture is still to be shown
                        game.end = 'cut off' if info['TimeLimit.truncated'] else 'over'
            except KeyboardInterrupt:
                yield game  # how far it came, before the interrupt ends the program
                raise
            yield game
            if not is_watched:
                return
    finally:
        env.close()


def missing_for_window() -> str:
    """What keeps a game from being shown in a window here; an empty text if nothing does."""
    if not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        return 'there is no display (DISPLAY and WAYLAND_DISPLAY are not set)'
    return '' if importlib.util.find_spec('pygame') else 'a window needs pygame, which is not installed'


def open_window(title: str, speed: float = 1.0, frame_skip: int = 4) -> GameWindow:
    """A window to watch an agent in, at the speed of a step of ``frame_skip`` frames. A ValueError says that there is
    no display or no pygame, a HelperError that it could not be opened.
    """
    missing = missing_for_window()
    if missing:
        record = shell_command('breakout', 'record', '--out', 'game.mp4')
        raise ValueError(f'{missing}; record a video instead: {record}')
    return GameWindow(title, frame_skip, speed)
