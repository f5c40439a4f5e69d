"""One agent out of many checkpoints: the mean of their weights, and nothing else."""

import re

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from breakout_env import PixelDQN
from breakout_env.agent.agent import load_agent
from breakout_env.agent.averaging import average_weights, checkpoints_of
from breakout_env.cli import main


def network(seed: int, width: int = 8) -> PixelDQN:
    torch.manual_seed(seed)
    return PixelDQN([4, 84, 84], 4, [4, 4, 4, width], dueling=True)


@pytest.fixture
def run_folder(tmp_path):
    """A run with the untrained network's checkpoint, four more, the best one and one of a save."""
    (tmp_path / 'ckpt').mkdir()
    for updates in (0, 2500, 5000, 7500, 10000):
        weights = network(updates).state_dict()
        torch.save({'model': weights, 'last_iter': updates}, tmp_path / 'ckpt' / f'iteration_{updates}.pth.tar')
    torch.save({'model': network(99).state_dict()}, tmp_path / 'ckpt' / 'ckpt_best.pth.tar')
    torch.save({'model': network(98).state_dict()}, tmp_path / 'ckpt' / 'resume_10000.pth.tar')
    return tmp_path


def test_the_average_is_that_of_the_last_checkpoints(run_folder):
    result = CliRunner().invoke(main, ['average', str(run_folder), '--last', '3'])
    assert result.exit_code == 0, result.output
    assert 'the mean of 3 checkpoints, after 5,000 to 10,000 updates' in result.output
    agent = load_agent(str(run_folder / 'averaged.safetensors'))
    three = [network(updates).state_dict() for updates in (5000, 7500, 10000)]
    for name, value in agent.model.state_dict().items():
        torch.testing.assert_close(value, sum(weights[name] for weights in three) / 3)
    assert agent.act(np.zeros((2, 4, 84, 84), np.uint8)).shape == (2,)


def test_numbered_checkpoints_alone_are_taken_in_the_order_of_their_updates(run_folder):
    names = [path.name for path in checkpoints_of(str(run_folder))]
    assert names == [f'iteration_{updates}.pth.tar' for updates in (2500, 5000, 7500, 10000)]
    assert [path.name for path in checkpoints_of(str(run_folder), 7499)] == names[:2]


@pytest.mark.parametrize(
    'until, message', [([], 'has no checkpoint; expected'), (['--until', '9'], 'of up to 9 updates')]
)
def test_a_folder_without_checkpoints_gets_a_line(tmp_path, until, message):
    result = CliRunner().invoke(main, ['average', str(tmp_path), *until])
    assert result.exit_code == 1 and re.search(f'Error: .*{message}', result.output)


def test_networks_of_different_sizes_are_not_mixed(run_folder):
    torch.save({'model': network(0, 16).state_dict()}, run_folder / 'ckpt' / 'iteration_7500.pth.tar')
    with pytest.raises(ValueError, match='is of another network than .*iteration_5000'):
        average_weights(checkpoints_of(str(run_folder))[1:])
