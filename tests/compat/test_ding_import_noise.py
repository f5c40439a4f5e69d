"""DI-engine still prints while it is imported; that the package does not is tested with its command line."""

import subprocess
import sys


def test_upstream_still_prints_while_it_is_imported():
    done = subprocess.run([sys.executable, '-c', 'import ding.envs'], capture_output=True, text=True, timeout=120)
    assert 'unmaintained' in done.stderr, 'upstream is quiet now: remove the workaround'
