"""Odd input is accepted and works, or is refused with an error message that says what is allowed.

The options are read from the paths of a config: a new one is tried without a change here. The default tests try few
inputs, always the same; ``HYPOTHESIS_PROFILE=release`` tries many.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakout_env.run.config import checked_config, read_config_file
from breakout_env.run.config_checks import paths
from helpers.processes import ROOT

pytestmark = pytest.mark.fuzz
CONFIGS = {name: str(ROOT / 'configs' / f'breakout_{name}_config.py') for name in ('dqn_cpu', 'ppo')}
EXPECTATIONS = ('expected', 'did you mean', 'has to be', 'remove the option', 'choose')
# A message that lists all options is long; one that shows a value in full would be longer.
LONGEST_MESSAGE = 2500

NUMBERS = [0, 1, -1, 2, 84, 2**63, -(10**30), 10**400, 0.5, 1e-320, float('nan'), float('inf')]
TEXTS = [
    *('', ' ', 'a\nb', 'a\x00b', '\x1b[2J', '\udcff', '随机', 'x' * 5000),
    *('..', '../x', 'a/b', '~', '/dev/null/x', '/proc/x/y', 'nan', '-1', 'None'),
    *('$(touch x)', '%s%n{0}{', 'cpu', 'cuda:99', 'meta', '--help'),
]
texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=20))


def check_message(error: ValueError) -> None:
    """A person can read it: it says what is expected."""
    assert not isinstance(error, UnicodeError), error
    text = str(error)
    assert len(text) <= LONGEST_MESSAGE and text.replace('\n', '').isprintable(), text[:1000]
    assert any(word in text.lower() for word in EXPECTATIONS), text


@pytest.mark.parametrize('name', CONFIGS)
def test_odd_changes_of_a_config_work_or_are_explained(name):
    config = read_config_file(CONFIGS[name])
    there = sorted(paths(config.main))
    invented = st.lists(st.sampled_from(['policy', 'env', 'learn', 'items', 'x', '__class__', 'get']), min_size=1)
    path = st.one_of(st.sampled_from(there), st.sampled_from(there), invented.map('.'.join))
    literals = st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), texts, st.lists(st.integers(), max_size=3))

    @given(st.tuples(path, literals))
    def attempt(change: tuple[str, Any]) -> None:
        try:
            checked_config(config, 0, dict([change]))
        except ValueError as error:
            check_message(error)

    attempt()
