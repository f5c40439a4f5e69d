"""
Upstream behaviour worked around (Ray 2.60): ``ray.init()`` without an address starts servers that listen on all
interfaces, ``_node_ip_address='127.0.0.1'`` is replaced by the host's own address, and there is no public option for
loopback. A switch made for macOS and Windows (https://github.com/ray-project/ray/issues/18730) does it on Linux, too;
Ray reads it when it is imported.
"""

import os
import sys


def keep_ray_on_loopback() -> None:
    """Let a Ray that this process starts listen on 127.0.0.1 alone."""
    os.environ['RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'] = '0'
    if 'ray._private.ray_constants' in sys.modules:  # TorchRL imports Ray where it is installed
        vars(sys.modules['ray._private.ray_constants'])['ENABLE_RAY_CLUSTER'] = False
