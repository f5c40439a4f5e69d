"""Random play that can be compared."""

from typing import List

import numpy as np


def play(env, steps: int, seed: int = 0) -> List[tuple]:
    """Some random play, resets included: observations, rewards, ends and infos."""
    rng = np.random.default_rng(seed)
    course = [('reset', env.reset().tobytes())]
    for _ in range(steps):
        timestep = env.step(np.array([rng.integers(4)]))
        course.append((timestep.obs.tobytes(), timestep.reward.item(), timestep.done, sorted(timestep.info.items())))
        if timestep.done:
            course.append(('reset', env.reset().tobytes()))
    return course


class Album(object):
    """Keeps the pictures of a game, and ends it after so many."""

    def __init__(self, room: int = 10**9) -> None:
        self.pictures: List[np.ndarray] = []
        self.room = room

    def show(self, picture: np.ndarray) -> bool:
        self.pictures.append(picture)
        return len(self.pictures) < self.room


def paddle_column(picture: np.ndarray) -> float:
    """Where the paddle is, in a picture of the console."""
    return np.nonzero((picture[190:192, 8:152] == (200, 72, 72)).all(axis=2).any(axis=0))[0].mean()
