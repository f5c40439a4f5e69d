"""Games to look at: in a window, in a terminal, in a video, and with a person at the keyboard."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

import av
import numpy as np
import psutil
import pytest
import Xlib.display
import Xlib.ext.xtest
import Xlib.protocol.event
import Xlib.X
import Xlib.XK
from click.testing import CliRunner

from breakout_env import BreakoutEnv
from breakout_env.agent.play import LEFT, RIGHT, WindowScreen, person_env_options, person_player, play, record
from breakout_env.cli import main
from breakout_env.rendering.terminal import PLAYFIELD, TerminalScreen, half_blocks
from breakout_env.rendering.window import GameWindow
from breakout_env.utils.child_process import HelperError
from helpers.processes import wait_until
from helpers.resources import newest_child


class Mover(object):
    """An agent that goes one way."""

    env_options = dict(frame_stack=4, screen_size=84)
    name = 'mover'

    def __init__(self, action=RIGHT):
        self.action = action

    def act(self, obs):
        assert obs.shape == (1, 4, 84, 84) and obs.dtype == np.uint8
        return np.array([self.action])


class Album(object):
    """A screen that keeps its pictures."""

    def __init__(self, room=10**9):
        self.pictures, self.lines, self.room = [], [], room

    def show(self, picture, line):
        self.pictures.append(picture)
        self.lines.append(line)
        return len(self.pictures) < self.room

    def keys(self):
        return frozenset()


def decode(path):
    """Pictures as (N, H, W, 3), and how long the video is in seconds."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pictures = np.stack([frame.to_ndarray(format='rgb24') for frame in container.decode(stream)])
        return pictures, float(stream.duration * stream.time_base)


def paddle_column(picture):
    """Where the paddle is, in a picture of the console."""
    return np.nonzero((picture[190:192, 8:152] == (200, 72, 72)).all(axis=2).any(axis=0))[0].mean()


# ---- games


def test_the_points_that_are_told_are_those_of_the_game():
    rng = np.random.default_rng(1)
    actions = rng.integers(4, size=10_000).tolist()
    options = dict(is_train=False)
    album, chosen = Album(), iter(actions)
    (game,) = play(lambda obs, keys: next(chosen), album, options, seed=2)
    env = BreakoutEnv(options)
    env.seed(2)
    env.reset()
    for action in actions:
        timestep = env.step(action)
        if timestep.done:
            break
    env.close()
    assert (game.points, game.lives, game.end) == (timestep.info['game_return'], 0, 'over')
    assert game.points > 0 and len(album.pictures) == game.steps + 1
    assert f'{game.points} points   0 lives' in album.lines[-1]


def test_the_games_of_a_seed_are_the_same_each_time():
    games = [list(play(lambda obs, keys: RIGHT, Album(), dict(is_train=False), 3, seed=1)) for _ in range(2)]
    assert games[0] == games[1] and len(games[0]) == 3


def test_a_game_that_its_watcher_leaves_is_told_as_stopped():
    games = list(play(lambda obs, keys: RIGHT, Album(room=10), dict(is_train=False), 3))
    assert [(game.end, game.steps) for game in games] == [('stopped', 9)]
    assert str(games[0]) == 'game 1: 0 points, stopped with 5 lives'


def test_nothing_is_pressed_for_a_person():
    album = Album(room=100)
    list(play(person_player, album, person_env_options(2)))
    assert all((picture[93:] == album.pictures[0][93:]).all() for picture in album.pictures)  # no ball was served


@pytest.mark.parametrize('keys, action', [(['left'], 3), (['right'], 2), (['left', 'right'], 0), (['left', 'fire'], 1)])
def test_a_persons_keys_are_the_consoles_actions(keys, action):
    assert person_player(np.zeros(0), frozenset(keys)) == action


# ---- videos


def test_an_agents_games_become_one_video(tmp_path):
    games = record(Mover(), tmp_path / 'games.mp4', games=2, seed=1, epsilon=0)
    pictures, seconds = decode(tmp_path / 'games.mp4')
    assert len(pictures) == sum(game.steps + 1 for game in games) == round(seconds * 15)
    assert pictures.shape[1:] == (630, 480, 3)
    assert pictures[20].max() > 150 and 10 < pictures[20].mean() < 100
    assert (pictures[0, 400:560] != pictures[20, 400:560]).any()  # the ball is on its way
    assert os.listdir(tmp_path) == ['games.mp4']


