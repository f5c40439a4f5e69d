"""Real play, recorded once and played back to every replay buffer that is measured.

    python -m benchmarks.common.recording --player random --steps 1050000 --out experiments/random_1m.play

plays 8 environments as the collector of configs/breakout_lean_dqn_config.py would, every step by the emulator, and
keeps the newest screen of each observation. Nothing is repeated: that would flatter buffers that keep equal screens
once. A million steps take about a quarter of an hour.

``transitions`` plays it back as what DI-engine's collector pushes: collections of 32 transitions, 4 steps of each
environment, with 3-step returns made by DI-engine's own functions. It decodes into memory that it allocates once, so
that playing back leaves the memory of a process as it is.
"""

import json
import time
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np
import zstandard
from ding.envs.env.base_env import BaseEnvTimestep
from ding.rl_utils import get_nstep_return_data, get_train_sample
from ding.worker.collector.base_serial_collector import to_tensor_transitions

from breakout_env import BreakoutEnv
from breakout_env.envs.preprocessing import observe

ENVS = 8
STEPS_PER_COLLECTION = 4  # n_sample=32 of 8 environments
UPDATES_PER_COLLECTION = 8  # update_per_collect
# of each step; a reset is also a record, the first of an episode
RECORD = np.dtype([('frame', 'u1', (84, 84)), ('action', 'u1'), ('reward', 'f4'), ('done', '?'), ('first', '?')])
GAMMA = 0.99
CHUNK = 512
# Breakout's RAM: where ball and paddle are (checked here by what the player scores)
BALL_X, BALL_Y, PADDLE_X = 99, 101, 72
NOOP, FIRE, RIGHT, LEFT = range(4)


