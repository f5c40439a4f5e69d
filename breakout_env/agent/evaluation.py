"""
Judging an agent: whole games under a protocol with a name, and what their scores say.

- ``nature``: after Mnih et al. 2015. A game starts with 1 to 30 idle frames, and 1 step in 100 plays a random action (1
  in 20 there, in games of 5 minutes).
- ``sticky``: after Machado et al. 2018. In each frame the emulator repeats the previous action with probability 0.25.
  This takes the place of idle starts and of epsilon, which are off.
- ``greedy``: idle starts and nothing else. An agent meets at most 4 different games then, however many it plays.

All of them play games of up to 30 minutes (108,000 frames, after Machado et al. 2018) with 4 frames a step, score them
in points, and press FIRE at the start of a game. They also press it after each lost life unless told otherwise, which
changes the protocol: in the papers the agent has to do so itself.
"""

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import xxhash
from scipy.special import stdtrit

from ..env_manager import GroupEnvManager
from ..envs.env import BreakoutEnv
from ..envs.options import BreakoutOptions
from .agent import Agent
from .card import stated_score

PROTOCOLS: Dict[str, Dict[str, Any]] = dict(
    nature=dict(noop_max=30, random_action_probability=0.01, repeat_action_probability=0.0),
    sticky=dict(noop_max=0, random_action_probability=0.0, repeat_action_probability=0.25),
    greedy=dict(noop_max=30, random_action_probability=0.0, repeat_action_probability=0.0),
)
MAX_EPISODE_FRAMES = BreakoutOptions.model_fields['max_episode_frames'].default
# Fewer different ones say nothing about the spread of scores.
ENOUGH_DIFFERENT_GAMES = 20
# Observations that the network gets at once, filled up where fewer are at hand. Sums are rounded differently in batches
# of another size, which may tip the choice between two actions of nearly the same value, and with it the game: so the
# scores of a seed do not depend on how many environments play.
BATCH_SIZE = 8
# Times that one game may lose its process before the evaluation is given up.
MAX_LOSSES = 3
NORMAL_95 = 1.96  # two-sided quantile of the normal distribution


@dataclass(frozen=True)
class Game(object):
    """
    Overview:
        One game that was played to its end.
    """

    # (int) Which of the evaluation's games it is, from 0; it alone decides about the seed.
    game: int
    # (int) What ``BreakoutEnv.seed(seed, dynamic_seed=False)`` was called with.
    seed: int
    # (int) Which environment played it.
    env: int
    # (float) Points.
    score: float
    # (int) Actions the agent chose.
    steps: int
    # (int) Emulator frames, idle ones at the start included.
    frames: int
    # (bool) Whether it was cut off at the limit of frames.
    truncated: bool
    # (str) Hash (xxh3, 64 bits) of what the agent saw, until shortly before the limit of frames: two games with the
    # same one are the same game.
    digest: str


