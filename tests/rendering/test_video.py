"""Videos: one for each full game, playable by a browser, complete however the game ended; and single video files."""

import logging
import os

import numpy as np
import pytest

from breakout_env import BreakoutEnv
from breakout_env.rendering import video
from helpers.games import play
from helpers.processes import wait_until
from helpers.resources import children
from helpers.videos import decode

PICTURE = np.zeros((210, 160, 3), np.uint8)


@pytest.fixture
def env(tmp_path):
    env = BreakoutEnv(dict(is_train=False, noop_max=0))
    env.seed(5)
    env.enable_save_replay(str(tmp_path / 'video'))
    yield env
    env.close()


def videos(tmp_path):
    return sorted(os.listdir(tmp_path / 'video'))


def test_a_game_of_five_episodes_becomes_a_video_that_a_browser_plays(tmp_path):
    env = BreakoutEnv(dict(noop_max=0))
    env.seed(5)
    env.enable_save_replay(str(tmp_path / 'video'))
    originals, info = [], {}
    while 'game_return' not in info:
        env.reset()
        originals.append(env.render())
        done = False
        while not done:
            _, _, done, info = env.step(env.random_action())
            originals.append(env.render())
    env.close()
    (name,) = videos(tmp_path)
    assert name == f'breakout-seed5-process{os.getpid()}-game0001-score{info["game_return"]:.0f}.mp4'
    *about, _, pictures = decode(tmp_path / 'video' / name)
    assert about == ['h264', 'yuv420p', 15]
    # the picture after reset, one for each step, and one for the no-op after each lost life
    assert len(pictures) == len(originals) + 4 and pictures.shape[1:] == (630, 480, 3)
    small = pictures[:, 1::3, 1::3].astype(int)
    assert np.abs(small[0] - originals[0]).mean() < 6  # lossy, but the same game
    assert np.abs(small[-1] - originals[-1]).mean() < 6
    assert np.abs(small[0] - originals[-1]).mean() > np.abs(small[0] - originals[0]).mean()


def test_each_game_has_its_own_complete_video_also_after_close(env, tmp_path, same_footprint):
    for _ in range(2):
        for _ in range(2):  # the reset abandons the game before
            env.reset()
            env.reset()  # a game without a step leaves no file
            assert not any('.part.' in name for name in videos(tmp_path))
            env.step(0)
            assert len(children()) == 1 and videos(tmp_path)[-1].endswith('.part.mp4')
        env.close()
    names = videos(tmp_path)
    assert [name.rsplit('-', 2)[1:] for name in names] == [[f'game000{i}', 'unfinished.mp4'] for i in range(1, 5)]
    assert [len(decode(tmp_path / 'video' / name).pictures) for name in names] == [2] * 4


def test_two_environments_never_write_the_same_file(tmp_path):
    envs = [BreakoutEnv(dict(is_train=False)) for _ in range(3)]
    for env in envs:
        env.seed(1)
        env.enable_save_replay(str(tmp_path / 'video'))
        play(env, 30)
    for env in envs:
        env.close()
    counts = [len(decode(tmp_path / 'video' / name).pictures) for name in videos(tmp_path)]
    assert len(counts) == 3 and min(counts) >= 31


@pytest.mark.parametrize('folder', ['-dash', 'run:1', "a b'c%d"])
def test_a_relative_folder_of_any_name_is_resolved_once(folder, tmp_path, monkeypatch):
    (tmp_path / 'elsewhere').mkdir()
    env = BreakoutEnv(dict(is_train=False))
    env.enable_save_replay(folder)
    env.reset()
    env.step(0)
    monkeypatch.chdir(tmp_path / 'elsewhere')
    env.close()
    assert [name.endswith('-unfinished.mp4') for name in os.listdir(tmp_path / folder)] == [True]


def test_a_full_disk_costs_the_video_but_not_the_game(env, caplog, tmp_path, monkeypatch, same_footprint):
    """The encoder ends as FFmpeg does when it cannot write; the warning quotes its last line."""
    monkeypatch.setattr(video.imageio_ffmpeg, 'get_ffmpeg_exe', lambda: str(tmp_path / 'encoder'))
    (tmp_path / 'encoder').write_text('#!/bin/sh\necho "No space left on device" >&2\nexit 1\n')
    (tmp_path / 'encoder').chmod(0o755)
    with caplog.at_level(logging.WARNING, logger='breakout_env'):
        play(env, 50)
    assert 'No space left on device' in caplog.text
    env.close()


def test_recording_does_not_change_the_game(env):
    silent = BreakoutEnv(dict(is_train=False, noop_max=0))
    silent.seed(5)
    assert play(env, 150) == play(silent, 150)
    silent.close()


@pytest.mark.parametrize('suffix', ['.mp4', '.gif'])
def test_an_unfinished_video_file_is_removed(suffix, tmp_path, same_footprint):
    with video.VideoFile(str(tmp_path / f'game{suffix}'), 15) as file:
        assert wait_until(lambda: file.show(PICTURE) and list(tmp_path.iterdir()), 60)
    assert not list(tmp_path.iterdir())
