"""The sample game of an evaluator."""

import numpy as np
from ding.envs import BaseEnvTimestep

from breakout_env.worker.evaluator import MAX_PICTURES, SampleGame


def timestep(value, done=False, dtype=np.uint8, **info):
    return BaseEnvTimestep(np.full((4, 8, 8), value, dtype), np.zeros(1), done, info)


def game_of(timesteps):
    game = SampleGame()
    for each in timesteps:
        game.add(each)
    return game


def test_a_sample_game_has_every_second_screen_up_to_its_end_or_limit():
    reused = timestep(0)
    steps = (reused.obs.fill(10 * step) or reused._replace(done=step == 4) for step in range(6))
    assert [picture.max() for picture in game_of(steps).pictures] == [0, 20, 40]
    assert len(game_of(timestep(step, abnormal=step == 4) for step in range(10)).pictures) == 2
    scaled = game_of(timestep(1.0, dtype=np.float32) for _ in range(3 * MAX_PICTURES))
    assert len(scaled.pictures) == MAX_PICTURES and scaled.pictures[0].max() == 255
