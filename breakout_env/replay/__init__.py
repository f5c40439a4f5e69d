"""
Replay memory for transitions of stacked screens.

``FrameReplayBuffer`` (type ``frame``) serves DI-engine's serial pipelines, ``FrameBuffer`` its task pipelines; both are
thin faces of one ``ReplayMemory``, which knows nothing of pipelines and keeps each distinct frame once.
"""

from .frame_buffer import FrameBuffer
from .frame_replay_buffer import FrameReplayBuffer
from .replay_memory import ReplayMemory

__all__ = ['FrameBuffer', 'FrameReplayBuffer', 'ReplayMemory']
