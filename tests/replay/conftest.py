"""Replay buffers write below the working directory."""

import pytest

from breakout_env.replay.frames import device as device_frames


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Else storage 'device' has one for all; and large ones, once freed, make malloc keep more of what comes later."""
    monkeypatch.setattr(device_frames, '_LEAST_CHUNK_BYTES', 1)
