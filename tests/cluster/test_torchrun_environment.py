"""Ranks check the variables that torchrun sets."""

import pytest

from breakout_env.cluster.data_parallel import Ranks


@pytest.mark.parametrize(
    'environ, message',
    [
        (dict(RANK='x'), '`RANK` is '),
        (dict(RANK='2'), '`RANK` is 2 (int); expected a whole number from 0 to 1'),
        (dict(WORLD_SIZE='0'), '`WORLD_SIZE` is 0 (int)'),
        (dict(WORLD_SIZE=''), "`WORLD_SIZE` is '' (str)"),
        (dict(LOCAL_WORLD_SIZE='3'), '`LOCAL_WORLD_SIZE` is 3 (int)'),
        (dict(MASTER_PORT='99999'), '`MASTER_PORT` is 99999 (int)'),
    ],
)
def test_variable_that_torchrun_would_not_set_is_named(environ, message, monkeypatch):
    usual = dict(RANK='0', WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT='29500', LOCAL_WORLD_SIZE='2')
    for name, value in {**usual, **environ}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as error:
        Ranks(False)
    assert message in str(error.value)
