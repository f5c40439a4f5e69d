"""Whole configs with something odd in them, as the pipelines of entry/ read them."""

import copy
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple
from unittest import mock

from ding.config import read_config
from ding.envs import create_env_manager, get_vec_env_setting
from ding.worker import create_buffer
from easydict import EasyDict
from fuzz_judge import ROOT, Refused, sentence_of
from fuzz_values import sections, texts, values
from hypothesis import strategies as st

from breakout_env.env_manager.manager import GroupEnvManager
from breakout_env.envs.options import BreakoutOptions
from breakout_env.policy.lean_dqn import OPTION_CHECKS
from breakout_env.replay.options import ReplayOptions
from breakout_env.run.budget import Budget
from breakout_env.run.config import merged_config
from breakout_env.run.config_file import PIPELINE_OPTIONS

FILE = str(ROOT / 'configs' / 'breakout_dqn_cpu_config.py')
HOOK = 'main.policy.learn.learner.hook'
# Sections and parts themselves, for what stands in their place.
STRUCTURE = [
    'main',
    'create',
    'main.env',
    'main.env.collector',
    'main.env.evaluator',
    'main.env.manager',
    'main.env.stop_value',
    'main.env.collector_env_num',
    'main.env.evaluator_env_num',
    'main.env.n_evaluator_episode',
    'main.policy',
    'main.policy.learn',
    'main.policy.collect',
    'main.policy.eval',
    'main.policy.other',
    'main.policy.other.replay_buffer',
    'main.policy.model',
    'main.policy.model.type',
    'main.policy.model.obs_shape',
    'main.policy.model.action_shape',
    'main.policy.model.encoder_hidden_size_list',
    'main.policy.learn.learner',
    HOOK,
    f'{HOOK}.progress',
    f'{HOOK}.progress.ext_args',
    f'{HOOK}.resume',
    f'{HOOK}.resume.ext_args',
    'create.env',
    'create.env.type',
    'create.env_manager',
    'create.env_manager.type',
    'create.policy',
    'create.policy.type',
    'create.replay_buffer',
    'create.replay_buffer.type',
    'create.collector',
    'create.evaluator',
    'create.nothing',
    'main.nothing',
]
# DI-engine writes a config down with git's state and a formatter, a second each; neither looks at what is in it.
SAVES = ('ding.config.config.save_project_state', 'ding.config.config.save_config')


def _own_options() -> Dict[str, Any]:
    """Every option of ours in a config by its path, and its default."""
    found = {'main.exp_name': 'experiments/x'}
    for name, value in vars(BreakoutOptions()).items():
        found[f'main.env.{name}'] = found[f'main.env.evaluator.{name}'] = value
    found.update({f'main.policy.other.replay_buffer.{name}': value for name, value in vars(ReplayOptions()).items()})
    for place in ('main.env.manager', 'create.env_manager'):
        found.update({f'{place}.{name}': value for name, value in GroupEnvManager.config.items()})
    found.update({f'main.policy.{path}': 32 for path in PIPELINE_OPTIONS})
    found.update({f'main.policy.learn.{name}': None for name in OPTION_CHECKS})
    return found


OWN = _own_options()
PLACES = [*STRUCTURE, *OWN]


def configs() -> st.SearchStrategy:
    """One or two places of a config, and what is put there."""

    def change(place: str) -> st.SearchStrategy:
        near = [OWN[place]] if place in OWN else []
        known = {path.rpartition('.')[2]: value for path, value in OWN.items() if path.startswith(f'{place}.')}
        inside = sections(known or dict(type='breakout'))
        return st.tuples(st.just(place), values(near) if place in OWN else st.one_of(values(), inside))

    one = st.sampled_from(PLACES).flatmap(change)
    misspelled = st.tuples(st.sampled_from(sorted(OWN)).map(lambda path: path[:-1] + 'q'), values())
    return st.lists(st.one_of(one, one, one, misspelled), min_size=1, max_size=2)


def attempt_config(changes: List[Tuple[str, Any]]) -> None:
    """Build all that is ours of a config, up to where processes would be started."""
    main, create = read_config(FILE)
    tree = dict(main=_as_dicts(main), create=_as_dicts(create))
    tree['main']['policy']['other']['replay_buffer']['replay_buffer_size'] = 1000
    for place, value in changes:
        _put(tree, place.split('.'), value)
    patches = [mock.patch('breakout_env.run.config_file.read_config', lambda path: (tree['main'], tree['create']))]
    try:
        with patches[0], mock.patch(SAVES[0]), mock.patch(SAVES[1]):
            cfg = merged_config(FILE, 0, Budget(env_steps=10**13))
        env_class, collector_cfgs, _ = get_vec_env_setting(cfg.env)
        if cfg.env.manager.type == 'breakout' and cfg.env.type == 'breakout':
            create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs]).close()
        if cfg.policy.other.replay_buffer.type == 'frame':
            create_buffer(cfg.policy.other.replay_buffer, exp_name=cfg.exp_name).close()
    except BaseException as error:
        text = sentence_of(error)
        parts = [part for place, _ in changes for part in place.split('.')[1:]] or ['config']
        if 'defaults of DI-engine' not in text and not any(part in text for part in [*parts, '_config']):
            sentence_of(error, parts)
        raise Refused(text) from None


def attempt_change(change: Tuple[str, Any]) -> None:
    """What ``breakout train --set`` does with a value, for any option in a config, DI-engine's included."""
    path, value = change
    try:
        with mock.patch(SAVES[0]), mock.patch(SAVES[1]):
            merged_config(FILE, 0, Budget(env_steps=10**13), None, {path: value})
    except BaseException as error:
        text = sentence_of(error)
        if 'defaults of DI-engine' not in text:
            sentence_of(error, [path, *path.split('.')])
        raise Refused(text) from None


def changes() -> st.SearchStrategy:
    """A path of a config, mostly one that is there, and a value."""
    paths = [path.split('.', 1)[1] for path in OWN if path.startswith('main.')]
    paths += [path for path in _paths(read_config(FILE)[0])]
    made_up = st.lists(st.sampled_from(['policy', 'env', 'learn', 'items', 'x', '__class__', 'get']), min_size=1)
    path = st.one_of(*[st.sampled_from(paths)] * 5, made_up.map('.'.join))
    literals = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from([10**30, 10**400]), st.floats(), texts()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts(), inner, max_size=2)),
        max_leaves=3,
    )
    return st.tuples(path, literals)


def _paths(section: Mapping, before: str = '') -> List[str]:
    found = []
    for name, value in section.items():
        found.append(f'{before}{name}')
        if isinstance(value, Mapping):
            found += _paths(value, f'{before}{name}.')
    return found


def _as_dicts(value: Any) -> Any:
    if isinstance(value, EasyDict):
        return {name: _as_dicts(inner) for name, inner in value.items()}
    return copy.deepcopy(value)


def _put(tree: Dict[str, Any], parts: List[str], value: Any) -> None:
    for part in parts[:-1]:
        if not isinstance(tree.get(part), dict):
            tree[part] = {}
        tree = tree[part]
    tree[parts[-1]] = value


def config_file() -> Path:
    """The file that these are made of."""
    return Path(FILE)
