"""gymnasium's interface: its own checks, one game and many, and the libraries that use it."""

import contextlib
import re
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from helpers.managers import kill_worker_of
from helpers.processes import ROOT, completed, run
from helpers.resources import children

ENV_ID = 'breakout_env/Breakout-v0'


@pytest.mark.parametrize(
    'options',
    [{}, dict(is_train=False, frame_skip=1, frame_stack=2, obs_dtype='float32', render_mode='rgb_array')],
)
def test_gymnasiums_and_sb3s_checks_pass_without_a_warning(options):
    sb3_checker = pytest.importorskip('stable_baselines3.common.env_checker')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        env = gymnasium.make(ENV_ID, **options)
        check_env(env.unwrapped)
        if options.get('obs_dtype') != 'float32':  # SB3 wants images as uint8
            sb3_checker.check_env(env)
    assert env.metadata['render_fps'] == 60 / options.get('frame_skip', 4)  # the speed of the console
    assert env.unwrapped.get_action_meanings() == ['NOOP', 'FIRE', 'RIGHT', 'LEFT']  # wrappers ask for ALE's names
    env.close()


def test_many_games_are_those_of_gymnasiums_own_vector():
    """Lives and time limits end episodes; the last observation of each is where it belongs."""
    options = dict(noop_max=3, max_episode_frames=160, render_mode='rgb_array')
    ours = gymnasium.make_vec(ENV_ID, 3, manager=dict(worker_num=2), **options)
    given = dict(autoreset_mode=AutoresetMode.SAME_STEP)
    theirs = gymnasium.make_vec(ENV_ID, 3, vectorization_mode='sync', vector_kwargs=given, **options)
    assert ours.metadata['autoreset_mode'] is AutoresetMode.SAME_STEP
    try:
        np.testing.assert_array_equal(ours.reset(seed=2)[0], theirs.reset(seed=2)[0])
        rng, ends = np.random.default_rng(0), np.zeros(2, int)
        for _ in range(400):
            actions = rng.integers(4, size=3)
            *found, infos = ours.step(actions)
            *expected, their_infos = theirs.step(actions)
            for one, other in zip(found, expected):
                np.testing.assert_array_equal(one, other)
                assert one.dtype == other.dtype
            np.testing.assert_array_equal(infos.get('lives'), their_infos.get('lives'))
            assert ('final_obs' in infos) == ('final_obs' in their_infos)
            for i in np.flatnonzero(their_infos.get('_final_obs', ())):
                np.testing.assert_array_equal(infos['final_obs'][i], their_infos['final_obs'][i])
                assert infos['final_info']['lives'][i] == their_infos['final_info']['lives'][i]
            ends += expected[2].sum(), expected[3].sum()
        assert (ends > 0).all() and ours.observation_space.contains(found[0])
        np.testing.assert_array_equal(ours.render(), theirs.render())
    finally:
        ours.close()
        theirs.close()


def test_an_episode_that_a_limit_ends_has_its_score_in_the_info():
    options = dict(noop_max=1, fire_on_life_loss=True, is_train=False, clip_reward=False)
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, max_episode_steps=100, **options)
    envs.reset(seed=0)
    rng, points = np.random.default_rng(0), np.zeros(2)
    for _ in range(100):
        _, rewards, _, truncations, infos = envs.step(rng.integers(4, size=2))
        points += rewards
    assert truncations.all() and points.any()
    assert infos['final_info']['eval_episode_return'].tolist() == points.tolist()
    assert infos['final_info']['TimeLimit.truncated'].all() and 'game_return' not in infos['final_info']
    envs.close()


def test_games_lost_with_a_worker_process_count_as_truncated():
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, render_mode='rgb_array', manager=dict(worker_num=2))
    first, _ = envs.reset(seed=0)
    kill_worker_of(envs.unwrapped._manager, 1)
    assert [picture.any() for picture in envs.render()] == [True, False]
    obs, rewards, terminations, truncations, infos = envs.step([0, 0])
    assert truncations.tolist() == [False, True] and not terminations.any() and rewards[1] == 0
    assert infos['final_info']['abnormal'][1] and obs.shape == first.shape
    np.testing.assert_array_equal(infos['final_obs'][1], first[1])
    envs.close()


def test_wrong_actions_step_no_game_and_reset_reopens_closed_games():
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, noop_max=1).unwrapped
    first, _ = envs.reset(seed=0)
    gradient = torch.zeros(2, requires_grad=True)
    for actions in ([0, 0, 0], [0, 9], [0.0, 1.0], [[0], [0, 1]], None, gradient, list(gradient), gradient.to_sparse()):
        with pytest.raises(ValueError, match=r'the actions are .*\(\w+\); expected one of MultiDiscrete\(\[4 4\]\)'):
            envs.step(actions)
    assert envs.step([0, 0])[4]['episode_frame_number'].tolist() == [9, 9]
    envs.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step([0, 0])
    np.testing.assert_array_equal(envs.reset(seed=np.arange(2))[0], first)
    envs.close()
    assert not children()