class RandomPlayer:
    """Any of the four actions."""

    def __init__(self, env: BreakoutEnv, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def action(self) -> int:
        return int(self._rng.integers(4))


class BallPlayer(RandomPlayer):
    """Follows the ball, which it reads from the emulator's memory. A tenth of its actions is random, so that no two
    games are the same.
    """

    def __init__(self, env: BreakoutEnv, seed: int) -> None:
        super().__init__(env, seed)
        self._env, self._aim = env, 0

    def action(self) -> int:
        if self._rng.random() < 0.1:
            return super().action()
        ram = self._env._env.ale.getRAM()
        ball, ball_y, paddle = int(ram[BALL_X]), int(ram[BALL_Y]), int(ram[PADDLE_X])
        if ball_y == 0:
            # no ball; which part of the paddle the next one meets, so that it flies at different angles
            self._aim = int(self._rng.integers(-5, 6))
            return FIRE
        off = ball - (paddle + 8) + self._aim
        return RIGHT if off > 3 else LEFT if off < -3 else NOOP


PLAYERS = dict(random=RandomPlayer, ball=BallPlayer)


class RecordedEnv:
    """An environment whose steps go into a recording, compressed in chunks.

    Arguments:
        number: Of the environment in the recording, and its seed.
        write: Called with the name of a chunk and its bytes.
    """

    def __init__(self, player: str, number: int, write: Callable[[str, bytes], None]) -> None:
        self._env = BreakoutEnv({})
        self._env.seed(number)
        self._player = PLAYERS[player](self._env, number)
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._number, self._write = number, write
        self._records: list[tuple] = []
        self._chunks = 0
        self._bricks = 0.0
        self.games: list[float] = []  # bricks of each game, as rewards are clipped
        self._reset()

    def step(self) -> None:
        action = self._player.action()
        timestep = self._env.step(np.array(action))
        self._record(timestep.obs, action, timestep.reward[0], timestep.done, False)
        self._bricks += float(timestep.reward[0])
        if 'game_return' in timestep.info:
            self.games.append(self._bricks)
            self._bricks = 0.0
        if timestep.done:
            self._reset()

    def close(self) -> None:
        self._flush()
        self._env.close()

    def _reset(self) -> None:
        self._record(self._env.reset(), NOOP, 0.0, False, True)

    def _record(self, obs: np.ndarray, *others: Any) -> None:
        self._records.append((obs[-1], *others))
        if len(self._records) == CHUNK:
            self._flush()

    def _flush(self) -> None:
        data = self._compressor.compress(np.array(self._records, RECORD).tobytes())
        self._write(f'{self._number}/{self._chunks}/{len(self._records)}', data)
        self._records.clear()
        self._chunks += 1


def record(player: str, steps: int, out: str) -> dict[str, Any]:
    """Let one of ``PLAYERS`` play so many env steps in all, and write a recording. Returns its games, their mean number
    of bricks and minutes.
    """
    start = time.monotonic()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_STORED) as archive:
        envs = [RecordedEnv(player, i, archive.writestr) for i in range(ENVS)]
        for _ in range(steps // ENVS):
            for env in envs:
                env.step()
        for env in envs:
            env.close()
        games = [bricks for env in envs for bricks in env.games]
        summary = dict(
            player=player,
            steps=steps,
            games=len(games),
            bricks_per_game=float(np.mean(games)) if games else 0.0,
            minutes=(time.monotonic() - start) / 60,
        )
        archive.writestr('summary.json', json.dumps(summary))
    return summary


def _env_steps(archive: zipfile.ZipFile, names: list[str], obs_dtype: str = 'uint8') -> Iterator[Any]:
    """The course of one environment: None at a reset, with the stack that it begins with, else a timestep."""
    decompressor = zstandard.ZstdDecompressor()
    decoded = np.zeros(CHUNK, RECORD)
    stack = np.zeros((4, 84, 84), np.uint8)
    for name in names:
        records, filled = decoded[: int(name.rsplit('/', 1)[1])], 0
        raw = records.view(np.uint8)
        with decompressor.stream_reader(archive.read(name)) as reader:
            while filled < len(raw):
                filled += reader.readinto(raw[filled:])
        for record in records:
            if record['first']:
                stack[:] = record['frame']
                yield None, observe(stack, obs_dtype)
                continue
            stack[:-1] = stack[1:]
            stack[-1] = record['frame']
            reward = np.array([record['reward']])
            yield int(record['action']), BaseEnvTimestep(observe(stack, obs_dtype), reward, bool(record['done']), {})


def _played(path: str, obs_dtype: str = 'uint8') -> Iterator[list[tuple]]:
    """A recording step by step: of each environment stack, action, timestep and next stack, the first one of the next
    episode beside ``done``, as a manager returns it that resets in place.
    """
    with zipfile.ZipFile(path) as archive:
        names: list[list[str]] = [[] for _ in range(ENVS)]
        for name in archive.namelist():  # an environment's chunks are in order
            if '/' in name:
                names[int(name.split('/')[0])].append(name)
        envs = [_env_steps(archive, of_env, obs_dtype) for of_env in names]
        obs = [next(env)[1] for env in envs]
        while True:
            row = []
            for i, env in enumerate(envs):
                try:
                    action, timestep = next(env)
                except StopIteration:  # the recording is over
                    return
                next_obs = next(env)[1] if timestep.done else timestep.obs
                row.append((obs[i], action, timestep, next_obs))
                obs[i] = next_obs
            yield row


def transitions(path: str, nstep: int = 3, obs_dtype: str = 'uint8') -> Iterator[list[dict]]:
    """A recording as lists of 32 transitions, which the collector of configs/breakout_lean_dqn_config.py pushes; with
    the ``obs_dtype`` 'float32' screens are scaled to [0, 1].
    """
    pieces: list[list] = [[] for _ in range(ENVS)]
    collected: list[dict] = []
    updates = 0
    for row in _played(path, obs_dtype):
        for piece, (obs, action, timestep, next_obs) in zip(pieces, row):
            values = dict(action=np.array([action]), reward=timestep.reward, done=timestep.done, collect_iter=updates)
            piece.append(dict(obs=obs, next_obs=next_obs, **values))
            if timestep.done or len(piece) == STEPS_PER_COLLECTION:
                tensors = to_tensor_transitions(piece)
                collected += get_train_sample(get_nstep_return_data(tensors, nstep, gamma=GAMMA), 1)
                piece.clear()
        if len(collected) >= ENVS * STEPS_PER_COLLECTION:
            # as the collector, drop what is beyond
            yield collected[: ENVS * STEPS_PER_COLLECTION]
            collected = []
            updates += UPDATES_PER_COLLECTION


def steps(path: str) -> Iterator[list[tuple]]:
    """A recording step by step, for buffers that are fed so: of each environment stack, action, reward, the episode's
    next stack and done.
    """
    for row in _played(path):
        yield [
            (obs, np.array(action), timestep.reward[0], timestep.obs, np.array(timestep.done))
            for obs, action, timestep, _ in row
        ]


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--player', type=click.Choice(sorted(PLAYERS)), default='random')
@click.option('--steps', type=int, default=1_000_000, help='Env steps of all 8 environments together.')
@click.option('--out', required=True, help='File to write.')
def main(player: str, steps: int, out: str) -> None:
    """Record real play for the benchmarks of replay buffers."""
    summary = record(player, steps, out)
    click.echo(
        f'{out}: {steps:,} env steps of the {player} player in {summary["minutes"]:.1f} min, {summary["games"]} games, '
        f'{summary["bricks_per_game"]:.1f} bricks a game'
    )


if __name__ == '__main__':
    main()
