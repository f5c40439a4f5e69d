"""The options: what a config may say, what each place in it holds for, and what is said about a mistake."""

import numpy as np
import pytest
from easydict import EasyDict

from breakout_env import BreakoutEnv
from breakout_env.envs.options import BreakoutOptions


def options(**cfg) -> BreakoutOptions:
    return BreakoutOptions.from_config(cfg)


def test_an_empty_config_is_dqn_practice():
    o = BreakoutOptions.from_config({})
    assert (o.frame_skip, o.frame_stack, o.screen_size, o.noop_max, o.max_episode_frames) == (4, 4, 84, 30, 108_000)
    assert (o.is_train, o.episodic_life, o.clip_reward, o.fire_on_reset, o.fire_on_life_loss) == (
        True,
        True,
        True,
        True,
        False,
    )
    assert (o.repeat_action_probability, o.random_action_probability, o.life_loss_penalty) == (0, 0, 0)
    assert (o.obs_dtype, o.render_mode, o.full_action_space) == ('uint8', None, False)


def test_evaluation_plays_whole_games_with_raw_rewards_and_fire():
    o = options(is_train=False)
    assert (o.episodic_life, o.clip_reward, o.life_loss_penalty, o.fire_on_life_loss) == (False, False, 0, True)


@pytest.mark.parametrize('kind', [dict, EasyDict])
def test_the_top_holds_for_both_and_a_section_for_one(kind):
    cfg = kind(
        frame_skip=3,
        noop_max=7,
        repeat_action_probability=0.25,
        collector=dict(life_loss_penalty=-1, noop_max=8),
        evaluator=dict(random_action_probability=0.01, fire_on_life_loss=False),
    )
    train, evaluation = (BreakoutOptions.from_config({**cfg, 'is_train': flag}) for flag in (True, False))
    assert (train.frame_skip, evaluation.frame_skip) == (3, 3)
    assert (train.repeat_action_probability, evaluation.repeat_action_probability) == (0.25, 0.25)
    assert (train.noop_max, evaluation.noop_max) == (8, 7)
    assert (train.life_loss_penalty, evaluation.life_loss_penalty) == (-1, 0)
    assert (train.random_action_probability, evaluation.random_action_probability) == (0, 0.01)
    assert evaluation.fire_on_life_loss is False


def test_shaping_at_the_top_does_not_reach_the_scores_of_an_evaluation():
    shaped = dict(clip_reward=True, episodic_life=True, life_loss_penalty=-1.0)
    o = options(is_train=False, **shaped)
    assert (o.clip_reward, o.episodic_life, o.life_loss_penalty) == (False, False, 0)
    asked = options(is_train=False, evaluator=shaped)
    assert (asked.clip_reward, asked.episodic_life, asked.life_loss_penalty) == (True, True, -1)


