"""Breakout as DI-engine's environment contract asks for it."""

import contextlib
import copy
import logging
import os
import weakref
from enum import Enum
from typing import Annotated, Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

import gym  # DI-engine checks spaces by the classes of gym, not of gymnasium
import numpy as np
from ding.envs import BaseEnv, BaseEnvTimestep
from ding.utils import ENV_REGISTRY

from ..rendering.video import GameRecorder
from ..rendering.window import GameWindow
from ..utils.game_constants import FIRE, NOOP, SCREEN_SHAPE
from ..utils.options import Between, checked, section, shown
from ..utils.resources import ResourceWatch, watch_of_process
from .emulator import Emulator
from .model_sizes import fit_model_sizes
from .options import BreakoutOptions
from .pixel_check import fitting_obs_dtype
from .preprocessing import fill_stack, observe, push_frame

logger = logging.getLogger(__name__)
# Environments of one pipeline: beyond some thousands it is a mistake, or a matter for several machines.
_COUNT = Annotated[int, Between(1, 4096)]
_Resource = Union[Emulator, GameWindow, GameRecorder]
# Attributes of an instance that its copies do not get: what is open, and the course of its games.
_NOT_COPIED = frozenset(
    ['_resources', '_env', '_recorder', '_window', '_watch', '_state', '_rng', '_emulator_rng', '_seed_is_new']
    + ['_stack', '_stacked_screen', '_lives', '_game_points', '_episode_points', '_np_random']
)


class _State(Enum):
    CLOSED = 'closed'
    PLAYING = 'playing'
    LIFE_LOST = 'life lost'  # the episode has ended, the game has not
    GAME_OVER = 'game over'


