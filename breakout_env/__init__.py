"""Atari Breakout for DI-engine.

Importing this package registers the environment ``breakout``, the env managers ``breakout`` and ``breakout_v2``, the
models ``pixel_*``, the replay buffers ``frame``, ``torchrl`` and ``rollout``, the collectors ``nstep``,
``sample_with_ids`` and ``rollout``, the evaluator ``resumable``, the learner hooks ``resume`` and ``progress`` and the
policies ``lean_dqn``, ``lean_ppo`` and ``r2d2_slices`` with DI-engine, so that ``import_names=['breakout_env']`` is all
another project writes, and the id ``breakout_env/Breakout-v0`` with gymnasium. It starts no process, handles no signal
and opens no emulator.

What the import changes in the process:

- ``GOMP_SPINCOUNT``, unless PyTorch has been imported (compat/openmp_spin_count.py), and ``LOGNAME``, for a user id
  without a name (compat/torch_unnamed_user.py).
- After a fork, the new process forgets its parent's children (compat/multiprocessing_forks.py), helper programs
  (utils/child_process.py) and locks (run/folder.py).

What modules keep for the process:

- the parts of runs in progress (utils/run_registry.py), locked run folders (run/folder.py), helper programs
  (utils/child_process.py)
- numbers of environments for the log (envs/resources.py) and of episodes (worker/nstep_collector.py)
- caches: parsed options (envs/options.py), types of options (utils/options.py), resizing (envs/preprocessing.py)

Reading a config appends its folder to ``sys.path`` (run/config.py). Whatever else changes DI-engine's objects or
variables does so for one run or one ``with`` block (compat/).
"""

from ._version import __version__
from .compat.ding_import_noise import quiet_import
from .compat.openmp_spin_count import set_spin_count
from .compat.torch_unnamed_user import name_user

name_user()
set_spin_count()
with quiet_import():
    from .env_manager import GroupEnvManager, GroupEnvManagerV2
    from .envs import gymnasium_env
    from .envs.env import BreakoutEnv
    from .policy.lean_dqn import LeanDQNPolicy
    from .policy.lean_ppo import LeanPPOPolicy
    from .policy.pixel_models import (
        PixelActorCritic,
        PixelC51DQN,
        PixelDQN,
        PixelDRQN,
        PixelInput,
        PixelQRDQN,
        PixelRainbowDQN,
        PixelVAC,
    )
    from .policy.r2d2 import R2D2SlicesPolicy
    from .replay import FrameReplayBuffer, TaskFrameBuffer
    from .replay.rollout_buffer import RolloutBuffer
    from .replay.torchrl import TorchRLReplayBuffer
    from .run.progress import ProgressHook
    from .run.resume_hook import ResumeHook
    from .worker.evaluator import ResumableEvaluator
    from .worker.nstep_collector import NstepCollector, SampleWithIdsCollector
    from .worker.rollout_collector import RolloutCollector

gymnasium_env.register()

__all__ = [
    'BreakoutEnv',
    'FrameReplayBuffer',
    'GroupEnvManager',
    'GroupEnvManagerV2',
    'LeanDQNPolicy',
    'LeanPPOPolicy',
    'NstepCollector',
    'PixelActorCritic',
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
    'RolloutBuffer',
    'RolloutCollector',
    'SampleWithIdsCollector',
    'TaskFrameBuffer',
    'TorchRLReplayBuffer',
    '__version__',
]