def test_a_gif_has_the_very_colours_of_the_console(tmp_path):
    record(Mover(), tmp_path / 'game.gif', seed=1, epsilon=0, max_seconds=4)
    album = Album(room=60)
    env_options = dict(is_train=False, frame_stack=4, screen_size=84)
    list(play(lambda obs, keys: RIGHT, album, env_options, seed=1))
    pictures, seconds = decode(tmp_path / 'game.gif')
    assert 3.9 < seconds < 4.1
    assert pictures.shape == (60, 420, 320, 3)
    assert (pictures[:, ::2, ::2] == np.stack(album.pictures)).all()
    assert paddle_column(pictures[30, ::2, ::2]) > paddle_column(pictures[0, ::2, ::2])


def test_a_gif_ends_after_half_a_minute_unless_told_otherwise(tmp_path):
    games = record(Mover(0), tmp_path / 'game.gif', games=20, seed=1, epsilon=0)
    assert len(decode(tmp_path / 'game.gif')[0]) == 450 and games[-1].end == 'stopped'


def test_a_video_that_is_there_is_kept_unless_told_otherwise(tmp_path):
    (tmp_path / 'game.mp4').write_text('precious')
    with pytest.raises(FileExistsError, match='game.mp4.* is there already'):
        record(Mover(), tmp_path / 'game.mp4', max_seconds=1)
    assert (tmp_path / 'game.mp4').read_text() == 'precious'
    record(Mover(), tmp_path / 'game.mp4', max_seconds=1, overwrite=True)
    assert len(decode(tmp_path / 'game.mp4')[0]) == 15


def test_an_interrupted_recording_leaves_nothing(tmp_path, same_footprint):
    agent = Mover()
    agent.act = lambda obs: os.kill(os.getpid(), signal.SIGINT) or time.sleep(1)
    with pytest.raises(KeyboardInterrupt):
        record(agent, tmp_path / 'game.mp4')
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('suffix', ['mp4', 'gif'])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(suffix, small_disk, same_footprint):
    with open(small_disk / 'rest', 'wb') as file:
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        file.write(b'x' * (free - 8192))
    with pytest.raises(OSError, match=f'game.{suffix}.* can not be written: .*No space left'):
        record(Mover(0), small_disk / f'game.{suffix}', games=4)
    assert os.listdir(small_disk) == ['rest']


