"""An env manager of few processes, each with a group of environments, for DI-engine's pipelines."""

from .manager import GroupEnvManager
from .manager_v2 import GroupEnvManagerV2

__all__ = ['GroupEnvManager', 'GroupEnvManagerV2']
