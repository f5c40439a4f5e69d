"""What Ray makes of the loopback address; cluster/test_ray.py looks at the addresses that a real one listens on."""

import os

import pytest

from breakout_env.compat.ray_local_address import ray_on_loopback

services = pytest.importorskip('ray._private.services')


def test_ray_stays_on_loopback_which_upstream_still_replaces(monkeypatch):
    monkeypatch.setenv('RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER', '1')
    monkeypatch.setattr(services.ray_constants, 'ENABLE_RAY_CLUSTER', True)
    monkeypatch.setattr(services, 'node_ip_address_from_perspective', lambda *_, **__: '192.0.2.1')
    assert services.resolve_ip_for_localhost('127.0.0.1') != '127.0.0.1', 'remove the workaround'
    with ray_on_loopback():
        assert services.resolve_ip_for_localhost('127.0.0.1') == '127.0.0.1'
    assert services.resolve_ip_for_localhost('127.0.0.1') != '127.0.0.1', "the program's own Ray is left alone"
    assert os.environ['RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'] == '1'
