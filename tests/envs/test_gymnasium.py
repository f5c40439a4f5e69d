"""gymnasium's interface: its own checks, one game and many, and the libraries that use it."""

import importlib.util
import re
import signal
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from helpers.managers import kill_worker_of
from helpers.processes import ROOT, completed

ENV_ID = 'breakout_env/Breakout-v0'


@pytest.mark.parametrize(
    'options',
    [{}, dict(is_train=False, frame_stack=2, screen_size=42, obs_dtype='float32', render_mode='rgb_array')],
)
def test_gymnasiums_and_sb3s_checks_pass_without_a_warning(options):
    sb3_checker = pytest.importorskip('stable_baselines3.common.env_checker')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        env = gymnasium.make(ENV_ID, **options)
        check_env(env.unwrapped)
        if options.get('obs_dtype') != 'float32':  # SB3 wants images as uint8
            sb3_checker.check_env(env)
    assert isinstance(env.observation_space, gymnasium.spaces.Box)
    env.close()


@pytest.mark.parametrize('make', [gymnasium.make, gymnasium.make_vec])
def test_wrong_options_are_named(make):
    with pytest.raises(ValueError, match='`frame_skp` is unknown; did you mean `frame_skip`'):
        make(ENV_ID, frame_skp=3)
    env = make(ENV_ID)
    with pytest.raises(ValueError, match='options of reset'):
        env.reset(options=dict(lives=3))
    env.close()


def test_many_games_are_the_same_games_as_one_by_one():
    """Observations, rewards and ends of several lives, with the last observation of each where it belongs."""
    options = dict(noop_max=3, max_episode_frames=700, is_train=False, episodic_life=True)
    envs = gymnasium.make_vec(ENV_ID, num_envs=3, manager=dict(worker_num=2), render_mode='rgb_array', **options)
    singles = [gymnasium.make(ENV_ID, **options) for _ in range(3)]
    assert envs.metadata['autoreset_mode'] is AutoresetMode.SAME_STEP
    try:
        obs, _ = envs.reset(seed=5)
        expected = [env.reset(seed=5 + i)[0] for i, env in enumerate(singles)]
        np.testing.assert_array_equal(obs, expected)
        rng, ends = np.random.default_rng(0), np.zeros(2, int)
        for _ in range(400):
            actions = rng.integers(4, size=3)
            obs, rewards, terminations, truncations, infos = envs.step(actions)
            for i, env in enumerate(singles):
                one, reward, terminated, truncated, info = env.step(actions[i])
                assert (rewards[i], terminations[i], truncations[i]) == (reward, terminated, truncated)
                if terminated or truncated:
                    np.testing.assert_array_equal(infos['final_obs'][i], one)
                    assert infos['final_info']['lives'][i] == info['lives']
                    one, _ = env.reset()
                else:
                    assert infos['lives'][i] == info['lives']
                np.testing.assert_array_equal(obs[i], one)
                ends += terminated, truncated
        assert (ends > 0).all()
        assert envs.observation_space.contains(obs) and envs.render()[2].shape == (210, 160, 3)
    finally:
        for env in [envs, *singles]:
            env.close()


def test_games_lost_with_a_worker_process_count_as_truncated():
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, manager=dict(worker_num=2))
    first, _ = envs.reset(seed=0)
    kill_worker_of(envs.unwrapped._manager, 1)
    obs, rewards, terminations, truncations, infos = envs.step([0, 0])
    assert truncations.tolist() == [False, True] and not terminations.any() and rewards[1] == 0
    assert infos['final_info']['abnormal'][1] and obs.shape == first.shape
    np.testing.assert_array_equal(infos['final_obs'][1], first[1])
    envs.close()


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(render_mode='human'), 'render_mode'),
        (dict(manager=dict(auto_reset=False)), '`auto_reset`'),
        (dict(autoreset_mode='Disabled'), 'autoreset_mode'),
        (dict(max_episode_steps=0), 'max_episode_steps'),
    ],
)
def test_what_many_games_cannot_do_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gymnasium.make_vec(ENV_ID, num_envs=2, **options)


