"""
Atari Breakout for DI-engine.

Importing this package registers the environment ``breakout``, the env managers ``breakout`` and ``breakout_v2``, the
models ``pixel_*``, the replay buffers ``frame`` and ``torchrl``, the collectors ``full_games`` and ``sample_with_ids``,
the evaluator ``resumable``, the learner hooks ``resume`` and ``progress`` and the policies ``lean_dqn`` and
``r2d2_slices`` with DI-engine, so that ``import_names=['breakout_env']`` is all another project writes. It starts no
process and opens no emulator. Where PyTorch has not been imported before, its threads will wait for each other in a way
that suits a machine that does other work, too (brief_waiting.py).
"""

from . import signals
from .brief_waiting import wait_briefly
from .quiet_import import quiet_import

signals.end_at_once()
wait_briefly()
with quiet_import():
    from .collector import FullGamesCollector, SampleWithIdsCollector
    from .env import BreakoutEnv
    from .env_manager import GroupEnvManager, GroupEnvManagerV2
    from .evaluator import ResumableEvaluator
    from .lean_dqn import LeanDQNPolicy
    from .model import PixelC51DQN, PixelDQN, PixelDRQN, PixelInput, PixelQRDQN, PixelRainbowDQN, PixelVAC
    from .progress import ProgressHook
    from .r2d2 import R2D2SlicesPolicy
    from .replay import FrameBuffer, FrameReplayBuffer
    from .replay.torchrl_buffer import TorchRLReplayBuffer
    from .resume import ResumeHook

__version__ = '0.1.0'
__all__ = [
    'BreakoutEnv',
    'FrameBuffer',
    'FrameReplayBuffer',
    'FullGamesCollector',
    'GroupEnvManager',
    'GroupEnvManagerV2',
    'LeanDQNPolicy',
    'PixelC51DQN',
    'PixelDQN',
    'PixelDRQN',
    'PixelInput',
    'PixelQRDQN',
    'PixelRainbowDQN',
    'PixelVAC',
    'ProgressHook',
    'R2D2SlicesPolicy',
    'ResumableEvaluator',
    'ResumeHook',
    'SampleWithIdsCollector',
    'TorchRLReplayBuffer',
    '__version__',
]
