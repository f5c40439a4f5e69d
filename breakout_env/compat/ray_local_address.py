"""Ray 2.60: a local Ray listens on all interfaces, and no public option changes that. A switch for macOS and Windows
(https://github.com/ray-project/ray/issues/18730), read at its import, does.
"""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def ray_on_loopback() -> Iterator[None]:
    """In this context, a Ray that this process starts listens on 127.0.0.1 alone, and so do its processes."""
    from ray._private import ray_constants

    name = 'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'
    variable, enabled = os.environ.get(name), ray_constants.ENABLE_RAY_CLUSTER
    os.environ[name], ray_constants.ENABLE_RAY_CLUSTER = '0', False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = enabled
        if variable is None:
            del os.environ[name]
        else:
            os.environ[name] = variable
