"""The pixel models: the same numbers whatever the dtype, DI-engine's parameters, and wrong pairs refused."""

import copy
import types

import gymnasium
import numpy as np
import pytest
import torch
from ding.config import compile_config, read_config
from ding.envs import get_vec_env_setting
from ding.model import C51DQN, DQN, QRDQN, VAC, RainbowDQN
from ding.policy import DQNPolicy, create_policy
from ding.torch_utils import to_tensor
from ding.utils import MODEL_REGISTRY
from easydict import EasyDict

from breakout_env import BreakoutEnv, PixelC51DQN, PixelDQN, PixelQRDQN, PixelRainbowDQN, PixelVAC
from breakout_env.envs.pixel_check import SCALING_MODELS
from helpers.processes import ROOT

SHAPE, ACTIONS = [4, 84, 84], 4
NATURE = [32, 64, 64, 512]
FAMILIES = [(PixelDQN, DQN), (PixelRainbowDQN, RainbowDQN), (PixelC51DQN, C51DQN), (PixelQRDQN, QRDQN)]


@pytest.fixture
def pixels():
    env = BreakoutEnv({})
    env.seed(0)
    screens = [env.reset()] + [env.step(env.random_action()).obs for _ in range(3)]
    env.close()
    return torch.from_numpy(np.stack(screens))


def test_the_list_of_scaling_models_is_complete():
    ours = {name for name in MODEL_REGISTRY if MODEL_REGISTRY.get(name).__module__.startswith('breakout_env')}
    assert ours == set(SCALING_MODELS)


@pytest.mark.parametrize('ours, theirs', FAMILIES)
def test_it_is_the_template_on_scaled_pixels(ours, theirs, pixels):
    """Same parameters under the same names, so checkpoints go both ways, and the same outputs for pixels / 255."""
    torch.manual_seed(0)
    model = ours(SHAPE, ACTIONS).eval()
    template = theirs(SHAPE, ACTIONS, encoder_hidden_size_list=NATURE).eval()
    template.load_state_dict(model.state_dict())
    assert torch.equal(model(pixels)['logit'], template(pixels.float() / 255)['logit'])


def test_actor_and_critic_too(pixels):
    torch.manual_seed(0)
    model = PixelVAC(SHAPE, ACTIONS)
    template = VAC(
        SHAPE, ACTIONS, encoder_hidden_size_list=NATURE, actor_head_hidden_size=512, critic_head_hidden_size=512
    )
    template.load_state_dict(model.state_dict())
    for mode, key in (('compute_actor', 'logit'), ('compute_critic', 'value'), ('compute_actor_critic', 'value')):
        assert torch.equal(model(pixels, mode=mode)[key], template(pixels.float() / 255, mode=mode)[key])


