"""Replay buffers whose rare cases are frequent."""

import mmap

import pytest

from breakout_env.replay.frames import store
from breakout_env.replay.frames.compressed import CompressedFrames


@pytest.fixture
def everything_happens_often(monkeypatch):
    """Segments are small and cleaned often, dictionaries are trained often and always used."""
    often = dict(segment_bytes=mmap.PAGESIZE, trained_on=60, trained_every=70, worthwhile=3.0)
    monkeypatch.setitem(
        store.STORAGES, 'compressed', lambda frame_bytes, folder: CompressedFrames(frame_bytes, **often)
    )
