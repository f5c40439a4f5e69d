"""Games that are recorded or watched, without a run around them: what a video encoder, a window or a display may do."""

import logging
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np
from fault_case import CannotBeTried, Case, Seen, expect, wait_until

from breakout_env import BreakoutEnv
from breakout_env.rendering import video as recording
from breakout_env.rendering import window as window_module
from breakout_env.utils.child_process import HelperError

GAME_FRAMES = 320  # 80 steps
# In place of 3 s and 2 s: a helper that hangs is met at once.
HELPER_TIMEOUT_S = 1.0


def recorded_games(
    case: Case,
    hit: Callable[[Any], Any],
    whole_games: int = 1,
    arm: Callable[[], Any] = lambda: None,
    folder: Optional[Path] = None,
    after: Callable[[], Any] = lambda: None,
) -> Seen:
    """
    Overview:
        Two games that are recorded, the first with a fault; both go to their end.
    Arguments:
        - case (:obj:`Case`): Whose.
        - hit (:obj:`Callable`): Makes the fault, given the environment, after some steps of the first game.
        - whole_games (:obj:`int`): Whole videos that are to be there at the end, at least.
        - arm (:obj:`Callable`): Called before the first game.
        - folder (:obj:`Optional[Path]`): For the videos.
        - after (:obj:`Callable`): Called between the games.
    """
    steps_before, folder = case.rng.randrange(1, 60), folder or case.folder / 'video'
    case.facts['steps'] = steps_before

    def games() -> None:
        logging.basicConfig()
        if hit is not None and whole_games < 2:
            recording.WRITE_TIMEOUT_S = recording.CLOSE_TIMEOUT_S = HELPER_TIMEOUT_S
        arm()
        env = BreakoutEnv(dict(episodic_life=False, max_episode_frames=GAME_FRAMES))
        env.seed(case.seed)
        env.enable_save_replay(str(folder))
        for game in range(2):
            recording.CLOSE_TIMEOUT_S = 20.0 if game else recording.CLOSE_TIMEOUT_S  # a machine may be busy
            env.reset()
            steps, done = 0, False
            while not done:
                done = env.step(env.random_action()).done
                steps += 1
                if (game, steps) == (0, steps_before):
                    hit(env)
            print(f'game {game} has ended')
            if game == 0:
                after()
        env.close()
        env.close()

    played = case.fork(games)
    code = played.wait()
    expect(code == 0 and 'game 1 has ended' in played.text, f'the games ended with exit code {code}')
    whole = [path.name for path in folder.glob('*-score*.mp4') if path.stat().st_size > 0]
    expect(len(whole) >= whole_games, f'{len(whole)} whole videos; expected {whole_games}')
    return Seen('continues', played.text)


class Screen(object):
    """
    Overview:
        A virtual display of this case's own. Its process is the case's.
    Interfaces:
        ``windows``, ``close``.
    Properties:
        ``name``, ``pid``.
    """

    def __init__(self, case: Case) -> None:
        if shutil.which('Xvfb') is None:
            raise CannotBeTried('a virtual display (apt-get install xvfb)')
        read_end, write_end = os.pipe()
        self._server = subprocess.Popen(
            # a number that no other case gets once this server is gone
            [
                'Xvfb',
                f':{1000 + os.getpid()}',
                '-displayfd',
                str(write_end),
                *'-screen 0 800x800x24 -nolisten tcp -noreset'.split(),
            ],
            pass_fds=[write_end],
            stderr=subprocess.DEVNULL,
        )
        os.close(write_end)
        with os.fdopen(read_end) as numbers:
            self.name = f':{numbers.readline().strip()}'
        self.pid = self._server.pid

    def windows(self) -> int:
        """How many windows it shows, by what X itself knows."""
        import Xlib.display

        connection = Xlib.display.Display(self.name)
        try:
            return len(connection.screen().root.query_tree().children)
        finally:
            connection.close()

    def close(self) -> None:
        """End it, and remove what a killed X server leaves in the machine's folders."""
        self._server.kill()
        self._server.wait()
        number = self.name[1:]
        for path in (Path(f'/tmp/.X{number}-lock'), Path(f'/tmp/.X11-unix/X{number}')):
            path.unlink(missing_ok=True)


def watched_game(
    case: Case,
    hit: Callable[[Any], Any],
    screen: Optional[Screen] = None,
    arm: Callable[[], Any] = lambda: None,
    stays: bool = False,
    display_is_gone: bool = False,
) -> Seen:
    """
    Overview:
        A game in a window, with a fault; it goes to its end.
    Arguments:
        - case (:obj:`Case`): Whose.
        - hit (:obj:`Callable`): Makes the fault, given the environment, after some steps of the game.
        - screen (:obj:`Optional[Screen]`): Where; one of its own by default.
        - arm (:obj:`Callable`): Called before the game.
        - stays (:obj:`bool`): Whether the window is to be there after the fault; else it is given up.
        - display_is_gone (:obj:`bool`): Whether another window is refused then; else it opens.
    """
    screen = screen or Screen(case)
    steps_before = case.facts['steps'] = case.rng.randrange(1, 10)

    def game() -> None:
        logging.basicConfig()
        os.environ['DISPLAY'] = screen.name
        os.environ.pop('SDL_VIDEODRIVER', None)
        if not stays:
            window_module.SHOW_TIMEOUT_S = HELPER_TIMEOUT_S
        arm()
        env = BreakoutEnv(dict(render_mode='human', max_episode_frames=GAME_FRAMES if not stays else 60, noop_max=0))
        env.seed(case.seed)
        env.reset()
        for _ in range(steps_before):
            env.step(env.random_action())
        hit(env)
        while not env.step(np.array([0])).done:
            pass
        print('the game has ended', flush=True)
        window_is_there = env._window is not None and env._window._process is not None
        expect(window_is_there == stays, f'after the fault the window {"is" if window_is_there else "is not"} there')
        env.close()
        if display_is_gone:
            window_module.OPEN_TIMEOUT_S = 3.0
            try:
                env.reset()
                print('another window has opened')
            except HelperError as error:
                print(f'another window was refused: {error}')
        else:
            env.reset()
            print('another window has opened')
        env.close()

    try:
        played = case.fork(game)
        code = played.wait()
        expect(code == 0 and 'the game has ended' in played.text, f'the game ended with exit code {code}')
        expected = 'refused' if display_is_gone else 'has opened'
        expect(f'another window {"was " * display_is_gone}{expected}' in played.text, 'another window: not as expected')
        if not display_is_gone:
            expect(wait_until(lambda: screen.windows() == 0, 10), 'a window is left on the display')
    finally:
        os.kill(screen.pid, signal.SIGCONT)
        screen.close()
    return Seen('continues', played.text)
