"""The environment: DI-engine's contract, the game, its ends, its randomness."""

import logging
import re
from unittest import mock

import numpy as np
import pytest
import torch
from ding.envs import BaseEnv, setup_ding_env_manager
from ding.envs.env.env_implementation_check import (
    check_all,
    check_obs_deepcopy,
    check_reset,
    check_step,
    demonstrate_correct_procedure,
)
from ding.utils import ENV_REGISTRY, render

from breakout_env import BreakoutEnv
from breakout_env.envs.emulator import Emulator
from helpers.games import play

FIRE, LEFT = 1, 3


def make(**cfg) -> BreakoutEnv:
    env = BreakoutEnv(cfg)
    env.seed(0)
    return env


def play_until_done(env, action=FIRE):
    for _ in range(5000):
        timestep = env.step(env.random_action() if action is None else action)
        if timestep.done:
            return timestep
    raise AssertionError('no end within 5000 steps')


def test_di_engines_own_checks_pass():
    assert ENV_REGISTRY.get('breakout') is BreakoutEnv and issubclass(BreakoutEnv, BaseEnv)
    check_all(make(obs_dtype='float32'))
    uint8 = make()
    check_reset(uint8)
    check_step(uint8)
    check_obs_deepcopy(uint8)
    demonstrate_correct_procedure(BreakoutEnv)


def test_a_lost_life_ends_the_episode_but_not_the_game(caplog):
    caplog.set_level(logging.DEBUG, logger='breakout_env')
    env = make()
    lives, frames, returns = [], [], []
    env.reset()
    for _ in range(5):
        timestep = play_until_done(env, LEFT)
        lives.append(timestep.info['lives'])
        frames.append(timestep.info['episode_frame_number'])
        returns.append(timestep.info['eval_episode_return'])
        last = timestep
        if timestep.info['lives']:
            assert 'game_return' not in timestep.info
            env.reset()
    assert lives == [4, 3, 2, 1, 0] and frames == sorted(frames)
    assert last.info['game_return'] == sum(returns) and last.info['TimeLimit.truncated'] is False
    env.reset()
    assert env.step(0).info['lives'] == 5
    log = '\n'.join(caplog.messages)
    assert re.findall('playing -> (.*), the episode ended with', log) == 4 * ['life lost'] + ['game over']
    assert re.findall('-> playing, (.*)', log) == ['a game begins'] + 4 * ['the game continues'] + ['a game begins']


def test_a_game_that_begins_late_in_an_earlier_one_does_not_count(monkeypatch):
    monkeypatch.setattr('breakout_env.envs.game.LATE_POINTS', 1)
    env = make(late_start_probability=1.0, episodic_life=False, fire_on_life_loss=True)
    ends = []
    for _ in range(3):
        env.reset()
        first = env.step(FIRE)
        ends.append((first.info, play_until_done(env, None).info))
    (begin, full), *late = ends
    assert begin['episode_frame_number'] < 50 and full['game_return'] == full['eval_episode_return'] > 0
    for begin, end in late:
        assert 50 < begin['episode_frame_number'] < full['episode_frame_number']
        assert 'game_return' not in end and end['lives'] == 0
    for forget in (lambda: env.seed(0), env.close):
        forget()
        env.reset()
        assert env.step(FIRE).info['episode_frame_number'] < 50
        play_until_done(env, None)


def test_a_lost_life_costs_the_penalty_and_no_points():
    plain, penalised = (make(episodic_life=False, **cfg) for cfg in ({}, dict(life_loss_penalty=-1)))
    plain.reset(), penalised.reset()
    lives, done = 5, False
    while not done:
        action = plain.random_action()
        _, reward, done, info = plain.step(action)
        found = penalised.step(action)
        assert found.reward == reward - (info['lives'] < lives)
        lives = info['lives']
    assert lives == 0 and found.info['game_return'] == info['game_return'] > 0


def test_games_start_with_1_to_noop_max_no_ops():
    env = make(noop_max=30, fire_on_reset=False, episodic_life=False)
    starts = []
    for _ in range(60):
        env.reset()
        starts.append(env.step(0).info['episode_frame_number'] - 4)
    assert min(starts) >= 1 and max(starts) <= 30 and len(set(starts)) > 15


@pytest.mark.parametrize('sticky', [0.0, 0.25])
def test_a_seed_fixes_the_games_of_new_used_and_reopened_environments(sticky):
    cfg = dict(repeat_action_probability=sticky, random_action_probability=0.1)
    fresh, used, reopened = make(**cfg), make(**cfg), make(**cfg)
    play(used, 300, seed=9)
    play(reopened, 50, seed=8)
    reopened.close()
    for env in (fresh, used, reopened):
        env.seed(7)
    course = play(fresh, 800)
    assert play(used, 800) == course == play(reopened, 800)
    fresh.seed(8)
    assert play(fresh, 800) != course