@ENV_REGISTRY.register('breakout')
class BreakoutEnv(BaseEnv):
    """
    Overview:
        Atari Breakout with DQN's preprocessing (Mnih et al. 2015): gray screens, max-pooled over the last two frames \
        of a step, resized by area interpolation and stacked. The constructor only checks its config. ``reset`` opens \
        the emulator or reuses the open one, ``close`` releases everything, and after that ``reset`` opens a new one. \
        ``observation_space``, ``action_space`` and ``reward_space`` are known before the first ``reset``. A copy, \
        deep, shallow or unpickled, is an environment of its own: closed, with the same options, seed and replay folder.
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

    # An attribute only while the emulator is open: ``ding.utils.render`` and DI-engine's evaluator use it, and
    # ``ding.envs.env.env_implementation_check`` expects that it does not exist before the first ``reset``.
    _env: Emulator
    # created by ``reset``
    _rng: np.random.Generator
    _emulator_rng: np.random.Generator
    _stack: np.ndarray
    _stacked_screen: np.ndarray  # what the newest frame was resized from
    # Before ``reset``; of the class, as ``close`` may be called where the constructor of a subclass raised first.
    _state = _State.CLOSED
    _seed: Optional[int] = None
    _seed_is_new = True
    _replay_folder: Optional[str] = None
    _recorder: Optional[GameRecorder] = None
    _window: Optional[GameWindow] = None
    _watch: Optional[ResourceWatch] = None
    _lives = _game_points = _episode_points = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> 'BreakoutEnv':
        env = super().__new__(cls)
        # Everything that close releases. It is an object of its own so that it can be released when this instance is
        # garbage collected or the interpreter exits, whichever comes first, without keeping the instance alive.
        env._resources = contextlib.ExitStack()
        weakref.finalize(env, env._resources.close)
        return env

    def __init__(self, cfg: Mapping = {}) -> None:
        """
        Arguments:
            - cfg (:obj:`Mapping`): Options as in ``BreakoutOptions``, dict or EasyDict; ``{}`` for a collector's \
                defaults.
        Raises:
            - ValueError: If an option is unknown or its value is not allowed.
        """
        self._options = options = BreakoutOptions.from_config(cfg)
        shape = (options.frame_stack, options.screen_size, options.screen_size)
        low, high, dtype = (0, 255, np.uint8) if options.obs_dtype == 'uint8' else (0.0, 1.0, np.float32)
        self.observation_space = gym.spaces.Box(low, high, shape, dtype)
        self.action_space = gym.spaces.Discrete(18 if options.full_action_space else 4)
        low, high = (options.life_loss_penalty, 1.0) if options.clip_reward else (-np.inf, np.inf)
        self.reward_space = gym.spaces.Box(low, high, (1,), np.float32)

    def __reduce__(self) -> Tuple[Callable, Tuple, Dict[str, Any]]:
        """What ``copy`` and ``pickle`` make a copy from."""
        state = {name: value for name, value in vars(self).items() if name not in _NOT_COPIED}
        for name, value in state.items():
            if isinstance(value, gym.spaces.Space):
                # one of its own: the generator would be shared, and gym's cannot be copied
                state[name] = copy.copy(value)
                state[name]._np_random = None
        return type(self).__new__, (type(self),), state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._seed is not None:
            self.seed(self._seed)

    def reset(self) -> np.ndarray:
        """
        Overview:
            Begin an episode. After a lost life (``episodic_life``) the same game continues after one no-op step; in \
            all other cases, and whenever ``seed`` was called in between, a new game starts.
        Raises:
            - HelperError: If ``render_mode='human'`` finds no display.
            - OSError: If the replay folder can't be written to.
        Shapes:
            - obs (:obj:`np.ndarray`): :math:`(F, S, S)`, in memory of its own, F ``frame_stack``, S ``screen_size``.
        """
        try:
            game_continues = self._state is _State.LIFE_LOST and not self._seed_is_new
            if game_continues:
                self._play_first_steps(NOOP)
                game_continues = not self._env.game_over  # max_episode_frames may truncate it here
            if not game_continues:
                self._start_game()
                self._play_first_steps()
            self._lives = self._env.lives
            self._episode_points = 0
            fill_stack(self._stack, self._env.screen, self._stacked_screen)
            if self._recorder is not None and not game_continues:
                self._recorder.begin(self._env.render())
            self._enter(_State.PLAYING, 'episode begins' if game_continues else 'game and episode begin')
            self._seed_is_new = False
            return observe(self._stack, self._options.obs_dtype)
        except BaseException:
            self.close()  # half a reset leaves nothing open
            raise

    def step(self, action: object) -> BaseEnvTimestep:
        """
        Overview:
            Repeat an action for ``frame_skip`` frames.
        Arguments:
            - action (:obj:`object`): Its index: an int, or an integer array or tensor with one element.
        Returns:
            - timestep (:obj:`BaseEnvTimestep`): ``obs`` in memory of its own, ``reward``, ``done`` and ``info`` \
                with ``lives`` and ``episode_frame_number``; when done also ``eval_episode_return``, the points of \
                this episode (one life or one game) regardless of clipping and penalties, and \
                ``TimeLimit.truncated``; at the end of a game also ``game_return``, the points of the full game.
        Raises:
            - ValueError: If the action is not one of ``action_space``. The episode continues.
            - RuntimeError: If there is no running episode.
        Shapes:
            - obs (:obj:`np.ndarray`): :math:`(F, S, S)`, F ``frame_stack``, S ``screen_size``.
            - reward (:obj:`np.ndarray`): :math:`(1, )`, float32.
        """
        if self._state is not _State.PLAYING:
            raise RuntimeError(f'BreakoutEnv.step was called in state {self._state.value!r}; call reset first')
        index, options = self._index_of(action), self._options
        if self._watch is not None:
            self._watch.look()
        try:
            if options.random_action_probability and self._rng.random() < options.random_action_probability:
                index = int(self._rng.integers(self.action_space.n))
            points = self._advance(index)
            push_frame(self._stack, self._env.screen, self._stacked_screen)
            game_over = self._env.game_over
            life_lost = self._env.lives < self._lives
            if life_lost and options.fire_on_life_loss and not (game_over or options.episodic_life):
                points += self._advance(FIRE)
                push_frame(self._stack, self._env.screen, self._stacked_screen)
                game_over = self._env.game_over
            self._lives = self._env.lives
        except BaseException:
            self.close()  # an interrupted emulator is in no defined state; reset opens another
            raise
        reward: float = np.sign(points) if options.clip_reward else points
        if life_lost:
            reward += options.life_loss_penalty
        done = game_over or (life_lost and options.episodic_life)
        info: Dict[str, object] = {'lives': self._lives, 'episode_frame_number': self._env.frame_number}
        if done:
            points = self._episode_points
            self._enter(_State.GAME_OVER if game_over else _State.LIFE_LOST, f'episode ends with {points} points')
            info['eval_episode_return'] = np.float32(self._episode_points)
            # not where the last frame also ends the life or the game: nothing comes after it
            ended = self._lives == 0 or (life_lost and options.episodic_life)
            info['TimeLimit.truncated'] = self._env.truncated and not ended
        if game_over:
            info['game_return'] = np.float32(self._game_points)
            if self._recorder is not None:
                self._recorder.end(self._game_points)
        obs = observe(self._stack, options.obs_dtype)
        return BaseEnvTimestep(obs, np.array([reward], dtype=np.float32), done, info)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """
        Overview:
            Fix the course of the games from the next ``reset`` on, which starts a new one. The same seed and actions \
            give the same observations, rewards and ends in every process. numpy's global state is not touched.
        Arguments:
            - seed (:obj:`int`): 0 or more.
            - dynamic_seed (:obj:`bool`): For DI-engine's contract; either value gives the same games. Each game \
                differs from the one before, in a sequence that the seed fixes. That is what DI-engine's evaluators \
                expect of False; the very same game at each reset would make a mean over games one over a single game.
        Raises:
            - ValueError: If the seed is not a whole number of 0 or more.
        """
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f'the seed is {shown(seed)}; expected a whole number of 0 or more')
        self._seed, self._seed_is_new = int(seed), True
        self.action_space.seed(self._seed)

    def close(self) -> None:
        """
        Release emulator, window and recorder; complete a video that is being recorded. May be called at any time:
        before the first ``reset``, twice, after an error. A release that fails does not prevent the others. Takes
        less than 5 seconds even where window or encoder do not answer: they are then killed, with a warning.
        """
        if self._state is not _State.CLOSED:
            self._enter(_State.CLOSED, 'closes')
        self._recorder = self._window = self._watch = None
        self.__dict__.pop('_env', None)
        self._resources.close()  # the newest first

    def render(self, mode: str = 'rgb_array') -> np.ndarray:
        """As ``Emulator.render``; a RuntimeError before ``reset`` and after ``close``."""
        if self._state is _State.CLOSED:
            raise RuntimeError('BreakoutEnv.render was called without a game; call reset first')
        return self._env.render(mode)

    def enable_save_replay(self, replay_path: Optional[str] = None) -> None:
        """Record each game from the next one on into a video file of its own, in ``./video`` by default."""
        self._replay_folder = './video' if replay_path is None else os.fspath(replay_path)

    def random_action(self) -> np.ndarray:
        """A uniformly random action for ``step``, of shape (1, ); ``seed`` fixes the sequence."""
        return np.array([self.action_space.sample()], dtype=np.int64)

    def __repr__(self) -> str:
        return f'BreakoutEnv({self._options!r}, state={self._state.value!r})'

    @staticmethod
    def create_collector_env_cfg(cfg: dict) -> List[dict]:
        """
        Overview:
            One config for each of ``collector_env_num`` environments, with ``is_train=True``.
        Arguments:
            - cfg (:obj:`dict`): DI-engine's ``cfg.env``. It is not changed.
        Raises:
            - ValueError: If an option is wrong, or the observations do not suit ``cfg.policy.model``.
        """
        return _env_cfgs(cfg, 'collector')

    @staticmethod
    def create_evaluator_env_cfg(cfg: dict) -> List[dict]:
        """The same for ``evaluator_env_num`` environments, with ``is_train=False``."""
        return _env_cfgs(cfg, 'evaluator')

    def _enter(self, state: _State, event: str) -> None:
        """Change the state, with a line in the debug log."""
        logger.debug('BreakoutEnv %d in process %d: %s, %s', id(self), os.getpid(), event, state.value)
        self._state = state

    def _start_game(self) -> None:
        """Open or reuse the emulator, seed it where that is due, and begin a game."""
        options = self._options
        if self._seed_is_new:
            # two streams, so that the no-ops are the same whether an emulator is opened or reused
            ours, emulators = np.random.SeedSequence(self._seed).spawn(2)
            self._rng, self._emulator_rng = np.random.default_rng(ours), np.random.default_rng(emulators)
        if self._state is _State.CLOSED:
            self._env = Emulator(
                int(self._emulator_rng.integers(2**31)),
                options.repeat_action_probability,
                options.max_episode_frames,
                options.full_action_space,
            )
            self._own('emulator', self._env)
            self._stack = np.zeros((options.frame_stack, *[options.screen_size] * 2), dtype=np.uint8)
            self._stacked_screen = np.zeros(SCREEN_SHAPE, dtype=np.uint8)
            if options.resource_watch_s:
                self._watch = watch_of_process(options.resource_watch_s)
            if options.windows:
                self._window = GameWindow('Breakout', options.frame_skip)
                self._own('window', self._window)
        else:
            if self._seed_is_new and options.repeat_action_probability > 0:
                self._env.reload(int(self._emulator_rng.integers(2**31)))
            logger.debug('BreakoutEnv %d in process %d reused emulator %d', id(self), os.getpid(), id(self._env))
        if self._recorder is not None:
            self._recorder.end()  # the game before may be unfinished
        if self._replay_folder is not None and (self._recorder is None or self._recorder.folder != self._replay_folder):
            name = f'breakout-seed{self._seed}' if self._seed is not None else 'breakout'
            self._recorder = GameRecorder(self._replay_folder, f'{name}-process{os.getpid()}', options.frame_skip)
            self._own('recorder', self._recorder)
        self._env.reset_game(int(self._rng.integers(1, options.noop_max + 1)) if options.noop_max else 0)
        self._game_points = 0

    def _play_first_steps(self, *actions: int) -> None:
        """The steps that reset plays before the agent's first one."""
        for action in actions + ((FIRE,) if self._options.fire_on_reset else ()):
            self._advance(action)

    def _own(self, name: str, resource: _Resource) -> None:
        """Register a resource that was just opened, so that ``close`` closes it."""
        logger.debug('BreakoutEnv %d in process %d opened %s %d', id(self), os.getpid(), name, id(resource))
        self._resources.callback(_close_one, id(self), name, resource)

    def _advance(self, action: int) -> int:
        """Play one step, show it in window and video, and count its points."""
        points = self._env.advance(action, self._options.frame_skip)
        self._game_points += points
        self._episode_points += points
        if self._recorder is not None or self._window is not None:
            picture = self._env.render()
            if self._recorder is not None:
                self._recorder.write(picture)
            if self._window is not None:
                self._window.show(picture)
        return points

    def _index_of(self, action: object) -> int:
        """The action as an int, or an error that names the value found."""
        try:
            array = np.asarray(action)
        except (TypeError, ValueError, RuntimeError):  # a tensor on a GPU or with a gradient, a ragged list
            array = np.asarray(None)
        if array.dtype.kind not in 'iu' or array.size != 1 or not 0 <= array.item() < self.action_space.n:
            raise ValueError(
                f'the action is {shown(action)}; expected one whole number from 0 to {self.action_space.n - 1}'
            )
        return array.item()


