"""
Evaluate a checkpoint on full games of Breakout, the pipeline written out: what ``ding -m eval`` does.

Prints the score of each game and their mean; ``--replay-path`` records them.
"""

import os
import time
from functools import partial
from typing import List, Optional

# first, as it keeps from the screen what DI-engine prints while it is imported
import breakout_env  # noqa: F401

# isort: split
import click
import numpy as np
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.torch_utils import to_ndarray, to_tensor
from ding.utils import set_pkg_seed

from breakout_env.agent.weights_file import read_weights
from breakout_env.run.config import checked_config
from breakout_env.utils.command_line import Program
from breakout_env.utils.options import SEED

DEFAULT_CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../configs/breakout_lean_dqn_config.py')


def evaluate(config: str, load_path: str, seed: int, episodes: int, replay_path: Optional[str] = None) -> List[float]:
    """
    Overview:
        Play full games with a trained policy.
    Arguments:
        - config (:obj:`str`): Path of the config that the checkpoint was trained with.
        - load_path (:obj:`str`): Path of the checkpoint.
        - seed (:obj:`int`): Seed of the games.
        - episodes (:obj:`int`): How many games.
        - replay_path (:obj:`Optional[str]`): Folder for videos, one a game.
    Returns:
        - scores (:obj:`List[float]`): The score of each game.
    Raises:
        - click.ClickException: If the config is wrong.
        - ValueError, OSError: If the checkpoint is damaged or of another network, or the videos cannot be written.
    """
    cfg = checked_config(config, seed)
    weights, _ = read_weights(load_path)  # a checkpoint is data, nothing in it is run
    env_class, _, evaluator_cfgs = get_vec_env_setting(cfg.env, collect=False)
    env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in evaluator_cfgs[:episodes]])
    # dynamic: each game of an environment differs from its last one
    env.seed(seed, dynamic_seed=True)
    if replay_path is not None:
        env.enable_save_replay(replay_path)
    set_pkg_seed(seed, use_cuda=cfg.policy.cuda)
    policy = create_policy(cfg.policy, enable_field=['eval'])
    try:
        policy.eval_mode.load_state_dict(dict(model=weights))
    except RuntimeError as error:  # PyTorch's, which lists each weight
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f'{load_path} is of another network than that of {config}: {reason}') from None

    # Each environment plays its share of the games: the first N to end would favour short games, which score less.
    share = [episodes // env.env_num + (i < episodes % env.env_num) for i in range(env.env_num)]
    scores: List[List[float]] = [[] for _ in range(env.env_num)]
    env.launch()
    try:
        while any(len(done) < wanted for done, wanted in zip(scores, share)):
            obs = {i: o for i, o in env.ready_obs.items() if len(scores[i]) < share[i]}
            if not obs:  # the environments with games left to play are resetting
                time.sleep(0.001)
                continue
            actions = policy.eval_mode.forward(to_tensor(obs))
            timesteps = env.step({i: to_ndarray(output['action']) for i, output in actions.items()})
            for i, timestep in timesteps.items():
                if timestep.done:
                    scores[i].append(float(timestep.info['eval_episode_return']))
    finally:
        env.close()
    return [score for done in scores for score in done]


@click.command(cls=Program, context_settings=dict(help_option_names=['-h', '--help'], show_default=True))
@click.option('-c', '--config', default=DEFAULT_CONFIG, type=click.Path(exists=True, dir_okay=False), help='A config.')
@click.option('--load-path', required=True, type=click.Path(exists=True, dir_okay=False), help='Checkpoint.')
@click.option('-s', '--seed', default=0, type=SEED, help='Seed of the games.')
@click.option('-n', '--episodes', default=8, type=click.IntRange(1, 1_000_000), help='Full games to play.')
@click.option('--replay-path', type=click.Path(file_okay=False), help='Folder for videos, one a game.')
def main(config: str, load_path: str, seed: int, episodes: int, replay_path: Optional[str]) -> None:
    """Evaluate a DQN checkpoint on Breakout."""
    try:
        scores = evaluate(config, load_path, seed, episodes, replay_path)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f'scores: {" ".join(f"{score:g}" for score in scores)}')
    click.echo(f'mean {np.mean(scores):.2f}, std {np.std(scores):.2f}, over {len(scores)} games')


if __name__ == '__main__':
    main()
