"""All places that take input from a user, each with a strategy for odd input and an attempt to use it."""

import contextlib
import os
from dataclasses import asdict, dataclass, fields
from typing import Any, Callable, Dict, Iterator, List, Mapping
from unittest import mock

from easydict import EasyDict
from fuzz_commands import COMMANDS, PROGRAMS, arguments, attempt_command, attempt_entry, environments
from fuzz_config import attempt_change, attempt_config, changes, configs
from fuzz_judge import Refused, sentence_of
from fuzz_values import DEVICES, sections, texts
from hypothesis import strategies as st

from breakout_env import BreakoutEnv, FrameBuffer
from breakout_env.cluster.data_parallel import Ranks
from breakout_env.env_manager.manager import GroupEnvManager
from breakout_env.env_manager.options import EnvManagerOptions
from breakout_env.envs.options import DI_ENGINE_KEYS, DIZOO_KEYS, NAMES_ELSEWHERE, BreakoutOptions
from breakout_env.policy.lean_dqn import LeanDQNOptions, LeanDQNPolicy
from breakout_env.policy.pixel_models import PixelDQN, PixelVAC
from breakout_env.policy.r2d2 import R2D2SlicesPolicy
from breakout_env.replay.buffer import FrameReplayBuffer
from breakout_env.replay.options import ReplayOptions
from breakout_env.replay.torchrl.buffer import TorchRLReplayBuffer
from breakout_env.replay.torchrl.options import TorchRLOptions
from breakout_env.run.progress import ProgressHook, ProgressOptions
from breakout_env.run.resume_hook import ResumeHook, ResumeOptions

SMALL = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[4, 4, 4, 8])


@dataclass(frozen=True)
class Surface(object):
    """
    Overview:
        A place that takes input.
    Arguments:
        - share (:obj:`float`): Its part of all examples.
        - strategy (:obj:`Callable`): Gives the strategy of its input.
        - attempt (:obj:`Callable`): Uses an input and closes what came of it; raises ``Refused``, or ``Failure``.
        - options (:obj:`int`): How many options of ours it covers.
        - leaves_files (:obj:`bool`): Whether files may be there after an input that was accepted.
        - files (:obj:`bool`): Whether files of all kinds lie where it is tried.
    """

    share: float
    strategy: Callable[[], st.SearchStrategy]
    attempt: Callable[[Any], None]
    options: int
    leaves_files: bool = False
    files: bool = False


def refusable(build: Callable[[], Any], given: Any) -> Any:
    """
    Overview:
        What comes of building something from options.
    Raises:
        - Refused: If it was refused as it shall be.
        - Failure: If it was refused in any other way.
    """
    try:
        return build()
    except BaseException as error:
        text = sentence_of(error, list(given) if isinstance(given, Mapping) and given else None)
        raise Refused(text) from None


# ---------------------------------------------------------------- attempts


def _env(cfg: Any) -> None:
    def build() -> None:
        BreakoutEnv(cfg).close()
        if isinstance(cfg, Mapping):
            for make in (BreakoutEnv.create_collector_env_cfg, BreakoutEnv.create_evaluator_env_cfg):
                make({'collector_env_num': 2, 'evaluator_env_num': 2, **cfg})

    refusable(build, cfg)


def _env_sections() -> st.SearchStrategy:
    known = asdict(BreakoutOptions())
    section = sections(known, ['human', 'float32'])
    elsewhere = dict.fromkeys(sorted(NAMES_ELSEWHERE), 4)
    passed = dict.fromkeys(sorted(DI_ENGINE_KEYS | DIZOO_KEYS), 'BreakoutNoFrameskip-v4')
    counts = dict(collector_env_num=8, evaluator_env_num=8)
    top = sections({**known, **elsewhere, **passed, **counts}, ['ALE/Breakout-v5', 'uint8'])
    nested = st.dictionaries(st.sampled_from(['collector', 'evaluator']), section, max_size=2)
    return st.one_of(top, top, section, nested, st.tuples(section, nested).map(_joined))


def _joined(pair: Any) -> Any:
    return {**pair[0], **pair[1]} if isinstance(pair[0], dict) else pair[0]


def _replay(cfg: Any) -> None:
    refusable(lambda: FrameReplayBuffer(cfg, exp_name='run').close(), cfg)


def _frame_buffer(cfg: Any) -> None:
    cfg = {str(name): value for name, value in cfg.items()} if isinstance(cfg, Mapping) else dict(size=cfg)
    given = {'size': 100, **cfg}
    if 'self' not in given and 'exp_name' not in given and 'replay_buffer_size' not in given:
        refusable(lambda: FrameBuffer(**given, exp_name='run').close(), {'replay_buffer_size': 0, **cfg})


def _torchrl(cfg: Any) -> None:
    refusable(lambda: TorchRLReplayBuffer(cfg, exp_name='run').close(), cfg)


def _manager(cfg: Any) -> None:
    refusable(lambda: GroupEnvManager([lambda: BreakoutEnv({})] * 2, cfg).close(), cfg)


def _hook(kind: type) -> Callable[[Any], None]:
    return lambda cfg: refusable(lambda: kind('name', 100, position='before_run', ext_args=cfg), cfg) and None


