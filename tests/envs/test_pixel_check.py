"""An env and a model that scale pixels both, or neither, are refused before anything starts."""

import copy
import types

import numpy as np
import pytest
from ding.envs import get_vec_env_setting
from ding.model import DQN
from ding.utils import MODEL_REGISTRY

from breakout_env import PixelDQN
from helpers.configs import compiled

SHAPE, ACTIONS = [4, 84, 84], 4
SCALING = dict(type='pixel_dqn', import_names=['breakout_env'])


def whole_config(env=None, model=None, policy='dqn'):
    shapes = dict(obs_shape=SHAPE, action_shape=ACTIONS)
    return compiled(dict(cuda=False, model={**shapes, **(model or {})}), policy, env)


@pytest.mark.parametrize(
    'env, model, fits',
    [
        (dict(), SCALING, True),
        (dict(obs_dtype='float32'), dict(), True),
        (dict(obs_dtype='float32'), dict(type='dqn'), True),
        (dict(), dict(type='dqn', import_names=['ding.model.template.q_learning']), False),
        (dict(obs_dtype=np.float32), SCALING, False),
        (dict(evaluator=dict(obs_dtype='float32')), SCALING, False),
        (dict(obs_dtype='float32', collector=dict(obs_dtype='uint8')), dict(type='dqn'), False),
    ],
)
@pytest.mark.parametrize('policy', ['dqn', 'dqn_command'])
def test_only_fitting_envs_and_models_are_accepted(env, model, fits, policy):
    cfg = whole_config(env, model, policy)
    if fits:
        get_vec_env_setting(cfg.env)
        return
    with pytest.raises(ValueError, match='Choose obs_dtype=') as error:
        get_vec_env_setting(cfg.env)
    assert 'observations' in str(error.value) and 'policy.model.type' in str(error.value)


def test_models_of_others_and_ready_made_models_are_accepted():
    @MODEL_REGISTRY.register('a_model_of_somebody_else', force_overwrite=True)
    class Model(DQN):
        pass

    for obs_dtype in ('uint8', 'float32'):
        cfg = whole_config(dict(obs_dtype=obs_dtype), dict(type='a_model_of_somebody_else'))
        get_vec_env_setting(cfg.env)
    # DI-engine's entries call a ready-made model `model`
    cfg, model = whole_config(dict(), dict(type='dqn')), PixelDQN(SHAPE, ACTIONS)  # noqa: F841
    get_vec_env_setting(cfg.env)


def in_di_engine(function):
    """The function as if a pipeline of DI-engine's had defined it."""
    return types.FunctionType(function.__code__, {**function.__globals__, '__name__': 'ding.entry.serial_entry'})


def test_an_unnamed_model_is_the_policys_default_in_di_engines_pipelines_only():
    def pipeline():
        cfg = whole_config(dict(), dict())
        get_vec_env_setting(cfg.env)
        return PixelDQN(**cfg.policy.model)

    pipeline()
    with pytest.raises(ValueError, match='not set, so the default of policy'):
        in_di_engine(pipeline)()


def test_unregistered_names_and_copied_configs_are_accepted():
    registry, cfg = MODEL_REGISTRY, whole_config(dict(), SCALING)  # noqa: F841  (a registry is a dict whose get raises)
    env_cfg = copy.deepcopy(cfg.env)  # no whole config holds it
    get_vec_env_setting(env_cfg)
    cfg.policy.type = 'a_policy_that_nobody_registered'
    get_vec_env_setting(cfg.env)
    cfg.policy.model.type = 'a_model_that_nobody_registered'
    get_vec_env_setting(cfg.env)
