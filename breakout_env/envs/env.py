"""Breakout by DI-engine's environment contract."""

import copy
import os
import weakref
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Annotated, Any, Literal, TypeVar

import gym  # DI-engine checks spaces by the classes of gym, not of gymnasium
import numpy as np
from ding.envs import BaseEnv, BaseEnvTimestep
from ding.utils import ENV_REGISTRY
from easydict import EasyDict
from typing_extensions import Self

from ..compat.ding_worker_interrupts import leave_ctrl_c_to_manager
from ..compat.gym_space_copies import copied_space
from ..rendering.video import GameRecorder
from ..rendering.window import GameWindow
from ..utils.options import Between, as_dict, checked_seed, describe, validate
from .emulator import Emulator
from .game import Game
from .options import BreakoutOptions
from .pixel_check import check_pixels, fill_in_sizes
from .preprocessing import observe
from .resources import Resources, State

# Environments of one pipeline: beyond some thousands it is a mistake, or a matter for several machines.
ENV_COUNT = Annotated[int, Between(1, 4096)]
_Caller = Literal['collector', 'evaluator']
_Resource = TypeVar('_Resource')


@ENV_REGISTRY.register('breakout')
class BreakoutEnv(BaseEnv):
    """Atari Breakout with DQN's preprocessing (Mnih et al. 2015): gray screens, max-pooled over the last two frames of
    a step, resized by area interpolation and stacked. The constructor only checks its config and makes the spaces;
    ``reset`` opens the emulator or reuses the open one; ``close`` releases everything. A copy, deep, shallow or
    unpickled, is a closed environment with the same options, seed and replay folder.

    Examples:
        >>> env = BreakoutEnv(dict(frame_skip=4, noop_max=30))
        >>> env.seed(0)
        >>> env.reset().shape
        (4, 84, 84)
        >>> timestep = env.step(env.random_action())
        >>> timestep.reward, timestep.done, timestep.info['lives']
        (array([0.], dtype=float32), False, 5)
        >>> env.close()
    """

    # Class attributes, so that an instance whose subclass constructor raised can still be closed and copied.
    _seed: int | None = None
    _seed_is_new = True
    _replay_folder: str | None = None
    # The config that the class was called with: a subclass may have options that it does not hand on.
    _cfg: Any
    # State of one environment that is never copied: open resources, the random generators of games and emulators, and
    # the game in progress, which is an attribute only while the emulator is open.
    _resources: Resources
    _rngs: tuple[np.random.Generator, np.random.Generator]
    _game: Game
    _NOT_COPIED = frozenset(['_resources', '_rngs', '_game', '_seed_is_new', '_np_random'])  # the last one is gym's

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        env = super().__new__(cls)
        env._resources = Resources()
        env._cfg = args[0] if args else kwargs.get('cfg', {})
        leave_ctrl_c_to_manager()
        weakref.finalize(env, env._resources.close)  # at garbage collection or at exit, whichever comes first
        return env

    def __init__(self, cfg: Mapping = {}) -> None:
        """``cfg``: ``BreakoutOptions``, dict or EasyDict. A ValueError names an option that is wrong."""
        self._options = options = BreakoutOptions.from_config(cfg)
        self._cfg = copy.deepcopy(self._cfg)
        sizes = options.model_sizes
        low, high, dtype = (0, 255, np.uint8) if options.obs_dtype == 'uint8' else (0.0, 1.0, np.float32)
        self.observation_space = gym.spaces.Box(low, high, tuple(sizes['obs_shape']), dtype)
        self._action_count = sizes['action_shape']  # a subclass may have another action space
        self.action_space = gym.spaces.Discrete(self._action_count)
        low, high = (options.life_loss_penalty, 1.0) if options.clip_reward else (-np.inf, np.inf)
        self.reward_space = gym.spaces.Box(low, high, (1,), np.float32)

    @property
    def _env(self) -> Emulator:
        """The open emulator, for ``ding.utils.render``; an AttributeError before ``reset`` and after ``close``, as
        DI-engine's ``env_implementation_check`` expects.
        """
        return self._game.emulator

    def __reduce__(self) -> tuple[Callable, tuple, dict[str, object]]:
        not_copied = self._NOT_COPIED.union(self._names_of_resources())
        state = {name: value for name, value in vars(self).items() if name not in not_copied}
        for name, value in state.items():
            if isinstance(value, gym.spaces.Space):
                state[name] = copied_space(value)
        return type(self).__new__, (type(self),), state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        if self._seed is not None:
            self.seed(self._seed)

    def reset(self) -> np.ndarray:
        """Begin an episode. After a lost life (``episodic_life``) the game continues after one no-op step, unless
        ``seed`` was called in between; in all other cases a new game starts.

        Raises:
            HelperError: If ``render_mode='human'`` finds no display or no pygame.
            OSError: If the replay folder can't be written to.
        Shapes:
            obs: :math:`(F, S, S)`, a new array, F ``frame_stack``, S ``screen_size``.
        """
        resources = self._resources
        try:
            game_continues = resources.state is State.LIFE_LOST and not self._seed_is_new and self._game.resume()
            if not game_continues:
                if self._open():
                    self.open_resources()
                self._choose_recorder()
                self._game.start()
            resources.enter(State.PLAYING, 'the game continues' if game_continues else 'a game begins')
            self._seed_is_new = False
            return observe(self._game.stack, self._options.obs_dtype)
        except BaseException:  # if reset fails part-way, close everything
            self.close()
            raise

    def _open(self) -> bool:
        """Open emulator and window, or reuse the open ones; seed where that is due. Returns whether it opened them."""
        options, resources = self._options, self._resources
        if self._seed_is_new:
            # two streams, so that the no-ops are the same whether an emulator is opened or reused
            of_games, of_emulators = map(np.random.default_rng, np.random.SeedSequence(self._seed).spawn(2))
            self._rngs = of_games, of_emulators
        of_games, of_emulators = self._rngs
        if resources.state is not State.CLOSED:
            if self._seed_is_new:
                self._game.use(of_games)
                if options.repeat_action_probability > 0:
                    self._env.reload(int(of_emulators.integers(2**31)))
            resources.log(f'reused emulator {resources.numbers["emulator"]}')
            return False
        emulator = Emulator(int(of_emulators.integers(2**31)), options)
        resources.own('emulator', emulator)
        self._game = Game(options, emulator, of_games)
        if options.render_mode == 'human':
            window = GameWindow('Breakout', options.frame_skip)
            resources.own('window', window)
            self._game.show = window.show
        return True

    def _choose_recorder(self) -> None:
        """Have the next game recorded if ``enable_save_replay`` says so."""
        folder, recorder = self._replay_folder, self._game.recorder
        if recorder is not None:
            recorder.end()  # the game before may be unfinished
        if folder is not None and (recorder is None or recorder.folder != folder):
            recorder = self._game.recorder = GameRecorder(folder, self._options.frame_skip)
            self._resources.own('recorder', recorder, GameRecorder.end)
        if recorder is not None:
            seed = '' if self._seed is None else f'-seed{self._seed}'
            recorder.name = f'breakout{seed}-process{os.getpid()}'

    def open_resources(self) -> None:
        """A hook for subclasses that need more than the game, such as a controller or a socket. ``reset`` calls it when
        it has opened the emulator: the first time, and after each ``close``.

        Examples:
            >>> class TiltedBreakout(BreakoutEnv):
            ...     def open_resources(self):
            ...         self.sensor = self.own(Sensor('/dev/ttyUSB0'), Sensor.disconnect)
        """

    def own(self, resource: _Resource, release: Callable[[_Resource], object] | None = None) -> _Resource:
        """Hand over a resource that was just opened. The environment releases it once: in ``close``, after an error in
        ``reset`` or ``step``, at garbage collection, or when the interpreter exits, and only in the process that handed
        it over. ``close`` also deletes the attribute that holds it, and copies do not get it.

        Arguments:
            resource: An object, not a file descriptor. Keep it in an attribute, not in a list. It is returned.
            release: Called with the resource; its ``close`` by default. A failure is logged. It must not refer to the
                environment, which could not be garbage collected then.
        Raises:
            ValueError: If the resource is a number or None, or ``release`` is not a function of the resource.
        """
        if resource is None or isinstance(resource, int):  # other attributes may have this value
            raise ValueError(f'the resource is {describe(resource)}; expected an object, such as os.fdopen returns')
        if release is None and callable(getattr(resource, 'close', None)):
            release = methodcaller('close')
        if not callable(release) or getattr(release, '__self__', None) is self:
            found = f'the release of {describe(resource)} is {describe(release)}'
            raise ValueError(f'{found}; expected a function of the resource, not a method of the environment')
        self._resources.own(type(resource).__name__, resource, release)
        return resource

    def _names_of_resources(self) -> list[str]:
        """The attributes that hold what ``own`` was given."""
        resources = set(map(id, self._resources.owned))
        return [name for name, value in vars(self).items() if id(value) in resources]

    def step(self, action: object) -> BaseEnvTimestep:
        """Repeat an action for ``frame_skip`` frames.

        Arguments:
            action: Its index: an int, or an integer array or tensor with one element.
        Returns:
            ``obs`` as from ``reset``, ``reward`` of shape (1, ), float32, ``done`` and ``info`` with ``lives`` and
            ``episode_frame_number``; when done also ``eval_episode_return``, the points of this episode without
            clipping and penalties, and ``TimeLimit.truncated``; at the end of a game also ``game_return``, the points
            of the full game, unless it began late (``late_start_probability``).
        Raises:
            ValueError: If the action is not one of ``action_space``. The episode continues.
            RuntimeError: If no episode is running.
        """
        resources, options = self._resources, self._options
        if resources.state is not State.PLAYING:
            raise RuntimeError(f'BreakoutEnv.step was called in state {resources.state.value!r}; call reset first')
        index, game = self._index_of(action), self._game
        try:
            points, life_lost = game.step(index)
        except BaseException:  # an interrupted emulator is in no defined state; reset opens another
            self.close()
            raise
        reward: float = np.sign(points) if options.clip_reward else points
        if life_lost:
            reward += options.life_loss_penalty
        ale, game_over = game.emulator.ale, game.is_over
        done = game_over or (life_lost and options.episodic_life)
        info: dict[str, object] = {'lives': game.lives, 'episode_frame_number': ale.getEpisodeFrameNumber()}
        if done:
            points, state = game.episode_points, State.GAME_OVER if game_over else State.LIFE_LOST
            resources.enter(state, f'the episode ended with {points} points')
            info['eval_episode_return'] = np.float32(points)
            # a time limit that falls on the end of the life or the game truncates nothing
            ended = game.lives == 0 or (life_lost and options.episodic_life)
            info['TimeLimit.truncated'] = ale.game_truncated() and not ended
        if game_over:
            if not game.is_late:
                info['game_return'] = np.float32(game.points)
            if game.recorder is not None:
                game.recorder.end(game.points)
        obs = observe(game.stack, options.obs_dtype)
        return BaseEnvTimestep(obs, np.array([reward], dtype=np.float32), done, info)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Seed the games from the next ``reset`` on, which starts a new one. The same seed and actions give the same
        observations, rewards and ends in every process. numpy's global state does not change.

        Arguments:
            seed: 0 or more; a ValueError for anything else.
            dynamic_seed: For DI-engine's contract. Either value gives a sequence of different games that the seed
                fixes: with the very same game at each reset, a mean over games would be one over a single game.
        """
        self._seed, self._seed_is_new = checked_seed(seed), True
        self.action_space.seed(self._seed)

    def close(self) -> None:
        """Release emulator, window, recorder and what ``own`` was given; complete a video that is being recorded. May
        be called at any time, any number of times. A release that fails does not prevent the others. Takes less than 5
        seconds, plus the time of a subclass's resources: a window or an encoder that hangs is killed, with a warning.
        """
        for name in self._names_of_resources():
            del self.__dict__[name]
        self.__dict__.pop('_game', None)
        self._resources.close()

    def render(self, mode: str = 'rgb_array') -> np.ndarray:
        """As ``Emulator.render``; a RuntimeError before ``reset`` and after ``close``."""
        if self._resources.state is State.CLOSED:
            raise RuntimeError('BreakoutEnv.render was called without a game; call reset first')
        return self._env.render(mode)

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Record each game from the next one on into a new video file, in ``./video`` by default."""
        self._replay_folder = os.path.abspath('./video' if replay_path is None else replay_path)

    def random_action(self) -> np.ndarray:
        """A uniformly random action for ``step``, of shape (1, ); ``seed`` fixes the sequence."""
        return np.array([self.action_space.sample()], dtype=np.int64)

    def __repr__(self) -> str:
        return f'BreakoutEnv({self._options!r}, state={self._resources.state.value!r})'

    @classmethod
    def check_config(cls, cfg: EasyDict) -> None:
        """Check ``cfg.env`` of a merged config; a ValueError names what is wrong. Fills in sizes of the model."""
        policy, env = cfg['policy'], cfg['env']
        collector = cls(cls.create_collector_env_cfg(env)[0])  # opens nothing
        evaluator = cls(cls.create_evaluator_env_cfg(env)[0])
        fill_in_sizes(policy, collector)
        check_pixels(policy, 'collector', collector)
        check_pixels(policy, 'evaluator', evaluator)

    @staticmethod
    def create_collector_env_cfg(cfg: dict) -> list[dict]:
        """One config for each of ``collector_env_num`` environments, with ``is_train=True``, from DI-engine's
        ``cfg.env``, which is not changed. A ValueError names an option that is wrong.
        """
        return _env_cfgs(cfg, 'collector')

    @staticmethod
    def create_evaluator_env_cfg(cfg: dict) -> list[dict]:
        """The same for ``evaluator_env_num`` environments, with ``is_train=False``."""
        return _env_cfgs(cfg, 'evaluator')

    def clone(self, caller: str = 'collector') -> Self:
        """A new, closed environment of the same class and config, with the options of a collector or an evaluator,
        without the seed and replay folder. DI-engine's Agent API (``ding.bonus``) and ``setup_ding_env_manager`` make
        their environments so.
        """
        role = validate('argument', 'caller', caller, _Caller)
        cfg = copy.deepcopy(self._cfg)
        cfg[f'{role}_env_num'] = 1
        make = self.create_collector_env_cfg if role == 'collector' else self.create_evaluator_env_cfg
        return type(self)(make(cfg)[0])

    def _index_of(self, action: object) -> int:
        array, highest = whole_numbers(action), self._action_count - 1
        if array.size != 1 or not 0 <= array.item() <= highest:
            raise ValueError(f'the action is {describe(action)}; expected one whole number from 0 to {highest}')
        return array.item()


def whole_numbers(actions: object) -> np.ndarray:
    """Actions as an array; an empty one if they are not whole numbers."""
    try:
        array = np.asarray(actions)
    except (TypeError, ValueError, RuntimeError):  # a tensor on a GPU or with a gradient, a ragged list
        array = np.zeros(0)
    return array if array.dtype.kind in 'iu' else np.zeros(0, np.int64)


def _env_cfgs(cfg: dict, role: str) -> list[dict]:
    given = as_dict('the config of BreakoutEnv', cfg)
    count = validate('env option', f'{role}_env_num', given.get(f'{role}_env_num'), ENV_COUNT)
    is_train = role == 'collector'
    options = BreakoutOptions.from_config({**cfg, 'is_train': is_train})  # raises before any process is started
    own = as_dict(f'env option `{role}`', cfg.get(role))
    cfgs = [copy.deepcopy(cfg) for _ in range(count)]
    for env_cfg in cfgs:
        env_cfg['is_train'] = is_train
    if options.render_mode == 'human':
        shows = is_train or 'render_mode' in own
        for env_cfg in cfgs[1:] if shows else cfgs:
            env_cfg[role] = {**own, 'render_mode': None}
    return cfgs
