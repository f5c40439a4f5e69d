"""Whole games to look at: by an agent or by a person, in a window or in a video."""

import importlib.util
import os
from dataclasses import dataclass
from typing import Callable, Dict, FrozenSet, Iterator, List, Optional, Protocol

import numpy as np

from ..envs.env import BreakoutEnv
from ..rendering.video import VideoFile
from ..rendering.window import GameWindow
from ..utils.game_constants import FIRE, FRAMES_PER_SECOND, NOOP
from .agent import Agent

RIGHT, LEFT = 2, 3  # in Breakout's minimal action set
STICKY_PROBABILITY = 0.25  # Machado et al. 2018
EPSILON = 0.01  # a greedy agent meets at most 4 different games
AGENT_FRAME_SKIP = 4
LIVES = 5
GIF_SECONDS = 30.0  # what a page or a chat still takes
PERSON_FRAME_SKIP = 1  # the console's own pace


class Screen(Protocol):
    """
    Overview:
        Where a game is shown, at the pace at which its pictures are due.
    """

    def show(self, picture: np.ndarray, line: str) -> bool:
        """Show a picture and a line about the game; False if it is to end."""

    def keys(self) -> FrozenSet[str]:
        """What a player presses, of 'left', 'right' and 'fire'."""


class WindowScreen(object):
    """
    Overview:
        ``GameWindow`` as a screen. The line about the game is left out, as the picture says the same.
    Interfaces:
        ``show``, ``keys``, ``close``.
    """

    def __init__(self, title: str, frame_skip: int, speed: float) -> None:
        """
        Arguments:
            - title (:obj:`str`): Its title.
            - frame_skip (:obj:`int`): Emulator frames from one picture to the next.
            - speed (:obj:`float`): How much faster than people play it the game is shown.
        Raises:
            - HelperError: If no window could be opened.
        """
        self._window = GameWindow(title, frame_skip, speed)
        self._keys: FrozenSet[str] = frozenset()

    def show(self, picture: np.ndarray, line: str) -> bool:
        """As ``Screen.show``; False once the window was closed, or q or Escape pressed."""
        goes_on = self._window.present(picture)
        self._keys = self._window.keys()
        return goes_on and 'quit' not in self._keys

    def keys(self) -> FrozenSet[str]:
        """As ``Screen.keys``."""
        return self._keys

    def close(self) -> None:
        """Remove the window. May be called at any time, any number of times."""
        self._window.close()

    def __enter__(self) -> 'WindowScreen':
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass
class Game:
    """
    Overview:
        How a game went.
    """

    # (int) Its number, from 1.
    number: int
    # (int) Points won.
    points: int = 0
    # (int) Lives left.
    lives: int = LIVES
    # (int) Steps of the player.
    steps: int = 0
    # (str) 'stopped' by whoever looked on or by the length of the video; 'over', or 'cut off' by its frames.
    end: str = 'stopped'

    def __str__(self) -> str:
        ends = {'over': '', 'cut off': ', cut off after half an hour', 'stopped': f', stopped with {self.lives} lives'}
        return f'game {self.number}: {self.points} points{ends[self.end]}'


Player = Callable[[np.ndarray, FrozenSet[str]], int]


def agent_player(agent: Agent) -> Player:
    """The action that an agent takes."""
    return lambda obs, keys: int(agent.act(obs[None])[0])


def person_player(obs: np.ndarray, keys: FrozenSet[str]) -> int:
    """The action that a person's keys mean; FIRE, which serves, before a move, as there is no action for both."""
    if 'fire' in keys:
        return FIRE
    # both at once are none
    return {frozenset(['left']): LEFT, frozenset(['right']): RIGHT}.get(keys & {'left', 'right'}, NOOP)


def agent_env_options(agent: Agent, epsilon: float = EPSILON, sticky: bool = False) -> Dict[str, object]:
    """
    Overview:
        The environment that an agent is watched in: whole games as an evaluation plays them.
    Arguments:
        - agent (:obj:`Agent`): The agent.
        - epsilon (:obj:`float`): Share of random actions.
        - sticky (:obj:`bool`): Whether the emulator repeats the previous action now and then.
    """
    return dict(
        agent.env_options,
        is_train=False,
        frame_skip=AGENT_FRAME_SKIP,
        random_action_probability=epsilon,
        repeat_action_probability=STICKY_PROBABILITY if sticky else 0.0,
    )


def person_env_options(frame_skip: int, sticky: bool = False) -> Dict[str, object]:
    """
    Overview:
        The environment that a person plays in: nothing is pressed but what the person presses.
    Arguments:
        - frame_skip (:obj:`int`): Emulator frames that the keys hold for.
        - sticky (:obj:`bool`): As for agents.
    """
    return dict(
        is_train=False,
        frame_skip=frame_skip,
        fire_on_reset=False,
        fire_on_life_loss=False,
        repeat_action_probability=STICKY_PROBABILITY if sticky else 0.0,
    )


