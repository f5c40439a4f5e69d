import pytest
from ding.utils import registry

from breakout_env.compat.ding_registry_hint import without_registry_hint


def fail():
    raise RuntimeError('the worker ended')


def build_failing():
    parts = registry.Registry()
    parts.register('part', fail)
    with pytest.raises(RuntimeError, match='^the worker ended$'):
        parts.build('part')


def test_upstream_still_prints_a_hint_for_any_error(monkeypatch, capsys):
    monkeypatch.setattr(registry, '_innest_error', True)
    build_failing()
    assert 'Expected args are' in capsys.readouterr().out


def test_an_error_of_a_constructor_is_raised_without_the_hint(monkeypatch, capsys):
    monkeypatch.setattr(registry, '_innest_error', True)
    with without_registry_hint():
        build_failing()
    assert capsys.readouterr().out == '' and registry._innest_error