def _close_one(env_id: int, name: str, resource: _Resource) -> None:
    """Close a resource; log a failure, so that the other resources are closed, too."""
    logger.debug('BreakoutEnv %d in process %d closes %s %d', env_id, os.getpid(), name, id(resource))
    try:
        resource.close()
    except Exception:
        logger.warning('BreakoutEnv %d in process %d: closing the %s failed', env_id, os.getpid(), name, exc_info=True)


def _env_cfgs(cfg: dict, role: str) -> List[dict]:
    count = checked('env option', f'{role}_env_num', cfg.get(f'{role}_env_num'), _COUNT)
    is_train = role == 'collector'
    options = BreakoutOptions.from_config({**cfg, 'is_train': is_train})  # raises before any process is started
    own = section(f'env option `{role}`', cfg.get(role))
    own['obs_dtype'] = fitting_obs_dtype(cfg, role, options.obs_dtype, 'obs_dtype' in own or 'obs_dtype' in cfg)
    fit_model_sizes(cfg, role, options)
    windows = options.windows if is_train or 'render_mode' in own else 0
    cfgs = [copy.deepcopy(cfg) for _ in range(count)]
    for index, env_cfg in enumerate(cfgs):
        env_cfg['is_train'] = is_train
        env_cfg[role] = {**own, 'render_mode': 'human' if index < windows else None}
    return cfgs
