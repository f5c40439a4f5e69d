"""The game is the standard one: exactly that of gymnasium's and Stable-Baselines3's wrappers."""

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from stable_baselines3.common.atari_wrappers import AtariWrapper

from breakout_env import BreakoutEnv
from breakout_env.envs.preprocessing import fill_stack, push_frame

gymnasium.register_envs(ale_py)


@pytest.mark.parametrize(
    'settings',
    [
        dict(frame_skip=4, frame_stack=4, screen_size=84),
        dict(frame_skip=4, frame_stack=4, screen_size=84, full_action_space=True, obs_dtype='float32'),
        dict(frame_skip=1, frame_stack=1, screen_size=84),
        dict(frame_skip=2, frame_stack=3, screen_size=64),
        dict(frame_skip=5, frame_stack=2, screen_size=100),
    ],
    ids=str,
)
def test_games_equal_those_of_gymnasiums_wrappers(settings):
    # noop_max=1 is exactly one no-op on both sides; without FIRE on reset, the random actions press it
    starts = dict(noop_max=1, fire_on_reset=False, fire_on_life_loss=False)
    env = BreakoutEnv(dict(is_train=False, max_episode_frames=700, **settings, **starts))
    sizes = {name: settings[name] for name in ('frame_skip', 'screen_size')}
    all_actions, scales = settings.get('full_action_space', False), 'obs_dtype' in settings
    peer = gymnasium.make('BreakoutNoFrameskip-v4', full_action_space=all_actions, max_num_frames_per_episode=700)
    peer = AtariPreprocessing(peer, noop_max=1, scale_obs=scales, **sizes)
    peer = FrameStackObservation(peer, settings['frame_stack'])
    rng = np.random.default_rng(settings['frame_skip'])
    ends = dict(terminated=0, truncated=0)
    np.testing.assert_array_equal(env.reset(), peer.reset(seed=0)[0])
    for _ in range(1500):
        action = int(rng.integers(env.action_space.n))
        obs, reward, done, info = env.step(action)
        peer_obs, peer_reward, terminated, truncated, peer_info = peer.step(action)
        np.testing.assert_array_equal(obs, peer_obs)
        assert obs.dtype == peer_obs.dtype and reward.item() == peer_reward
        assert done == (terminated or truncated) and info['lives'] == peer_info['lives']
        assert info['episode_frame_number'] == peer_info['episode_frame_number']
        if done:
            assert info['TimeLimit.truncated'] == truncated
            ends['truncated' if truncated else 'terminated'] += 1
            np.testing.assert_array_equal(env.reset(), peer.reset()[0])
    assert all(ends.values()) or settings['frame_skip'] != 4, ends  # both kinds of end were met
    env.close()
    peer.close()


def test_rewards_ends_and_lives_equal_those_of_stable_baselines3():
    # its FireResetEnv presses FIRE and RIGHT for a step each at every reset; here the test presses them
    env = BreakoutEnv(dict(noop_max=1, fire_on_reset=False))
    peer = AtariWrapper(gymnasium.make('BreakoutNoFrameskip-v4'), noop_max=1)

    def reset():
        env.reset()
        env.step(1)
        lives = env.step(2).info['lives']
        peer.reset(seed=0 if lives == 5 else None)

    rng = np.random.default_rng(1)
    episodes = games = clipped = 0
    reset()
    for _ in range(3000):
        action = int(rng.integers(4))
        _, reward, done, info = env.step(action)
        _, peer_reward, terminated, truncated, peer_info = peer.step(action)
        assert (reward.item(), done, info['lives']) == (peer_reward, terminated or truncated, peer_info['lives'])
        if done:
            episodes += 1
            games += 'game_return' in info
            clipped += info['eval_episode_return'] > 1
            reset()
    assert episodes > games > 2 and clipped > 0, (episodes, games, clipped)
    env.close()


def test_resizing_only_the_changed_bands_is_exact():
    rng = np.random.default_rng(0)
    for size in range(8, 161):
        screen = rng.integers(0, 256, (210, 160), dtype=np.uint8)
        stack = np.zeros((2, size, size), np.uint8)
        fill_stack(stack, screen)
        for _ in range(10):
            last_screen = screen.copy()
            for _ in range(rng.integers(4)):  # also no change at all
                y, x = rng.integers(205), rng.integers(150)
                screen[y : y + rng.integers(1, 12), x : x + rng.integers(1, 9)] = rng.integers(256)
            newest = stack[-1].copy()
            push_frame(stack, screen, last_screen)
            np.testing.assert_array_equal(stack[0], newest)
            np.testing.assert_array_equal(stack[1], cv2.resize(screen, (size, size), interpolation=cv2.INTER_AREA))
