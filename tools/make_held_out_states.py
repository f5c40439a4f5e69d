"""
Play the games that ``breakout_env/worker/held_out_states.npz`` is taken from: states that no training meets.

The player of benchmarks/common/recording.py follows the ball by the emulator's memory and errs now and then, so its
games go through all stages, from a full wall to one with few bricks left. No training uses these seeds.
"""

import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.common.recording import BallPlayer  # noqa: E402
from breakout_env import BreakoutEnv  # noqa: E402
from breakout_env.worker.evaluator import HELD_OUT_FILE  # noqa: E402

STATES, GAMES, FIRST_SEED = 256, 8, 900_000
ERRORS = 0.01


def main() -> None:
    """Write the file."""
    states, stages = [], []
    for seed in range(FIRST_SEED, FIRST_SEED + GAMES):
        env = BreakoutEnv(dict(is_train=False, max_episode_frames=20_000))
        env.seed(seed, dynamic_seed=False)
        obs, game, points, done = env.reset(), [], 0.0, False
        player = BallPlayer(env, seed, ERRORS)
        while not done:
            timestep = env.step(np.array(player.action()))
            obs, done = timestep.obs, timestep.done
            points += float(timestep.reward[0])
            game.append((obs, points))
        env.close()
        taken = np.linspace(10, len(game) - 2, STATES // GAMES).astype(int)
        states += [game[i][0] for i in taken]
        stages += [game[i][1] for i in taken]
    os.makedirs(HELD_OUT_FILE.parent, exist_ok=True)
    np.savez_compressed(HELD_OUT_FILE, states=np.stack(states))
    spread = np.percentile(stages, [0, 25, 50, 75, 100])
    print(f'{len(states)} states after {" / ".join(f"{value:.0f}" for value in spread)} points (quartiles)')


if __name__ == '__main__':
    main()
