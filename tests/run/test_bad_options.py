"""A wrong option of a part that is used as a library gets an error message that names it, and leaves no file."""

import os
from pathlib import Path

import pytest

from breakout_env import (
    BreakoutEnv,
    FrameReplayBuffer,
    GroupEnvManager,
    PixelDQN,
    ProgressHook,
    ResumeHook,
    TorchRLReplayBuffer,
)


@pytest.mark.parametrize(
    'build, message',
    [
        (lambda: FrameReplayBuffer(dict(folder='a\x00b')), '`folder` is '),
        (lambda: TorchRLReplayBuffer(dict(sampler='slices')), "`sampler` is 'slices' (str)"),
        (lambda: GroupEnvManager([BreakoutEnv], 3), 'expected a dict of options'),
        (lambda: GroupEnvManager([BreakoutEnv], dict(worker_num=True)), 'option `worker_num` is True (bool)'),
        (lambda: GroupEnvManager([BreakoutEnv], dict(worker_nun=2)), '`worker_nun` is unknown; did you mean'),
        (
            lambda: ProgressHook('name', 100, position='before_run', ext_args=dict(max_hours='2')),
            "`max_hours` is '2' (str)",
        ),
        (
            lambda: ResumeHook('name', 100, position='before_run', ext_args=dict(save_every_s=float('nan'))),
            '`save_every_s` is nan (float)',
        ),
        (lambda: PixelDQN([4, 84, 84], 10**12), '`action_shape` is 1000000000000 (int)'),
        (lambda: BreakoutEnv(dict(frame_skip='x' * 100_000)), 'characters) (str); expected a whole number'),
        (lambda: BreakoutEnv({'\x1b[2J': 1}), 'is unknown'),
    ],
)
def test_wrong_option_is_named_with_its_value(build, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:
        build()
    text = str(error.value)
    assert message in text and ('expected' in text or 'did you mean' in text), text
    assert len(text) < 2500 and text.isprintable() and not os.listdir(Path())
