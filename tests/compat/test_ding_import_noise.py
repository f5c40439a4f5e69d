"""DI-engine still prints while it is imported; that the package does not is tested with its command line."""

import sys

from helpers.processes import completed


def test_upstream_still_prints_while_it_is_imported():
    done = completed([sys.executable, '-c', 'import ding.envs'])
    assert 'unmaintained' in done.stderr, 'upstream is quiet now: remove the workaround'