def _policy(kind: type, section: str) -> Callable[[Any], None]:
    def attempt(given: Any) -> None:
        cfg = kind.default_config()
        cfg.cuda, cfg.model = False, EasyDict(SMALL)
        target = cfg.learn if section == 'learn' else cfg
        if not isinstance(given, Mapping):
            return
        known = {name: value for name, value in given.items() if isinstance(name, str) and name in target}
        # as a config's dict does it; DI-engine takes the whole section over
        dict.update(target, known)
        for name, value in known.items():
            object.__setattr__(target, name, value)
        model = PixelDQN(**SMALL) if section == 'learn' else None
        refusable(lambda: kind(cfg, model=model, enable_field=['learn']), known)

    return attempt


def _model(given: Any) -> None:
    kwargs = {**SMALL, **given} if isinstance(given, Mapping) else dict(SMALL, obs_shape=given)
    kwargs = {str(name): value for name, value in kwargs.items() if name in SMALL}
    refused = None
    for model in (PixelDQN, PixelVAC):
        try:
            refusable(lambda model=model: model(**kwargs), kwargs)
        except Refused as error:
            refused = error
    if refused is not None:
        raise refused


def _ranks(given: Dict[str, str]) -> None:
    with _environment(given):
        refusable(lambda: Ranks(False, 5.0), given)


@contextlib.contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[None]:
    with mock.patch.dict(os.environ, given):
        yield


# ---------------------------------------------------------------- all of them


def _options_of(kind: type) -> int:
    return len(fields(kind))


def surfaces() -> Dict[str, Surface]:
    """By name, in the order of the table."""
    TorchRLReplayBuffer({}).close()  # the first one starts a process of multiprocessing's that stays
    replay, torchrl = ReplayOptions(replay_buffer_size=1000).model_dump(), TorchRLOptions().model_dump()
    # what no memory holds is refused; what a disk holds is not, and need not be written
    near = [*DEVICES, 'ring', 'memmap', 'device', 'random', 'slice', 'prioritized', 1000]
    manager, progress = EnvManagerOptions().model_dump(), ProgressOptions().model_dump()
    ranks = ['RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT', 'LOCAL_WORLD_SIZE']
    words = st.one_of(st.sampled_from(['0', '1', '2', '-1', '', 'x', '1.5', '9' * 30, '٣', ' 1', '127.0.0.1', '29500']))
    found = {
        'env': Surface(0.15, _env_sections, _env, _options_of(BreakoutOptions) + len(DI_ENGINE_KEYS | DIZOO_KEYS)),
        'replay buffer frame': Surface(0.1, lambda: sections(replay, near), _replay, len(replay), True),
        'FrameBuffer': Surface(0.04, lambda: sections(replay, near), _frame_buffer, len(replay), True),
        'replay buffer torchrl': Surface(0.08, lambda: sections(torchrl, near), _torchrl, len(torchrl), True),
        'env manager': Surface(0.1, lambda: sections(manager, ['renew', 'spawn']), _manager, len(manager)),
        'hook progress': Surface(0.05, lambda: sections(progress), _hook(ProgressHook), len(progress)),
        'hook resume': Surface(0.04, lambda: sections(ResumeOptions().model_dump()), _hook(ResumeHook), 1),
        'policy lean_dqn': Surface(
            0.04,
            lambda: sections(dict.fromkeys(LeanDQNOptions.model_fields, 'bfloat16'), [None, 100]),
            _policy(LeanDQNPolicy, 'learn'),
            len(LeanDQNOptions.model_fields),
        ),
        'policy r2d2_slices': Surface(
            0.02,
            lambda: sections(dict(priority=False, priority_IS_weight=False)),
            _policy(R2D2SlicesPolicy, ''),
            2,
        ),
        'pixel models': Surface(0.04, lambda: sections(SMALL, [[4, 84, 84], [32, 64]]), _model, len(SMALL)),
        "torchrun's environment": Surface(
            0.03, lambda: st.dictionaries(st.sampled_from(ranks), words, max_size=5), _ranks, len(ranks)
        ),
        'whole configs': Surface(0.09, configs, attempt_config, 0, True),
        'changes of a config': Surface(0.05, changes, attempt_change, 0, True),
    }
    for name, command in COMMANDS.items():
        found[f'breakout {name}'] = Surface(
            0.012,
            lambda name=name, command=command: arguments(command).map(lambda words: [name, *words]),
            attempt_command,
            len(command.params),
            True,
            True,
        )
    found['breakout'] = Surface(
        0.012, lambda: st.lists(st.one_of(texts(), st.sampled_from(list(COMMANDS))), max_size=2).map(_argv),
        attempt_command, 0, True, True,
    )  # fmt: skip
    for name, program in PROGRAMS.items():
        found[f'entry/breakout_dqn_{name}.py'] = Surface(
            0.015,
            lambda program=program: st.tuples(arguments(program), environments(program)),
            lambda given, name=name: attempt_entry(name, *given),
            len(program.params),
            True,
            True,
        )
    return found


def _argv(words: List[str]) -> List[str]:
    # help and version are no mistakes, and a command without arguments does what it does
    return [word.replace('\x00', '')[:1000] for word in words if word not in COMMANDS] or ['--nothing']
