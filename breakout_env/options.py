"""The options of the environment: what each means, what it may be, and how a DI-engine ``cfg.env`` becomes them."""

import difflib
import importlib.util
import numbers
import re
from dataclasses import dataclass, fields
from typing import Any, Callable, Dict, Mapping, Optional

import numpy as np

from .option_checks import section as as_dict
from .option_checks import shown, unknown

# Keys that DI-engine's pipelines put into ``cfg.env`` or read from it. They mean nothing to a single environment.
DI_ENGINE_KEYS = frozenset(
    [
        'type',
        'import_names',
        'manager',
        'stop_value',
        'n_evaluator_episode',
        'collector_env_num',
        'evaluator_env_num',
        'cfg_type',
        'replay_path',
    ]
)
# Keys that configs written for dizoo.atari carry: the name of the game, and some that nobody reads there either.
DIZOO_KEYS = frozenset(
    ['env_id', 'obs_plus_prev_action_reward', 'exp_name', 'collector_batch_size', 'evaluator_batch_size']
)
# Options that say how an agent is taught rather than how the game is played. Evaluation ignores them unless its own
# section sets them, so that a config that shapes the reward still reports the game's own score.
TRAINING_ONLY = frozenset(['episodic_life', 'clip_reward', 'life_loss_penalty'])
# What other Atari wrappers (dizoo.atari, gymnasium, Stable-Baselines3, EnvPool, Tianshou) call the same thing.
NAMES_ELSEWHERE = {
    'clip_rewards': 'clip_reward',
    'reward_clip': 'clip_reward',
    'reward_clipping': 'clip_reward',
    'episode_life': 'episodic_life',
    'terminal_on_life_loss': 'episodic_life',
    'skip': 'frame_skip',
    'frameskip': 'frame_skip',
    'stack': 'frame_stack',
    'stack_num': 'frame_stack',
    'stack_size': 'frame_stack',
    'num_stack': 'frame_stack',
    'img_height': 'screen_size',
    'img_width': 'screen_size',
    'action_repeat_probability': 'repeat_action_probability',
    'sticky_actions': 'repeat_action_probability',
    'use_fire_reset': 'fire_on_reset',
    'max_num_frames_per_episode': 'max_episode_frames',
    'max_episode_steps': 'max_episode_frames (emulator frames: agent steps times frame_skip)',
    'scale': "obs_dtype='float32'",
    'scale_obs': "obs_dtype='float32'",
    'full_action_set': 'full_action_space',
}
# gymnasium's and gym's names of the game. v0 and v5 mean sticky actions with probability 0.25 (Machado et al. 2018).
_ENV_ID = re.compile(r'(?:ALE/)?Breakout(?:NoFrameskip|Deterministic)?-v(?P<version>[045])')


