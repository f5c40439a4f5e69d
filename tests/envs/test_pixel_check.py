"""Environment, model and replay buffer fit, or the run is refused before anything starts."""

import gym
import numpy as np
import pytest
from ding.envs import get_vec_env_setting
from ding.model import DQN
from ding.utils import BUFFER_REGISTRY, MODEL_REGISTRY

from breakout_env import BreakoutEnv, FrameReplayBuffer
from helpers.configs import NAMES, compiled

SMALL = dict(encoder_hidden_size_list=[4, 4, 4, 8])
SCALING = dict(type='pixel_dqn', import_names=NAMES, **SMALL)
STOCK = dict(type='dqn', import_names=['ding.model.template.q_learning'], **SMALL)
DIZOO = dict(env_id='BreakoutNoFrameskip-v4')
FLOAT = dict(obs_dtype='float32')


@MODEL_REGISTRY.register('a_model_of_somebody_else')
class Model(DQN):
    pass


THEIRS = dict(type='a_model_of_somebody_else')
BUFFER_REGISTRY.register('their_frames', type('TheirFrames', (FrameReplayBuffer,), {}))


class Cropped(BreakoutEnv):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.observation_space = gym.spaces.Box(0, 255, (4, 84, 60), np.uint8)
        self.action_space = gym.spaces.Discrete(3)


def test_the_spaces_of_a_subclass_count():
    cfg = compiled(dict(cuda=False, model=SCALING), 'dqn')
    Cropped.check_config(cfg)
    assert (cfg.policy.model.obs_shape, cfg.policy.model.action_shape) == ([4, 84, 60], 3)


@pytest.mark.parametrize(
    'env, model, policy',
    [
        ({}, SCALING, 'dqn'),
        ({}, {}, 'lean_dqn'),
        (FLOAT, STOCK, 'dqn'),
        (DIZOO, {}, 'dqn'),
        ({}, THEIRS, 'dqn'),
        ({}, dict(type='nobody_registered_this'), 'dqn'),
    ],
)
def test_an_env_id_means_scaled_pixels_and_pairs_that_fit_are_accepted(env, model, policy):
    cfg = compiled(dict(cuda=False, model=model), policy, env)
    BreakoutEnv.check_config(cfg)
    env_class, *cfgs = get_vec_env_setting(cfg.env)
    expected = 'float32' if env == FLOAT or env == DIZOO else 'uint8'
    assert [env_class(role_cfgs[0]).observation_space.dtype for role_cfgs in cfgs] == [expected] * 2


@pytest.mark.parametrize(
    'env, model, message',
    [
        ({}, STOCK, r'collector env returns uint8 .*policy.model.type: dqn\) does not scale .*Choose obs_dtype='),
        (DIZOO, SCALING, r'collector env returns float32 .*pixel_dqn\) scales them'),
        (dict(evaluator=FLOAT), SCALING, 'the evaluator env returns float32'),
        (FLOAT, dict(STOCK, frame=True), 'the replay buffer `their_frames` stores uint8 only'),
        (dict(frame_stack=2), dict(SCALING, obs_shape=[4, 84, 84]), r'obs_shape is \[4, 84, 84\] .*env has \[2, 84'),
        (dict(full_action_space=True), dict(SCALING, action_shape=4), 'action_shape is 4 .*expected 18, or to leave'),
        (dict(evaluator=dict(screen_size=42)), SCALING, r'obs_shape is .* the evaluator env has \[4, 42, 42\]'),
        ({}, dict(type='mine', import_names=['no_such_module']), 'No module named .* beside the config'),
    ],
)
def test_pairs_that_do_not_fit_are_refused(env, model, message):
    model = dict(model)
    create = dict(replay_buffer=dict(type='their_frames', import_names=NAMES)) if model.pop('frame', False) else {}
    with pytest.raises(ValueError, match=message):
        BreakoutEnv.check_config(compiled(dict(cuda=False, model=model), env=env, **create))