@pytest.mark.parametrize(
    'option, value, allowed',
    [
        ('frame_skip', 0, 'a whole number from 1 to 60'),
        ('frame_skip', 4.0, 'a whole number'),
        ('frame_skip', True, 'a whole number'),
        ('frame_stack', '4', 'a whole number'),
        ('screen_size', 500, 'a whole number from 8 to 160'),
        ('noop_max', -1, 'a whole number from 0'),
        ('repeat_action_probability', 1.5, 'a number from 0 to 1'),
        ('repeat_action_probability', float('nan'), 'a number from 0 to 1'),
        ('random_action_probability', None, 'a number from 0 to 1'),
        ('fire_on_reset', 1, 'True or False'),
        ('fire_on_life_loss', 'yes', 'True or False'),
        ('episodic_life', None, 'True or False'),
        ('clip_reward', 0, 'True or False'),
        ('life_loss_penalty', 1, 'a number from -1e+06 to 0'),
        ('life_loss_penalty', float('-inf'), 'a number from'),
        ('life_loss_penalty', -(10**400), 'a number from'),
        pytest.param('frame_skip', 10**5000, 'a whole number', id='a number too long to print'),
        ('max_episode_frames', 0, 'a whole number from 1'),
        ('max_episode_frames', 20, '`noop_max`'),
        ('full_action_space', 18, 'True or False'),
        ('obs_dtype', 'float16', "'uint8'"),
        ('obs_dtype', None, "'uint8'"),
        ('render_mode', 'rgb', "'rgb_array' or 'human'"),
        ('is_train', 'no', 'True or False'),
        ('env_id', 'PongNoFrameskip-v4', 'plays no other game'),
        ('env_id', 'Breakout-ram-v4', 'BreakoutNoFrameskip-v4'),
        ('env_id', 4, 'BreakoutNoFrameskip-v4'),
        ('collector', 3, 'a dict of options'),
        ('obs_plus_prev_action_reward', True, 'remove the option'),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(option, value, allowed):
    with pytest.raises(ValueError) as error:
        BreakoutEnv({option: value})
    assert f'`{option}`' in str(error.value)
    assert allowed in str(error.value)


@pytest.mark.parametrize('section', ['collector', 'evaluator'])
def test_a_mistake_in_a_section_is_found_whichever_is_used(section):
    with pytest.raises(ValueError, match=rf'`{section}\.frame_skip` is 0 \(int\)'):
        BreakoutEnv({section: dict(frame_skip=0)})


@pytest.mark.parametrize(
    'key, suggestion',
    [
        ('frame_stak', 'did you mean `frame_stack`'),
        ('max_episode_frame', 'did you mean `max_episode_frames`'),
        ('clip_rewards', 'it is called clip_reward here'),
        ('episode_life', 'it is called episodic_life here'),
        ('zzz', 'expected one of'),
        (3, 'expected one of'),
    ],
)
def test_an_unknown_key_gets_the_nearest_name(key, suggestion):
    with pytest.raises(ValueError, match='is unknown') as error:
        BreakoutEnv({key: 1})
    assert suggestion in str(error.value)


def test_the_keys_that_di_engine_puts_there_are_passed_over():
    BreakoutEnv(
        EasyDict(
            type='breakout',
            import_names=['breakout_env'],
            manager=dict(shared_memory=True),
            stop_value=400,
            n_evaluator_episode=8,
            collector_env_num=8,
            evaluator_env_num=8,
            cfg_type='BreakoutEnvDict',
            replay_path=None,
        )
    )


@pytest.mark.parametrize(
    'env_id, sticky',
    [
        ('BreakoutNoFrameskip-v4', 0.0),
        ('BreakoutNoFrameskip-v0', 0.25),
        ('Breakout-v4', 0.0),
        ('Breakout-v0', 0.25),
        ('BreakoutDeterministic-v4', 0.0),
        ('ALE/Breakout-v5', 0.25),
    ],
)
def test_dizoo_env_ids_mean_what_they_mean_there(env_id, sticky):
    assert options(env_id=env_id, frame_stack=4, obs_plus_prev_action_reward=False).repeat_action_probability == sticky
    assert options(env_id=env_id, repeat_action_probability=0.1).repeat_action_probability == 0.1


def test_a_dizoo_config_works_with_type_and_import_names_changed():
    # dizoo/atari/config/serial: the keys of its configs, one of them in the wrong place there
    cfg = EasyDict(
        exp_name='pong_rainbow_seed0',
        collector_env_num=8,
        evaluator_env_num=8,
        n_evaluator_episode=8,
        stop_value=20,
        env_id='BreakoutNoFrameskip-v4',
        frame_stack=4,
        manager=dict(shared_memory=False),
        is_train=True,
        obs_plus_prev_action_reward=False,
        type='breakout',
        import_names=['breakout_env'],
    )
    assert len(BreakoutEnv.create_collector_env_cfg(cfg)) == len(BreakoutEnv.create_evaluator_env_cfg(cfg)) == 8


def test_numpy_values_are_values():
    o = options(
        frame_skip=np.int64(2), clip_reward=np.bool_(False), obs_dtype=np.uint8, life_loss_penalty=np.float32(-1)
    )
    assert (o.frame_skip, o.clip_reward, o.obs_dtype, o.life_loss_penalty) == (2, False, 'uint8', -1)


def test_a_config_that_is_no_dict_is_refused():
    with pytest.raises(ValueError, match='expected a dict'):
        BreakoutEnv(4)


def test_env_cfgs_are_independent_and_leave_the_config_alone():
    cfg = EasyDict(collector_env_num=3, evaluator_env_num=2, collector=dict(noop_max=3))
    before = EasyDict(cfg)
    collectors, evaluators = BreakoutEnv.create_collector_env_cfg(cfg), BreakoutEnv.create_evaluator_env_cfg(cfg)
    assert cfg == before
    assert [c.is_train for c in collectors] == [True] * 3 and [c.is_train for c in evaluators] == [False] * 2
    collectors[0].collector.noop_max = 9
    assert collectors[1].collector.noop_max == 3


@pytest.mark.parametrize('count', [0, None, 1.5, True])
def test_a_wrong_number_of_environments_is_refused(count):
    with pytest.raises(ValueError, match='`collector_env_num`'):
        BreakoutEnv.create_collector_env_cfg(EasyDict(collector_env_num=count))
