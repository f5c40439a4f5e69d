"""Real play, recorded once and played back to every replay buffer that is measured.

    python -m benchmarks.common.recording --player random --steps 1050000 --out experiments/random_1m.play

plays 8 environments as the collector of configs/breakout_lean_dqn_config.py would, every step by the emulator, and
keeps the newest screen of each observation. Nothing is repeated: that would flatter buffers that keep equal screens
once.

``transitions`` plays it back as what DI-engine's collector pushes: collections of 32 transitions, 4 steps of each
environment, with 3-step returns made by DI-engine's own functions. It decodes into memory that it allocates once, so
that playing back leaves the memory of a process as it is.
"""

import json
import multiprocessing
import time
import zipfile
from collections.abc import Iterator
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
# of each step; a reset is a record of its own, the first of an episode
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


class BallPlayer:
    """Follows the ball, which it reads from the emulator's memory, with some random actions, a tenth by default, so
    that no two games are the same.
    """

    def __init__(self, env: BreakoutEnv, seed: int, errors: float = 0.1) -> None:
        self._env, self._errors = env, errors
        self._rng = np.random.default_rng(seed)
        self._aim = 0

    def action(self) -> int:
        if self._rng.random() < self._errors:
            return int(self._rng.integers(4))
        ram = self._env._env._ale.getRAM()
        ball, ball_y, paddle = int(ram[BALL_X]), int(ram[BALL_Y]), int(ram[PADDLE_X])
        if ball_y == 0:
            # no ball; which part of the paddle the next one meets, so that it flies at different angles
            self._aim = int(self._rng.integers(-5, 6))
            return FIRE
        off = ball - (paddle + 8) + self._aim
        return RIGHT if off > 3 else LEFT if off < -3 else NOOP


PLAYERS = dict(random=RandomPlayer, ball=BallPlayer)


