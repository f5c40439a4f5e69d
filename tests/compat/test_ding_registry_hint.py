"""An error of a constructor is raised without DI-engine's hint about arguments."""

import pytest
from ding.utils import registry

from breakout_env.compat.ding_registry_hint import without_registry_hint


def test_an_error_has_no_hint_which_upstream_still_prints(monkeypatch, capsys):
    monkeypatch.setattr(registry, '_innest_error', True)
    parts = registry.Registry()
    parts.register('part', lambda: 1 / 0)

    def printed():
        with pytest.raises(ZeroDivisionError):
            parts.build('part')
        return capsys.readouterr().out

    with without_registry_hint():
        assert printed() == ''
    assert 'Expected args are' in printed(), 'remove the workaround'
