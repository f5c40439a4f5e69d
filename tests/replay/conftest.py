"""Replay buffers write below the working directory."""

import pytest

from breakout_env.replay.frames import compressed as compressed_frames
from breakout_env.replay.frames import device as device_frames


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Else storage 'device' has one for all; and large ones, once freed, make malloc keep more of what comes later."""
    monkeypatch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 1)


@pytest.fixture
def frequent_training(monkeypatch):
    """Dictionaries are trained often and always used."""
    monkeypatch.setattr(compressed_frames, '_FIRST_TRAINING_FRAMES', 60)
    monkeypatch.setattr(compressed_frames, '_TRAINING_FRAMES', 40)
    monkeypatch.setattr(compressed_frames, '_FRAMES_BETWEEN_TRAININGS', 70)
    monkeypatch.setattr(compressed_frames, '_HELD_OUT_FRAMES', 8)
    monkeypatch.setattr(compressed_frames, '_WORTHWHILE', 3.0)