def _play(player: str, seeds: list[int], steps: int, out: Any) -> None:
    """Play some environments in turns, and put what they return into a queue, compressed in chunks."""
    compressor = zstandard.ZstdCompressor(level=3)
    envs = [BreakoutEnv({}) for _ in seeds]
    players = [PLAYERS[player](env, seed) for env, seed in zip(envs, seeds)]
    chunks: list[list] = [[] for _ in seeds]

    def put(i: int, *record: Any) -> None:
        chunks[i].append(record)
        if len(chunks[i]) == CHUNK:
            flush(i)

    def flush(i: int) -> None:
        if chunks[i]:
            out.put((seeds[i], len(chunks[i]), compressor.compress(np.array(chunks[i], RECORD).tobytes())))
            chunks[i].clear()

    def reset(i: int) -> None:
        obs = envs[i].reset()
        assert (obs == obs[-1]).all()
        put(i, obs[-1], 0, 0.0, False, True)

    for i, seed in enumerate(seeds):
        envs[i].seed(seed)
        reset(i)
    score, scores = [0.0] * len(envs), []
    for _ in range(steps // len(seeds)):
        for i, env in enumerate(envs):
            action = players[i].action()
            timestep = env.step(np.array(action))
            put(i, timestep.obs[-1], action, timestep.reward[0], timestep.done, False)
            score[i] += float(timestep.reward[0])
            if timestep.done:
                if 'game_return' in timestep.info:
                    scores.append(score[i])
                    score[i] = 0.0
                reset(i)
    for i, env in enumerate(envs):
        flush(i)
        env.close()
    out.put((None, scores, None))


def record(player: str, steps: int, out: str, seed: int = 0) -> dict[str, float]:
    """Let one of ``PLAYERS`` play so many env steps in all, and write a recording. Returns its games, their mean number
    of bricks (clipped rewards) and minutes.
    """
    start = time.monotonic()
    context = multiprocessing.get_context('spawn')
    queue = context.Queue(64)
    seeds = [seed * ENVS + i for i in range(ENVS)]
    halves = [seeds[0::2], seeds[1::2]]
    processes = [context.Process(target=_play, args=(player, half, steps // 2, queue)) for half in halves]
    for process in processes:
        process.start()
    bricks: list[float] = []
    counts = dict.fromkeys(seeds, 0)
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_STORED) as archive:
        running = len(processes)
        while running:
            env_seed, what, data = queue.get()
            if env_seed is None:
                bricks += what
                running -= 1
                continue
            archive.writestr(f'{seeds.index(env_seed)}/{counts[env_seed]}/{what}', data)
            counts[env_seed] += 1
        for process in processes:
            process.join()
        summary = dict(
            player=player,
            steps=steps,
            seed=seed,
            games=len(bricks),
            bricks_per_game=float(np.mean(bricks)) if bricks else 0.0,
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


def _envs_of(archive: zipfile.ZipFile, obs_dtype: str = 'uint8') -> list[Iterator[Any]]:
    """The course of each environment of a recording."""
    names: list[list[str]] = [[] for _ in range(ENVS)]
    for name in archive.namelist():
        if '/' in name:
            names[int(name.split('/')[0])].append(name)
    return [_env_steps(archive, sorted(of_env, key=lambda n: int(n.split('/')[1])), obs_dtype) for of_env in names]


def transitions(path: str, nstep: int = 3, obs_dtype: str = 'uint8') -> Iterator[list[dict]]:
    """A recording as lists of 32 transitions, which the collector of configs/breakout_lean_dqn_config.py pushes; with
    the ``obs_dtype`` 'float32' screens are scaled to [0, 1].
    """
    with zipfile.ZipFile(path) as archive:
        envs = _envs_of(archive, obs_dtype)
        obs = [next(env)[1] for env in envs]
        pieces: list[list] = [[] for _ in envs]
        collected: list[dict] = []
        updates = 0
        while True:
            for i, env in enumerate(envs):
                try:
                    action, timestep = next(env)
                except StopIteration:  # the recording is over
                    return
                # a manager that resets in place hands out the new episode's first stack beside ``done``
                next_obs = next(env)[1] if timestep.done else timestep.obs
                pieces[i].append(
                    dict(
                        obs=obs[i],
                        next_obs=next_obs,
                        action=np.array([action]),
                        reward=timestep.reward,
                        done=timestep.done,
                        collect_iter=updates,
                    )
                )
                obs[i] = next_obs
                if timestep.done or len(pieces[i]) == STEPS_PER_COLLECTION:
                    piece = to_tensor_transitions(pieces[i])
                    collected += get_train_sample(get_nstep_return_data(piece, nstep, gamma=GAMMA), 1)
                    pieces[i] = []
            if len(collected) >= ENVS * STEPS_PER_COLLECTION:
                # as the collector, drop what is beyond
                yield collected[: ENVS * STEPS_PER_COLLECTION]
                collected = []
                updates += UPDATES_PER_COLLECTION


def steps(path: str) -> Iterator[list[tuple]]:
    """A recording step by step, for buffers that are fed so: of each environment stack, action, reward, next stack,
    done and number.
    """
    with zipfile.ZipFile(path) as archive:
        envs = _envs_of(archive)
        obs = [next(env)[1] for env in envs]
        while True:
            row = []
            for i, env in enumerate(envs):
                try:
                    action, timestep = next(env)
                except StopIteration:  # the recording is over
                    return
                row.append((obs[i], np.array(action), timestep.reward[0], timestep.obs, np.array(timestep.done), i))
                obs[i] = next(env)[1] if timestep.done else timestep.obs
            yield row


@click.command(context_settings=dict(show_default=True, help_option_names=['-h', '--help']))
@click.option('--player', type=click.Choice(sorted(PLAYERS)), default='random')
@click.option('--steps', type=int, default=1_000_000, help='Env steps of all 8 environments together.')
@click.option('--out', required=True, help='File to write.')
@click.option('--seed', type=int, default=0)
def main(player: str, steps: int, out: str, seed: int) -> None:
    """Record real play for the benchmarks of replay buffers."""
    summary = record(player, steps, out, seed)
    click.echo(
        f'{out}: {steps:,} env steps of the {player} player in {summary["minutes"]:.1f} min, {summary["games"]} games, '
        f'{summary["bricks_per_game"]:.1f} bricks a game'
    )


if __name__ == '__main__':
    main()
