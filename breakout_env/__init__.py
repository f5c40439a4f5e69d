"""
Atari Breakout for DI-engine.

Importing this package registers the environment ``breakout`` and the models ``pixel_*`` with DI-engine, so that
``import_names=['breakout_env']`` is all another project writes. It starts no process and opens no emulator.
"""

from .env import BreakoutEnv
from .model import PixelC51DQN, PixelDQN, PixelInput, PixelQRDQN, PixelRainbowDQN, PixelVAC

__version__ = '0.1.0'
__all__ = [
    'BreakoutEnv',
    'PixelC51DQN',
    'PixelDQN',
    'PixelInput',
    'PixelQRDQN',
    'PixelRainbowDQN',
    'PixelVAC',
    '__version__',
]