@pytest.mark.parametrize('num_envs', [0, -1, 1.5, 2.0, '2', True, None, [2], 10**9])
def test_a_wrong_number_of_games_is_refused_by_name(num_envs, same_footprint):
    with pytest.raises(ValueError, match=r'option `num_envs` is .*; expected a whole number from 1 to 4,096'):
        gymnasium.make_vec(ENV_ID, num_envs=num_envs)


def test_wrong_seeds_are_refused_before_a_game_is_reset():
    envs, env = gymnasium.make_vec(ENV_ID, num_envs=2, manager=dict(worker_num=1)), gymnasium.make(ENV_ID)
    envs.reset(seed=0)
    after = [envs.step([1, 1])[0], envs.step([2, 3])[0]]
    envs.reset(seed=0)
    envs.step([1, 1])
    for seed in ([1], [], [1, 2, 3], np.arange(3)):
        with pytest.raises(ValueError, match=r'the seeds are .*; expected a whole number, or a list of 2 \(num_envs\)'):
            envs.reset(seed=seed)
    for seed in (1.0, -1, True, '1', {0: 1, 1: 2}):
        for refusing, wrong in ((envs, seed), (envs, [0, seed]), (env, seed)):
            with pytest.raises(ValueError, match='`seed` is .*; expected a whole number from 0'):
                refusing.reset(seed=wrong)
    np.testing.assert_array_equal(envs.step([2, 3])[0], after[1])
    for seed in ([3, None], (3, 4), np.arange(3, 5), np.int64(3), 2**70):
        envs.reset(seed=seed)
    envs.close()


def test_torchrl_plays_the_games_of_the_vector_environment():
    """Its wrapper looks at ``autoreset_mode`` and takes the last observation of each episode from the infos."""
    torchrl_envs = pytest.importorskip('torchrl.envs')
    options = dict(num_envs=2, noop_max=3, max_episode_frames=120, manager=dict(worker_num=1))
    envs, twin = (gymnasium.make_vec(ENV_ID, **options) for _ in range(2))
    twin.reset(seed=0)
    with contextlib.closing(torchrl_envs.GymWrapper(envs)) as wrapped:
        torch.manual_seed(0)
        played = wrapped.rollout(70, auto_reset=False, tensordict=wrapped.reset(seed=0), break_when_any_done=False)
    ends = 0
    for step in played.unbind(1):
        last, rewards, terminations, truncations, infos = twin.step(step['action'].argmax(-1))
        ended = terminations | truncations
        for i in np.flatnonzero(ended):
            last[i] = infos['final_obs'][i]
        ends += ended.sum()
        np.testing.assert_array_equal(step['next', 'observation'], last)
        np.testing.assert_array_equal(step['next', 'reward'].squeeze(-1), rewards)
        np.testing.assert_array_equal(step['next', 'done'].squeeze(-1), ended)
        if ended.all():  # TorchRL resets all games then
            twin.reset()
    assert ends >= 4
    twin.close()


def test_torchrl_makes_the_environment_by_its_id():
    """It offers ``frameskip``, and does without where the error names that as an unexpected argument."""
    torchrl_envs = pytest.importorskip('torchrl.envs')
    with contextlib.closing(torchrl_envs.GymEnv(f'breakout_env:{ENV_ID}')) as env:
        assert env.rollout(3)['observation'].shape == (3, 4, 84, 84)


@pytest.mark.parametrize('make', [gymnasium.make, gymnasium.make_vec])
@pytest.mark.parametrize('error', [TypeError, ValueError])
def test_an_unknown_option_is_also_an_unexpected_argument(make, error):
    with pytest.raises(error, match="unexpected keyword argument 'frameskip': .*; did you mean `frame_skip`?"):
        make(ENV_ID, frameskip=4)
    with pytest.raises(ValueError, match='env option `frame_skip` is 0') as refused:
        make(ENV_ID, frame_skip=0)
    assert not isinstance(refused.value, TypeError)


def test_the_guides_examples_run_as_printed_and_record_a_video(tmp_path):
    pytest.importorskip('moviepy')
    guide = (ROOT / 'docs' / 'gymnasium.md').read_text()
    done = completed(['python', '-c', ''.join(re.findall(r'```python\n(.*?)```', guide, re.S))], tmp_path)
    assert done.returncode == 0 and (tmp_path / 'video' / 'rl-video-episode-0.mp4').stat().st_size > 1000, done.stderr


@pytest.mark.parametrize(
    'program, options, saved',
    [
        ('sb3_ppo', 'total-timesteps=32 num-envs=2 num-steps=16 eval-games=1', 'zip'),
        ('cleanrl_dqn', 'total-timesteps=400 num-envs=2 learning-starts=380 buffer-size=1000 batch-size=4', 'pt'),
    ],
)
def test_the_examples_of_other_libraries_train(program, options, saved, tmp_path):
    words = [f'--{option}' for option in options.split()]
    run([sys.executable, ROOT / 'examples' / 'gymnasium_users' / f'{program}.py', *words], tmp_path)
    assert (tmp_path / f'{program}_breakout.{saved}').is_file()