@pytest.mark.parametrize(
    'arguments, sentence',
    [
        (['record', '--out', 'game.avi'], 'expected a name that ends with .mp4 or .gif'),
        (['record', '--out', 'nowhere/game.mp4'], 'there is no folder'),
        (['play', '--record', 'game.avi'], 'expected a name that ends with .mp4 or .gif'),
        (['play'], 'record a video instead: --record FILE.mp4'),
        (['play', '--human'], 'expected a terminal to play in'),
        (['play', '--human', '--epsilon', '0.1'], '--human is you'),
        (['play', '--terminal', '--record', 'game.mp4'], 'expected one of them'),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(arguments, sentence, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('DISPLAY', raising=False)
    monkeypatch.delenv('WAYLAND_DISPLAY', raising=False)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2) and sentence in result.stderr.splitlines()[-1]
    assert os.listdir(tmp_path) == []


def test_the_commands_record_the_pretrained_agent(tmp_path):
    for name, arguments in (
        ('a.mp4', ['record', '--pretrained', '--max-seconds', '2', '--seed', '1', '--out']),
        ('b.gif', ['record', '--max-seconds', '2', '--seed', '1', '--speed', '2', '--out']),
    ):
        result = CliRunner().invoke(main, [*arguments, str(tmp_path / name)])
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith('game 1: ') and result.stdout.endswith(f'{name}: 2 s\n')
    assert len(decode(tmp_path / 'a.mp4')[0]) == 30 and len(decode(tmp_path / 'b.gif')[0]) == 60


# ---- a terminal


def screen_of(text, columns, rows):
    """What a terminal shows after some output: colours of the half blocks as (2 R, C, 3), and the other characters."""
    colours, characters = np.zeros((rows * 2, columns, 3), np.uint8), [[' '] * columns for _ in range(rows)]
    row = column = 0
    upper = lower = (0, 0, 0)
    for match in re.finditer(r'\x1b\[\??([0-9;]*)([A-Za-z])|([^\x1b])', text):
        numbers, what, character = match[1], match[2], match[3]
        if character == '\N{UPPER HALF BLOCK}':
            colours[2 * row, column], colours[2 * row + 1, column] = upper, lower
        elif character:
            characters[row][column] = character
        elif what == 'H':
            row, column = (int(number) - 1 for number in numbers.split(';'))
        elif what == 'm' and numbers.startswith('38;2;'):
            values = [int(number) for number in numbers.split(';')]
            upper, lower = values[2:5], values[7:10]
        elif what == 'J':
            colours[:] = 0
        elif what == 'K':
            characters[row] = [' '] * columns
        if character:
            column += 1
    return colours, [''.join(line).strip() for line in characters]


class Terminal(object):
    """The other end of a pseudo-terminal."""

    def __init__(self, end, columns=100, rows=32):
        self.end, self.output = end, b''
        self.resize(columns, rows)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.end, keys)

    def screen(self):
        text = self.output.decode(errors='ignore').rpartition('\x1b[?1049h')[2].partition('\x1b[?1049l')[0]
        return screen_of(text.rpartition('\x1b[2J')[2], self.columns, self.rows)

    def _read(self):
        while True:
            try:
                data = os.read(self.end, 65536)
            except OSError:  # nobody has the other end any more
                return
            if not data:
                return
            self.output += data


@pytest.fixture
def terminal(monkeypatch):
    """A terminal, and a way to take it as this process's own."""
    end, ours = os.openpty()
    terminal = Terminal(end)
    with os.fdopen(os.dup(ours), 'r') as stdin, os.fdopen(ours, 'w') as stdout:

        def take(pictures_per_second):
            with monkeypatch.context() as patch:
                patch.setattr(sys, 'stdin', stdin)
                patch.setattr(sys, 'stdout', stdout)
                return TerminalScreen(pictures_per_second)

        terminal.take = take
        terminal.settings = lambda: termios.tcgetattr(stdin.fileno())
        yield terminal
    terminal._reader.join(5)
    os.close(end)


@pytest.fixture(scope='module')
def pictures():
    album = Album(room=60)
    list(play(lambda obs, keys: RIGHT, album, dict(is_train=False), seed=1))
    return album.pictures


def test_a_terminal_shows_the_picture_and_the_line(terminal, pictures):
    with terminal.take(1000) as screen:
        for size in ((100, 32), (80, 24), (300, 100)):
            terminal.resize(*size)
            for picture in pictures:
                screen.show(picture, 'game 1   7 points')
            cells = half_blocks(pictures[-1][PLAYFIELD], size[0], size[1] - 1)
            height, width = cells.shape[:2]
            assert height <= size[1] - 1 and width <= size[0]
            left = (size[0] - width) // 2
            expected = cells.reshape(height, width, 2, 3).transpose(0, 2, 1, 3).reshape(2 * height, width, 3)

            def shown(expected=expected, left=left):
                colours, lines = terminal.screen()
                return (colours[: len(expected), left : left + expected.shape[1]] == expected).all() and lines[-1]

            assert wait_until(shown)
            assert terminal.screen()[1][-1] == 'game 1   7 points'
            assert len(np.unique(expected.reshape(-1, 3), axis=0)) >= 8  # walls, bricks, ball and paddle


def test_a_terminal_is_sent_only_what_changed(terminal, pictures):
    with terminal.take(1000) as screen:
        screen.show(pictures[0], '')
        assert wait_until(lambda: len(terminal.output) > 5000)
        time.sleep(0.2)
        first = len(terminal.output)
        for picture in pictures:
            screen.show(picture, '')
        time.sleep(0.2)
        assert (len(terminal.output) - first) / len(pictures) < first / 10


def test_a_terminal_shows_the_game_at_its_pace(terminal, pictures):
    with terminal.take(30) as screen:
        screen.show(pictures[0], '')
        start = time.monotonic()
        for picture in pictures[:45]:
            screen.show(picture, '')
        seconds = time.monotonic() - start
    assert 1.4 < seconds < 2.5, seconds


def test_keys_hold_for_a_moment_and_the_other_direction_ends_them(terminal, pictures):
    with terminal.take(100) as screen:
        assert screen.show(pictures[0], '') and screen.keys() == frozenset()

        def after(keys):
            terminal.press(keys)
            pressed = frozenset()
            deadline = time.monotonic() + 5
            while not pressed and time.monotonic() < deadline:
                assert screen.show(pictures[0], '')
                pressed = screen.keys()
            return pressed

        assert after(b'\x1b[D') == {'left'}
        assert screen.keys() == {'left'}  # still held
        assert after(b'\x1bOC') in ({'left'}, {'right'})  # whichever is seen first
        assert wait_until(lambda: screen.show(pictures[0], '') and screen.keys() <= {'right'})
        assert wait_until(lambda: screen.show(pictures[0], '') and not screen.keys(), 2)
        for keys, name in ((b'a', 'left'), (b'D', 'right'), (b' ', 'fire')):
            assert after(keys) == {name}
            assert wait_until(lambda: screen.show(pictures[0], '') and not screen.keys(), 2)
        terminal.press(b'\x1b')  # a sequence in two pieces, as over a slow line
        for _ in range(10):
            assert screen.show(pictures[0], '') and not screen.keys()
        assert after(b'[D') == {'left'}
        terminal.press(b'q')
        assert wait_until(lambda: not screen.show(pictures[0], ''))


def test_a_terminal_is_given_back_as_it_was(terminal, pictures, same_footprint):
    before = terminal.settings()
    screen = terminal.take(100)
    assert terminal.settings() != before  # keys come one by one
    screen.show(pictures[0], '')
    screen.close()
    screen.close()
    assert terminal.settings() == before
    assert wait_until(lambda: terminal.output.endswith(b'\x1b[?7h\x1b[?25h\x1b[?1049l'))
    assert signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL


def test_a_terminal_that_can_not_be_taken_whole_is_given_back(terminal, monkeypatch):
    before, real = terminal.settings(), signal.signal

    def interrupted(number, handler):
        if number == signal.SIGTSTP:
            raise KeyboardInterrupt
        return real(number, handler)

    with monkeypatch.context() as patch:
        patch.setattr(signal, 'signal', interrupted)
        with pytest.raises(KeyboardInterrupt):
            terminal.take(100)
    assert terminal.settings() == before
    assert wait_until(lambda: terminal.output.endswith(b'\x1b[?7h\x1b[?25h\x1b[?1049l'))


class Command(Terminal):
    """The ``breakout`` command at a terminal of its own."""

    def __init__(self, *arguments):
        self.pid, end = pty.fork()
        if self.pid == 0:
            environ = {**os.environ, 'OMP_NUM_THREADS': '1', 'TERM': 'xterm-256color'}
            environ.pop('DISPLAY', None)
            environ.pop('WAYLAND_DISPLAY', None)
            os.execve(sys.executable, [sys.executable, '-W', 'ignore', '-m', 'breakout_env', *arguments], environ)
        super().__init__(end)
        self.code = None
        self.before = termios.tcgetattr(end)

    def playing(self):
        return wait_until(lambda: b'\x1b[?1049h' in self.output and 'points' in self.screen()[1][-1], 60)

    def ends(self):
        def ended():
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            return pid

        assert wait_until(ended, 20)
        self._reader.join(5)
        return self.code

    def after_the_game(self):
        return self.output.rpartition(b'\x1b[?1049l')[2].decode()

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.end)


