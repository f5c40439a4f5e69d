"""
How much memory a transition takes in DI-engine's stock replay buffer, filled by random play through our real config.

Prints the growth of this process per transition for uint8 and float32 observations, each in a process of its own; the
size of the buffer in ``configs/breakout_dqn_config.py`` comes from it.
"""

import os
import subprocess
import sys

import click
import psutil

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = os.path.join(HERE, os.pardir, 'configs', 'breakout_dqn_config.py')


def measure(obs_dtype: str, transitions: int) -> float:
    """
    Overview:
        Fill the buffer and see by how much the process grew.
    Arguments:
        - obs_dtype (:obj:`str`): ``uint8`` or ``float32``.
        - transitions (:obj:`int`): How many to collect.
    Returns:
        - bytes_a_transition (:obj:`float`): Growth of resident memory in bytes, per transition.
    """
    from functools import partial

    from ding.config import compile_config, read_config
    from ding.entry.utils import random_collect
    from ding.envs import create_env_manager, get_vec_env_setting
    from ding.policy import create_policy
    from ding.worker import BaseLearner, BaseSerialCommander, create_buffer, create_serial_collector
    from easydict import EasyDict

    cfg, create_cfg = read_config(CONFIG)
    cfg.env.obs_dtype = obs_dtype
    cfg.policy.random_collect_size = transitions
    if obs_dtype == 'float32':
        cfg.policy.model = EasyDict(obs_shape=[4, 84, 84], action_shape=4)  # DI-engine's own does not scale
    create_cfg.policy.type += '_command'
    cfg = compile_config(cfg, seed=0, auto=True, create_cfg=create_cfg, save_cfg=False)
    env_class, env_cfgs, _ = get_vec_env_setting(cfg.env)
    env = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in env_cfgs])
    env.seed(0)
    policy = create_policy(cfg.policy, enable_field=['learn', 'collect', 'eval', 'command'])
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, None, exp_name=cfg.exp_name)
    collector = create_serial_collector(
        cfg.policy.collect.collector, env=env, policy=policy.collect_mode, tb_logger=None, exp_name=cfg.exp_name
    )
    buffer = create_buffer(cfg.policy.other.replay_buffer, tb_logger=None, exp_name=cfg.exp_name)
    commander = BaseSerialCommander(cfg.policy.other.commander, learner, collector, None, buffer, policy.command_mode)
    before = psutil.Process().memory_info().rss
    random_collect(cfg.policy, policy, collector, env, commander, buffer)
    grown = psutil.Process().memory_info().rss - before
    assert buffer.count() >= transitions, buffer.count()
    collector.close()
    return grown / buffer.count()


@click.command(context_settings=dict(help_option_names=['-h', '--help']))
@click.option('--transitions', default=20_000, show_default=True, type=click.IntRange(min=1), help='How many to keep.')
@click.option('--only', type=click.Choice(['uint8', 'float32']), help='Measure this one, in this process.')
def main(transitions: int, only: str) -> None:
    """Memory of a transition in DI-engine's stock buffer."""
    if only:
        per_transition = measure(only, transitions)
        click.echo(f'{only}: {per_transition:,.0f} bytes a transition, {per_transition * 3e5 / 1e9:.1f} GB for 300,000')
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:  # DI-engine writes its logs into the current folder
        for obs_dtype in ('uint8', 'float32'):
            command = [sys.executable, os.path.abspath(__file__), '--only', obs_dtype]
            output = subprocess.run(
                [*command, '--transitions', str(transitions)], cwd=folder, check=True, capture_output=True, text=True
            )
            click.echo(output.stdout.splitlines()[-1])


if __name__ == '__main__':
    main()
