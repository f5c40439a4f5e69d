"""The pipelines of DI-engine keep their budget to themselves; tests/process/test_train.py sees it on the line."""

import inspect
import re

from ding.entry import serial_pipeline

from breakout_env.compat.ding_budget import limit_of_pipeline


def test_upstream_still_hands_its_limit_to_nobody():
    for name in ('max_env_step', 'max_train_iter'):
        assert limit_of_pipeline(name) is None
        uses = re.findall(rf'^ .*{name}.*', inspect.getsource(serial_pipeline), re.M)
        assert len(uses) == 3, (
            f'argument, docstring and loop; if upstream hands it on now, remove the workaround: {uses}'
        )
