"""Upstream behaviour worked around (Ray 2.60): ``ray.init()`` without an address starts servers that listen on all
interfaces, ``_node_ip_address='127.0.0.1'`` is replaced by the host's own address, and there is no public option for
loopback. A switch made for macOS and Windows (https://github.com/ray-project/ray/issues/18730) does it on Linux, too;
Ray reads it when it is imported.
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
