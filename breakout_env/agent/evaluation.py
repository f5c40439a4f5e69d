"""Evaluating an agent: full games under a named protocol, and what their scores say.

- ``nature``: after Mnih et al. 2015. A game starts with 1 to 30 no-ops, and 1 step in 100 plays a random action (1 in
  20 there, in games of 5 minutes).
- ``sticky``: after Machado et al. 2018. In each frame the emulator repeats the previous action with probability 0.25.
  This replaces no-op starts and epsilon, which are off.
- ``greedy``: no-op starts and nothing else. A greedy agent then plays 4 different games, a few more past frame 65,536
  (a 16-bit counter overflows).

All of them play games of up to 30 minutes (108,000 frames, after Machado et al. 2018) with as many frames a step as the
agent was trained with (4 in the papers), score them in points, and press FIRE at the start of a game. They also press
it after each lost life unless told otherwise, which changes the protocol: in the papers the agent has to do so itself.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import xxhash
from ding.envs import BaseEnvTimestep
from scipy.special import stdtrit

from ..env_manager import GroupEnvManager
from ..env_manager.shared_buffers import is_abnormal
from ..envs.env import BreakoutEnv
from ..envs.options import BreakoutOptions
from ..utils.options import Between, validate
from .agent import Agent, choose_actions

PROTOCOLS: dict[str, dict[str, Any]] = dict(
    nature=dict(noop_max=30, random_action_probability=0.01, repeat_action_probability=0.0),
    sticky=dict(noop_max=0, random_action_probability=0.0, repeat_action_probability=0.25),
    greedy=dict(noop_max=30, random_action_probability=0.0, repeat_action_probability=0.0),
)
MAX_EPISODE_FRAMES, FRAME_SKIP = BreakoutOptions().max_episode_frames, BreakoutOptions().frame_skip
# With fewer, the spread of the scores is meaningless.
ENOUGH_DIFFERENT_GAMES = 20
# The network always gets this many observations at once, padded where fewer are at hand. In batches of another size,
# sums are rounded differently, which can tip the choice between two actions of nearly the same value, and with it the
# game: this way the scores of a seed do not depend on how many environments play.
BATCH_SIZE = 8
# How often one game may lose its process before the evaluation fails.
MAX_LOSSES = 3


@dataclass(frozen=True)
class Game:
    """One game that was played to its end."""

    game: int  # its number in the evaluation, from 0, which alone determines the seed
    seed: int  # what ``BreakoutEnv.seed`` was called with
    score: float
    steps: int  # actions the agent chose
    frames: int  # of the emulator, with the no-ops at the start
    truncated: bool  # at the limit of frames
    # Hash (xxh3, 64 bits) of the observations, until shortly before the limit of frames: two games with the same digest
    # are the same game.
    digest: str


@dataclass(frozen=True)
class Report:
    """What an evaluation found."""

    agent: str  # its name
    protocol: str
    env_options: dict[str, Any]
    seed: int
    games: tuple[Game, ...]
    duration_s: float

    @property
    def scores(self) -> np.ndarray:
        return np.array([game.score for game in self.games])

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        """Standard deviation of a game's score, estimated (divided by the number of games less 1); 0 for one game."""
        return float(self.scores.std(ddof=1)) if len(self.games) > 1 else 0.0

    @property
    def distinct_games(self) -> int:
        """How many of the games differ in what the agent saw."""
        return len({game.digest for game in self.games})

    @property
    def truncated_games(self) -> int:
        """How many of the games were cut off at the limit of frames."""
        return sum(game.truncated for game in self.games)

    @property
    def too_few_different(self) -> str | None:
        """Why the spread of the scores is meaningless; None if it is not."""
        if self.distinct_games >= max(ENOUGH_DIFFERENT_GAMES, len(self.games) / 2):
            return None
        return (
            f'no 95% interval is given: it needs at least {ENOUGH_DIFFERENT_GAMES} different games, and at least half '
            f'of all games must be different. Here {self.distinct_games} of {len(self.games)} are different'
        )

    @property
    def interval_95(self) -> tuple[float, float] | None:
        """The 95% interval of the mean, by Student's t (Student 1908); None where too few games differ. It is about the
        luck of the games, not about that of the training.
        """
        if self.too_few_different:
            return None
        count = len(self.games)
        half = float(stdtrit(count - 1, 0.975)) * self.std / count**0.5
        return self.mean - half, self.mean + half

    def summary(self) -> dict[str, Any]:
        """The figures that a card states for a protocol; ``interval_95`` is [low, high], or None."""
        interval = self.interval_95
        return dict(
            mean=self.mean,
            std=self.std,
            median=float(np.median(self.scores)),
            interval_95=None if interval is None else list(interval),
            episodes=len(self.games),
            distinct_games=self.distinct_games,
            seed=self.seed,
        )

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return dict(
            asdict(self),
            **self.summary(),
            min=float(self.scores.min()),
            max=float(self.scores.max()),
            truncated_games=self.truncated_games,
            too_few_different=self.too_few_different,
        )