@dataclass(frozen=True)
class Report(object):
    """
    Overview:
        What an evaluation found.
    Interfaces:
        ``summary``, ``agreement``, ``as_dict``.
    """

    agent: str
    protocol: str
    # (Dict[str, Any]) The environments' config.
    env_options: Dict[str, Any]
    seed: int
    games: Tuple[Game, ...]
    # (float) How long it took.
    duration_s: float
    scores: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, 'scores', np.array([game.score for game in self.games]))

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def std(self) -> float:
        """Standard deviation of a game's score, estimated (divided by the number of games less 1); 0 for one game."""
        return float(self.scores.std(ddof=1)) if len(self.scores) > 1 else 0.0

    @property
    def distinct_games(self) -> int:
        """How many of the games differ in what the agent saw."""
        return len({game.digest for game in self.games})

    @property
    def truncated_games(self) -> int:
        return sum(game.truncated for game in self.games)

    @property
    def too_few_different(self) -> Optional[str]:
        """Why the spread of the scores means nothing, in a sentence; None if it means something."""
        if _enough(self.distinct_games, len(self.games)):
            return None
        return (
            f'an interval would mean nothing: only {self.distinct_games} different games were played in '
            f'{len(self.games)}, and it takes {ENOUGH_DIFFERENT_GAMES} or more, at least half of all'
        )

    @property
    def interval_95(self) -> Optional[Tuple[float, float]]:
        """
        Overview:
            The 95% interval of the mean, by Student's t (Student 1908). It is about the luck of the games, not about \
            that of the training.
        Returns:
            - interval (:obj:`Optional[Tuple[float, float]]`): Low and high; None where too few games differ.
        """
        if self.too_few_different:
            return None
        count = len(self.scores)
        half = float(stdtrit(count - 1, 0.975)) * self.std / count**0.5
        return self.mean - half, self.mean + half

    def summary(self) -> Dict[str, Any]:
        """
        Overview:
            The figures that a card states for a protocol; see ``agent_card``.
        """
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

    def agreement(self, card: Mapping[str, Any]) -> Optional[Tuple[bool, str]]:
        """
        Overview:
            Compare the mean with the one that a card states for this protocol: they agree where their difference is \
            within 1.96 joint standard errors, as 95 of 100 such differences are.
        Arguments:
            - card (:obj:`Mapping[str, Any]`): The agent's card.
        Returns:
            - agreement (:obj:`Optional[Tuple[bool, str]]`): Whether they agree, and a sentence; None if the card \
                states nothing for this protocol, these games differ from its, or too few games are different.
        """
        stated = stated_score(card, self.protocol)
        as_stated = (
            self.env_options['fire_on_life_loss'] and self.env_options['max_episode_frames'] == MAX_EPISODE_FRAMES
        )
        if stated is None or not as_stated or self.too_few_different:
            return None
        if not _enough(stated['distinct_games'], stated['episodes']):
            return None
        joint = (self.std**2 / len(self.games) + stated['std'] ** 2 / stated['episodes']) ** 0.5
        difference = self.mean - stated['mean']
        agrees = abs(difference) <= NORMAL_95 * joint
        return agrees, (
            f'{"agrees" if agrees else "does not agree"} with the card, which states {stated["mean"]:.1f} over '
            f'{stated["episodes"]} games: the difference is {difference:+.1f}, its standard error {joint:.1f}'
        )

    def as_dict(self) -> Dict[str, Any]:
        """
        Overview:
            All of it, for JSON.
        """
        return dict(
            agent=self.agent,
            protocol=self.protocol,
            env_options=self.env_options,
            **self.summary(),
            min=float(self.scores.min()),
            max=float(self.scores.max()),
            truncated_games=self.truncated_games,
            too_few_different=self.too_few_different,
            duration_s=self.duration_s,
            games=[asdict(game) for game in self.games],
        )


