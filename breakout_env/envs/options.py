"""The options of the environment, and how a DI-engine ``cfg.env`` becomes them."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ..utils.options import Between, Flag, Options, as_dict, describe

# Keys that DI-engine's pipelines put into ``cfg.env`` or read from it; a single environment does not use them.
DI_ENGINE_KEYS = frozenset(
    ['type', 'import_names', 'manager', 'stop_value', 'cfg_type', 'replay_path', 'n_evaluator_episode']
    + ['collector_env_num', 'evaluator_env_num']
)
# Keys of configs written for dizoo.atari: the name of the game, and some that dizoo does not read either.
DIZOO_KEYS = frozenset(
    ['env_id', 'obs_plus_prev_action_reward', 'exp_name', 'collector_batch_size', 'evaluator_batch_size', 'episode_num']
)
# Evaluation ignores these unless its own section sets them, so that a config that shapes the reward still reports the
# game's score.
TRAINING_ONLY = frozenset(['episodic_life', 'clip_reward', 'life_loss_penalty', 'late_start_probability'])
# Evaluation plays full games for their own score, and presses FIRE for the agent after a lost life.
EVALUATION_DEFAULTS = dict(
    episodic_life=False, clip_reward=False, life_loss_penalty=0.0, late_start_probability=0.0, fire_on_life_loss=True
)
# The names of the game in gymnasium, gym and EnvPool, except the versions that repeat an action for 2 to 4 frames.
_ENV_ID = re.compile(r'Breakout(?:NoFrameskip|Deterministic)-v[04]|(?:ALE/)?Breakout-v5')


class BreakoutOptions(Options):
    """The checked options of one environment, of a collector (``is_train=True``) or an evaluator. The defaults follow
    DQN practice (Mnih et al. 2015); ``EVALUATION_DEFAULTS`` has the defaults of evaluation.

    Examples:
        >>> BreakoutOptions.from_config(dict(frame_skip=3, evaluator=dict(noop_max=0), is_train=False)).noop_max
        0
    """

    _owner = 'env option'
    _passed_over = DI_ENGINE_KEYS | DIZOO_KEYS | {'collector', 'evaluator'}

    # the upper bounds of frame_skip and frame_stack, a second and four seconds of play, stop typing errors
    frame_skip: Annotated[int, Between(1, 60)] = 4
    """(int) Emulator frames for which an action is repeated; their rewards are summed."""
    frame_stack: Annotated[int, Between(1, 256)] = 4
    """(int) Screens in an observation, the newest last."""
    screen_size: Annotated[int, Between(8, 160)] = 84  # at most the screen's width: area interpolation only shrinks
    """(int) Width and height of an observation in pixels, resized from 160x210 by area interpolation."""
    noop_max: Annotated[int, Between(0, 10_000)] = 30
    """(int) A new game starts with 1 to this many no-op frames, uniformly random; 0 for none."""
    repeat_action_probability: Annotated[float, Between(0.0, 1.0)] = 0.0
    """(float) Sticky actions (Machado et al. 2018): the probability that the emulator repeats the previous action in \
    a frame. 0.25 is the usual setting, 0 the one of DQN."""
    fire_on_reset: Flag = True
    """(bool) Whether reset presses FIRE for one step: Breakout serves no ball before that."""
    fire_on_life_loss: Flag = False
    """(bool) Whether FIRE is pressed for one extra step after a life is lost in mid-episode. On in evaluation: it \
    keeps an agent that forgets FIRE from idling, but it changes the protocol, so state it beside a score."""
    episodic_life: Flag = True
    """(bool) Whether a lost life ends the episode; the game itself continues at the next reset."""
    clip_reward: Flag = True
    """(bool) Whether the reward is the sign of the points won instead of the points."""
    life_loss_penalty: Annotated[float, Between(-1e6, 0.0)] = 0.0
    """(float) Added to the reward when a life is lost, after clipping: 0 or negative."""
    late_start_probability: Annotated[float, Between(0.0, 1.0)] = 0.0
    """(float) Probability that a game begins where an earlier one of this environment had 300 or more of the 432 \
    points of a wall, with its lives and points, so that training sees more of what few games reach (Salimans and \
    Chen 2018). Such a game has no ``game_return``: it does not count as a game of training, nor does its score."""
    max_episode_frames: Annotated[int, Between(1, 2**31 - 1)] = 108_000
    """(int) Emulator frames after which a game is truncated: 108,000 are 30 minutes of play (Machado et al. 2018)."""
    full_action_space: Flag = False
    """(bool) Whether to offer all 18 joystick actions instead of the 4 that Breakout uses."""
    obs_dtype: Literal['uint8', 'float32'] = 'uint8'
    """(str) ``uint8`` for pixels 0..255, ``float32`` for pixels scaled to [0, 1]. With an ``env_id`` \
    the default is ``float32``, as from ``dizoo.atari``."""
    random_action_probability: Annotated[float, Between(0.0, 1.0)] = 0.0
    """(float) Probability that a step plays a uniformly random action instead of the given one: the epsilon of \
    evaluation protocols, for any policy."""
    render_mode: Literal[None, 'rgb_array', 'human'] = None
    """(str | None) ``human`` opens a pygame window for the first collector's game, or the first evaluator's if set \
    in ``evaluator``, at the speed at which people play. None and ``rgb_array`` open none; ``render()`` works in any \
    mode."""
    is_train: Flag = True
    """(bool) Whether the instance serves a collector or an evaluator."""

    @classmethod
    def from_config(cls, cfg: Mapping) -> 'BreakoutOptions':
        """Read and check ``cfg.env``. An option at the top holds for both roles; the sections ``collector`` and
        ``evaluator`` hold for one and override the top. Evaluation plays full games with raw rewards unless
        ``evaluator`` itself says otherwise. Both sections are checked. A ValueError names a wrong option.
        """
        cfg = as_dict('the config of BreakoutEnv', cfg)
        top = cls.read(cfg)
        sections = {name: cls._section_values(name, cfg.get(name)) for name in ('collector', 'evaluator')}
        if cfg.get('obs_plus_prev_action_reward', False) is not False:
            raise ValueError(
                'env option `obs_plus_prev_action_reward` is on; BreakoutEnv returns screens only '
                '(`frame_stack` of them), so remove the option'
            )
        values: dict[str, object] = {} if top.is_train else dict(EVALUATION_DEFAULTS)
        if 'env_id' in cfg:
            values.update(_values_of(cfg['env_id']))
        names_at_top = top.model_fields_set if top.is_train else top.model_fields_set - TRAINING_ONLY
        values.update((name, getattr(top, name)) for name in names_at_top)
        values.update(sections['collector' if top.is_train else 'evaluator'])
        options = cls.model_validate(values)
        shortest = options.noop_max + 2 * options.frame_skip
        if options.max_episode_frames <= shortest:
            raise ValueError(
                f'env option `max_episode_frames` is {options.max_episode_frames}; expected more than {shortest}, '
                f'which `noop_max` ({options.noop_max}) and two steps of `frame_skip` ({options.frame_skip}) take'
            )
        return options

    @property
    def model_sizes(self) -> dict[str, Any]:
        """The sizes of ``policy.model`` that the observations and actions need."""
        obs_shape = [self.frame_stack, self.screen_size, self.screen_size]
        return dict(obs_shape=obs_shape, action_shape=18 if self.full_action_space else 4)

    @classmethod
    def _section_values(cls, role: str, cfg: object) -> dict[str, object]:
        """The options that the section for collectors or evaluators sets, named with the section in errors."""
        values = as_dict(f'env option `{role}`', cfg)
        for name in values:
            if name not in cls.model_fields or name == 'is_train':
                raise cls.unknown(name, prefix=f'{role}.')
        return cls.of_section('env option', role, values).model_dump(include=set(values))


def _values_of(env_id: object) -> dict[str, object]:
    """What dizoo.atari's name of the game means for the options."""
    match = _ENV_ID.fullmatch(env_id) if isinstance(env_id, str) else None
    if match is None:
        raise ValueError(
            f"env option `env_id` is {describe(env_id)}; expected a name of Breakout's screen version such as "
            "'BreakoutNoFrameskip-v4', or, with sticky actions, 'BreakoutNoFrameskip-v0' or 'ALE/Breakout-v5': this "
            'environment plays no other game, and repeats an action for as many frames as `frame_skip` says'
        )
    # v0 and ALE's v5 have sticky actions (Machado et al. 2018), v4 and EnvPool's v5 have none
    sticky = 0.25 if match[0].endswith('-v0') or match[0].startswith('ALE/') else 0.0
    return dict(repeat_action_probability=sticky, obs_dtype='float32')