def evaluate(
    agent: Agent,
    protocol: str = 'nature',
    episodes: int = 100,
    seed: int = 0,
    fire: bool = True,
    env_num: int = 8,
    max_episode_frames: int = MAX_EPISODE_FRAMES,
    on_step: Callable[[int, Sequence[Game]], None] | None = None,
) -> Report:
    """Play full games. Their seeds are fixed before the first one begins, and each is played to its end: taking the
    first ones to end would favour short, bad games. A game whose process dies is played again, from its own seed.

    Arguments:
        protocol: One of ``PROTOCOLS``.
        seed: Of the games. The same seed gives the same scores on the same machine, whatever ``env_num`` is; the first
            games of a longer evaluation equal a shorter one's.
        fire: Press FIRE after a lost life. It changes the protocol: state it beside a score.
        env_num: Games that are played at the same time, in as many processes as there are cores.
        max_episode_frames: Emulator frames after which a game is cut off.
        on_step: Called after each step with the number of agent steps so far and the games that have ended, for
            progress.
    Raises:
        RuntimeError: If a game keeps losing its process, or an environment cannot be reset.

    Examples:
        >>> from breakout_env.agent import load_agent
        >>> report = evaluate(load_agent(), 'greedy', episodes=2, max_episode_frames=400)
        >>> report.truncated_games, report.too_few_different is None
        (2, False)
    """
    owner = 'evaluation option'
    validate(owner, 'protocol', protocol, Literal[tuple(PROTOCOLS)])
    episodes = validate(owner, 'episodes', episodes, Annotated[int, Between(1, 1_000_000)])
    seed = validate(owner, 'seed', seed, Annotated[int, Between(0, 2**63 - 1)])
    env_num = validate(owner, 'env_num', env_num, Annotated[int, Between(1, 1024)])
    options = dict(
        PROTOCOLS[protocol],
        **agent.env_options,
        is_train=False,
        fire_on_life_loss=fire,
        max_episode_frames=max_episode_frames,
    )
    env_options = BreakoutOptions.from_config(options)  # raises before any process is started
    # A game that starts with more no-ops is cut off earlier, and is still the same game: its digest leaves out what is
    # so close to the limit that this would show.
    digest_frames = env_options.max_episode_frames - env_options.noop_max - 4 * env_options.frame_skip
    start = time.perf_counter()
    seeds = np.random.SeedSequence(seed).generate_state(episodes).tolist()
    # auto_reset off: each game gets its own seed before it is reset
    env = GroupEnvManager([partial(BreakoutEnv, options)] * min(env_num, episodes), dict(auto_reset=False))
    with contextlib.closing(env):
        games, steps = _Games(env, seeds, digest_frames), 0
        while games.running:
            steps += games.step(agent)
            if on_step is not None:
                on_step(steps, games.ended)
    in_order = sorted(games.ended, key=lambda game: game.game)
    return Report(agent.name, protocol, options, seed, tuple(in_order), time.perf_counter() - start)