@pytest.fixture
def command():
    started = []

    def start(*arguments):
        started.append(Command(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_an_agent_is_watched_in_the_terminal_until_ctrl_c(command):
    breakout = command('play', '--seed', '1')
    assert breakout.playing()
    colours, lines = breakout.screen()
    assert len(np.unique(colours.reshape(-1, 3), axis=0)) >= 8
    assert wait_until(lambda: (breakout.screen()[0] != colours).any())
    breakout.press(b'\x03')
    assert breakout.ends() == 130
    assert b'\x1b[?25h\x1b[?1049l' in breakout.output
    assert re.search(r'^\r?\n?game 1: \d+ points, stopped with \d lives', breakout.after_the_game())
    assert 'Traceback' not in breakout.after_the_game()


def test_a_terminal_is_given_back_at_sigterm_and_while_suspended(command):
    breakout = command('play', '--terminal')
    assert breakout.playing()
    # Ctrl-Z; not as a key, as a group of processes that nobody waits for is not stopped by it
    os.kill(breakout.pid, signal.SIGTSTP)
    assert wait_until(lambda: psutil.Process(breakout.pid).status() == psutil.STATUS_STOPPED)
    assert wait_until(lambda: breakout.output.endswith(b'\x1b[?25h\x1b[?1049l'))
    assert termios.tcgetattr(breakout.end) == breakout.before
    seen = len(breakout.output)
    os.kill(breakout.pid, signal.SIGCONT)
    assert wait_until(lambda: b'\x1b[?1049h' in breakout.output[seen:])
    assert wait_until(lambda: len(np.unique(breakout.screen()[0].reshape(-1, 3), axis=0)) >= 8)
    os.kill(breakout.pid, signal.SIGTERM)
    assert breakout.ends() == 128 + signal.SIGTERM
    assert breakout.output.rstrip().count(b'\x1b[?1049l') == 2


def test_a_person_plays_in_the_terminal(command):
    breakout = command('play', '--human', '--terminal')
    assert breakout.playing()

    def reds():
        """Columns of the paddle, and how much of the ball's colour is above it."""
        colours = breakout.screen()[0].astype(int)
        red = (colours[:, :, 0] > 80) & (colours[:, :, 1] < colours[:, :, 0] / 2)
        bottom = np.nonzero(red.any(axis=1))[0].max()
        columns = np.nonzero(red[bottom])[0]
        return columns[columns < 92]

    start = reds().min()
    for _ in range(10):
        breakout.press(b'\x1b[D')
        time.sleep(0.05)
    assert wait_until(lambda: reds().min() < start - 10)
    there = reds().min()
    for _ in range(10):
        breakout.press(b'd')
        time.sleep(0.05)
    assert wait_until(lambda: reds().min() > there + 10)
    before = breakout.screen()[0][35:55]
    breakout.press(b' ')
    assert wait_until(lambda: (breakout.screen()[0][35:55] != before).any())  # the ball was served
    breakout.press(b'q')
    assert breakout.ends() == 0
    assert re.search(r'game 1: \d+ points, stopped with [45] lives', breakout.after_the_game())


# ---- a window


class Keyboard(object):
    """The keyboard and the mouse of the X server."""

    def __init__(self):
        self.connection = Xlib.display.Display()
        self.window = None

    def focus(self):
        title = self.connection.intern_atom('_NET_WM_NAME')

        def find():
            pending = [self.connection.screen().root]
            while pending:
                window = pending.pop()
                if (window.get_full_text_property(title) or '').startswith('Breakout'):
                    self.window = window
                pending += window.query_tree().children
            return self.window is not None

        assert wait_until(find)
        self.window.set_input_focus(Xlib.X.RevertToParent, Xlib.X.CurrentTime)
        self.connection.sync()

    def _send(self, kind, key):
        code = self.connection.keysym_to_keycode(Xlib.XK.string_to_keysym(key))
        Xlib.ext.xtest.fake_input(self.connection, kind, code)
        self.connection.sync()

    def press(self, key):
        self._send(Xlib.X.KeyPress, key)

    def release(self, key):
        self._send(Xlib.X.KeyRelease, key)

    def close_window(self):
        """As the cross in its corner does."""
        atom = self.connection.intern_atom
        event = Xlib.protocol.event.ClientMessage(
            window=self.window,
            client_type=atom('WM_PROTOCOLS'),
            data=(32, [atom('WM_DELETE_WINDOW'), Xlib.X.CurrentTime, 0, 0, 0]),
        )
        self.window.send_event(event)
        self.connection.sync()


@pytest.fixture
def keyboard(display):
    keyboard = Keyboard()
    yield keyboard
    keyboard.connection.close()


PICTURE = np.zeros((210, 160, 3), np.uint8)


def test_a_window_tells_the_keys_that_are_held(keyboard, same_footprint):
    window = GameWindow('Breakout', 1)
    keyboard.focus()

    def comes_to(*keys):
        return wait_until(lambda: window.present(PICTURE) and window.keys() == frozenset(keys))

    assert comes_to()
    keyboard.press('Left')
    assert comes_to('left')
    for _ in range(30):
        assert window.present(PICTURE) and window.keys() == {'left'}
    keyboard.press('space')
    assert comes_to('left', 'fire')
    keyboard.release('Left')
    keyboard.release('space')
    assert comes_to()
    keyboard.press('d')
    keyboard.release('d')  # too short to be held when anyone looks
    assert comes_to('right')
    assert comes_to()
    window.close()
    assert window.keys() == frozenset() and not window.present(PICTURE)


def test_a_window_that_its_user_closes_ends_the_game_without_an_error(keyboard, caplog, same_footprint):
    with WindowScreen('Breakout', 4, 1.0) as screen:
        keyboard.focus()
        games = play(lambda obs, keys: RIGHT, screen, dict(is_train=False))
        timer = threading.Timer(1, keyboard.close_window)
        timer.start()
        (game,) = games
        timer.join()
    assert game.end == 'stopped' and game.steps > 3 and caplog.text == ''


def test_a_window_that_hangs_ends_the_game_with_a_sentence(display, same_footprint):
    screen = WindowScreen('Breakout', 4, 1.0)
    display.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    try:
        with pytest.raises(HelperError, match='the game window'):
            list(play(lambda obs, keys: RIGHT, screen, dict(is_train=False), games=100))
    finally:
        display.send_signal(signal.SIGCONT)
        screen.close()
    assert time.monotonic() - start < 10


def test_a_stopped_window_process_ends_the_game_with_a_sentence(display, same_footprint):
    screen = WindowScreen('Breakout', 4, 1.0)
    newest_child().send_signal(signal.SIGSTOP)
    with pytest.raises(HelperError, match='the game window'):
        list(play(lambda obs, keys: RIGHT, screen, dict(is_train=False), games=100))
    screen.close()


def test_a_person_plays_in_a_window(keyboard):
    seen = []

    class Watched(WindowScreen):
        def show(self, picture, line):
            seen.append(paddle_column(picture))
            if len(seen) == 30:
                keyboard.press('Left')
            if len(seen) == 60:
                keyboard.release('Left')
            if len(seen) == 80:
                keyboard.press('q')
            return super().show(picture, line)

    with Watched('Breakout', 1, 1.0) as screen:
        keyboard.focus()
        (game,) = play(person_player, screen, person_env_options(1))
    assert game.end == 'stopped' and 80 <= len(seen) < 100
    assert np.ptp(seen[:30]) == 0  # nothing moves by itself
    assert seen[59] < seen[29] - 10
    assert np.ptp(seen[70:80]) == 0  # and nothing after the key was released


def test_an_agent_is_watched_in_a_window(keyboard, tmp_path):
    environ = {**os.environ, 'OMP_NUM_THREADS': '1'}
    breakout = subprocess.Popen(
        [sys.executable, '-m', 'breakout_env', 'play', '--seed', '1'],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert wait_until(lambda: breakout.poll() is not None or len(psutil.Process(breakout.pid).children()) > 0, 60)
        keyboard.focus()
        time.sleep(1)
        keyboard.close_window()
        stdout, stderr = breakout.communicate(timeout=30)
    finally:
        if breakout.poll() is None:
            breakout.kill()
            breakout.communicate()
    assert breakout.returncode == 0, stderr
    assert re.fullmatch(r'game 1: \d+ points, stopped with \d lives\n', stdout)


def test_moves_are_where_the_console_has_them():
    env = BreakoutEnv(person_env_options(4))
    env.reset()
    columns = [paddle_column(env.render())]
    for action in (LEFT, RIGHT):
        for _ in range(5):
            env.step(action)
        columns.append(paddle_column(env.render()))
    env.close()
    assert columns[1] < columns[0] - 5 and columns[2] > columns[1] + 5