def test_next_step_resets_and_time_limits_are_those_of_gymnasiums_own_vector():
    options = dict(noop_max=3, max_episode_steps=40)
    mode = dict(autoreset_mode=AutoresetMode.NEXT_STEP)
    ours = gymnasium.make_vec(ENV_ID, 3, **mode, **options)
    theirs = gymnasium.make_vec(ENV_ID, 3, vectorization_mode='sync', vector_kwargs=mode, **options)
    try:
        np.testing.assert_array_equal(ours.reset(seed=2)[0], theirs.reset(seed=2)[0])
        rng, ends = np.random.default_rng(0), np.zeros(2, int)
        for _ in range(250):
            actions = rng.integers(4, size=3)
            for one, other in zip(ours.step(actions)[:4], (found := theirs.step(actions))[:4]):
                np.testing.assert_array_equal(one, other)
            ends += found[2].sum(), found[3].sum()
        assert (ends > 0).all() and ours.metadata['autoreset_mode'] is AutoresetMode.NEXT_STEP
    finally:
        ours.close()
        theirs.close()


def test_wrong_actions_are_refused_before_a_game_is_stepped_and_a_reset_opens_closed_games():
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, noop_max=1).unwrapped
    first, _ = envs.reset(seed=0)
    with pytest.raises(ValueError, match=r'actions are of shape \(3,\) .* for each of 2 games: \(2,\)'):
        envs.step([0, 0, 0])
    with pytest.raises(ValueError, match=r'actions are \[0, 9\]; expected 0 to 3'):
        envs.step([0, 9])
    assert envs.step([0, 0])[4]['episode_frame_number'].tolist() == [9, 9]
    envs.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step([0, 0])
    np.testing.assert_array_equal(envs.reset(seed=0)[0], first)
    envs.close()


def test_after_a_step_that_ctrl_c_interrupted_games_begin_anew_instead_of_lagging_behind_their_actions(monkeypatch):
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, noop_max=1).unwrapped
    first, _ = envs.reset(seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(envs._manager, 'recv', lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            envs.step([0, 0])
    with pytest.raises(gymnasium.error.ResetNeeded, match='interrupted'):
        envs.step([0, 0])
    np.testing.assert_array_equal(envs.reset(seed=0)[0], first)
    assert envs.step([0, 0])[4]['episode_frame_number'].tolist() == [9, 9]
    envs.close()


@pytest.mark.parametrize('frame_skip, fps', [(4, 15), (1, 60)])
def test_videos_run_at_the_speed_of_the_console(frame_skip, fps):
    for make in (gymnasium.make, gymnasium.make_vec):
        assert make(ENV_ID, frame_skip=frame_skip).metadata['render_fps'] == fps


def test_the_guides_examples_run_as_printed_and_record_a_video(tmp_path):
    pytest.importorskip('moviepy')
    guide = (ROOT / 'docs' / 'environment.md').read_text().partition('## Outside of DI-engine')[2]
    done = completed(['python', '-c', ''.join(re.findall(r'```python\n(.*?)```', guide, re.S))], tmp_path)
    assert done.returncode == 0 and (tmp_path / 'video' / 'rl-video-episode-0.mp4').stat().st_size > 1000, done.stderr


def test_actions_have_ales_names():
    assert gymnasium.make(ENV_ID).unwrapped.get_action_meanings() == ['NOOP', 'FIRE', 'RIGHT', 'LEFT']
    assert len(set(gymnasium.make(ENV_ID, full_action_space=True).unwrapped.get_action_meanings())) == 18


def _example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / 'examples/gymnasium_users' / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stable_baselines3_trains_on_it(tmp_path, monkeypatch):
    pytest.importorskip('stable_baselines3')
    monkeypatch.chdir(tmp_path)
    sizes = ['--total-timesteps=32', '--num-envs=2', '--num-steps=16', '--eval-games=1']
    model = _example('sb3_ppo').main(sizes)
    assert model.num_timesteps == 32 and (tmp_path / 'sb3_ppo_breakout.zip').is_file()


def test_cleanrls_loop_trains_on_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = ['--total-timesteps=400', '--num-envs=2', '--learning-starts=380', '--buffer-size=1000', '--batch-size=4']
    updates, scores = _example('cleanrl_dqn').main(sizes)
    assert updates == 10 and (tmp_path / 'cleanrl_dqn_breakout.pt').is_file()
