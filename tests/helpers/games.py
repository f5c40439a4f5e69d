"""Random play that can be compared."""

import numpy as np


def play(env, steps: int, seed: int = 0) -> list[tuple]:
    """Some random play, resets included: observations, rewards, ends and infos."""
    rng = np.random.default_rng(seed)
    course = [('reset', env.reset().tobytes())]
    for _ in range(steps):
        timestep = env.step(np.array([rng.integers(4)]))
        course.append((timestep.obs.tobytes(), timestep.reward.item(), timestep.done, sorted(timestep.info.items())))
        if timestep.done:
            course.append(('reset', env.reset().tobytes()))
    return course
