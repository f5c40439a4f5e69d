"""Replay buffers whose rare cases are frequent."""

import mmap

import pytest

from breakout_env.replay.frames import compressed, store


@pytest.fixture
def everything_happens_often(monkeypatch):
    """Segments are small and cleaned often, dictionaries are trained often and always used."""
    monkeypatch.setattr(compressed, '_FIRST_TRAINING_FRAMES', 60)
    monkeypatch.setattr(compressed, '_TRAINING_FRAMES', 40)
    monkeypatch.setattr(compressed, '_FRAMES_BETWEEN_TRAININGS', 70)
    monkeypatch.setattr(compressed, '_HELD_OUT_FRAMES', 8)
    monkeypatch.setattr(compressed, '_WORTHWHILE', 3.0)
    small = lambda frame_bytes, folder: compressed.CompressedFrames(frame_bytes, mmap.PAGESIZE)  # noqa: E731
    monkeypatch.setitem(store.STORAGES, 'compressed', small)
