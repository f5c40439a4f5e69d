"""
Odd input is accepted and works, or is refused with an error message that names the option and what is allowed.

The options are read from the paths of a config: a new one is tried without a change here. The default tests try few
inputs, always the same; ``HYPOTHESIS_PROFILE=release`` tries many.
"""

import logging
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import click
import pytest
from ding.config import read_config
from hypothesis import given
from hypothesis import strategies as st

from breakout_env.run.config import checked_config, read_config_file
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
texts = st.one_of(
    st.sampled_from(TEXTS), st.text(max_size=20).map(lambda text: text.replace('/', '_').replace('..', '_'))
)


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