@pytest.mark.parametrize('dynamic_seed', [True, False])
def test_games_from_one_seed_differ_in_a_sequence_that_the_seed_fixes(dynamic_seed):
    """As DI-engine's evaluators seed: without dynamic_seed, the neighbours of a seed for the other environments."""
    env = make(episodic_life=False, random_action_probability=1.0)
    games = []
    for seed in (0, 1, 0):
        env.seed(seed, dynamic_seed)
        games += [str(play(env, 100)) for _ in range(4)]
    assert len(set(games)) == 8 and games[8:] == games[:4]


def test_random_actions_are_uniform_and_follow_the_seed_alone():
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    env = make(random_action_probability=1.0)
    env.seed(4)
    actions = [env.random_action().item() for _ in range(400)]
    env.seed(4)
    assert [env.random_action().item() for _ in range(400)] == actions
    assert all(70 < actions.count(a) < 130 for a in range(4))
    play(env, 100)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_random_action_probability_replaces_that_share_of_the_actions():
    env = make(random_action_probability=0.25, noop_max=0, episodic_life=False)
    env.reset()
    with mock.patch.object(Emulator, 'advance', autospec=True, side_effect=Emulator.advance) as advance:
        for _ in range(2000):
            if env.step(0).done:
                env.reset()
    others = np.mean([call.args[1] != 0 for call in advance.mock_calls])
    assert 0.14 < others < 0.25, others  # 0.25 times 3 of 4, and FIRE at each reset


def test_an_action_is_a_whole_number_in_any_form():
    env, twin = make(), make()
    env.reset(), twin.reset()
    for action in (4, -1, 1.0, True, [0, 1], [[1], [2, 3]], torch.tensor([1.0], requires_grad=True)):
        with pytest.raises(ValueError, match='expected one whole number from 0 to 3'):
            env.step(action)
    for action in (2, np.int64(2), np.array(2), np.array([2]), np.array([2], dtype=np.int32), torch.tensor(2)):
        np.testing.assert_array_equal(env.step(action).obs, twin.step(2).obs)


def test_a_step_without_an_episode_is_refused_and_harmless():
    env = make()
    with pytest.raises(RuntimeError, match="in state 'closed'; call reset first"):
        env.step(0)
    env.reset()
    play_until_done(env)
    with pytest.raises(RuntimeError, match="in state 'life lost'; call reset first"):
        env.step(0)
    env.reset()
    assert env.step(0).info['lives'] == 4
    env.reset()  # in mid-episode: a new game
    info = env.step(0).info
    assert info.keys() == {'lives', 'episode_frame_number'} and info['lives'] == 5


def test_reset_never_returns_a_game_that_is_over():
    """The no-op and FIRE in a reset after a lost life may reach ``max_episode_frames``."""
    env = make(noop_max=0)
    env.reset()
    lost_at = play_until_done(env, LEFT).info['episode_frame_number']
    for max_frames in range(lost_at, lost_at + 14):
        env = make(noop_max=0, max_episode_frames=max_frames)
        env.reset()
        play_until_done(env, LEFT)
        env.reset()
        assert not env._env.ale.game_over()


def test_render_returns_the_picture_in_colour_also_through_di_engine():
    env = make()
    with pytest.raises(RuntimeError, match='call reset first'):
        env.render()
    env.reset()
    picture = render(env, 'rgb_array')
    assert (picture.shape, picture.dtype) == ((210, 160, 3), np.uint8)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 5  # six colours of bricks, walls, black
    np.testing.assert_array_equal(env.render('rgb_array'), picture)
    with pytest.raises(ValueError, match="expected 'rgb_array'"):
        env.render('depth_array')


def test_a_clone_has_the_class_and_the_options_of_its_caller():
    given = dict(noop_max=3, collector=dict(frame_skip=2), evaluator=dict(frame_skip=3))
    cls = type('Subclass', (BreakoutEnv,), {})
    env = cls(given)
    given['noop_max'] = 5
    env.reset()
    evaluator, collector, again = env.clone('evaluator'), env.clone(), env.clone('evaluator').clone()
    assert {type(each) for each in (evaluator, collector, again)} == {cls}
    assert "state='closed'" in repr(evaluator) and 'frame_skip=3' in repr(evaluator)
    assert all('frame_skip=2' in repr(each) and 'noop_max=3' in repr(each) for each in (collector, again))
    assert 'episodic_life=False' in repr(evaluator) and 'is_train=True' in repr(again)
    with pytest.raises(ValueError, match="`caller` is 'actor' .*expected one of 'collector', 'evaluator'"):
        env.clone('actor')


def test_di_engines_manager_of_clones_plays():
    manager = setup_ding_env_manager(BreakoutEnv(), 2, 'fork', caller='evaluator')
    manager.launch()
    try:
        assert manager.ready_obs.shape == (2, 4, 84, 84)
        timesteps = manager.step([np.int64(FIRE)] * 2)
        assert [each.info['lives'] for each in timesteps] == [5, 5]
    finally:
        manager.close()