@dataclass(frozen=True)
class BreakoutOptions:
    """
    Overview:
        The options of one environment instance, checked, with nothing left to look up: what ``cfg.env`` came to for \
        a collector (``is_train=True``) or an evaluator (``is_train=False``). The defaults are those of training and \
        follow DQN practice (Mnih et al. 2015); evaluation's own defaults are in ``EVALUATION_DEFAULTS``.
    Interfaces:
        ``from_config``.
    """

    # (int) Emulator frames that one action is held for; rewards of these frames are added up.
    frame_skip: int = 4
    # (int) Screens in one observation, the newest last.
    frame_stack: int = 4
    # (int) Width and height of an observation in pixels, shrunk from 160x210 by area interpolation.
    screen_size: int = 84
    # (int) A new game starts with 1 to this many no-op frames, drawn evenly; 0 for none.
    noop_max: int = 30
    # (float) Sticky actions (Machado et al. 2018): in each frame the emulator repeats the previous action with this
    # probability. 0.25 is the usual setting, 0 the one of DQN.
    repeat_action_probability: float = 0.0
    # (bool) Whether reset presses FIRE for one step: Breakout serves no ball before that.
    fire_on_reset: bool = True
    # (bool) Whether FIRE is pressed for one extra step as soon as a life is lost in mid-episode. On in evaluation:
    # it keeps an agent that forgets FIRE from idling, but it changes the protocol, so say so beside a score.
    fire_on_life_loss: bool = False
    # (bool) Whether the loss of a life ends the episode; the game itself goes on at the next reset.
    episodic_life: bool = True
    # (bool) Whether the reward is its sign instead of the points won.
    clip_reward: bool = True
    # (float) Added to the reward when a life is lost, after clipping: 0 or negative.
    life_loss_penalty: float = 0.0
    # (int) Emulator frames after which a game is cut off and reported as truncated: 108,000 are 30 minutes of play
    # (Machado et al. 2018).
    max_episode_frames: int = 108_000
    # (bool) Whether all 18 joystick actions are offered instead of the 4 that Breakout uses.
    full_action_space: bool = False
    # (str) 'uint8' for pixels 0..255, 'float32' for pixels scaled to [0, 1].
    obs_dtype: str = 'uint8'
    # (float) Probability that a step plays an even random action instead of the given one: the epsilon of
    # evaluation protocols, for any policy.
    random_action_probability: float = 0.0
    # (Optional[str]) None, 'rgb_array', or 'human' to watch the game in a window.
    render_mode: Optional[str] = None
    # (float) Seconds between two looks at what the process takes (memory, descriptors, threads, processes, GPU memory),
    # with a warning when some of it grows for good; 0 for none. Environments of one process share the watch.
    resource_watch_s: float = 0.0
    # (bool) Whether the instance serves a collector or an evaluator.
    is_train: bool = True

    @classmethod
    def from_config(cls, cfg: Mapping) -> 'BreakoutOptions':
        """
        Overview:
            Read and check ``cfg.env``. An option at the top holds for collectors and evaluators, the sections \
            ``collector`` and ``evaluator`` hold for one of them and win over the top. Evaluation plays whole games \
            with raw rewards unless ``evaluator`` itself says otherwise.
        Arguments:
            - cfg (:obj:`Mapping`): Dict or EasyDict, may be empty. Both sections are checked, whichever is used.
        Returns:
            - options (:obj:`BreakoutOptions`): The options in force.
        Raises:
            - ValueError: If an option is unknown or its value is not allowed; the message names the option.
        """
        if not isinstance(cfg, Mapping):
            raise ValueError(f'the config of BreakoutEnv is {shown(cfg)}; expected a dict of options')
        cfg = as_dict('the config of BreakoutEnv', cfg)
        is_train = _check('is_train', cfg.get('is_train', True), 'is_train')
        top = _read_section(cfg, '', DI_ENGINE_KEYS | DIZOO_KEYS | {'collector', 'evaluator'})
        sections = {name: _read_section(cfg.get(name), name, frozenset()) for name in ('collector', 'evaluator')}
        if cfg.get('obs_plus_prev_action_reward', False) is not False:
            raise ValueError(
                'env option `obs_plus_prev_action_reward` is on; BreakoutEnv returns screens only '
                '(`frame_stack` of them), so remove the option'
            )
        values: Dict[str, Any] = {} if is_train else dict(EVALUATION_DEFAULTS)
        if 'env_id' in cfg:
            values['repeat_action_probability'] = _sticky_probability_of(cfg['env_id'])
        values.update((k, v) for k, v in top.items() if is_train or k not in TRAINING_ONLY)
        values.update(sections['collector' if is_train else 'evaluator'])
        options = cls(**{**values, 'is_train': is_train})
        shortest = options.noop_max + 2 * options.frame_skip
        if options.max_episode_frames <= shortest:
            raise ValueError(
                f'env option `max_episode_frames` is {options.max_episode_frames}; expected more than {shortest}, '
                f'which `noop_max` ({options.noop_max}) and two steps of `frame_skip` ({options.frame_skip}) take'
            )
        return options


# Evaluation plays whole games, counts points, and presses FIRE for the agent after a lost life.
EVALUATION_DEFAULTS = dict(episodic_life=False, clip_reward=False, life_loss_penalty=0.0, fire_on_life_loss=True)