class _RunningGame:
    """A game while it is played."""

    def __init__(self, number: int, seed: int, obs: np.ndarray) -> None:
        self.number, self.seed, self.steps, self.first_frame = number, seed, 0, 0
        self.rng = np.random.default_rng(seed)  # for an agent that draws its actions
        self.digest = xxhash.xxh3_64(np.ascontiguousarray(obs).data)

    def take(self, timestep: BaseEnvTimestep, digest_frames: int) -> Game | None:
        """Count a step; returns the game if that was its last one."""
        frame, self.steps = timestep.info['episode_frame_number'], self.steps + 1
        if self.steps == 1:
            self.first_frame = frame
        if frame - self.first_frame <= digest_frames:
            self.digest.update(np.ascontiguousarray(timestep.obs).data)
        if not timestep.done:
            return None
        return Game(
            game=self.number,
            seed=self.seed,
            score=float(timestep.info['eval_episode_return']),
            steps=self.steps,
            frames=int(frame),
            truncated=bool(timestep.info['TimeLimit.truncated']),
            digest=self.digest.hexdigest(),
        )


class _Games:
    """Hands the games of an evaluation to environments one by one, until each has been played to its end."""

    def __init__(self, env: GroupEnvManager, seeds: list[int], digest_frames: int) -> None:
        self._env, self._seeds, self._digest_frames = env, seeds, digest_frames
        self._waiting = deque(range(len(seeds)))
        self._losses = [0] * len(seeds)
        self.running: dict[int, _RunningGame] = {}  # by environment
        self.ended: list[Game] = []
        self._begin({env_id: self._waiting.popleft() for env_id in range(env.env_num)})

    def step(self, agent: Agent) -> int:
        """Play a step of each running game; returns how many."""
        obs = self._env.ready_obs
        draws = [game.rng.random() for game in self.running.values()]
        actions = _act(agent, [obs[env_id] for env_id in self.running], draws)
        next_games: dict[int, int] = {}
        for env_id, timestep in self._env.step(dict(zip(self.running, actions))).items():
            game = self.running.get(env_id)
            if game is None:  # the environment lost its process while it had no game to play
                continue
            if is_abnormal(timestep.info):
                self._losses[game.number] += 1
                if self._losses[game.number] == MAX_LOSSES:
                    lost = f'game {game.number} lost its process {MAX_LOSSES} times'
                    raise RuntimeError(f'{lost}, the last time: {timestep.info["error"]}')
                next_games[env_id] = game.number
            elif (record := game.take(timestep, self._digest_frames)) is not None:
                del self.running[env_id]
                self.ended.append(record)
                if self._waiting:
                    next_games[env_id] = self._waiting.popleft()
        if next_games:
            self._begin(next_games)
        return len(actions)

    def _begin(self, games: Mapping[int, int]) -> None:
        """Begin games, by environment, from their seeds."""
        env = self._env
        env.seed({env_id: self._seeds[number] for env_id, number in games.items()}, dynamic_seed=False)
        if env.closed:
            env.launch()
        else:
            env.reset({env_id: {} for env_id in games})
        obs = env.ready_obs
        for env_id, number in games.items():
            self.running[env_id] = _RunningGame(number, self._seeds[number], obs[env_id])


def _act(agent: Agent, observations: list[np.ndarray], draws: list[float]) -> np.ndarray:
    count = len(observations)
    missing = -count % BATCH_SIZE
    batch = np.stack(observations + missing * [np.zeros_like(observations[0])])
    chances = np.pad(draws, (0, missing))
    starts = range(0, len(batch), BATCH_SIZE)
    parts = [choose_actions(agent, batch[i : i + BATCH_SIZE], chances[i : i + BATCH_SIZE]) for i in starts]
    return np.concatenate(parts)[:count]