def evaluate(
    agent: Agent,
    protocol: str = 'nature',
    episodes: int = 100,
    seed: int = 0,
    fire: bool = True,
    env_num: int = 8,
    max_episode_frames: int = MAX_EPISODE_FRAMES,
    on_step: Optional[Callable[[int, Sequence[Game]], None]] = None,
) -> Report:
    """
    Overview:
        Play whole games. Which games they are is fixed by their numbers before the first one begins, and each is \
        played to its end: taking the first ones to end would favour short, bad games. A game whose process dies is \
        played again, from its own seed.
    Arguments:
        - agent (:obj:`Agent`): Who plays.
        - protocol (:obj:`str`): One of ``PROTOCOLS``.
        - episodes (:obj:`int`): How many games.
        - seed (:obj:`int`): Of the games. The same seed gives the same scores on the same machine, whatever \
            ``env_num`` is; the first games of a longer evaluation are those of a shorter one.
        - fire (:obj:`bool`): Press FIRE after a lost life. It changes the protocol: say so beside a score.
        - env_num (:obj:`int`): Games under way at the same time, in as many processes as there are cores.
        - max_episode_frames (:obj:`int`): Emulator frames after which a game is cut off.
        - on_step (:obj:`Optional[Callable]`): Called after each step with the number of agent steps so far and the \
            games that have ended, for progress.
    Returns:
        - report (:obj:`Report`): What was found, the games by number.
    Raises:
        - ValueError: If an argument is none that will do.
        - RuntimeError: If processes die again and again, or an environment can not be reset.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f'the protocol is {protocol!r}; expected one of {", ".join(PROTOCOLS)}')
    for name, value, least in (('episodes', episodes, 1), ('seed', seed, 0), ('env_num', env_num, 1)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f'{name} is {value!r}; expected a whole number of {least} or more')
    options = dict(
        PROTOCOLS[protocol],
        **agent.env_options,
        is_train=False,
        fire_on_life_loss=fire,
        max_episode_frames=max_episode_frames,
    )
    BreakoutOptions.from_config(options)  # an error here is met before any process is started
    start = time.perf_counter()
    seeds = [int(each) for each in np.random.SeedSequence(seed).generate_state(episodes)]
    games = _Games(agent, options, seeds, min(env_num, episodes)).play(on_step)
    return Report(agent.name, protocol, options, int(seed), tuple(games), time.perf_counter() - start)


class _GameUnderWay(object):
    """What is noted of a game while it is played."""

    def __init__(self, number: int, obs: np.ndarray, digest_frames: int) -> None:
        self.number, self.steps = number, 0
        self._digest, self._digest_frames = xxhash.xxh3_64(np.ascontiguousarray(obs)), digest_frames
        self._first_frame: Optional[int] = None

    def note(self, obs: np.ndarray, frame: int) -> None:
        self.steps += 1
        if self._first_frame is None:
            self._first_frame = frame
        if frame - self._first_frame <= self._digest_frames:
            self._digest.update(np.ascontiguousarray(obs))

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


class _Games(object):
    """Games with numbers, handed out to environments one by one."""

    def __init__(self, agent: Agent, options: Dict[str, Any], seeds: List[int], env_num: int) -> None:
        self._agent, self._seeds = agent, seeds
        # auto_reset off: each game gets a seed of its own before it is reset
        self._env = GroupEnvManager([partial(BreakoutEnv, options)] * env_num, dict(auto_reset=False))
        # One game after more and after fewer idle frames is the same game, though the limit cuts it off earlier: what
        # lies so close to the limit that this would show is left out of the digest.
        close_to_limit = options['noop_max'] + 4 * BreakoutOptions.frame_skip
        self._digest_frames = options['max_episode_frames'] - close_to_limit
        self._left = deque(range(len(seeds)))
        self._under_way: Dict[int, _GameUnderWay] = {}
        self._ended: List[Game] = []
        self._losses = [0] * len(seeds)

    def play(self, on_step: Optional[Callable[[int, Sequence[Game]], None]]) -> List[Game]:
        steps = 0
        try:
            numbers = {env_id: self._left.popleft() for env_id in range(self._env.env_num)}
            self._env.seed({env_id: self._seeds[number] for env_id, number in numbers.items()}, dynamic_seed=False)
            self._env.launch()
            self._begin(numbers)
            while self._under_way:
                obs = self._env.ready_obs
                actions = _act(self._agent, [obs[env_id] for env_id in self._under_way])
                timesteps = self._env.step(dict(zip(self._under_way, actions)))
                steps += len(actions)
                self._take(timesteps)
                if on_step is not None:
                    on_step(steps, self._ended)
        finally:
            self._env.close()
        return sorted(self._ended, key=lambda game: game.game)

    def _take(self, timesteps: Mapping[int, Any]) -> None:
        """Note a step of each game, and begin the next ones where games have ended or were lost."""
        numbers: Dict[int, int] = {}
        for env_id, timestep in timesteps.items():
            if env_id not in self._under_way:  # its process was lost while it had nothing to play
                continue
            game = self._under_way[env_id]
            if timestep.info.get('abnormal', False):
                self._losses[game.number] += 1
                if self._losses[game.number] == MAX_LOSSES:
                    error = timestep.info['error']
                    raise RuntimeError(
                        f'game {game.number} lost its process {MAX_LOSSES} times, the last time: {error}'
                    )
                numbers[env_id] = game.number
                continue
            game.note(timestep.obs, timestep.info['episode_frame_number'])
            if timestep.done:
                self._ended.append(self._record(env_id, game, timestep.info))
                del self._under_way[env_id]
                if self._left:
                    numbers[env_id] = self._left.popleft()
        if numbers:
            self._env.seed({env_id: self._seeds[number] for env_id, number in numbers.items()}, dynamic_seed=False)
            self._env.reset({env_id: {} for env_id in numbers})
            self._begin(numbers)

    def _begin(self, numbers: Mapping[int, int]) -> None:
        obs = self._env.ready_obs
        for env_id, number in numbers.items():
            self._under_way[env_id] = _GameUnderWay(number, obs[env_id], self._digest_frames)

    def _record(self, env_id: int, game: _GameUnderWay, info: Mapping[str, Any]) -> Game:
        return Game(
            game=game.number,
            seed=self._seeds[game.number],
            env=env_id,
            score=float(info['eval_episode_return']),
            steps=game.steps,
            frames=int(info['episode_frame_number']),
            truncated=bool(info['TimeLimit.truncated']),
            digest=game.digest,
        )


def _act(agent: Agent, observations: List[np.ndarray]) -> np.ndarray:
    count = len(observations)
    batch = np.zeros((-(-count // BATCH_SIZE) * BATCH_SIZE, *observations[0].shape), dtype=np.uint8)
    np.stack(observations, out=batch[:count])
    parts = [agent.act(batch[i : i + BATCH_SIZE]) for i in range(0, len(batch), BATCH_SIZE)]
    return np.concatenate(parts)[:count]


def _enough(distinct_games: int, episodes: int) -> bool:
    return distinct_games >= ENOUGH_DIFFERENT_GAMES and 2 * distinct_games >= episodes
