"""Timers of DI-engine's workers are replaced by plain ones."""

from types import SimpleNamespace

import torch
from ding.utils import EasyTimer

from breakout_env.compat.ding_timers import PlainTimer, use_plain_timers


def test_workers_get_timers_without_the_synchronisation_that_upstream_still_has(monkeypatch):
    calls, seconds = [], iter(range(9))
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda other: 0.0)
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'Event', lambda **kwargs: event)
    monkeypatch.setattr(torch.cuda, 'synchronize', lambda: calls.append('synchronize'))
    worker = SimpleNamespace(timer=EasyTimer(), name='learner')
    with worker.timer:
        pass
    assert len(calls) == 2, 'remove the workaround'
    use_plain_timers(worker)
    monkeypatch.setattr('time.perf_counter', lambda: next(seconds))
    with worker.timer:
        pass
    assert type(worker.timer) is PlainTimer and worker.timer.value == 1 and len(calls) == 2
