"""A wrong option of any part, used as a library, gets an error message that names it, and leaves no file."""

import os
from pathlib import Path

import numpy as np
import pytest
from easydict import EasyDict

from breakout_env import (
    BreakoutEnv,
    FrameBuffer,
    FrameReplayBuffer,
    GroupEnvManager,
    PixelDQN,
    ProgressHook,
    ResumeHook,
    TorchRLReplayBuffer,
)


def hook(kind: type, ext_args: object) -> object:
    return kind('name', 100, position='before_run', ext_args=ext_args)


@pytest.mark.parametrize(
    'build, message',
    [
        (lambda: FrameReplayBuffer(3), 'is 3 (int); expected a dict'),
        (lambda: FrameReplayBuffer(dict(storage=np.array(['ring', 'x']))), '`storage` is array('),
        (lambda: FrameReplayBuffer(dict(folder='a\x00b')), '`folder` is '),
        (lambda: FrameReplayBuffer(dict(alpha=10**5000)), '`alpha` is a value that cannot be printed'),
        (lambda: FrameBuffer(2**31), '`replay_buffer_size` is 2147483648'),
        (lambda: TorchRLReplayBuffer(dict(sampler=np.array(['slice', 'x']))), '`sampler` is array('),
        (lambda: GroupEnvManager([BreakoutEnv], 3), 'expected a dict of options'),
        (lambda: GroupEnvManager([BreakoutEnv], dict(step_timeout='60')), "`step_timeout` is '60' (str)"),
        (lambda: GroupEnvManager([BreakoutEnv], dict(worker_num=True)), 'option `worker_num` is True (bool)'),
        (lambda: GroupEnvManager([BreakoutEnv], dict(worker_nun=2)), '`worker_nun` is unknown; did you mean'),
        (lambda: GroupEnvManager([BreakoutEnv], {3: 4}), '`3` is unknown'),
        (lambda: hook(ProgressHook, dict(max_env_step=10**5000)), '`max_env_step` is a value that cannot be printed'),
        (lambda: hook(ResumeHook, 3), 'is 3 (int); expected a dict of options'),
        (lambda: hook(ResumeHook, dict(save_every_s='900')), "`save_every_s` is '900' (str); expected a number"),
        (lambda: hook(ResumeHook, dict(save_every_s=float('nan'))), '`save_every_s` is nan (float)'),
        (lambda: PixelDQN([4, 84, 84], 10**12), '`action_shape` is 1000000000000 (int)'),
        (lambda: BreakoutEnv(dict(frame_skip='x' * 100_000)), 'characters) (str); expected a whole number'),
        (lambda: BreakoutEnv({'\x1b[2J': 1}), 'is unknown'),
        (lambda: BreakoutEnv(EasyDict(items=3)), '`items` is unknown'),
    ],
)
def test_wrong_option_is_named_with_its_value(build, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:
        build()
    text = str(error.value)
    assert message in text and ('expected' in text or 'did you mean' in text), text
    assert len(text) < 2500 and text.isprintable() and not os.listdir(Path())
