"""An env fits the model that the config names; one that is named not to fit is refused before anything starts."""

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


DIZOO = dict(env_id='BreakoutNoFrameskip-v4')
STOCK = dict(type='dqn', import_names=['ding.model.template.q_learning'])
SCALED = dict(obs_dtype='float32')


@pytest.mark.parametrize(
    'env, model, obs_dtype',
    [
        (dict(), SCALING, 'uint8'),
        (SCALED, dict(), 'float32'),
        (SCALED, dict(type='dqn'), 'float32'),
        (dict(), STOCK, 'float32'),
        (DIZOO, STOCK, 'float32'),
        (dict(evaluator=SCALED), STOCK, 'float32'),
        (DIZOO, SCALING, 'uint8'),
        ({**DIZOO, 'obs_dtype': 'uint8'}, SCALING, 'uint8'),
        (dict(obs_dtype='uint8'), STOCK, None),
        ({**DIZOO, **SCALED}, SCALING, None),
        (dict(obs_dtype=np.float32), SCALING, None),
        (dict(evaluator=SCALED), SCALING, None),
        (dict(collector=dict(obs_dtype='uint8'), **SCALED), dict(type='dqn'), None),
    ],
)
@pytest.mark.parametrize('policy', ['dqn', 'dqn_command'])
def test_observations_fit_the_model_and_named_ones_that_do_not_are_refused(env, model, obs_dtype, policy):
    cfg = whole_config(env, model, policy)
    if obs_dtype:
        env_class, *cfgs = get_vec_env_setting(cfg.env)
        assert [env_class(role_cfgs[0]).observation_space.dtype for role_cfgs in cfgs] == [obs_dtype] * 2
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


def test_an_unnamed_model_is_the_policys_default_in_di_engines_pipelines_only(caplog):
    def pipeline(env, policy='dqn'):
        cfg = whole_config(env, dict(), policy)
        env_class, _, (env_cfg,) = get_vec_env_setting(cfg.env, collect=False)
        return env_class(env_cfg).observation_space.dtype

    assert pipeline({}) == 'uint8' and pipeline(DIZOO) == 'float32'  # as dizoo.atari's, whatever model is built
    assert in_di_engine(pipeline)(DIZOO, 'lean_dqn') == 'uint8'
    caplog.clear()
    assert in_di_engine(pipeline)({}, 'dqn') == 'float32'
    assert 'the evaluator env returns float32' in caplog.text and "default of policy 'dqn') does not" in caplog.text


def test_unregistered_names_and_copied_configs_are_accepted():
    registry, cfg = MODEL_REGISTRY, whole_config(dict(), SCALING)  # noqa: F841  (a registry is a dict whose get raises)
    env_cfg = copy.deepcopy(cfg.env)  # no whole config holds it
    get_vec_env_setting(env_cfg)
    cfg.policy.type = 'a_policy_that_nobody_registered'
    get_vec_env_setting(cfg.env)
    cfg.policy.model.type = 'a_model_that_nobody_registered'
    get_vec_env_setting(cfg.env)
