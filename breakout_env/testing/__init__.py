"""The lifecycle kit: what an environment of DI-engine or gymnasium leaks, and how it stands reuse and close."""

from .gymnasium_env import gymnasium_env
from .lifecycle import Finding, Report, check_lifecycle, lifecycle_checks

__all__ = ['Finding', 'Report', 'check_lifecycle', 'gymnasium_env', 'lifecycle_checks']
