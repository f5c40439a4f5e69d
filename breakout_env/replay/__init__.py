"""Replay memory for transitions of stacked screens.

``FrameReplayBuffer`` (type ``frame``) serves DI-engine's serial pipelines, ``TaskFrameBuffer`` its task pipelines. Both
are interfaces of a ``ReplayMemory``, which knows nothing of pipelines and keeps each distinct frame once.
"""

from .buffer import FrameReplayBuffer
from .memory import ReplayMemory
from .task_buffer import TaskFrameBuffer

__all__ = ['FrameReplayBuffer', 'ReplayMemory', 'TaskFrameBuffer']
