"""R2D2 on slices: the recurrent model, the ids of transitions, and targets and weights of slices."""

import contextlib
import copy
import itertools

import pytest
import torch
from ding.model import DRQN
from ding.policy import R2D2Policy, create_policy
from ding.rl_utils import get_nstep_return_data
from ding.utils import deep_merge_dicts, lists_to_dicts
from ding.worker import create_serial_collector
from easydict import EasyDict

from breakout_env import BreakoutEnv, PixelDRQN, R2D2SlicesPolicy, SampleWithIdsCollector
from helpers.managers import build
from helpers.policies import SMALL_SIZES, part

SHAPE, ACTIONS, ENVS = [4, 84, 84], 4, 3
BURN_IN, UNROLL, NSTEP = 4, 12, 3


def new_policy(**options):
    changes = dict(
        type='r2d2_slices',
        import_names=['breakout_env'],
        burnin_step=BURN_IN,
        learn_unroll_len=UNROLL,
        nstep=NSTEP,
        model=dict(type='pixel_drqn', import_names=['breakout_env'], **SMALL_SIZES),
        learn=dict(batch_size=2),
        collect=dict(n_sample=60, env_num=ENVS),
        eval=dict(env_num=ENVS),
    )
    cfg = deep_merge_dicts(R2D2SlicesPolicy.default_config(), EasyDict(changes))
    torch.manual_seed(0)
    return create_policy(deep_merge_dicts(cfg, EasyDict(options)))


@pytest.fixture(scope='module')
def policy():
    return new_policy()


@pytest.fixture(scope='module')
def collected(policy, tmp_path_factory):
    """Transitions of 20 collections with this policy, and the number of env steps."""
    manager = build('base', BreakoutEnv, ENVS)
    cfg = EasyDict(SampleWithIdsCollector.default_config(), type='sample_with_ids', import_names=['breakout_env'])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp('collector'))
        with contextlib.closing(create_serial_collector(cfg, env=manager, policy=policy.collect_mode)) as collector:
            fragments = [collector.collect(policy_kwargs=dict(eps=1.0)) for _ in range(20)]
            return list(itertools.chain(*fragments)), collector.envstep


def episodes_of(transitions):
    key = lambda transition: (transition['episode_id'], transition['step_id'])  # noqa: E731
    grouped = itertools.groupby(sorted(transitions, key=key), key=lambda transition: transition['episode_id'])
    return [list(episode) for _, episode in grouped]


def test_the_recurrent_model_is_its_template_on_scaled_pixels():
    torch.manual_seed(0)
    model = PixelDRQN(SHAPE, ACTIONS).eval()
    template = DRQN(SHAPE, ACTIONS, encoder_hidden_size_list=[32, 64, 64, 512]).eval()
    template.load_state_dict(model.state_dict())
    pixels = torch.randint(0, 256, (5, 2, *SHAPE), dtype=torch.uint8)
    for obs, kwargs in ((pixels, dict(saved_state_timesteps=[1, 3])), (pixels[0], dict(inference=True))):
        outputs = [
            net(dict(obs=o, prev_state=[None, None]), **kwargs)
            for net, o in ((model, obs), (model, obs.float()), (template, obs.float() / 255))
        ]
        assert all(torch.equal(outputs[0]['logit'], output['logit']) for output in outputs)


def test_null_steps_follow_the_ends_of_episodes(collected):
    """They give the steps before the end their targets."""
    transitions, steps = collected
    # the collector still has the steps of unfinished fragments
    assert sum(not transition['null'] for transition in transitions) >= steps - ENVS * 60
    assert sum(not transition['null'] for transition in transitions) >= 20 * 60, 'they do not count as samples'
    episodes = episodes_of(transitions)
    assert len(episodes) > ENVS
    for episode in episodes:
        assert [transition['step_id'] for transition in episode] == list(range(len(episode)))
        ends = [bool(transition['done']) for transition in episode]
        played = ends.index(True) + 1 if any(ends) else len(episode)
        assert [transition['null'] for transition in episode] == [False] * played + [True] * NSTEP * any(ends)
        assert all(torch.equal(a['obs'][1:], b['obs'][:-1]) for a, b in zip(episode, episode[1:]) if not b['null'])


def test_the_stored_hidden_state_is_that_before_the_step(collected, policy):
    episode = max(episodes_of(collected[0]), key=len)
    episode = [transition for transition in episode if not transition['null']]
    obs = torch.stack([transition['obs'] for transition in episode]).unsqueeze(1)
    with torch.no_grad():
        output = part(policy, 'model')(
            dict(obs=obs, prev_state=[None]), saved_state_timesteps=list(range(1, len(episode)))
        )
    stored = [transition['prev_state'] for transition in episode]
    assert list(stored[0]) == ['h', 'c'] and not any(value.any() for value in stored[0].values())
    for state, (expected,) in zip(stored[1:], output['saved_state']):
        assert all(torch.allclose(state[key], expected[key], atol=1e-5) for key in ('h', 'c'))