def _whole_number(low: int, high: int) -> Callable[[Any], int]:

    def check(value: Any) -> int:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral) or not low <= value <= high:
            raise ValueError(f'a whole number from {low} to {high}')
        return int(value)

    return check


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        valid = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
        if not valid or not low <= value <= high:  # before float(), which huge whole numbers overflow
            raise ValueError(f'a number from {low:g} to {high:g}')
        return float(value)

    return check


def _true_or_false(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError('True or False')
    return bool(value)


def _dtype(value: Any) -> str:
    # a string, or what numpy calls the same: np.uint8, np.dtype('uint8')
    name = getattr(value, 'name', getattr(value, '__name__', value))
    if not isinstance(name, str) or name not in ('uint8', 'float32'):
        raise ValueError("'uint8' (pixels 0..255) or 'float32' (pixels scaled to [0, 1])")
    return name


def _render_mode(value: Any) -> Optional[str]:
    if value is not None and (not isinstance(value, str) or value not in ('rgb_array', 'human')):
        raise ValueError("None, 'rgb_array' or 'human'")
    if value == 'human' and importlib.util.find_spec('pygame') is None:
        raise ValueError('a mode that can work here: a window needs pygame (pip install pygame)')
    return value


_CHECKS: Dict[str, Callable[[Any], Any]] = dict(
    # a second of play in one step, a quarter of a minute in one observation: beyond that it is a mistake
    frame_skip=_whole_number(1, 60),
    frame_stack=_whole_number(1, 256),
    # up to the width of the screen: area interpolation only shrinks
    screen_size=_whole_number(8, 160),
    noop_max=_whole_number(0, 10_000),
    repeat_action_probability=_number(0.0, 1.0),
    fire_on_reset=_true_or_false,
    fire_on_life_loss=_true_or_false,
    episodic_life=_true_or_false,
    clip_reward=_true_or_false,
    life_loss_penalty=_number(-1e6, 0.0),
    max_episode_frames=_whole_number(1, 2**31 - 1),
    full_action_space=_true_or_false,
    obs_dtype=_dtype,
    random_action_probability=_number(0.0, 1.0),
    render_mode=_render_mode,
    # a day: what is looked at less often is not watched
    resource_watch_s=_number(0.0, 86_400.0),
    is_train=_true_or_false,
)
assert set(_CHECKS) == {field.name for field in fields(BreakoutOptions)}


def _check(name: str, value: Any, shown_name: str) -> Any:
    try:
        return _CHECKS[name](value)
    except ValueError as expected:
        raise ValueError(f'env option `{shown_name}` is {shown(value)}; expected {expected}') from None


def _read_section(section: Optional[Mapping], where: str, also_allowed: frozenset) -> Dict[str, Any]:
    """The options that one dict sets, checked; keys in ``also_allowed`` are passed over."""
    values = {}
    for key, value in as_dict(f'env option `{where}`', section).items():
        if key in also_allowed:
            continue
        shown_name = f'{where}.{key}' if where else key
        if key not in _CHECKS or (where and key == 'is_train'):
            raise unknown('env option', shown_name, [], _suggestion(key, also_allowed))
        values[key] = _check(key, value, shown_name)
    return values


def _suggestion(key: Any, also_allowed: frozenset) -> str:
    if key in NAMES_ELSEWHERE:
        return f'it is called {NAMES_ELSEWHERE[key]} here'
    known = sorted(set(_CHECKS) | also_allowed)
    near = difflib.get_close_matches(str(key), known, n=1)
    return f'did you mean `{near[0]}`?' if near else f'expected one of {", ".join(known)}'


def _sticky_probability_of(env_id: Any) -> float:
    match = _ENV_ID.fullmatch(env_id) if isinstance(env_id, str) else None
    if match is None:
        raise ValueError(
            f"env option `env_id` is {shown(env_id)}; expected a name of Breakout's screen version such as "
            "'BreakoutNoFrameskip-v4', or, with sticky actions, 'BreakoutNoFrameskip-v0' or 'ALE/Breakout-v5': this "
            'environment plays no other game'
        )
    return 0.0 if match['version'] == '4' else 0.25
