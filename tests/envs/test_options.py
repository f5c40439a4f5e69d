"""The env options: allowed values, where in a config they apply, and the error messages for mistakes."""

import math

import pytest
from easydict import EasyDict

from breakout_env import BreakoutEnv
from breakout_env.envs.options import BreakoutOptions
from breakout_env.utils.options import Between, describe_type


def options(**cfg) -> BreakoutOptions:
    return BreakoutOptions.from_config(cfg)


@pytest.mark.parametrize('name, field', BreakoutOptions.model_fields.items())
def test_an_error_names_the_option_the_wrong_value_and_what_is_allowed(name, field):
    with pytest.raises(ValueError) as error:
        BreakoutEnv({name: [1]})
    assert (
        str(error.value) == f'env option `{name}` is [1] (list); expected {describe_type(field.rebuild_annotation())}'
    )
    for bounds in (one for one in field.metadata if isinstance(one, Between)):
        ends = [bounds.low, bounds.high]
        assert [getattr(BreakoutOptions.read({name: value}), name) for value in ends] == ends
        for value in (bounds.low - 1, bounds.high + 1, math.nan):
            with pytest.raises(ValueError, match=f'env option `evaluator.{name}` is '):  # whichever section is used
                BreakoutEnv(dict(evaluator={name: value}))


@pytest.mark.parametrize(
    'cfg, message',
    [
        (dict(max_episode_frames=20), '`noop_max` (30) and two steps of `frame_skip` (4) take'),
        (dict(env_id='PongNoFrameskip-v4'), 'plays no other game'),
        (dict(collector=3), '`collector` is 3 (int); expected a dict of options'),
        (dict(obs_plus_prev_action_reward=True), 'remove the option'),
        (dict(frame_stak=1), 'did you mean `frame_stack`'),
        (dict(evaluator=dict(max_episode_frame=1)), '`evaluator.max_episode_frame` is unknown; did you mean `max_epi'),
        (dict(env_id='Breakout-v4'), 'as many frames as `frame_skip` says'),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else '',
)
def test_error_messages(cfg, message):
    with pytest.raises(ValueError) as error:
        BreakoutEnv(cfg)
    assert message in str(error.value)


def test_the_top_applies_to_both_roles_and_a_section_to_one():
    sections = dict(collector=dict(noop_max=8), evaluator=dict(random_action_probability=0.01, fire_on_life_loss=False))
    cfg = EasyDict(frame_skip=3, noop_max=7, repeat_action_probability=0.25, **sections)
    train, evaluation = (BreakoutOptions.from_config({**cfg, 'is_train': flag}) for flag in (True, False))
    for name, values in dict(
        frame_skip=(3, 3),
        repeat_action_probability=(0.25, 0.25),
        noop_max=(8, 7),
        random_action_probability=(0, 0.01),
        fire_on_life_loss=(False, False),
    ).items():
        assert (getattr(train, name), getattr(evaluation, name)) == values


def test_reward_shaping_at_the_top_does_not_change_evaluation():
    shaped = dict(clip_reward=True, episodic_life=True, life_loss_penalty=-1.0, late_start_probability=1.0)
    for o in (options(is_train=False, **shaped), options(is_train=False)):
        assert o.fire_on_life_loss and not any(getattr(o, name) for name in shaped)
    asked = options(is_train=False, evaluator=shaped)
    assert {name: getattr(asked, name) for name in shaped} == shaped


@pytest.mark.parametrize(
    'env_id, sticky',
    [
        ('BreakoutNoFrameskip-v4', 0.0),
        ('BreakoutNoFrameskip-v0', 0.25),
        ('ALE/Breakout-v5', 0.25),
        ('Breakout-v5', 0.0),
    ],
)
def test_the_env_ids_of_dizoo_mean_what_they_mean_there(env_id, sticky):
    assert options(env_id=env_id).frame_skip == 4
    o = options(env_id=env_id, frame_skip=3, obs_plus_prev_action_reward=False)
    assert (o.repeat_action_probability, o.frame_skip, o.obs_dtype) == (sticky, 3, 'float32')
    named = options(env_id=env_id, repeat_action_probability=0.1, collector=dict(frame_skip=2, obs_dtype='uint8'))
    assert (named.repeat_action_probability, named.frame_skip, named.obs_dtype) == (0.1, 2, 'uint8')
