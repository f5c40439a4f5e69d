"""
Odd input is accepted and works, or is refused with an error message that names the option and what is allowed.

The options are read from the package, from every ``Options`` model and from the paths of a config: a new option is
tried without a change here. The default tests try few inputs, always the same;
``HYPOTHESIS_PROFILE=release`` tries many.
"""

import importlib
import logging
import pkgutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import click
import numpy as np
import pytest
import torch
from ding.config import read_config
from hypothesis import given
from hypothesis import strategies as st

import breakout_env
from breakout_env import BreakoutEnv, FrameReplayBuffer, PixelDQN, TorchRLReplayBuffer
from breakout_env.env_manager import GroupEnvManager
from breakout_env.run.config import checked_config, read_config_file
from breakout_env.utils.options import Options
from helpers.agents import SMALL
from helpers.processes import ROOT

pytestmark = pytest.mark.fuzz
CONFIGS = {name: str(ROOT / 'configs' / f'breakout_{name}_config.py') for name in ('dqn_cpu', 'ppo')}
EXPECTATIONS = ('expected', 'did you mean', 'has to be', 'remove the option', 'choose')
# A message that lists all options is long; one that shows a value in full would be longer.
LONGEST_MESSAGE = 2500

NUMBERS = [0, 1, -1, 2, 84, 2**63, -(10**30), 10**400, 0.5, 1e-320, float('nan'), float('inf')]
# A path leaves the current folder by one step at most, which still is a folder of the test's.
TEXTS = [
    *('', ' ', 'a\nb', 'a\x00b', '\x1b[2J', '\udcff', '随机', 'x' * 5000),
    *('..', '../x', 'a/b', '~', '/dev/null/x', '/proc/x/y', 'nan', '-1', 'None'),
    *('$(touch x)', '%s%n{0}{', 'cpu', 'cuda:99', 'meta', '--help'),
]
OBJECTS = [
    *(None, True, b'', 1j, len, object(), int, ..., {1, 2}, range(3), (), [], {}, [1, 2, 3], (4, 84, 84), {None: 1}),
    *({'a': {'b': {}}}, np.int64(4), np.array([1, 2]), torch.tensor(3), torch.ones(2)),
]
texts = st.one_of(
    st.sampled_from(TEXTS), st.text(max_size=20).map(lambda text: text.replace('/', '_').replace('..', '_'))
)
values = st.one_of(st.sampled_from(NUMBERS), texts, st.sampled_from(OBJECTS), st.integers(-100, 1000))


def refusal(build: Callable[[], Any], names: Optional[Sequence[Any]]) -> bool:
    """
    Whether something cannot be built from options. A person can read the error: it says what is expected, and names
    one of the options that were set.
    """
    try:
        build()
    except (ValueError, click.ClickException) as error:
        assert not isinstance(error, UnicodeError), error
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        assert len(text) <= LONGEST_MESSAGE and text.replace('\n', '').isprintable(), text[:1000]
        assert any(word in text.lower() for word in EXPECTATIONS), text
        shown = [word for name in names or () for word in (str(name)[:40], repr(name)[1:40])]
        assert not shown or any(word in text for word in shown), f'{text}\nnames none of {shown}'
        return True
    return False


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch) -> Iterator[Path]:
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    logging.disable(logging.ERROR)
    yield tmp_path
    logging.disable(logging.NOTSET)


def attempted(strategy: st.SearchStrategy, is_refused: Callable[[Any], bool], folder: Path) -> None:
    """Try many; what is refused leaves no file."""

    @given(strategy)
    def attempt(given_value: Any) -> None:
        before = set(folder.rglob('*'))
        if is_refused(given_value):
            left = set(folder.rglob('*')) - before
            assert not left, f'files are left: {sorted(left)[:5]}'

    attempt()


# ---------------------------------------------------------------- options of our parts

for _module in pkgutil.walk_packages(breakout_env.__path__, 'breakout_env.'):
    if '.configs' not in _module.name and '.entry' not in _module.name and not _module.name.endswith('__main__'):
        importlib.import_module(_module.name)


def models(base: type = Options) -> List[type]:
    ours = [model for model in base.__subclasses__() if model.__module__.startswith('breakout_env')]
    return [each for model in ours for each in (model, *models(model))]


# What is built from the options of a model that were accepted.
PARTS: Dict[str, Callable[[Any], Any]] = {
    'BreakoutOptions': BreakoutEnv,
    'ReplayOptions': lambda cfg: FrameReplayBuffer(cfg, exp_name='run'),
    'TorchRLOptions': lambda cfg: TorchRLReplayBuffer(cfg, exp_name='run'),
    'EnvManagerOptions': lambda cfg: GroupEnvManager([lambda: BreakoutEnv({})] * 2, cfg),
}


def sections(model: type) -> st.SearchStrategy:
    """A dict of options, some of them misspelled or with a value that is nearly right, or something in its place."""
    right = st.sampled_from(sorted(model.model_fields))
    misspelled = st.tuples(right, st.integers(0, 20)).map(lambda t: f'{t[0][: t[1]]}_{t[0][t[1] + 1 :]}')
    names = st.one_of(right, right, right, misspelled, texts, st.sampled_from([None, 0, True, (1, 2), 'items']))

    def near(name: Any) -> st.SearchStrategy:
        field = model.model_fields.get(name) if isinstance(name, str) else None
        if field is None or field.is_required():
            return values
        return st.one_of(values, st.sampled_from([field.default, str(field.default), [field.default]]))

    pairs = names.flatmap(lambda name: st.tuples(st.just(name), near(name)))
    some = st.lists(pairs, max_size=3).map(dict)
    return st.one_of(some, some, some, some, values)


@pytest.mark.parametrize('model', models(), ids=lambda model: model.__name__)
def test_odd_options_work_or_are_explained(model, own_folder):
    def is_refused(cfg: Any) -> bool:
        def build() -> None:
            if model.__name__ == 'PixelModelOptions':
                PixelDQN(**{**SMALL, **(cfg if isinstance(cfg, Mapping) and cfg.keys() <= SMALL.keys() else {})})
                return
            getattr(model, 'from_config', model.read)(cfg)
            if model.__name__ in PARTS:
                PARTS[model.__name__](cfg).close()

        return refusal(build, list(cfg) if isinstance(cfg, Mapping) else None)

    attempted(sections(model), is_refused, own_folder)


# ---------------------------------------------------------------- whole configs


def paths(section: Mapping, before: str = '') -> Iterator[str]:
    for name, value in section.items():
        yield f'{before}{name}'
        if isinstance(value, Mapping):
            yield from paths(value, f'{before}{name}.')


@pytest.mark.parametrize('name', CONFIGS)
def test_odd_changes_of_a_config_work_or_are_explained(name, own_folder):
    config = read_config_file(CONFIGS[name])
    there = sorted(paths(read_config(CONFIGS[name])[0]))
    invented = st.lists(st.sampled_from(['policy', 'env', 'learn', 'items', 'x', '__class__', 'get']), min_size=1)
    path = st.one_of(st.sampled_from(there), st.sampled_from(there), invented.map('.'.join))
    literals = st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), texts, st.lists(st.integers(), max_size=3))

    def is_refused(change: Any) -> bool:
        return refusal(lambda: checked_config(config, 0, dict([change])), None)

    attempted(st.tuples(path, literals), is_refused, own_folder)
