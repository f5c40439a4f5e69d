"""
Draw docs/figures/game.png: a game of Breakout as a person sees it, and the observation of the agent.

    python docs/scripts/make_game_picture.py

A few lines that follow the ball play the game. (docs/figures/play.gif is from ``breakout record --pretrained``.)
"""

import cv2
import numpy as np
from blocks import ROOT

from breakout_env import BreakoutEnv

PICTURE = ROOT / 'docs' / 'figures' / 'game.png'
NOOP, RIGHT, LEFT = 0, 2, 3
BALL_AND_PADDLE = (200, 72, 72)  # their colour, red, green, blue
BELOW_BRICKS, PADDLE = slice(95, 188), slice(190, 193)  # rows of the screen
INSIDE = slice(8, 152)  # columns between the walls


def follow_the_ball(picture: np.ndarray) -> int:
    """The action that brings the paddle under the ball."""
    red = (picture[:, INSIDE] == BALL_AND_PADDLE).all(axis=2)
    ball, paddle = (np.nonzero(red[rows].any(axis=0))[0] for rows in (BELOW_BRICKS, PADDLE))
    if not len(ball) or not len(paddle):
        return NOOP
    offset = ball.mean() - paddle.mean()
    return NOOP if abs(offset) < 4 else RIGHT if offset > 0 else LEFT


def enlarge(image: np.ndarray, factor: int) -> np.ndarray:
    """Each pixel as a square."""
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def main() -> None:
    """Play, and draw."""
    env = BreakoutEnv(dict(is_train=False))
    env.seed(0)
    obs = env.reset()
    for _ in range(420):
        obs = env.step(follow_the_ball(env.render())).obs
    picture = enlarge(env.render(), 2)
    frames = [cv2.cvtColor(enlarge(frame, 2), cv2.COLOR_GRAY2RGB) for frame in obs]
    env.close()

    margin, line = 16, 30
    side = frames[0].shape[0]
    height = picture.shape[0] + 2 * margin + line
    width = picture.shape[1] + 3 * margin + 2 * side + margin
    canvas = np.full((height, width, 3), 255, np.uint8)
    canvas[margin : margin + picture.shape[0], margin : margin + picture.shape[1]] = picture
    left = picture.shape[1] + 2 * margin
    for i, frame in enumerate(frames):
        x, y = left + (i % 2) * (side + margin), margin + (i // 2) * (side + margin + line)
        canvas[y : y + side, x : x + side] = frame
        name = 'now' if i == 3 else f'{3 - i} steps ago' if i < 2 else '1 step ago'
        write(canvas, name, x, y + side + 18)
    write(canvas, 'the game, 160 x 210', margin, height - 14)
    write(canvas, 'the observation, 4 x 84 x 84 uint8', left, height - 14)
    cv2.imwrite(str(PICTURE), cv2.cvtColor(canvas, cv2.COLOR_RGB2BGR))


def write(canvas: np.ndarray, text: str, x: int, y: int) -> None:
    """A label."""
    cv2.putText(canvas, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (60, 60, 60), 1, cv2.LINE_AA)


if __name__ == '__main__':
    main()
