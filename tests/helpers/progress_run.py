"""The progress of a run without the run."""

import json
from pathlib import Path
from types import SimpleNamespace

from easydict import EasyDict

from breakout_env.run.progress import ProgressOptions, RunProgress


class ProgressRun(object):
    """A learner, and a clock that is set by hand."""

    def __init__(self, folder: Path, **options) -> None:
        self.now_s, self.folder, self.scalars = 0.0, folder, []
        self.learner = SimpleNamespace(
            exp_name=str(folder),
            collector_envstep=0,
            last_iter=SimpleNamespace(val=0),
            policy=SimpleNamespace(
                get_attribute=lambda name: EasyDict(learn=dict(learning_rate=0.1)), set_attribute=lambda *_: None
            ),
            log_buffer={'scalar': {}},
            tb_logger=SimpleNamespace(add_scalar=lambda *event: self.scalars.append(event)),
            info=lambda text: None,
        )
        self.progress = RunProgress(self.learner, ProgressOptions(**options), lambda: self.now_s)

    def look(self, now_s: float, env_step: int = 0, updates: int = 0) -> None:
        self.now_s, self.learner.collector_envstep, self.learner.last_iter.val = now_s, env_step, updates
        self.progress.look()

    def rows(self, kind: str = 'progress') -> list:
        lines = (self.folder / 'log' / 'progress.jsonl').read_text().splitlines()
        return [row for row in map(json.loads, lines) if row['kind'] == kind]
