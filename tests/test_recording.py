"""Videos: one for each whole game, playable by a browser, complete however the game ended."""

import logging
import os
import shutil
import signal
import threading
import time

import av
import numpy as np
import pytest

from breakout_env import BreakoutEnv
from breakout_env.rendering import video as recording
from helpers.games import play
from helpers.resources import newest_child


def decode(path):
    """Codec, pixel format, frames a second, and the pictures as (N, H, W, 3)."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pictures = np.stack([frame.to_ndarray(format='rgb24') for frame in container.decode(stream)])
        return stream.codec_context.name, stream.codec_context.pix_fmt, float(stream.average_rate), pictures


@pytest.fixture
def env(tmp_path):
    env = BreakoutEnv(dict(is_train=False, noop_max=0))
    env.seed(5)
    env.enable_save_replay(str(tmp_path / 'video'))
    yield env
    env.close()


def videos(tmp_path):
    return sorted(os.listdir(tmp_path / 'video'))


def test_a_whole_game_becomes_a_video_that_a_browser_plays(env, tmp_path):
    env.reset()
    originals = [env.render()]
    done = False
    while not done:
        _, _, done, info = env.step(env.random_action())
        originals.append(env.render())
    (name,) = videos(tmp_path)
    assert name == f'breakout-seed5-process{os.getpid()}-game0001-score{info["game_return"]:.0f}.mp4'
    codec, pixels, rate, pictures = decode(tmp_path / 'video' / name)
    assert (codec, pixels, rate) == ('h264', 'yuv420p', 15)
    # what reset left, a picture a step, and one for each FIRE after a lost life
    assert len(pictures) == len(originals) + 4
    assert pictures.shape[1:] == (630, 480, 3)
    shrunk = pictures[:, 1::3, 1::3].astype(int)
    assert np.abs(shrunk[0] - originals[0]).mean() < 6  # lossy, but the same game
    assert np.abs(shrunk[-1] - originals[-1]).mean() < 6
    assert np.abs(shrunk[0] - originals[-1]).mean() > np.abs(shrunk[0] - originals[0]).mean()


def test_lives_do_not_cut_the_video(tmp_path):
    env = BreakoutEnv(dict(noop_max=0))
    env.enable_save_replay(str(tmp_path / 'video'))
    episodes = 0
    env.reset()
    while True:
        timestep = env.step(3)
        if timestep.done:
            episodes += 1
            if 'game_return' in timestep.info:
                break
            env.reset()
    assert episodes == 5 and len(videos(tmp_path)) == 1
    env.close()


def test_close_completes_a_game_cut_short(env, tmp_path):
    env.reset()
    for _ in range(20):
        env.step(0)
    assert videos(tmp_path)[0].endswith('.part.mp4')
    env.close()
    (name,) = videos(tmp_path)
    assert name.endswith('-unfinished.mp4') and len(decode(tmp_path / 'video' / name)[3]) == 21


def test_a_game_given_up_before_its_first_step_leaves_no_file(tmp_path):
    env = BreakoutEnv(dict(is_train=False, noop_max=0))
    env.enable_save_replay(str(tmp_path / 'video'))
    env.reset()
    env.reset()
    env.close()
    assert videos(tmp_path) == []


def test_nothing_is_overwritten_by_a_second_run(env, tmp_path):
    for _ in range(2):
        play(env, 10)
        env.close()
    assert [name[-24:] for name in videos(tmp_path)] == ['game0001-unfinished.mp4'.rjust(24, '-')] * 1 + [
        'game0002-unfinished.mp4'.rjust(24, '-')
    ]


def test_two_environments_never_write_the_same_file(tmp_path):
    envs = [BreakoutEnv(dict(is_train=False)) for _ in range(3)]

    def record(env):
        env.seed(1)
        env.enable_save_replay(str(tmp_path / 'video'))
        play(env, 30)
        env.close()

    threads = [threading.Thread(target=record, args=(env,)) for env in envs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(videos(tmp_path)) == 3
    assert all(len(decode(tmp_path / 'video' / name)[3]) >= 31 for name in videos(tmp_path))


@pytest.mark.parametrize('folder', ['-dash', 'run:1', "a b'c%d"])
def test_a_relative_folder_of_any_name_is_where_it_was_named(folder, tmp_path, monkeypatch):
    (tmp_path / 'elsewhere').mkdir()
    monkeypatch.chdir(tmp_path)
    env = BreakoutEnv(dict(is_train=False))
    env.enable_save_replay(folder)
    env.reset()
    env.step(0)
    monkeypatch.chdir(tmp_path / 'elsewhere')
    env.close()
    assert [name.endswith('-unfinished.mp4') for name in os.listdir(tmp_path / folder)] == [True]


def test_another_folder_holds_from_the_next_game_on(env, tmp_path):
    play(env, 10)
    env.enable_save_replay(str(tmp_path / 'other'))
    env.reset()
    env.step(0)
    env.close()
    assert len(videos(tmp_path)) == len(os.listdir(tmp_path / 'other')) == 1


def test_a_folder_that_vanishes_costs_the_video_and_not_the_game(env, tmp_path, caplog):
    env.reset()
    env.step(0)
    shutil.rmtree(tmp_path / 'video')
    with caplog.at_level(logging.WARNING, logger='breakout_env'):
        while not env.step(env.random_action()).done:
            pass
    assert 'may be incomplete' in caplog.text


def test_an_alarm_that_somebody_set_for_the_step_is_not_taken_for_ours(env, same_footprint):
    def interrupt(number, frame):
        raise TimeoutError('planted')

    env.reset()
    env.step(0)
    newest_child().send_signal(signal.SIGSTOP)
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(TimeoutError, match='planted'):
            for _ in range(100):
                env.step(0)
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_an_interrupted_close_leaves_no_encoder(env, same_footprint):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    env.reset()
    env.step(0)
    newest_child().send_signal(signal.SIGSTOP)
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            env.close()
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_recording_does_not_change_the_game(env):
    silent = BreakoutEnv(dict(is_train=False, noop_max=0))
    silent.seed(5)
    assert play(env, 150) == play(silent, 150)


def test_a_folder_that_can_not_be_is_a_sentence(tmp_path):
    (tmp_path / 'file').write_text('')
    env = BreakoutEnv({})
    env.enable_save_replay(str(tmp_path / 'file' / 'video'))
    with pytest.raises(OSError, match='the replay folder .* can not be made'):
        env.reset()
    env.close()


def test_a_stuck_encoder_is_given_up_and_the_game_goes_on(env, tmp_path, monkeypatch, caplog, same_footprint):
    monkeypatch.setattr(recording, 'WRITE_TIMEOUT_S', 0.5)
    monkeypatch.setattr(recording, 'CLOSE_TIMEOUT_S', 0.5)
    env.reset()
    env.step(0)
    newest_child().send_signal(signal.SIGSTOP)
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, logger='breakout_env'):
        for _ in range(60):
            env.step(1)
    assert time.monotonic() - start < 10
    assert 'the recording of this game is given up' in caplog.text and 'was killed' in caplog.text
    env.close()


def test_a_stuck_encoder_can_not_hang_close(env, same_footprint, caplog):
    env.reset()
    env.step(0)
    newest_child().send_signal(signal.SIGSTOP)
    start = time.monotonic()
    env.close()
    assert time.monotonic() - start < 5
    assert 'did not finish within 3 s and was killed' in caplog.text


def test_a_full_disk_ends_the_recording_and_not_the_game(env, caplog, tmp_path, monkeypatch, same_footprint):
    """The encoder dies as it does when it can't write; the last line it says is in the warning."""
    monkeypatch.setattr(recording.imageio_ffmpeg, 'get_ffmpeg_exe', lambda: str(tmp_path / 'encoder'))
    (tmp_path / 'encoder').write_text('#!/bin/sh\necho "No space left on device" >&2\nexit 1\n')
    (tmp_path / 'encoder').chmod(0o755)
    with caplog.at_level(logging.WARNING, logger='breakout_env'):
        play(env, 50)
    assert 'No space left on device' in caplog.text
    env.close()
