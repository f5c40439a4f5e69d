"""Ray 2.60: ``ray.init`` puts the driver's current folder first on the workers' import path, where a folder `ding` or
`gym` hides the installed package.
"""

import os
import sys
from typing import Any


def job_on_this_path() -> Any:
    """A ``JobConfig`` for ``ray.init``, whose workers import from where this process does."""
    from ray.job_config import JobConfig

    class JobOnDriverPath(JobConfig):
        def _runtime_env_has_working_dir(self) -> bool:
            return True  # Ray adds no folder then

    # a worker puts each of them first
    return JobOnDriverPath(_py_driver_sys_path=[path or os.getcwd() for path in reversed(sys.path)])
