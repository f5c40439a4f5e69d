"""The collectors: scores of full games, ids of episodes and steps."""

from collections import namedtuple

import numpy as np
import pytest
from ding.envs import BaseEnvTimestep
from ding.worker import create_serial_collector
from easydict import EasyDict

from breakout_env.worker.collector import GAMES_IN_MEAN

ENVS = 2


class Manager(object):
    """An env manager whose envs answer from a list of (done, info), with a step count as observation."""

    env_num = ENVS

    def __init__(self, answers):
        self._answers = answers
        self._steps = [0] * ENVS

    @property
    def ready_obs(self):
        return {i: np.full(1, step) for i, step in enumerate(self._steps)}

    def step(self, actions):
        timesteps = {}
        for env_id in actions:
            done, info = self._answers[self._steps[env_id] % len(self._answers)]
            self._steps[env_id] += 1
            info = dict(info, eval_episode_return=0.0)
            timesteps[env_id] = BaseEnvTimestep(np.full(1, self._steps[env_id]), np.zeros(1), done, info)
        return timesteps

    def launch(self):
        pass

    def reset(self, params=None):
        pass

    def close(self):
        pass


def policy():
    values = dict(cfg=EasyDict(type='any', traj_len_inf=False), n_sample=8, unroll_len=1, on_policy=False)
    return namedtuple('Policy', 'forward process_transition get_train_sample reset get_attribute')(
        forward=lambda obs, **kwargs: {env_id: dict(action=np.zeros(1)) for env_id in obs},
        process_transition=lambda obs, output, timestep: dict(obs=obs, done=timestep.done),
        get_train_sample=lambda transitions: list(transitions),
        reset=lambda env_ids=None: None,
        get_attribute=values.__getitem__,
    )


class Writer(object):
    def __init__(self):
        self.scalars = []

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        pass

    def close(self):
        pass


@pytest.fixture
def collector(tmp_path, monkeypatch):
    def create(kind, answers):
        cfg = EasyDict(
            type=kind, import_names=['breakout_env'], deepcopy_obs=False, transform_obs=False, collect_print_freq=100
        )
        writer = Writer()
        created.append(
            create_serial_collector(cfg, env=Manager(answers), policy=policy(), tb_logger=writer, exp_name='run')
        )
        return created[-1], writer

    monkeypatch.chdir(tmp_path)
    created = []
    yield create
    for each in created:
        each.close()


LIFE_LOST, GAME_OVER = (True, {}), (True, dict(game_return=np.array([7.0])))


def test_scores_are_those_of_games_instead_of_lives(collector):
    collecting, writer = collector('full_games', [(False, {}), LIFE_LOST, (False, {}), GAME_OVER])
    assert collecting.game_return_mean is None
    collecting.collect(n_sample=4, policy_kwargs=dict(eps=0.25))
    assert (collecting.games, collecting.game_return_mean, collecting.epsilon) == (0, None, 0.25)
    collecting.collect(n_sample=4)
    assert (collecting.games, collecting.game_return_mean, collecting.epsilon) == (2, 7.0, None)
    assert ('collector_step/game_return_mean', 7.0, 8) in writer.scalars


def test_the_mean_score_is_over_the_last_100_games_and_survives_a_resumed_run(collector):
    collecting, _ = collector('full_games', [(True, dict(game_return=score)) for score in range(200)])
    collecting.collect(n_sample=ENVS * 200)
    assert GAMES_IN_MEAN == 100 and collecting.game_return_mean == np.mean([*range(150, 200)] * 2)
    resumed, _ = collector('full_games', [LIFE_LOST])
    resumed.load_state(collecting.state())
    assert (resumed.games, resumed.game_return_mean) == (400, collecting.game_return_mean)


def test_ids_number_the_steps_of_each_episode_and_an_abnormal_step_ends_one(collector):
    abnormal = (False, dict(abnormal=True))
    answers = [(False, {}), (False, {}), LIFE_LOST, (False, {}), abnormal, (False, {})]
    collecting, _ = collector('sample_with_ids', answers)
    transitions = [transition for _ in range(3) for transition in collecting.collect(n_sample=4)]
    episodes = {}
    for transition in transitions:
        episodes.setdefault((transition['env_id'], transition['episode_id']), []).append(int(transition['step_id']))
    assert {env_id for env_id, _ in episodes} == {0, 1}
    assert len({episode_id for _, episode_id in episodes}) == len(episodes)
    assert all(steps == list(range(len(steps))) for steps in episodes.values())
    # DI-engine drops the step before the abnormal one, too
    assert [len(steps) for (env_id, _), steps in episodes.items() if env_id == 0][:2] == [3, 4]


def test_all_collected_transitions_are_returned(collector):
    """DI-engine's collector cuts a collection to n_sample, which would leave gaps in episodes."""
    whole, _ = collector('sample_with_ids', [(False, {})] * 3 + [LIFE_LOST])
    assert len(whole.collect(n_sample=5)) == 8 and len(whole.collect(n_sample=5, drop_extra=True)) == 5
