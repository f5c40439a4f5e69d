"""The targets that the learner gets, through env manager, collector and replay buffer, are those of the trajectory."""

from collections import Counter

import gym
import numpy as np
import pytest
from ding.policy import C51Policy, DQNPolicy, PolicyFactory, QRDQNPolicy, RainbowDQNPolicy
from ding.worker import SampleSerialCollector, create_serial_collector
from easydict import EasyDict

from breakout_env import BreakoutEnv, FrameReplayBuffer, LeanDQNPolicy
from helpers.managers import GameEnv, build
from helpers.policies import policy

ENVS, GAMMA, LIMIT = 4, 0.99, 'TimeLimit.truncated'
MODELS = {RainbowDQNPolicy: 'pixel_rainbowdqn', C51Policy: 'pixel_c51dqn', QRDQNPolicy: 'pixel_qrdqn'}


class RandomEnv(GameEnv):
    """Random rewards and screens; episodes end by a lost life, a time limit or an abnormal step."""

    observation_space = gym.spaces.Box(0, 255, (4, 8, 8), np.uint8)

    def pack(self, obs):
        screens = np.random.default_rng(self.state).integers(0, 256, (4, 8, 8), np.uint8)
        if self.ticks == 0:  # an episode begins
            self.length, self.stack = 1 + self.state % self.cfg['longest'], screens
        else:
            self.stack = np.concatenate([self.stack[1:], screens[:1]])
        return self.stack

    def pack_end(self, reward, done, info):
        end = self._rng.choice(['lost', LIMIT, 'abnormal'], p=[0.45, 0.45, 0.1]) if done else None
        info = {'eval_episode_return': 0.0, str(end): True}
        return np.array([self.state % 10], np.float32), end in ('lost', LIMIT), info


class Recorder:
    """Records the episodes that an env manager plays: digests of observations, rewards, and how each ended."""

    def __init__(self, manager):
        self._manager, self.episodes, self._open = manager, [], {}

    def __getattr__(self, name):
        return getattr(self._manager, name)

    def step(self, actions):
        before = {env_id: digest(obs) for env_id, obs in self._manager.ready_obs.items()}
        timesteps = self._manager.step(actions)
        for env_id, timestep in timesteps.items():
            if env_id not in self._open:
                self.episodes.append(dict(end=None, numbers=[before[env_id]], rewards=[]))
            episode = self._open.setdefault(env_id, self.episodes[-1])
            episode['rewards'].append(float(timestep.reward[0]))
            final_obs = getattr(self._manager, 'final_obs', {})
            episode['numbers'].append(digest(final_obs.get(env_id, timestep.obs)))
            if timestep.done or timestep.info.get('abnormal'):
                episode['end'] = next((end for end in (LIMIT, 'abnormal') if timestep.info.get(end)), 'lost')
                del self._open[env_id]
        return timesteps

    def targets(self, nstep, last_obs_is_known=True):
        """Digest of ``obs``, rewards, digest of the observation to bootstrap from, and the discount of its value."""
        for episode in self.episodes:
            end, numbers, rewards = episode.values()
            if end == LIMIT and not last_obs_is_known:  # the one that was recorded is another episode's
                numbers, rewards = numbers[:-1], rewards[:-1]
            for start in range(len(rewards)):
                part = rewards[start : start + nstep]
                after = start + len(part)
                padded = (numbers[start], *part, *[0.0] * (nstep - len(part)))
                is_end = end == 'lost' and after == len(rewards)
                yield (*padded, None) if is_end else (*padded, numbers[after], round(GAMMA ** len(part), 5))


def digest(obs):
    return hash(np.asarray(obs).tobytes())


def as_target(transition, nstep):
    made = (digest(transition['obs']), *transition['reward'].tolist())
    gamma = transition.get('value_gamma', GAMMA**nstep)
    return (*made, None) if transition['done'] else (*made, digest(transition['next_obs']), round(float(gamma), 5))


def sampled_and_recorded(policy_class, nstep, piece, collections, manager):
    manager = Recorder(manager)
    model = dict(type=MODELS.get(policy_class, 'pixel_dqn'))
    modes = policy(policy_class, nstep=nstep, collect=dict(n_sample=piece * ENVS), model=model).collect_mode
    cfg = EasyDict(SampleSerialCollector.default_config(), type='nstep', import_names=['breakout_env'])
    acting = PolicyFactory.get_random_policy(modes, action_space=gym.spaces.Discrete(4))
    collector = create_serial_collector(cfg, env=manager, policy=acting)
    buffer = FrameReplayBuffer(dict(replay_buffer_size=100_000), exp_name='run')
    for _ in range(collections):
        buffer.push(collector.collect())
    found = [as_target(transition, nstep) for transition in buffer.sample(buffer.count())]
    buffer.close()
    collector.close()
    return found, manager


@pytest.mark.parametrize('policy_class', [DQNPolicy, LeanDQNPolicy, *MODELS])
@pytest.mark.parametrize('nstep, piece, longest', [(1, 4, 30), (3, 4, 30), (3, 128, 300)])
def test_targets_are_those_of_the_trajectory(policy_class, nstep, piece, longest):
    manager = build('base', RandomEnv, ENVS, dict(longest=longest), seed=3)
    found, recorder = sampled_and_recorded(policy_class, nstep, piece, max(4, 400 // piece), manager)
    assert not Counter(found) - Counter(recorder.targets(nstep))
    # nothing is left out but what is under way, also where an abnormal step interrupts it
    interrupted = sum(episode['end'] == 'abnormal' for episode in recorder.episodes) + ENVS
    played = sum(len(episode['rewards']) for episode in recorder.episodes)
    assert played - len(found) <= interrupted * (piece + nstep - 1)


@pytest.mark.parametrize('kind, reset_inplace', [('breakout', False), ('breakout', True), ('subprocess', True)])
def test_targets_bootstrap_at_a_time_limit_and_not_at_a_lost_life(kind, reset_inplace):
    manager = build(kind, BreakoutEnv, ENVS, dict(max_episode_frames=240), seed=3, reset_inplace=reset_inplace)
    found, recorder = sampled_and_recorded(LeanDQNPolicy, 3, 4, 40, manager)
    assert not Counter(found) - Counter(recorder.targets(3, last_obs_is_known=kind == 'breakout'))
    assert {episode['end'] for episode in recorder.episodes} == {LIMIT, 'lost', None}
    assert {round(GAMMA**steps, 5) for steps in (1, 2, 3)} == {target[-1] for target in found} - {None}