def test_targets_are_di_engines_up_to_the_end_of_the_episode(collected, policy):
    finished = [episode for episode in episodes_of(collected[0]) if episode[-1]['null']]
    episode = max(finished, key=len)
    played = [dict(transition) for transition in episode if not transition['null']]
    expected = get_nstep_return_data(copy.deepcopy(played), NSTEP, gamma=0.997)
    length = BURN_IN + UNROLL
    for start in range(len(episode) - length + 1):
        sliced = policy._with_targets(as_sampled(episode[start : start + length]))
        for i in range(length - NSTEP):
            weight = sliced['weight'][i - BURN_IN] if i >= BURN_IN else None
            if start + i < len(played):
                assert torch.equal(sliced['reward'][i], expected[start + i]['reward'])
                assert sliced['done'][i] == expected[start + i]['done'] and weight in (1, None)
            else:
                assert weight in (0, None)
    assert sliced['done'][length - NSTEP - 1] and sliced['weight'][UNROLL - NSTEP - 1] == 1  # the end has a target


def as_sampled(transitions):
    """Steps as the buffer samples them: numbers are tensors."""
    keys = transitions[0].keys() - {'prev_state'}
    tensors = [{**step, **{key: torch.as_tensor(step[key]) for key in keys}} for step in transitions]
    return lists_to_dicts(tensors, recursive=True)


def test_within_an_episode_losses_and_weights_are_di_engines(collected):
    episode = max(episodes_of(collected[0]), key=lambda episode: sum(not step['null'] for step in episode))
    steps = [step for step in episode if not step['null']][: BURN_IN + UNROLL]
    ours = new_policy()
    cfg = EasyDict({**part(ours, 'cfg'), 'type': 'r2d2', 'other': {}, 'import_names': []})
    theirs = create_policy(deep_merge_dicts(R2D2Policy.default_config(), cfg))
    part(theirs, 'model').load_state_dict(part(ours, 'model').state_dict())
    part(theirs, 'target_model').load_state_dict(part(ours, 'target_model').state_dict())
    sequence = theirs.collect_mode.get_train_sample(copy.deepcopy(steps))
    assert len(sequence) == 1
    expected = theirs.learn_mode.forward([dict(sequence[0]), dict(sequence[0])])
    learned = ours.learn_mode.forward([as_sampled(steps)] * 2)
    for key in ('total_loss', 'priority', 'q_s_taken-a_t0', 'target_q_s_max-a_t0'):
        assert learned[key] == pytest.approx(expected[key], rel=1e-5), key
    for found, expected in zip(part(ours, 'model').parameters(), part(theirs, 'model').parameters()):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_steps_without_a_target_have_weight_0_and_padding_no_effect(collected):
    """The padding behind a short slice is no end of an episode."""
    fragment = [transition for transition in collected[0] if not transition['null'] and not transition['done']][:8]
    losses = []
    for noise in (0.0, 100.0):
        padding = dict(fragment[-1], null=True, reward=torch.full((1,), noise))
        policy, slice_ = new_policy(), as_sampled(fragment + [padding] * (BURN_IN + UNROLL - 8))
        with_targets = policy._with_targets(slice_)
        assert not any(with_targets['done'])
        learnable = 8 - NSTEP - BURN_IN
        assert [float(weight) for weight in with_targets['weight']] == [1] * learnable + [0] * (UNROLL - learnable)
        losses.append(policy.learn_mode.forward([slice_, slice_])['total_loss'])
    assert losses[0] == losses[1] > 0


@pytest.mark.parametrize('option', ['priority', 'priority_IS_weight', 'ignore_done'])
def test_options_that_contradict_slices_are_refused(option):
    with pytest.raises(ValueError, match=f'policy option `{option}` is True .bool.; expected False'):
        new_policy(**({'learn': {option: True}} if option == 'ignore_done' else {option: True}))


@pytest.mark.parametrize(
    'options, message',
    [
        (dict(burnin_step=0), "'burnin_step': 0, .* expected burnin_step from 1"),
        (dict(learn_unroll_len=2, nstep=2), "'nstep': 2}; expected .* learn_unroll_len above nstep"),
        (dict(collect=dict(env_num=3)), 'policy.collect.env_num is 3; expected env.collector_env_num, 4: a state for'),
    ],
)
def test_sizes_that_would_fail_at_the_first_update_are_refused(options, message):
    policy = deep_merge_dicts(R2D2SlicesPolicy.default_config(), dict(collect=dict(env_num=4), eval=dict(env_num=4)))
    with pytest.raises(ValueError, match=message):
        R2D2SlicesPolicy.check_config(dict(policy=deep_merge_dicts(policy, options), env=dict(collector_env_num=4)))


def test_slices_of_another_length_are_refused(collected, policy):
    with pytest.raises(ValueError, match="16 steps, but .* slices of 10; expected .*'torchrl' .* slice_len=16"):
        policy.learn_mode.forward([as_sampled(collected[0][:10])] * 2)
    with pytest.raises(ValueError, match="slices of 1; expected a replay buffer of type 'torchrl'"):
        policy.learn_mode.forward(collected[0][:2])
