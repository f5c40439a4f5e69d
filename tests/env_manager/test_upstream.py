"""DI-engine's own tests of its env managers, from the installed package, on ours."""

import time
from types import SimpleNamespace

import pytest

from breakout_env import GroupEnvManager, GroupEnvManagerV2
from helpers.processes import wait_until
from helpers.resources import children

FOLDER = 'ding.envs.env_manager.tests'
REASON = 'this DI-engine was installed without its tests'
upstream = pytest.importorskip(f'{FOLDER}.conftest', reason=REASON)
subprocess_tests = pytest.importorskip(f'{FOLDER}.test_subprocess_env_manager', reason=REASON)
base_tests = pytest.importorskip(f'{FOLDER}.test_base_env_manager', reason=REASON)

# fixtures are found by their names in this module
setup_model_type = upstream.setup_model_type
setup_async_manager_cfg = upstream.setup_async_manager_cfg
setup_sync_manager_cfg = upstream.setup_sync_manager_cfg
setup_base_manager_cfg = upstream.setup_base_manager_cfg
setup_fast_base_manager_cfg = upstream.setup_fast_base_manager_cfg


class ManagerV2WithEnvs(GroupEnvManagerV2):
    """Answers the one question that those tests ask of the base manager's environments: whether they are open."""

    @property
    def _envs(self):
        return [SimpleNamespace(_launched=bool(children()))] * self.env_num


@pytest.fixture(autouse=True)
def our_managers(monkeypatch):
    for module in (upstream, subprocess_tests):
        for name in ('AsyncSubprocessEnvManager', 'SyncSubprocessEnvManager'):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, GroupEnvManager)
    monkeypatch.setattr(upstream, 'BaseEnvManager', GroupEnvManagerV2)  # its default config
    monkeypatch.setattr(base_tests, 'BaseEnvManagerV2', ManagerV2WithEnvs)
    # a step of their environment takes up to a second, asleep; the forked workers have this, too
    monkeypatch.setattr(upstream, 'time', SimpleNamespace(time=time.time, sleep=lambda s: time.sleep(s / 20)))
    yield
    assert wait_until(lambda: not children())


class TestSubprocessEnvManager(subprocess_tests.TestSubprocessEnvManager):
    test_block = (
        None  # a step beyond its time raises TimeoutError there; here it returns as abnormal, and play continues
    )


class TestBaseEnvManagerV2(base_tests.TestBaseEnvManagerV2):
    test_error = None  # base keeps going after an error in a step; ours closes, as the subprocess managers do
    test_block = None  # a step beyond its time raises there; see above