def test_the_encoder_is_natures():
    convolutions = [m for m in PixelDQN(SHAPE, ACTIONS).encoder.main if isinstance(m, torch.nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions] == [
        (32, 8, 4),
        (64, 4, 2),
        (64, 3, 1),
    ]
    assert PixelDQN(SHAPE, ACTIONS).encoder.mid.out_features == 512


CONFIGS = sorted([*ROOT.glob('configs/*_config.py'), *ROOT.glob('examples/*/*_config.py')])


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_every_config_of_ours_trains_the_nature_encoder_or_the_one_it_names(path):
    """DI-engine's policies put sizes of their own where a config names none: that must not become the network."""
    main, create = read_config(str(path))
    a, b, c, width = main.policy.model.get('encoder_hidden_size_list', (32, 64, 64, 512))
    cfg = compile_config(main, auto=True, create_cfg=create, save_cfg=False)
    cfg.policy.cuda = False
    model = create_policy(cfg.policy, enable_field=['eval'])._model
    convolutions = [tuple(m.weight.shape) for m in model.encoder.main if isinstance(m, torch.nn.Conv2d)]
    assert convolutions == [(a, 4, 8, 8), (b, a, 4, 4), (c, b, 3, 3)]
    assert tuple(model.encoder.mid.weight.shape) == (width, 49 * c)


@pytest.mark.parametrize('model', [PixelDQN, PixelVAC])
@pytest.mark.parametrize('unnamed', [None, [128, 128, 64]], ids=['none', "the policies' default"])
def test_sizes_that_nobody_named_are_natures(model, unnamed):
    built = model(SHAPE, ACTIONS, encoder_hidden_size_list=unnamed)
    assert {k: v.shape for k, v in built.state_dict().items()} == {
        k: v.shape for k, v in model(SHAPE, ACTIONS).state_dict().items()
    }


@pytest.mark.parametrize('model', [PixelDQN, PixelVAC])
def test_sizes_that_will_not_do_are_named(model):
    with pytest.raises(ValueError, match=r'`encoder_hidden_size_list` is 5 \(int\); expected a list of whole numbers'):
        model(SHAPE, ACTIONS, encoder_hidden_size_list=5)


def test_the_number_of_actions_may_be_that_of_a_space():
    model = PixelDQN(SHAPE, gymnasium.spaces.Discrete(ACTIONS).n)
    assert model(torch.zeros(1, *SHAPE, dtype=torch.uint8))['logit'].shape == (1, ACTIONS)


def test_other_sizes_are_taken_as_they_are():
    model = PixelDQN(SHAPE, ACTIONS, encoder_hidden_size_list=[16, 32, 32, 128])
    assert model.encoder.mid.out_features == 128


@pytest.mark.parametrize('ours', [family[0] for family in FAMILIES] + [PixelVAC])
def test_uint8_and_float32_pixels_give_the_same_numbers(ours, pixels):
    model = ours(SHAPE, ACTIONS).eval()
    kwargs = dict(mode='compute_actor') if ours is PixelVAC else {}
    assert torch.equal(model(pixels, **kwargs)['logit'], model(pixels.float(), **kwargs)['logit'])
    assert torch.equal(copy.deepcopy(model)(pixels, **kwargs)['logit'], model(pixels, **kwargs)['logit'])


def test_collector_and_evaluator_see_the_same_numbers():
    """DI-engine's collector hands over uint8, its evaluator float32: the same screens, the same Q values."""
    config = DQNPolicy.default_config()
    config.cuda = False
    config.model = dict(type='pixel_dqn', import_names=['breakout_env'], obs_shape=SHAPE, action_shape=ACTIONS)
    policy = create_policy(EasyDict({**config, 'type': 'dqn'}), enable_field=['collect', 'eval'])
    env = BreakoutEnv({})
    env.seed(1)
    obs = {0: env.reset()}
    for _ in range(20):
        collected = policy.collect_mode.forward(to_tensor(obs), eps=0.0)[0]
        evaluated = policy.eval_mode.forward(to_tensor(obs, dtype=torch.float32))[0]
        assert torch.equal(collected['logit'], evaluated['logit']) and collected['logit'].abs().max() < 1
        obs = {0: env.step(env.random_action()).obs}
    env.close()


def test_scaled_pixels_are_refused_at_the_first_look(pixels):
    model = PixelDQN(SHAPE, ACTIONS)
    model(torch.zeros(1, *SHAPE))  # black says nothing
    with pytest.raises(ValueError, match=r"expects pixel values 0..255, but the brightest .*obs_dtype='uint8'"):
        model(pixels.float() / 255)
    model(pixels.float())
    model(torch.ones(1, *SHAPE))  # a nearly black screen among pixels


def whole_config(env=None, model=None, policy='dqn'):
    main = EasyDict(
        exp_name='unused',
        env=dict(collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1, **(env or {})),
        policy=dict(cuda=False, model=dict(obs_shape=SHAPE, action_shape=ACTIONS, **(model or {}))),
    )
    create = EasyDict(
        env=dict(type='breakout', import_names=['breakout_env']),
        env_manager=dict(type='base'),
        policy=dict(type=policy),
    )
    return compile_config(main, auto=True, create_cfg=create, save_cfg=False)


SCALING = dict(type='pixel_dqn', import_names=['breakout_env'])


@pytest.mark.parametrize(
    'env, model, fits',
    [
        (dict(), SCALING, True),
        (dict(obs_dtype='float32'), dict(), True),
        (dict(obs_dtype='float32'), dict(type='dqn'), True),
        (dict(), dict(type='dqn', import_names=['ding.model.template.q_learning']), False),
        (dict(obs_dtype='float32'), SCALING, False),
        (dict(evaluator=dict(obs_dtype='float32')), SCALING, False),
        (dict(obs_dtype='float32', collector=dict(obs_dtype='uint8')), dict(type='dqn'), False),
    ],
)
@pytest.mark.parametrize('policy', ['dqn', 'dqn_command'])
def test_a_pair_that_does_not_fit_is_refused_before_anything_starts(env, model, fits, policy):
    cfg = whole_config(env, model, policy)
    if fits:
        get_vec_env_setting(cfg.env)
        return
    with pytest.raises(ValueError, match='Choose obs_dtype=') as error:
        get_vec_env_setting(cfg.env)
    assert 'observations' in str(error.value) and 'policy.model.type' in str(error.value)


def test_other_peoples_models_are_their_own_business():
    @MODEL_REGISTRY.register('a_model_of_somebody_else', force_overwrite=True)
    class Model(DQN):
        pass

    for obs_dtype in ('uint8', 'float32'):
        cfg = whole_config(dict(obs_dtype=obs_dtype), dict(type='a_model_of_somebody_else'))
        get_vec_env_setting(cfg.env)
    # a model that is passed to the pipeline ready-made: DI-engine's entries call it `model`
    cfg, model = whole_config(dict(), dict(type='dqn')), PixelDQN(SHAPE, ACTIONS)  # noqa: F841
    get_vec_env_setting(cfg.env)


def in_di_engine(function):
    """The function as if a pipeline of DI-engine's had defined it."""
    return types.FunctionType(function.__code__, {**function.__globals__, '__name__': 'ding.entry.serial_entry'})


def test_a_pipeline_of_ones_own_may_build_what_it_likes():
    """In DI-engine's pipelines a config without a model type means the policy's default; elsewhere it means nothing."""

    def pipeline():
        cfg = whole_config(dict(), dict())
        get_vec_env_setting(cfg.env)
        return PixelDQN(**cfg.policy.model)

    pipeline()
    with pytest.raises(ValueError, match='not set, so the default of policy'):
        in_di_engine(pipeline)()


@pytest.mark.parametrize('spelling', ['uint8', np.uint8, np.dtype('uint8')])
def test_every_spelling_of_a_dtype_is_understood(spelling):
    cfg = whole_config(dict(obs_dtype=spelling), SCALING)
    get_vec_env_setting(cfg.env)
    cfg = whole_config(dict(obs_dtype=spelling), dict(type='dqn'))
    with pytest.raises(ValueError, match='returns uint8 observations'):
        get_vec_env_setting(cfg.env)


def test_the_look_at_the_callers_disturbs_nobody():
    """Registries of DI-engine's in a caller's variables, policies and models that are not registered."""
    registry, cfg = MODEL_REGISTRY, whole_config(dict(), SCALING)  # noqa: F841
    env_cfg = copy.deepcopy(cfg.env)  # found nowhere
    get_vec_env_setting(env_cfg)
    cfg.policy.type = 'a_policy_that_nobody_registered'
    get_vec_env_setting(cfg.env)
    cfg.policy.model.type = 'a_model_that_nobody_registered'
    get_vec_env_setting(cfg.env)