def play(
    player: Player,
    screen: Screen,
    env_options: Dict[str, object],
    games: int = 1,
    seed: Optional[int] = None,
    about: str = '',
) -> Iterator[Game]:
    """
    Overview:
        Play whole games on a screen.
    Arguments:
        - player (:obj:`Player`): Chooses an action from an observation and the keys that are pressed.
        - screen (:obj:`Screen`): Where they are shown; the caller closes it.
        - env_options (:obj:`Dict[str, object]`): Options of ``BreakoutEnv``.
        - games (:obj:`int`): How many.
        - seed (:obj:`Optional[int]`): Fixes the course of the games; None for others each time.
        - about (:obj:`str`): What the line about the game ends with.
    Yields:
        - game (:obj:`Game`): Each game when it has ended; the last one may have been stopped.
    """
    env = BreakoutEnv(env_options)
    try:
        if seed is not None:
            env.seed(seed)
        for number in range(1, games + 1):
            game, obs, goes_on = Game(number), env.reset(), True
            of_how_many = f' of {games}' if games > 1 else ''
            try:
                while goes_on:
                    line = f'game {number}{of_how_many}   {game.points} points   {game.lives} lives   {about}'
                    goes_on = screen.show(env.render(), line)
                    if game.end != 'stopped' or not goes_on:
                        break
                    obs, reward, done, info = env.step(player(obs, screen.keys()))
                    game.points += int(reward.item())
                    game.lives = info['lives']
                    game.steps += 1
                    if done:  # its last picture is still to be seen
                        game.end = 'cut off' if info['TimeLimit.truncated'] else 'over'
            except KeyboardInterrupt:  # what was played until then is told before it ends us
                yield game
                raise
            yield game
            if not goes_on:
                return
    finally:
        env.close()


def open_screen(title: str, for_person: bool = False, speed: float = 1.0) -> WindowScreen:
    """
    Overview:
        Open the window that a game is watched or played in.
    Arguments:
        - title (:obj:`str`): Its title.
        - for_person (:obj:`bool`): Whether a person plays, and not an agent.
        - speed (:obj:`float`): Speed of the game, relative to the console's own.
    Raises:
        - ValueError: If there is no display, or pygame is not installed.
        - HelperError: If no window could be opened.
    """
    missing = _missing_for_a_window()
    if missing:
        raise ValueError(f'{missing}; record a video instead: breakout record --out game.mp4')
    return WindowScreen(title, PERSON_FRAME_SKIP if for_person else AGENT_FRAME_SKIP, speed)


def _missing_for_a_window() -> str:
    if not (os.environ.get('DISPLAY') or os.environ.get('WAYLAND_DISPLAY')):
        return 'there is no display (DISPLAY and WAYLAND_DISPLAY are not set)'
    return '' if importlib.util.find_spec('pygame') else 'a window needs pygame, which is not installed'


def record(
    agent: Agent,
    path: str,
    games: int = 1,
    seed: Optional[int] = None,
    epsilon: float = EPSILON,
    sticky: bool = False,
    speed: float = 1.0,
    max_seconds: Optional[float] = None,
    overwrite: bool = False,
    ended: Optional[Callable[[Game], None]] = None,
) -> List[Game]:
    """
    Overview:
        Record games into one video file, which appears whole or not at all.
    Arguments:
        - agent (:obj:`Agent`): Who plays.
        - path (:obj:`str`): The file, ending with ``.mp4`` or ``.gif``.
        - games (:obj:`int`): How many.
        - seed (:obj:`Optional[int]`): Fixes the course of the games; None for others each time.
        - epsilon (:obj:`float`): Share of random actions.
        - sticky (:obj:`bool`): Whether the emulator repeats the previous action now and then.
        - speed (:obj:`float`): How much faster than people play it the game is shown.
        - max_seconds (:obj:`Optional[float]`): Where the video is cut off; None for nowhere, or after 30 s for a GIF.
        - overwrite (:obj:`bool`): Whether a file that is there already may be replaced.
        - ended (:obj:`Optional[Callable[[Game], None]]`): Called with each game when it has ended.
    Returns:
        - played (:obj:`List[Game]`): The games; the last one may have been stopped by ``max_seconds``.
    Raises:
        - ValueError: If an option is wrong.
        - OSError: If the file can not be written.
    """
    if max_seconds is None and str(path).lower().endswith('.gif'):
        max_seconds = GIF_SECONDS
    options, played = agent_env_options(agent, epsilon, sticky), []
    with VideoFile(path, FRAMES_PER_SECOND / AGENT_FRAME_SKIP * speed, max_seconds, overwrite) as video:
        for game in play(agent_player(agent), video, options, games, seed):
            played.append(game)
            if ended is not None:
                ended(game)
        video.finish()
    return played
