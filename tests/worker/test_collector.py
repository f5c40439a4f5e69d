"""The collectors: scores of full games, ids of episodes and steps."""

import weakref
from collections import namedtuple
from unittest.mock import Mock

import numpy as np
import pytest
from ding.envs import BaseEnvTimestep
from ding.worker import SampleSerialCollector, create_serial_collector
from easydict import EasyDict

ENVS = 2
STEP, LIFE_LOST = (False, {}), (True, {})
GAME_OVER = (True, dict(game_return=np.array([7.0])))
LOGGER = Mock()
ABNORMAL = (False, dict(abnormal=True))


def collector(kind, answers):
    """A collector of this type, and its env manager, whose envs answer with (done, info) in turn."""
    steps = [0] * ENVS

    def step(actions):
        timesteps = {}
        for i in actions:
            done, info = answers[steps[i] % len(answers)]
            timesteps[i] = BaseEnvTimestep(np.zeros(1), np.zeros(1), done, dict(info, eval_episode_return=0.0))
            steps[i] += 1
        return timesteps

    manager = Mock(env_num=ENVS, _cfg={}, ready_obs={i: np.zeros(1) for i in range(ENVS)}, step=step)
    attributes = dict(cfg=EasyDict(type='any', traj_len_inf=False), n_sample=8, unroll_len=1, on_policy=False, nstep=1)
    policy = dict(
        reset=Mock(),
        forward=lambda obs, **kwargs: {i: dict(action=np.zeros(1)) for i in obs},
        process_transition=lambda obs, output, timestep: dict(obs=obs, done=timestep.done),
        get_train_sample=list,
        get_attribute=attributes.__getitem__,
    )
    policy = namedtuple('collect_mode', policy)(**policy)
    cfg = EasyDict(SampleSerialCollector.default_config(), type=kind, import_names=['breakout_env'])
    return create_serial_collector(cfg, env=manager, policy=policy, tb_logger=LOGGER, exp_name='run'), manager


@pytest.mark.parametrize('kind', ['nstep', 'sample_with_ids'])
def test_a_collector_that_is_dropped_closes_its_environments_at_once(kind):
    collecting, manager = collector(kind, [STEP])
    dropped = weakref.ref(collecting)
    collecting.collect(n_sample=4)
    del collecting
    assert dropped() is None
    manager.close.assert_called_once_with()


def test_scores_are_those_of_games_instead_of_lives():
    collecting, _ = collector('nstep', [STEP, LIFE_LOST, STEP, GAME_OVER])
    collecting.collect(n_sample=4, policy_kwargs=dict(eps=0.25))
    assert (collecting.games, collecting.game_return_mean, collecting.epsilon) == (0, None, 0.25)
    collecting.collect(n_sample=4)
    assert (collecting.games, collecting.game_return_mean, collecting.epsilon) == (2, 7.0, None)
    LOGGER.add_scalar.assert_any_call('collector_step/game_return_mean', 7.0, 8)


def test_random_play_counts_the_env_steps_that_it_takes():
    (collecting, manager), said = collector('nstep', [STEP]), []
    step = manager.step
    manager.step = lambda actions: said.append(collecting.activity) or step(actions)
    collecting.collect(n_sample=8, random_collect=True)
    assert said == [f'random play, {done} of 8 env steps' for done in (0, 2, 4, 6)]
    collecting.collect(n_sample=8)
    assert said[4:] == [None] * 4


def test_the_mean_score_is_over_100_games_and_survives_a_resume():
    collecting, _ = collector('nstep', [(True, dict(game_return=score)) for score in range(200)])
    collecting.collect(n_sample=ENVS * 200)
    assert collecting.game_return_mean == np.mean(range(150, 200))
    resumed, _ = collector('nstep', [LIFE_LOST])
    resumed.load_state(collecting.state())
    assert (resumed.games, resumed.game_return_mean) == (400, collecting.game_return_mean)


def test_ids_number_the_steps_of_each_episode():
    collecting, _ = collector('sample_with_ids', [STEP, STEP, LIFE_LOST, STEP, ABNORMAL, STEP])
    episodes = {}
    for transition in [transition for _ in range(3) for transition in collecting.collect(n_sample=4)]:
        episodes.setdefault((transition['env_id'], transition['episode_id']), []).append(int(transition['step_id']))
    assert len({episode_id for _, episode_id in episodes}) == len(episodes)
    assert all(steps == list(range(len(steps))) for steps in episodes.values())
    # DI-engine drops the step before the abnormal one, too
    assert [len(steps) for (env_id, _), steps in episodes.items() if env_id == 0][:2] == [3, 4]
