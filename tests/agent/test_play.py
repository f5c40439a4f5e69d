"""Games to look at: their course, and videos of an agent's games."""

import itertools
import os

import av
import numpy as np
import pytest
from click.testing import CliRunner

from breakout_cli import main
from breakout_env import BreakoutEnv
from breakout_env.agent.play import play
from breakout_env.rendering.video import VideoFile


class Mover:
    """An agent that takes these actions, or always the same one."""

    env_options = dict(frame_stack=4, screen_size=84)

    def __init__(self, *actions):
        self.actions = itertools.cycle(actions or [2])

    def act(self, obs):
        assert obs.shape == (1, 4, 84, 84) and obs.dtype == np.uint8
        return np.array([next(self.actions)])


class Album:
    """Keeps the pictures of a game, and ends it after so many."""

    def __init__(self, room=10**9):
        self.pictures, self.room = [], room

    def show(self, picture):
        self.pictures.append(picture)
        return len(self.pictures) < self.room


def record(agent, path, max_seconds=None, overwrite=False, **options):
    """Play games into a video, as ``breakout record`` does."""
    with VideoFile(path, 15, max_seconds, overwrite) as video:
        games = list(play(agent, video.show, **options))
        video.finish()
    return games


def decode(path):
    """Pictures as (N, H, W, 3), and the length of the video in seconds."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pictures = np.stack([frame.to_ndarray(format='rgb24') for frame in container.decode(stream)])
        return pictures, float(stream.duration * stream.time_base)


def test_points_and_lives_are_those_of_the_game():
    actions = np.random.default_rng(1).integers(4, size=10_000).tolist()
    album = Album()
    (game,) = play(Mover(*actions), album.show, seed=2, epsilon=0)
    env = BreakoutEnv(dict(is_train=False))
    env.seed(2)
    env.reset()
    for action in actions:
        timestep = env.step(action)
        if timestep.done:
            break
    env.close()
    assert (game.points, game.lives, game.end) == (timestep.info['game_return'], 0, 'over')
    assert game.points > 0 and len(album.pictures) == game.steps + 1


def test_mp4_shows_all_games_at_the_speed_of_the_console(tmp_path):
    games = record(Mover(), tmp_path / 'games.mp4', games=2, seed=1, epsilon=0)
    pictures, seconds = decode(tmp_path / 'games.mp4')
    assert len(pictures) == sum(game.steps + 1 for game in games) == round(seconds * 15)
    assert pictures.shape[1:] == (630, 480, 3) and pictures[20].max() > 150 and 10 < pictures[20].mean() < 100
    assert (pictures[0, 400:560] != pictures[20, 400:560]).any()  # the ball is on its way
    assert os.listdir(tmp_path) == ['games.mp4']


def test_gif_has_exactly_the_colours_of_the_console(tmp_path):
    record(Mover(), tmp_path / 'game.gif', seed=1, epsilon=0, max_seconds=4)
    album = Album(room=60)
    list(play(Mover(), album.show, seed=1, epsilon=0))
    pictures, seconds = decode(tmp_path / 'game.gif')
    assert 3.9 < seconds < 4.1 and pictures.shape == (60, 420, 320, 3)
    assert (pictures[:, ::2, ::2] == np.stack(album.pictures)).all()


def test_existing_video_is_only_replaced_on_request_and_a_link_stays_one(tmp_path):
    (tmp_path / 'game.mp4').symlink_to('linked.mp4')
    (tmp_path / 'linked.mp4').write_text('precious')
    with pytest.raises(FileExistsError, match='game.mp4'):
        record(Mover(), tmp_path / 'game.mp4', max_seconds=1)
    assert (tmp_path / 'game.mp4').read_text() == 'precious'
    record(Mover(), tmp_path / 'game.mp4', max_seconds=1, overwrite=True)
    assert (tmp_path / 'game.mp4').is_symlink() and len(decode(tmp_path / 'linked.mp4')[0]) == 15


@pytest.mark.parametrize('suffix', ['mp4', 'gif'])
def test_recording_on_a_full_disk_is_an_error_and_leaves_no_file(suffix, small_disk, same_footprint):
    with open(small_disk / 'rest', 'wb') as file:
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        file.write(b'x' * (free - 8192))
    with pytest.raises(OSError, match=f'game.{suffix}.* can ?not be written: .*No space left'):
        record(Mover(0), small_disk / f'game.{suffix}', games=4)
    assert os.listdir(small_disk) == ['rest']


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['record', '--out', 'game.avi'], 'expected a name that ends with .mp4 or .gif'),
        (['play'], 'breakout record --out game.mp4'),
    ],
)
def test_errors_of_play_and_record_say_what_to_do(arguments, message, monkeypatch, tmp_path):
    monkeypatch.delenv('DISPLAY', raising=False)
    monkeypatch.delenv('WAYLAND_DISPLAY', raising=False)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2) and message in result.stderr.splitlines()[-1] and os.listdir(tmp_path) == []
