"""The lifecycle kit: what an environment of DI-engine's interface leaks, and how it stands reuse and close."""

from .lifecycle import Finding, Report, check_lifecycle, lifecycle_checks

__all__ = ['Finding', 'Report', 'check_lifecycle', 'lifecycle_checks']
